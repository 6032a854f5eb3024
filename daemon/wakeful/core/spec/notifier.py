"""A notifier of wakeful.yaml as frozen values: where a message to a person goes, about which events, and how soon.

`specs/` builds them, `notifications/` delivers through them. A secret is a name here, never a value.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from msgspec import Struct

# A run failed for good; a person is asked; it sleeps until a person acts; a budget is spent; it works again.
NotifyEvent = Literal["failed", "asks", "sleeping", "budget", "recovered"]
NOTIFY_EVENTS: tuple[NotifyEvent, ...] = get_args(NotifyEvent)
# In a session's spec: nobody is told.
NOBODY = "none"


class CommandChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A program that gets the message as JSON on standard input."""

    argv: tuple[str, ...]


class WebhookChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="webhook"):
    """An address that gets the message as JSON, signed by Standard Webhooks with `secret`."""

    url: str
    secret: str


class EmailChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="email"):
    """`server` is smtp://HOST:PORT (STARTTLS) or smtps://HOST:PORT. `secret` is the password of `user`."""

    to: tuple[str, ...]
    sender: str
    server: str
    user: str | None = None
    secret: str | None = None
    # False: a server without TLS is used all the same.
    is_tls_needed: bool = True


class NtfyChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="ntfy"):
    """A topic of ntfy; `secret` is an access token."""

    url: str
    secret: str | None = None


class UrlChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="url"):
    """Any address. `{secret}` in the address or a header stands for the secret; else it is sent as a bearer token.

    `body` None: the same JSON that a webhook gets. Otherwise `body` is sent with its placeholders filled in.
    """

    url: str
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str] = {}
    secret: str | None = None
    body: Any = None


class DesktopChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="desktop"):
    """The desktop of the daemon's user, by notify-send."""


Channel = CommandChannel | WebhookChannel | EmailChannel | NtfyChannel | UrlChannel | DesktopChannel


class Notifier(Struct, frozen=True, kw_only=True):
    """`digest_seconds`: messages are gathered so long and sent as one; None: each is sent at once, floods aside."""

    name: str
    channel: Channel
    events: tuple[NotifyEvent, ...] = NOTIFY_EVENTS
    digest_seconds: float | None = None


def show_address(url: str) -> str:
    """An address without its path: the topic of ntfy, or the end of a webhook's address, is often a secret itself."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}"


def name_kind(channel: Channel) -> str:
    """The key of the channel in wakeful.yaml."""
    return str(type(channel).__struct_config__.tag)


def say_target(channel: Channel) -> str:
    """The destination of messages, in words without a secret."""
    match channel:
        case CommandChannel(argv=argv):
            return " ".join(argv)
        case WebhookChannel(url=url) | NtfyChannel(url=url) | UrlChannel(url=url):
            return show_address(url)
        case EmailChannel(to=to):
            return ", ".join(to)
        case DesktopChannel():
            return "notify-send"

"""A notifier of wakeful.yaml as frozen values: its channel to a person, the events it is for, and its delay.

`specs/` builds notifiers, `notifications/` delivers messages with them. A secret is a name here, never a value.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from msgspec import Struct

# Events that people are notified of, in this order: a run failed for good, a session asks a person, it sleeps until a
# person acts, its budget is spent, it works again.
NotifyEvent = Literal["failed", "asks", "sleeping", "budget", "recovered"]
NOTIFY_EVENTS: tuple[NotifyEvent, ...] = get_args(NotifyEvent)
# The word in a session's spec that turns notifications off.
NOBODY = "none"


class CommandChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A program that gets the message as JSON on standard input."""

    argv: tuple[str, ...]


class WebhookChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="webhook"):
    """An address that gets the message as JSON, signed by Standard Webhooks with `secret`."""

    url: str
    secret: str


class EmailChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="email"):
    """Mail over SMTP.

    `server` is smtp://HOST:PORT (STARTTLS) or smtps://HOST:PORT. `secret` is the password of `user`.
    """

    to: tuple[str, ...]
    sender: str
    server: str
    user: str | None = None
    secret: str | None = None
    # False if a server without TLS may be used.
    is_tls_needed: bool = True


class NtfyChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="ntfy"):
    """A topic of ntfy; `secret` is an access token."""

    url: str
    secret: str | None = None


class UrlChannel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="url"):
    """Any address. `{secret}` in the address or a header stands for the secret; else it is sent as a bearer token.

    If `body` is None, the JSON of a webhook is sent. Otherwise `body` is sent with its placeholders filled in.
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
    """A notifier as declared. With `digest_seconds`, the messages of that time are sent as one. None sends each message
    at once, unless there are too many."""

    name: str
    channel: Channel
    events: tuple[NotifyEvent, ...] = NOTIFY_EVENTS
    digest_seconds: float | None = None


def show_address(url: str) -> str:
    """Return an address without its path, because a topic of ntfy or the path of a webhook is often a secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}"


def name_kind(channel: Channel) -> str:
    """Return the key of the channel in wakeful.yaml."""
    return str(type(channel).__struct_config__.tag)


def say_target(channel: Channel) -> str:
    """Describe the destination of messages, without secrets."""
    match channel:
        case CommandChannel(argv=argv):
            return " ".join(argv)
        case WebhookChannel(url=url) | NtfyChannel(url=url) | UrlChannel(url=url):
            return show_address(url)
        case EmailChannel(to=to):
            return ", ".join(to)
        case DesktopChannel():
            return "notify-send"

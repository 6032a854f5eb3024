"""Builds the notifiers of wakeful.yaml from valid keys, and checks the rules between keys. Called by settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wakeful.core.spec.notifier import (
    NOTIFY_EVENTS,
    Channel,
    CommandChannel,
    DesktopChannel,
    EmailChannel,
    Notifier,
    NtfyChannel,
    UrlChannel,
    WebhookChannel,
)
from wakeful.specs.notify_scalars import find_notifier_name_problem
from wakeful.specs.problem import RefusedSpec, refuse
from wakeful.specs.settings_models import EmailKeys, NotifierKeys
from wakeful.specs.yaml_text import Marks

# A notifier has exactly one of these keys.
KINDS = ("command", "webhook", "email", "ntfy", "url", "desktop")
# Key -> the kinds of notifier that may have it.
_OWN_KEYS = {
    "secret": ("webhook", "ntfy", "url"),
    "method": ("url",),
    "headers": ("url",),
    "body": ("url",),
}
SECRET_PLACE = "{secret}"
_DEEPEST_BODY = 8


def build_notifiers(keys: Mapping[str, NotifierKeys], marks: Marks, file: str) -> tuple[Notifier, ...]:
    """Build the notifiers. Raises RefusedSpec for the first invalid one."""
    return tuple(_build(name, one, marks, file) for name, one in keys.items())


def _build(name: str, keys: NotifierKeys, marks: Marks, file: str) -> Notifier:
    path = ("notify", name)

    def refuse_key(words: str, key: str | None = None) -> RefusedSpec:
        where = marks.of_key((*path, key)) if key is not None else marks.of_key(path)
        return refuse(file, *where, words)

    if (problem := find_notifier_name_problem(name)) is not None:
        raise refuse_key(problem)
    found = [kind for kind in KINDS if getattr(keys, kind) not in (None, False)]
    if len(found) != 1:
        told = f"has {len(found)} kinds ({', '.join(found)}); split it into one each" if found else "has no kind"
        raise refuse_key(f"notifier '{name}' {told}; a notifier has exactly one of {', '.join(KINDS)}")
    kind = found[0]
    for key, owners in _OWN_KEYS.items():
        if getattr(keys, key) is not None and kind not in owners:
            advice = "; put it under email" if kind == "email" and key == "secret" else "; remove it"
            raise refuse_key(f"'{key}' belongs to {' and '.join(owners)}, and notifier '{name}' is {kind}{advice}", key)
    if kind == "webhook" and keys.secret is None:
        words = (
            f"notifier '{name}' signs what it sends: name its secret, such as secret: {name}-key, and set it with "
            f"wakeful secret set {name}-key; for an address that checks no signature use url"
        )
        raise refuse_key(words, "webhook")
    if kind == "email" and keys.email is not None and (keys.email.user is None) != (keys.email.secret is None):
        raise refuse_key(f"notifier '{name}' needs user and secret together: one logs in with both", "email")
    if kind != "url":
        for key in ("webhook", "ntfy"):
            if SECRET_PLACE in (getattr(keys, key) or ""):
                raise refuse_key(f"{SECRET_PLACE} belongs in url alone; {key} sends its secret in a header", key)
    if kind == "url" and SECRET_PLACE in _list_places(keys) and keys.secret is None:
        raise refuse_key(f"notifier '{name}' says {SECRET_PLACE}, and names no secret; add secret: NAME", "url")
    if (wrong := _find_body_problem(keys.body)) is not None:
        raise refuse_key(f"notifier '{name}': {wrong}", "body")
    return Notifier(
        name=name,
        channel=_build_channel(kind, keys),
        events=tuple(one for one in NOTIFY_EVENTS if keys.on is None or one in keys.on),
        digest_seconds=keys.digest,
    )


def _list_places(keys: NotifierKeys) -> str:
    return " ".join((keys.url or "", *(keys.headers or {}).values()))


def _find_body_problem(body: Any, depth: int = 0) -> str | None:
    match body:
        case None | str():
            return None
        case _ if depth > _DEEPEST_BODY:
            return "body is nested too deep"
        case dict():
            return next((wrong for one in body.values() if (wrong := _find_body_problem(one, depth + 1))), None)
        case list():
            return next((wrong for one in body if (wrong := _find_body_problem(one, depth + 1))), None)
        case _:
            return "body is text, a list, or names and values"


def _build_channel(kind: str, keys: NotifierKeys) -> Channel:
    match kind:
        case "command":
            return CommandChannel(argv=keys.command or ())
        case "webhook":
            return WebhookChannel(url=keys.webhook or "", secret=keys.secret or "")
        case "email":
            assert keys.email is not None
            return _build_email(keys.email)
        case "ntfy":
            return NtfyChannel(url=keys.ntfy or "", secret=keys.secret)
        case "url":
            return UrlChannel(
                url=keys.url or "",
                method=keys.method or "POST",
                headers=dict(keys.headers or {}),
                secret=keys.secret,
                body=keys.body,
            )
        case _:
            return DesktopChannel()


def _build_email(keys: EmailKeys) -> EmailChannel:
    return EmailChannel(
        to=keys.to,
        sender=keys.from_,
        server=keys.server,
        user=keys.user,
        secret=keys.secret,
        is_tls_needed=keys.tls,
    )

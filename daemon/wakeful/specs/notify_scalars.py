"""Parses the values of `notify`: addresses, mail servers, headers, events, names of notifiers.

As in `value_parsers`, each function takes the text of a scalar, and returns a typed value or raises ValueError with a
message.
"""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from wakeful.core.spec.notifier import NOBODY, NOTIFY_EVENTS, NotifyEvent
from wakeful.core.spec.session import SECRET_NAME
from wakeful.specs.yaml_text import shorten

_NOTIFY_URL = re.compile(r"https?://([^/\s?#]+)([/?][^\s#]*)?")
_MAIL_SERVER = re.compile(r"smtps?://(?:\[[0-9a-fA-F:.]+\]|[^/:@\s\[\]]+)(?::(\d{1,5}))?/?")
# Mail addresses, without comments and quoted parts.
_MAIL_ADDRESS = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w.-]{1,253}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_NOTIFIER_NAME = re.compile(SECRET_NAME)


def parse_notify_url(value: Any) -> str:
    text = _read_text(value, "an address such as https://hooks.example.org/wakeful")
    found = _NOTIFY_URL.fullmatch(text)
    if found is None:
        raise ValueError(f"'{shorten(text)}' is not an address; write http://HOST/PATH or https://HOST/PATH")
    if "@" in found[1]:
        raise ValueError("an address holds no password; name the secret under secret")
    return text


def parse_mail_server(value: Any) -> str:
    text = _read_text(value, "a mail server such as smtp://mail.example.org:587")
    found = _MAIL_SERVER.fullmatch(text)
    if found is None or not 0 < int(found[1] or 25) < 65536:
        raise ValueError(
            f"'{shorten(text)}' is not a mail server; write smtp://HOST:PORT (TLS by STARTTLS) or smtps://HOST:PORT"
        )
    return text


def parse_mail_address(value: Any) -> str:
    text = _read_text(value, "an address such as ops@example.org")
    if _MAIL_ADDRESS.fullmatch(text) is None:
        raise ValueError(f"'{shorten(text)}' is not an e-mail address; write NAME@HOST")
    return text


def parse_mail_addresses(value: Any) -> tuple[str, ...]:
    addresses = [value] if isinstance(value, str) else value
    if not isinstance(addresses, list) or not addresses:
        raise ValueError("expected one e-mail address, or a list of them")
    return tuple(dict.fromkeys(map(parse_mail_address, addresses)))


def parse_headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected names and values such as {X-Team: ops}")
    for name, text in value.items():
        if _HEADER_NAME.fullmatch(name) is None:
            raise ValueError(f"'{shorten(name)}' cannot be a header; write a name such as X-Team")
        if not isinstance(text, str) or _HEADER_VALUE.fullmatch(text) is None:
            raise ValueError(f"header '{shorten(name)}' is one line of ASCII text; put quotes around it")
    return value


def parse_notify(value: Any) -> tuple[str, ...]:
    """Parse the notifiers of a session. `none` means that nothing is sent."""
    if value == NOBODY:
        return ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(
        isinstance(name, str) and find_notifier_name_problem(name) is None for name in names
    ):
        raise ValueError("expected none, or a list of notifiers of wakeful.yaml such as [ops]")
    return tuple(dict.fromkeys(names))


def parse_events(value: Any) -> tuple[str, ...]:
    events = [value] if isinstance(value, str) else value
    expected = f"expected some of {', '.join(NOTIFY_EVENTS)}"
    if not isinstance(events, list) or not events or not all(isinstance(event, str) for event in events):
        raise ValueError(expected)
    for event in events:
        if event not in NOTIFY_EVENTS:
            near = difflib.get_close_matches(event, NOTIFY_EVENTS, 1)
            advice = f"did you mean '{near[0]}'?" if near else expected
            raise ValueError(f"'{shorten(event)}' is not known; {advice}")
    return tuple(dict.fromkeys(events))


def find_notifier_name_problem(name: str) -> str | None:
    """Explain why a notifier cannot have this name. None if it can."""
    if name == NOBODY:
        return "'none' means no notifier in a session's `notify`; choose another name"
    if _NOTIFIER_NAME.fullmatch(name) is None:
        return f"'{shorten(name)}' cannot name a notifier; use letters, digits, '_', '-' and '.', a letter first"
    return None


def _read_text(value: Any, expected: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"expected {expected}, found {'a list' if isinstance(value, list) else 'keys and values'}")


def _typed(parse: Any, schema: dict[str, Any]) -> Any:
    return BeforeValidator(parse), WithJsonSchema(schema)


_WORDS_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_TEXT_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}

NotifyUrl = Annotated[str, *_typed(parse_notify_url, {"type": "string", "pattern": "^https?://"})]
MailServer = Annotated[str, *_typed(parse_mail_server, {"type": "string", "pattern": "^smtps?://"})]
MailAddress = Annotated[str, *_typed(parse_mail_address, {"type": "string", "pattern": "@"})]
MailAddresses = Annotated[tuple[str, ...], *_typed(parse_mail_addresses, _WORDS_SCHEMA)]
Headers = Annotated[dict[str, str], *_typed(parse_headers, {"type": "object", "additionalProperties": _TEXT_SCHEMA})]
NotifyEvents = Annotated[
    tuple[NotifyEvent, ...],
    *_typed(
        parse_events,
        {
            "anyOf": [
                {"enum": list(NOTIFY_EVENTS)},
                {"type": "array", "items": {"enum": list(NOTIFY_EVENTS)}, "minItems": 1},
            ]
        },
    ),
]
NotifierNames = Annotated[tuple[str, ...], *_typed(parse_notify, _WORDS_SCHEMA)]

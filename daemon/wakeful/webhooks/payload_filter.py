"""The payload of a delivery: parsed as JSON, also from a form, and checked against the filter of its binding.

Pure functions. A payload comes from outside, so its contents are only compared and stored, never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

# This filter path means the sender's name of the event, not a field of the payload.
EVENT = "event"
MOST_FIELDS = 1_000
_FORM = "application/x-www-form-urlencoded"
# The field of a form in which GitHub, and Slack after the press of a button, send their JSON.
_FIELD = "payload"
_LONGEST_SHOWN = 80


class Payload(NamedTuple):
    """The content that a run gets as a file, the suffix of its name, and the parsed document. The document is None if
    the content is not JSON."""

    content: bytes
    suffix: str
    document: Any


def read_payload(body: bytes, content_type: str) -> Payload:
    """Read a payload. A form becomes JSON; everything else stays as it was sent."""
    if content_type.partition(";")[0].strip().lower() == _FORM:
        return _read_form(body)
    document = _decode(body)
    if document is not None:
        return Payload(body, ".json", document)
    try:
        body.decode()
    except UnicodeDecodeError:
        return Payload(body, ".bin", None)
    return Payload(body, ".txt", None)


def find_mismatch(only: Mapping[str, Sequence[str]], event: str | None, document: Any) -> str | None:
    """Describe the part of the filter that a delivery does not match. None if it matches."""
    for path, expected in only.items():
        found = [event] if path == EVENT and event is not None else list(_find_values(document, path.split(".")))
        texts = [_say(value) for value in found]
        if not any(text in expected for text in texts):
            shown = ", ".join(_shorten(text) for text in texts[:3]) or "not there"
            return f"{path} is {shown}, and only {' or '.join(expected)} counts"
    return None


def _read_form(body: bytes) -> Payload:
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return Payload(body, ".bin", None)
    inner = fields.get(_FIELD, [])
    document = _decode(inner[0].encode()) if len(inner) == 1 else None
    if document is not None:
        return Payload(inner[0].encode(), ".json", document)
    plain = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    return Payload(msgspec.json.encode(plain), ".json", plain)


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _find_values(document: Any, steps: list[str]) -> Iterator[Any]:
    """Find the values at a path. If there is a list on the path, all of its items are searched, unless the path has an
    index."""
    if isinstance(document, list):
        if steps and steps[0].isascii() and steps[0].isdigit():
            if int(steps[0]) < len(document):
                yield from _find_values(document[int(steps[0])], steps[1:])
            return
        for one in document:
            yield from _find_values(one, steps)
    elif not steps:
        yield document
    elif isinstance(document, dict) and steps[0] in document:
        yield from _find_values(document[steps[0]], steps[1:])


def _say(value: Any) -> str:
    """Return a text as it is, and any other value as JSON: `true`, `17`, `null`."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"

"""Read server-sent events as a browser does."""

import http.client
import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Event:
    event: str
    id: str | None
    data: Any


def read_event(answer: http.client.HTTPResponse) -> Event:
    """Return the next event. Comments in between are skipped."""
    fields: dict[str, str] = {}
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        text = line.decode().rstrip("\n")
        if not text and "data" in fields:
            return Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
        name, _, value = text.partition(": ")
        if name:
            fields[name] = value


def read_until(answer: http.client.HTTPResponse, event: str) -> Event:
    while True:
        found = read_event(answer)
        if found.event == event:
            return found

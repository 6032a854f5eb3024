"""A message to a person: its title and text, the record it is about, the command that shows more, and a link. Pure.

Every channel sends the same message in its own form: JSON for programs, text for people, or a body that the user wrote,
with placeholders. A `Sender` makes one attempt to send a message by its channel. The result of the attempt decides
whether the message is delivered, tried again, or given up.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Protocol
from urllib.parse import quote

from msgspec import Struct

from wakeful.core.spec.notifier import Channel
from wakeful.notifications.ledger import Delivery
from wakeful.notifications.notices import Notice
from wakeful.text.display import count
from wakeful.views.times import say_time, show_time

# The most notices that a digest lists. The rest is counted.
MOST_LISTED = 50
# The most seconds of one attempt.
ATTEMPT_SECONDS = 20.0


class Message(Struct, frozen=True, kw_only=True):
    """A message. `id` is the same for every attempt. `data` has further fields for programs."""

    id: str
    notifier: str
    # An event of a session, `digest` or `test`.
    event: str
    title: str
    words: str
    look: str
    link: str | None
    at: int
    data: dict[str, Any]

    @property
    def is_urgent(self) -> bool:
        return self.event in ("failed", "asks", "sleeping")


def make_message(delivery: Delivery, notifier: str, host: str, dashboard_url: str | None) -> Message:
    """Make the message of a delivery. `dashboard_url` is the URL of the dashboard, such as http://127.0.0.1:8420, or
    None for no link."""
    if len(delivery.notices) == 1 and not delivery.missed:
        return _make_single(delivery, delivery.notices[0], notifier, host, dashboard_url)
    return _make_digest(delivery, notifier, host, dashboard_url)


def make_test(message_id: str, notifier: str, host: str, dashboard_url: str | None, now: int) -> Message:
    words = f"wakeful on {host} reaches you by the notifier {notifier}. Nothing happened: a person requested this test."
    data = {"host": host, "items": []}
    return Message(
        id=message_id,
        notifier=notifier,
        event="test",
        title="wakeful: a test",
        words=words,
        look="wakeful notify list",
        link=dashboard_url,
        at=now,
        data=data,
    )


def _make_single(delivery: Delivery, notice: Notice, notifier: str, host: str, dashboard_url: str | None) -> Message:
    link = find_link(dashboard_url, notice)
    return Message(
        id=delivery.id,
        notifier=notifier,
        event=notice.event,
        title=notice.title,
        words=_say_times(notice),
        look=find_look(notice),
        link=link,
        at=notice.at,
        data={**_describe(notice, dashboard_url), "host": host},
    )


def _make_digest(delivery: Delivery, notifier: str, host: str, dashboard_url: str | None) -> Message:
    notices = delivery.notices
    kinds = Counter(one.event for one in notices)
    told = ", ".join(f"{number} {event}" for event, number in kinds.items())
    lines = [f"{say_time(one.at)} {one.title}: {_say_times(one)} ({find_look(one)})" for one in notices[:MOST_LISTED]]
    rest = len(notices) - MOST_LISTED
    if rest > 0:
        lines.append(f"and {rest} more")
    if delivery.missed:
        lines.append(f"and {count(delivery.missed, 'message')} that did not fit")
    return Message(
        id=delivery.id,
        notifier=notifier,
        event="digest",
        title=f"wakeful: {count(len(notices) + delivery.missed, 'message')} ({told})",
        words="\n".join(lines),
        look="wakeful list",
        link=dashboard_url,
        at=delivery.made_at,
        data={"items": [_describe(one, dashboard_url) for one in notices[:MOST_LISTED]], "host": host},
    )


def _say_times(notice: Notice) -> str:
    return notice.words if notice.times == 1 else f"{notice.words} ({notice.times} times)"


def _describe(notice: Notice, dashboard_url: str | None) -> dict[str, Any]:
    return {
        "event": notice.event,
        "session": notice.name,
        "session_id": notice.session,
        "seq": notice.seq,
        "run": notice.run,
        "at": show_time(notice.at),
        "times": notice.times,
        "title": notice.title,
        "words": notice.words,
        "look": find_look(notice),
        "link": find_link(dashboard_url, notice),
    }


def find_look(notice: Notice) -> str:
    return f"wakeful why {notice.name}"


def find_link(dashboard_url: str | None, notice: Notice) -> str | None:
    if dashboard_url is None:
        return None
    return f"{dashboard_url}/#/session/{quote(notice.name, safe='')}?at={notice.seq}"


# -- forms ----------------------------------------------------------------------------------------


def as_document(message: Message) -> dict[str, Any]:
    """Return the message in the form that Standard Webhooks suggests: type, timestamp and data."""
    return {
        "type": f"wakeful.{message.event}",
        "timestamp": show_time(message.at),
        "data": {
            **message.data,
            "id": message.id,
            "notifier": message.notifier,
            "event": message.event,
            "title": message.title,
            "words": message.words,
            "look": message.look,
            "link": message.link,
        },
    }


def as_json(message: Message) -> bytes:
    return json.dumps(as_document(message), ensure_ascii=False).encode()


def as_text(message: Message) -> str:
    """Return the text of the message, followed by the command that shows more and the link."""
    return "\n".join((message.words, "", f"Look: {message.look}", *((message.link,) if message.link else ())))


def fill(body: Any, message: Message) -> Any:
    """Fill in the placeholders of a body that the user wrote. Placeholders inside a value that is filled in are not
    replaced."""
    values = {
        "title": message.title,
        "words": message.words,
        "session": str(message.data.get("session") or ""),
        "event": message.event,
        "seq": str(message.data.get("seq") or ""),
        "look": message.look,
        "link": message.link or "",
        "id": message.id,
    }
    match body:
        case str():
            return fill_text(body, values)
        case dict():
            return {name: fill(one, message) for name, one in body.items()}
        case list():
            return [fill(one, message) for one in body]
        case _:
            return body


def fill_text(text: str, values: dict[str, str]) -> str:
    """Replace {name} for the known names, in one pass. Other braces stay."""
    parts: list[str] = []
    rest = text
    while rest:
        before, brace, after = rest.partition("{")
        parts.append(before)
        if not brace:
            break
        name, closed, tail = after.partition("}")
        if closed and name in values:
            parts.append(values[name])
            rest = tail
        else:
            parts.append("{")
            rest = after
    return "".join(parts)


def variables_of(message: Message) -> dict[str, str]:
    """Return the environment variables with which a command gets the message."""
    found = {
        "ID": message.id,
        "EVENT": message.event,
        "TITLE": message.title,
        "WORDS": message.words,
        "SESSION": str(message.data.get("session") or ""),
        "SEQ": str(message.data.get("seq") or ""),
        "LOOK": message.look,
        "LINK": message.link or "",
    }
    return {f"WAKEFUL_NOTIFY_{name}": value.replace("\0", "") for name, value in found.items()}


class Delivered(Struct, frozen=True):
    """The receiver accepted the message. `words` describes its answer."""

    words: str


class Refused(Struct, frozen=True):
    """The message was not accepted, but may be later. `retry_after`: seconds that the receiver asks us to wait."""

    words: str
    retry_after: float | None = None


class Gone(Struct, frozen=True):
    """The receiver wants no more messages."""

    words: str


Sent = Delivered | Refused | Gone


class Sender(Protocol):
    async def send(self, channel: Channel, message: Message) -> Sent:
        """Make one attempt, within its time limit. Raises nothing except a cancellation."""
        ...

"""Finds the last answer to a question of a session, for a person who answers second, and for `why`. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from wakeful.api.service import Service
from wakeful.core.calls import values as calls
from wakeful.core.calls.lifecycle import NothingAsked
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.views.times import say_time

# The most records searched for an answer.
MOST_ANSWERS = 20


class LastAnswer(Struct, frozen=True):
    """The answer to the last question of a session: its author, time, text and reason."""

    author: str
    at: int
    text: str
    rationale: str | None

    @property
    def words(self) -> str:
        who = self.author.removeprefix("person:")
        because = f": {self.rationale}" if self.rationale else ""
        return f"{who} said {self.text} at {say_time(self.at)}{because}"


def find_last_answer(log: LogReader, session: Session) -> LastAnswer | None:
    """Find the newest answer of a person, or of the daemon if no person answered in time. Blocking."""
    kinds = ("question_answered", "wake_withdrawn")
    for record in log.read(session.id, kinds=kinds, newest_first=True, limit=MOST_ANSWERS):
        found = read_answer(record)
        if found is not None:
            return found
    return None


def read_answer(record: Record) -> LastAnswer | None:
    """Read the answer in a record. None if the record has none."""
    match decode(record.kind, record.payload) if record.payload is not None else None:
        case ev.QuestionAnswered(text=text, rationale=rationale):
            return LastAnswer(record.author, record.at, text, rationale)
        case ev.WakeWithdrawn(reason=reason, rationale=rationale) if reason.startswith("refused by "):
            return LastAnswer(record.author, record.at, "no", rationale)
    return None


@asynccontextmanager
async def tell_first(service: Service, call: calls.Answer) -> AsyncIterator[None]:
    """Refuse a second answer with a CallerError that names the person who answered first, and their answer."""
    try:
        yield
    except NothingAsked as refusal:
        session = service.core.state.by_name(call.name)
        await service.recorded_so_far()
        last = await asyncio.to_thread(find_last_answer, service.log, session)
        if last is None:
            raise
        raise CallerError(f"{call.name} asks nothing any more: {last.words}") from refusal

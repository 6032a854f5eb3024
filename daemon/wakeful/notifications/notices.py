"""Selects the records that people are notified of, and makes the text of each notice. Pure.

A notice is about one record of one session. `find_news` selects the records. The ledger of each notifier (ledger.py)
decides whether a notice is sent.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.record import events as ev
from wakeful.core.spec.notifier import NotifyEvent
from wakeful.eventlog.codec import KINDS
from wakeful.text.display import count, escape

# The kinds of record that are read. People are not notified of other kinds.
NOTED_KINDS = tuple(KINDS[kind] for kind in (ev.RunFinished, ev.SessionSlept, ev.SessionTerminated, ev.SpecRemoved))
# The holds that are reported as `sleeping`, because they last until a person acts. `failed` is left out, because the
# failed run itself is reported. A hold that a person requested is left out, because that person knows it.
_HELD = ("crashing", "loop")
LONGEST_WORDS = 1500
_TITLES: dict[NotifyEvent, str] = {
    "failed": "{name} failed",
    "asks": "{name} asks you",
    "sleeping": "{name} sleeps until a person acts",
    "budget": "{name} has spent its budget",
    "recovered": "{name} works again",
}


class Notice(Struct, frozen=True, kw_only=True):
    """One piece of news about a session. `seq` is the record it is about, `at` the time of it in microseconds."""

    event: NotifyEvent
    session: str
    name: str
    seq: int
    at: int
    words: str
    run: int | None = None
    # How often the event happened before the message was made.
    times: int = 1

    @property
    def title(self) -> str:
        return _TITLES[self.event].format(name=self.name)


class Ending(Struct, frozen=True):
    """The end of a session's trouble: its run succeeded, or the session was terminated or undeclared."""

    is_success: bool
    run: int | None = None


News = tuple[Literal["failed", "asks", "sleeping", "budget"], str, int | None]


def find_news(event: ev.Event) -> News | Ending | None:
    """Find the news in a record: a reported event with its text and run, or the end of a trouble. None if the record is
    not news.
    """
    match event:
        case ev.RunFinished(outcome="failed", is_final=True, run=run, reason=reason, hint=hint):
            words = f"run {run} failed" + (f": {reason}" if reason else "") + (f"; {hint}" if hint else "")
            return "failed", words, run
        case ev.RunFinished(outcome="succeeded", run=run):
            return Ending(is_success=True, run=run)
        case ev.SessionSlept(hold=hold) if hold.kind == "asking":
            return "asks", hold.words, None
        case ev.SessionSlept(hold=hold) if hold.kind == "budget":
            return "budget", hold.words, None
        case ev.SessionSlept(hold=hold) if hold.kind in _HELD:
            return "sleeping", hold.words, None
        case ev.SessionTerminated() | ev.SpecRemoved():
            return Ending(is_success=False)
        case _:
            return None


def say_readers(readers: int) -> str:
    """Describe how many sessions wait for a failed session. No message is sent about the waiting sessions."""
    return f"; {count(readers, 'session')} after it wait{'s' if readers == 1 else ''} for it" if readers else ""


def shorten(text: str) -> str:
    """Make one printable line of limited length from the text of a run or an agent."""
    shown = escape(text[: LONGEST_WORDS + 1])
    return shown[: LONGEST_WORDS - 1] + "…" if len(shown) > LONGEST_WORDS else shown

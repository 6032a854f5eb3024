"""Which records of the log are a person's business, and what is said about them. Pure.

A notice is about one record of one session. `find_notice` names the kinds that count; the ledger of each notifier
decides whether its people are told (ledger.py).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.record import events as ev
from wakeful.core.spec.notifier import NotifyEvent
from wakeful.eventlog.codec import KINDS
from wakeful.text.display import count, escape

# The only kinds that are read: a record of another kind is nobody's news.
NOTED_KINDS = tuple(KINDS[kind] for kind in (ev.RunFinished, ev.SessionSlept, ev.SessionTerminated, ev.SpecRemoved))
# A session that sleeps by these holds does not go on before a person acts. A failed run is told when it fails,
# and those who put a session to sleep themselves know it.
_HELD = ("crashing", "loop")
LONGEST_WORDS = 1500
_TITLES: dict[NotifyEvent, str] = {
    "failed": "{name} failed",
    "asks": "{name} asks you",
    "sleeping": "{name} sleeps until somebody acts",
    "budget": "{name} has spent its budget",
    "recovered": "{name} works again",
}


class Notice(Struct, frozen=True, kw_only=True):
    """One piece of news about a session, for people. `seq` is the record it is about, `at` its time in microseconds."""

    event: NotifyEvent
    session: str
    name: str
    seq: int
    at: int
    words: str
    run: int | None = None
    # The number of times it happened until the message was made.
    times: int = 1

    @property
    def title(self) -> str:
        return _TITLES[self.event].format(name=self.name)


class Ending(Struct, frozen=True):
    """A trouble of the session is over: its run succeeded, or nobody waits for it any more."""

    is_success: bool
    run: int | None = None


News = tuple[Literal["failed", "asks", "sleeping", "budget"], str, int | None]


def find_news(event: ev.Event) -> News | Ending | None:
    """The message in a record: an event with its words and its run, the end of a trouble, or nothing."""
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
    """The effect of a failure on the sessions that read its output: no message for each of them."""
    return f"; {count(readers, 'session')} after it wait{'s' if readers == 1 else ''} for it" if readers else ""


def shorten(text: str) -> str:
    """Words of a run or an agent, as one printable line of bounded length."""
    shown = escape(text[: LONGEST_WORDS + 1])
    return shown[: LONGEST_WORDS - 1] + "…" if len(shown) > LONGEST_WORDS else shown

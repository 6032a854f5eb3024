"""Runs as bars and occurrences as marks, over all sessions, for a timeline.

`Timeline` takes the records of all sessions in the order of recording and keeps the latest runs and marks, so that the
next query reads only new records. It is only a cache of the log. A mark is an occurrence that a bar alone does not
show: causes that joined an open wake, a withdrawn wake, a skipped slot, a slot that ran late, a run that failed before
it started.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from wakeful.core.record.observations import Usage
from wakeful.views.records import Exported
from wakeful.views.times import show_time, show_time_or_none

# The kinds of records that the timeline shows.
KINDS = ("run_started", "run_finished", "wake_extended", "wake_withdrawn", "slot_skipped")
MOST_KEPT = 20_000
# A clock's run that starts this much later than its slot counts as caught up.
LATE_MICROSECONDS = 60_000_000
_CAUSES_TOLD = 3

MarkWord = Literal["coalesced", "skipped", "withdrawn", "caught up", "failed before start"]


class _Path(Struct):
    path: str
    change: str


class _Cause(Struct):
    binding: str
    kind: str
    new: str | None = None
    reason: str | None = None
    paths: tuple[_Path, ...] = ()


class _Agent(Struct):
    name: str


class _Started(Struct):
    causes: tuple[_Cause, ...]
    attempt: int = 0
    agent: _Agent | None = None


class _Finished(Struct):
    outcome: str
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()


class _Extended(Struct):
    causes: tuple[_Cause, ...]


class _Withdrawn(Struct):
    reason: str


class _Skipped(Struct):
    binding: str
    slot: str
    count: int
    reason: str


_DECODERS = {
    "run_started": msgspec.json.Decoder(_Started).decode,
    "run_finished": msgspec.json.Decoder(_Finished).decode,
    "wake_extended": msgspec.json.Decoder(_Extended).decode,
    "wake_withdrawn": msgspec.json.Decoder(_Withdrawn).decode,
    "slot_skipped": msgspec.json.Decoder(_Skipped).decode,
}


class Bar(Struct):
    """One run. `finished_at` is None while it is under way."""

    session: str
    run: int
    seq: int
    started_at: int
    attempt: int = 0
    agent: str | None = None
    causes: str = ""
    finished_at: int | None = None
    outcome: str | None = None
    reason: str | None = None
    seconds: float = 0.0
    usd: float = 0.0
    tokens: int = 0


class Mark(Struct, frozen=True):
    session: str
    seq: int
    at: int
    kind: MarkWord
    words: str
    count: int = 1


class Timeline:
    """The latest bars and marks. `position` is the position in the log up to which records were taken."""

    def __init__(self) -> None:
        self.position = 0
        self._bars: OrderedDict[tuple[str, int], Bar] = OrderedDict()
        self._marks: deque[Mark] = deque(maxlen=MOST_KEPT)

    def take(self, record: Exported) -> None:
        if record.payload is None:
            return
        event = _DECODERS[record.kind](record.payload)
        match event:
            case _Started():
                self._start(record, event)
            case _Finished():
                self._finish(record, event)
            case _Extended():
                self._mark(record, "coalesced", f"joined the open wake: {say_causes(event.causes)}")
            case _Withdrawn():
                self._mark(record, "withdrawn", f"its wake was withdrawn: {event.reason}")
            case _Skipped():
                self._mark(record, "skipped", f"{event.binding}, slot {event.slot}: {event.reason}", event.count)

    def _start(self, record: Exported, event: _Started) -> None:
        if record.run is None:
            return
        self._bars[record.session, record.run] = Bar(
            session=record.session,
            run=record.run,
            seq=record.seq,
            started_at=record.at,
            attempt=event.attempt,
            agent=event.agent.name if event.agent is not None else None,
            causes=say_causes(event.causes),
        )
        if len(self._bars) > MOST_KEPT:
            self._bars.popitem(last=False)
        for cause in event.causes:
            if cause.kind in ("cron", "every") and cause.new is not None and _is_late(cause.new, record.at):
                self._mark(record, "caught up", f"{cause.binding}: slot {cause.new} ran late")

    def _finish(self, record: Exported, event: _Finished) -> None:
        bar = self._bars.get((record.session, record.run or 0))
        if bar is None:
            return
        bar.finished_at, bar.outcome, bar.reason = record.at, event.outcome, event.reason
        bar.seconds, bar.usd, bar.tokens = event.usage.wall_seconds, event.usage.usd, event.usage.tokens
        is_unstarted = event.exit_code is None and event.signal is None and not event.usage.wall_seconds
        if event.outcome == "failed" and is_unstarted:
            self._mark(record, "failed before start", event.reason or "it could not be started")

    def _mark(self, record: Exported, kind: MarkWord, words: str, count: int = 1) -> None:
        self._marks.append(Mark(record.session, record.seq, record.at, kind, words, count))

    def list_bars(self, ids: frozenset[str] | None, since: int, until: int, most: int) -> list[Bar]:
        """List the latest bars that touch the range, oldest first."""
        found = (
            bar
            for bar in reversed(self._bars.values())
            if bar.started_at <= until and (bar.finished_at is None or bar.finished_at >= since) and _is_of(bar, ids)
        )
        return _take_latest(found, most)

    def list_marks(self, ids: frozenset[str] | None, since: int, until: int, most: int) -> list[Mark]:
        found = (mark for mark in reversed(self._marks) if since <= mark.at <= until and _is_of(mark, ids))
        return _take_latest(found, most)


def view_timeline(
    bars: list[Bar], marks: list[Mark], names: dict[str, str], since: int, until: int, most: int
) -> dict[str, Any]:
    """View bars and marks. `names` are those of the present sessions; other sessions are left out."""
    return {
        "since": show_time(since),
        "until": show_time(until),
        "runs": [_view_bar(bar, names[bar.session]) for bar in bars if bar.session in names],
        "marks": [_view_mark(mark, names[mark.session]) for mark in marks if mark.session in names],
        "is_cut": len(bars) >= most or len(marks) >= most,
    }


def _view_bar(bar: Bar, name: str) -> dict[str, Any]:
    return {
        "session": name,
        "id": bar.session,
        "run": bar.run,
        "seq": bar.seq,
        "attempt": bar.attempt,
        "agent": bar.agent,
        "causes": bar.causes,
        "started_at": show_time(bar.started_at),
        "finished_at": show_time_or_none(bar.finished_at),
        "outcome": bar.outcome,
        "reason": bar.reason,
        "seconds": bar.seconds,
        "usd": bar.usd,
        "tokens": bar.tokens,
    }


def _view_mark(mark: Mark, name: str) -> dict[str, Any]:
    return {
        "session": name,
        "id": mark.session,
        "seq": mark.seq,
        "at": show_time(mark.at),
        "kind": mark.kind,
        "words": mark.words,
        "count": mark.count,
    }


def say_causes(causes: tuple[_Cause, ...]) -> str:
    words = [_say_cause(cause) for cause in causes[:_CAUSES_TOLD]]
    return ", ".join(words) + (f" and {len(causes) - _CAUSES_TOLD} more" if len(causes) > _CAUSES_TOLD else "")


def _say_cause(cause: _Cause) -> str:
    if cause.paths:
        first, more = cause.paths[0], len(cause.paths) - 1
        return f"{cause.binding}: {first.path} {first.change}" + (f" and {more} more" if more else "")
    return f"{cause.binding}: {cause.reason}" if cause.reason else f"{cause.binding} ({cause.kind})"


def _is_late(slot: str, at: int) -> bool:
    try:
        due = msgspec.convert(slot, datetime)
    except msgspec.ValidationError:
        return False
    return at - int(due.timestamp() * 1_000_000) > LATE_MICROSECONDS


def _is_of(one: Bar | Mark, ids: frozenset[str] | None) -> bool:
    return ids is None or one.session in ids


def _take_latest(newest_first: Iterable[Any], most: int) -> list[Any]:
    found = []
    for one in newest_first:
        found.append(one)
        if len(found) == most:
            break
    return found[::-1]

"""The runs that may have written a file: those under way, and those that ended since specs were last read.

The reader asks for every spec that it finds changed, in its thread. A file's own time of change decides (ctime, which
no program sets): a change before a run began or after it ended is not its doing. Reads no file:
`list_writable` tells what a run could write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

from wakeful.core.deciding.machine import Core
from wakeful.core.looking.patterns import contains
from wakeful.core.record.state import LastRun, OpenRun, Session
from wakeful.core.spec.session import SessionSpec, observe_spec

# The clock of file systems lags behind by a tick: what a run did first may seem older than its start. Nothing seems
# newer than it is, and a run is over before its end is recorded: after that there is no slack,
# and a person's next edit is theirs.
LAG_US = 20_000


class ListWritable(Protocol):
    def __call__(self, spec: SessionSpec, *, is_guarded: bool) -> tuple[str, ...] | None:
        """The real folders and files that runs with this spec can write; None if they can write everything.

        `is_guarded`: the question is about a place that isolation shields from runs."""


class Stretch(NamedTuple):
    words: str
    spec: SessionSpec
    began: int
    # None: under way.
    ended: int | None


class PossibleWriters:
    def __init__(self, core: Core, list_writable: ListWritable, now: Callable[[], int]) -> None:
        self._core = core
        self._list_writable = list_writable
        self._now = now
        self._ended: list[Stretch] = []
        # How many of them had ended when the present reading began.
        self._ended_before = 0
        self._is_first = True
        # All runs that count, with what each could write, by the runs they were made of:
        # 10,000 specs may have changed in one reading.
        self._writers: dict[tuple[bool, frozenset[str], int], list[tuple[Stretch, tuple[str, ...] | None]]] = {}

    def begin(self) -> None:
        """A reading begins."""
        self._ended_before = len(self._ended)

    def end(self, session_id: str) -> None:
        """Note the end of a session's run, on the loop.

        It comes before the core knows: a run is always among those under way or those that ended.
        """
        session = self._core.state.sessions.get(session_id)
        if session is not None and session.run is not None:
            self._ended.append(_say_open(session, session.run, self._now()))

    def find(self, path: str, changed_at: int, *, is_guarded: bool) -> str | None:
        """The run that could have changed this path at this time, in words; None: no run could."""
        real = os.path.realpath(path)
        for one, places in self._list_writers(is_guarded):
            if _spans(one, changed_at) and (places is None or any(contains(place, real) for place in places)):
                return one.words
        return None

    def find_any(self, changed_at: int) -> str | None:
        """A run that was under way at this time. Every run can write something: its scratch folder at least."""
        return next((one.words for one, _ in self._list_writers(False) if _spans(one, changed_at)), None)

    def _list_writers(self, is_guarded: bool) -> list[tuple[Stretch, tuple[str, ...] | None]]:
        # A run may start or end while specs are read. Those under way first:
        # one that ends in between is then found among the ended.
        running = frozenset(self._core.state.running)
        key = is_guarded, running, len(self._ended)
        if key not in self._writers:
            runs = (*self._list_open(running), *self._ended)
            self._writers[key] = [(one, self._list_writable(one.spec, is_guarded=is_guarded)) for one in runs]
        return self._writers[key]

    def turn(self) -> None:
        """Everything was read: what ended before the reading began is dealt with.

        A run that ended since may have written after its file was read.
        """
        del self._ended[: self._ended_before]
        self._writers.clear()
        self._is_first = False

    def _list_open(self, running_ids: frozenset[str]) -> list[Stretch]:
        sessions = (self._core.state.get(session_id) for session_id in sorted(running_ids))
        running = [_say_open(one, one.run, None) for one in sessions if one.run is not None]
        if not self._is_first:
            return running
        # They ended under an earlier daemon, which may not have read what they wrote.
        return running + [
            Stretch(
                f"run {one.last_run.run} of {one.name}",
                _find_spec(one.spec, one.last_run),
                one.last_run.started_at,
                one.last_run.finished_at,
            )
            for one in list(self._core.state.sessions.values())
            if one.last_run is not None and one.spec is not None
        ]


def _spans(one: Stretch, changed_at: int) -> bool:
    return one.began - LAG_US <= changed_at and (one.ended is None or changed_at <= one.ended)


def _find_spec(spec: SessionSpec, last: LastRun) -> SessionSpec:
    return observe_spec(spec) if last.trace == "observed" else spec


def _say_open(session: Session, run: OpenRun, ended: int | None) -> Stretch:
    return Stretch(f"run {run.run} of {session.name}", run.spec, run.started_at, ended)

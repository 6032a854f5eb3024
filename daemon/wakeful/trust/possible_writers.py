"""Finds the runs that may have written a file: the active ones, and those that ended since specs were last read.

The reader calls it in its thread for every changed spec. The file's ctime decides, because no program can set it: a
change before a run's start or after its end is not by that run. Reads no file: `list_writable` returns what a run could
write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.patterns import contains
from wakeful.core.record.state import LastRun, OpenRun, Session
from wakeful.core.spec.session import SessionSpec, observe_spec

# The slack before a run's start, in microseconds. The clock of file systems lags behind by a tick, so a run's first
# write may seem older than the run. There is no slack after the end: no write seems newer than it is, and a run is over
# before its end is recorded. So a person's next edit is not taken for the run's.
LAG_US = 20_000


class ListWritable(Protocol):
    def __call__(self, spec: SessionSpec, *, is_guarded: bool) -> tuple[str, ...] | None:
        """Return the real folders and files that runs with this spec can write. None if they can write everything.

        `is_guarded`: the question is about a path that isolation shields from runs.
        """


class Stretch(NamedTuple):
    words: str
    spec: SessionSpec
    began: int
    # None while the run is active.
    ended: int | None


class PossibleWriters:
    def __init__(self, core: Core, list_writable: ListWritable, now: Callable[[], int]) -> None:
        self._core = core
        self._list_writable = list_writable
        self._now = now
        self._ended: list[Stretch] = []
        # The number of runs that had ended when the present reading began.
        self._ended_before = 0
        self._is_first = True
        # The cache of `_list_writers`, because 10,000 specs may have changed in one reading. Its key names the runs
        # that it was made of.
        self._writers: dict[tuple[bool, frozenset[str], int], list[tuple[Stretch, tuple[str, ...] | None]]] = {}

    def begin(self) -> None:
        """Start a reading."""
        self._ended_before = len(self._ended)

    def end(self, session_id: str) -> None:
        """Record the end of a session's run. Called on the loop.

        It is called before the core knows of the end, so that a run is always either active or ended here.
        """
        session = self._core.state.sessions.get(session_id)
        if session is not None and session.run is not None:
            self._ended.append(_say_open(session, session.run, self._now()))

    def find(self, path: str, changed_at: int, *, is_guarded: bool) -> str | None:
        """Find a run that could have changed this path at this time, in words. None if no run could."""
        real = os.path.realpath(path)
        for one, places in self._list_writers(is_guarded):
            if _spans(one, changed_at) and (places is None or any(contains(place, real) for place in places)):
                return one.words
        return None

    def find_any(self, changed_at: int) -> str | None:
        """Find a run that was active at this time. Every run can write something: at least its scratch folder."""
        return next((one.words for one, _ in self._list_writers(False) if _spans(one, changed_at)), None)

    def _list_writers(self, is_guarded: bool) -> list[tuple[Stretch, tuple[str, ...] | None]]:
        # A run may start or end while specs are read. The active runs are listed first, so that a run that ends
        # meanwhile is found among the ended ones.
        running = frozenset(self._core.state.running)
        key = is_guarded, running, len(self._ended)
        if key not in self._writers:
            runs = (*self._list_open(running), *self._ended)
            self._writers[key] = [(one, self._list_writable(one.spec, is_guarded=is_guarded)) for one in runs]
        return self._writers[key]

    def turn(self) -> None:
        """End a reading: forget the runs that ended before it began.

        A run that ended later may have written after its file was read.
        """
        del self._ended[: self._ended_before]
        self._writers.clear()
        self._is_first = False

    def _list_open(self, running_ids: frozenset[str]) -> list[Stretch]:
        sessions = (self._core.state.get(session_id) for session_id in sorted(running_ids))
        running = [_say_open(one, one.run, None) for one in sessions if one.run is not None]
        if not self._is_first:
            return running
        # These runs ended under an earlier daemon, which may not have read what they wrote.
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

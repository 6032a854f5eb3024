"""Which run may have written a file: those under way, and those that ended since specs were last read.

The reader asks for every spec that it finds changed. A file's own time of change decides (ctime, which no program
sets): what was changed before a run began or after it ended is not its doing. Reads no file:
what a run could write is told by `list_writable`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from wakeful.core.deciding.machine import Core
from wakeful.core.looking.patterns import contains
from wakeful.core.record.state import LastRun, Session
from wakeful.core.spec.session import SessionSpec, observe_spec

# The clock of file systems lags behind by a tick: what a run did first may seem older than its start. Nothing seems
# newer than it is, and a run is over before its end is recorded: after that there is no slack,
# and a person's next edit is theirs.
LAG_US = 20_000

# Spec, and whether a place that runs are shielded from is meant -> the real folders and files it can write;
# None: everything.
ListWritable = Callable[[SessionSpec, bool], tuple[str, ...] | None]


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
        self._is_first = True
        # Within one reading: all runs that count, with what each could write. 10,000 specs may have changed.
        self._writers: dict[bool, list[tuple[Stretch, tuple[str, ...] | None]]] = {}

    def end(self, session_id: str) -> None:
        """A run of this session has ended just now; the core may not know it yet."""
        session = self._core.state.sessions.get(session_id)
        if session is not None and session.run is not None:
            self._ended.append(_say_open(session, self._now()))
            self._writers.clear()

    def find(self, path: str, changed_at: int, *, is_guarded: bool) -> str | None:
        """The run that could have changed this path at this time, in words; None: nobody's run."""
        real = os.path.realpath(path)
        for one, places in self._list_writers(is_guarded):
            if _spans(one, changed_at) and (places is None or any(contains(place, real) for place in places)):
                return one.words
        return None

    def find_any(self, changed_at: int) -> str | None:
        """A run that was under way at this time. Each can write something: its scratch folder at least."""
        return next((one.words for one, _ in self._list_writers(False) if _spans(one, changed_at)), None)

    def _list_writers(self, is_guarded: bool) -> list[tuple[Stretch, tuple[str, ...] | None]]:
        if is_guarded not in self._writers:
            self._writers[is_guarded] = [
                (one, self._list_writable(one.spec, is_guarded)) for one in (*self._list_open(), *self._ended)
            ]
        return self._writers[is_guarded]

    def turn(self) -> None:
        """Everything was read: what ended before that is dealt with."""
        self._ended.clear()
        self._writers.clear()
        self._is_first = False

    def _list_open(self) -> list[Stretch]:
        running = [_say_open(self._core.state.get(session_id), None) for session_id in sorted(self._core.state.running)]
        if not self._is_first:
            return running
        # Ended before an earlier daemon did, and maybe before that read what they wrote.
        return running + [
            Stretch(
                f"run {one.last_run.run} of {one.name}",
                _find_spec(one.spec, one.last_run),
                one.last_run.started_at,
                one.last_run.finished_at,
            )
            for one in self._core.state
            if one.last_run is not None and one.spec is not None
        ]


def _spans(one: Stretch, changed_at: int) -> bool:
    return one.began - LAG_US <= changed_at and (one.ended is None or changed_at <= one.ended)


def _find_spec(spec: SessionSpec, last: LastRun) -> SessionSpec:
    return observe_spec(spec) if last.trace == "observed" else spec


def _say_open(session: Session, ended: int | None) -> Stretch:
    run = session.run
    assert run is not None
    return Stretch(f"run {run.run} of {session.name}", run.spec, run.started_at, ended)

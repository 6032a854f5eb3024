"""Finds the causal chain of a run, and the run that wrote a file, in the logs of all sessions.

A chain goes from a run to its wakes, to the records that caused the wakes, to the runs of those records. Every record
names the record that caused it. So each link takes a few point reads, however long the logs are. Each run is visited
once, even if a damaged or foreign log contains a cycle. The writer of one file of an output is the newest run, merge or
rewind whose record of files shows a change of that file. `why` calls this module. Blocking: called off the loop.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

from wakeful.api.contract import Service
from wakeful.core.record.events import Cause, OutputsAdopted, RunFinished, RunStarted, SessionMerged, SessionRewound
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.errors import CallerError, OperatorError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.run_files.file_record import Entry, Found, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.present_files import PathBlocked, look_at
from wakeful.run_files.restore import is_same
from wakeful.system.blobs import DamagedBlob, UnknownBlob
from wakeful.views.chains import Link, Origin, view_link
from wakeful.views.path_bindings import means_path
from wakeful.views.why import FileWriter

# The most links of a chain. The loop guard ends real chains sooner. This limit ends a cycle of foreign records.
MOST_LINKS = 100
RUNS_LOOKED_AT = 50
PATHS_ASKED = 20
T = TypeVar("T")
WRITING = ("run_finished", "session_merged", "session_rewound")
# The most records of runs and calls that are searched for the writer of a file.
MOST_RECORDS = 400


def find_chain(service: Service, session: Session, run: int, ids: frozenset[str] | None = None) -> list[dict[str, Any]]:
    """Find the links of a chain: the run first, then the runs before it. `ids` are the sessions that may be named."""
    return [view_link(link) for link in Walk(service, ids).links(session.id, run)]


def find_asked(service: Service, x: str | None, run: str | None) -> tuple[Session | None, int | None]:
    """Find the session and run that `x` names: NAME#RUN, or NAME and `run`. Both are None if `x` is a path."""
    ids = service.core.state.ids
    if x is None:
        return None, None
    name, mark, number = x.rpartition("#")
    if x not in ids and mark and name in ids:
        x, run = name, number
    if run is not None:
        session = service.core.state.by_name(x)
        return session, read_run(session, run)
    return (service.core.state.get(ids[x]), None) if x in ids else (None, None)


def read_run(session: Session, text: str) -> int:
    """Parse the number of an existing run. Raises CallerError if the session has no such run."""
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= session.tally.runs:
        return int(text)
    known = (
        "it has not run yet"
        if session.tally.runs == 0
        else "it has run once"
        if session.tally.runs == 1
        else f"its runs are 1 to {session.tally.runs}"
    )
    raise CallerError(f"{session.name} has no run {text}; {known}")


def why_run(service: Service, session: Session, run: int, ids: frozenset[str] | None = None) -> dict[str, Any]:
    """Explain a run by its whole causal chain."""
    links = find_chain(service, session, run, ids)
    return {"about": "run", "name": session.name, "run": run, "links": links, "words": []}


class Walk:
    """A walk along one chain. `ids` are the sessions that the caller may see, or None for all. The walk does not leave
    them."""

    def __init__(self, service: Service, ids: frozenset[str] | None = None) -> None:
        self._ids = ids
        self._log: LogReader = service.log
        self._core = service.core
        self._sessions = service.core.state.sessions

    def links(self, session_id: str, run: int) -> Iterator[Link]:
        waiting, met = deque([(session_id, run)]), {(session_id, run)}
        while waiting and len(met) <= MOST_LINKS:
            link, behind = self._link(*waiting.popleft())
            yield link
            # The wake and a cause that joined it later may have been caused by the same run.
            new = [one for one in dict.fromkeys(behind) if one not in met]
            waiting.extend(new)
            met.update(new)

    def _name(self, session_id: str) -> str:
        session = self._sessions.get(session_id)
        return session.name if session is not None else session_id

    def _link(self, session_id: str, run: int) -> tuple[Link, list[tuple[str, int]]]:
        start = next(self._log.read(session_id, kinds=("run_started",), run=run, limit=1, newest_first=True), None)
        end = None
        if start is not None:
            end = next(
                self._log.read(session_id, from_seq=start.seq + 1, kinds=("run_finished",), run=run, limit=1), None
            )
        session, started = self._sessions.get(session_id), _decode(start, RunStarted)
        found = [self._origin(wake) for wake in self._wakes(start)] if start is not None else []
        if start is not None and started is not None and session is not None:
            fed = list(self._feeders(session, started.causes, start.at))
            # If the writer of every cause is known, no cause came from outside. Drop the origins without a parent.
            if {cause for _, _, cause in fed} == {cause.binding for cause in started.causes}:
                found = [one for one in found if one[0].parent is not None]
            known = {run for _, run in found}
            found += [(origin, run) for origin, run, _ in fed if run is None or run not in known]
        found = [self._hide(*one) for one in found]
        link = Link(
            name=self._name(session_id),
            session=session_id,
            run=run,
            start=start,
            started=started,
            end=end,
            finished=_decode(end, RunFinished),
            spec=session.spec if session is not None else None,
            origins=tuple(origin for origin, _ in found),
        )
        return link, [one for _, one in found if one is not None]

    def _hide(self, origin: Origin, behind: tuple[str, int] | None) -> tuple[Origin, tuple[str, int] | None]:
        """Replace an origin in a session that the caller may not see by an origin without a name."""
        session_id = origin.parent.rpartition(":")[0] if origin.parent is not None else None
        if self._ids is None or session_id is None or session_id in self._ids:
            return origin, behind
        return Origin(None, words="which was caused by a session that you have no role in"), None

    def _wakes(self, start: Record) -> Iterator[Record | str]:
        """Yield the record that opened the wake, and the records by which later causes joined it. If the record that
        opened the wake is not in this log, yield its place ("session:seq") instead."""
        wake = self._find(start.parent) if start.parent is not None else None
        if wake is None:
            yield start.parent or ""
            return
        yield wake
        yield from self._log.read(wake.session, from_seq=wake.seq + 1, to_seq=start.seq - 1, kinds=("wake_extended",))

    def _origin(self, wake: Record | str) -> tuple[Origin, tuple[str, int] | None]:
        """Find the cause of a wake, and the run that the walk continues with."""
        if isinstance(wake, str):
            return Origin(
                wake or None,
                words=f"its wake, record {wake}, is not in this log" if wake else "the record of its wake is not known",
            ), None
        if wake.parent is None:
            return Origin(None), None
        record = self._find(wake.parent)
        if record is None:
            return Origin(
                wake.parent, words=f"which was caused by record {wake.parent}, which is not in this log"
            ), None
        name = self._name(record.session)
        if record.kind in ("run_started", "run_finished") and record.run is not None:
            return Origin(wake.parent, name, record.run, record), (record.session, record.run)
        return Origin(wake.parent, name, None, record), None

    def _feeders(
        self, session: Session, causes: tuple[Cause, ...], before: int
    ) -> Iterator[tuple[Origin, tuple[str, int] | None, str]]:
        """Find the runs, rewinds and merges of other sessions that left exactly the versions that these causes found.
        This is needed because a wake names only one parent, but may have several causes."""
        for name in tuple(self._core.graph.upstreams.get(session.name, ())):
            writer = self._sessions.get(self._core.state.ids.get(name, ""))
            if writer is None or writer.spec is None:
                continue
            for binding in writer.spec.files:
                cause = next((one for one in causes if _covers(session, writer, binding, one)), None)
                end = self._find_writing(writer.id, binding, cause.new, before) if cause is not None else None
                if cause is None or end is None:
                    continue
                behind = (end.session, end.run) if end.run is not None else None
                yield Origin(f"{end.session}:{end.seq}", name, end.run, end), behind, cause.binding

    def _find_writing(self, session_id: str, binding: FileBinding, version: str | None, before: int) -> Record | None:
        """Find the run, rewind or merge that first left this version. Later records only left it unchanged."""
        author = None
        kinds = ("run_finished", "outputs_adopted")
        for record in self._log.read(session_id, until=before, kinds=kinds, limit=RUNS_LOOKED_AT, newest_first=True):
            left = _find_left(record, binding)
            if left is None:
                continue
            if left != version:
                break
            author = record
        return author

    def _find(self, place: str) -> Record | None:
        """Find the record at "session:seq". None if there is no such record, or the text is malformed."""
        session_id, _, seq = place.rpartition(":")
        if not seq.isascii() or not seq.isdigit() or len(seq) > 18:
            return None
        return next(self._log.read(session_id, from_seq=int(seq), to_seq=int(seq)), None)


def _covers(session: Session, writer: Session, binding: FileBinding, cause: Cause) -> bool:
    """Did this cause find a path that the writer writes by this binding?"""
    if (
        cause.kind != "file"
        or cause.new is None
        or binding.access == "read"
        or session.spec is None
        or writer.spec is None
    ):
        return False
    paths = (os.path.join(session.spec.root, changed.path) for changed in cause.paths[:PATHS_ASKED])
    return any(means_path(binding.pattern, writer.spec.root, path) for path in paths)


def _find_left(record: Record, binding: FileBinding) -> str | None:
    """Return the version of a binding that the session left, as the record reports it. None if the record has none."""
    finished, adopted = _decode(record, RunFinished), _decode(record, OutputsAdopted)
    if finished is not None:
        return finished.written.get(binding.name)
    return adopted.versions.get(binding.identity) if adopted is not None else None


def _decode(record: Record | None, kind: type[T]) -> T | None:
    event = decode(record.kind, record.payload) if record is not None and record.payload is not None else None
    return event if isinstance(event, kind) else None


def find_file_writer(service: Service, session: Session, binding: FileBinding, path: str) -> FileWriter | None:
    """Find the writer of a file. None if no record of files shows it: the path is a folder, the session never wrote it,
    or contents were not kept.

    An output may be a pattern of many files, and its version covers all of them together. So the record of each run's
    files is read, and the present file is compared with it.
    """
    root = session.spec.root if session.spec is not None else "/"
    name = os.path.relpath(path, root) if os.path.commonpath((root, path)) == root else path
    for record in service.log.read(session.id, kinds=WRITING, limit=MOST_RECORDS, newest_first=True):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case RunFinished(run=int() as run, files=str() as address):
                number: int | None = run
            case SessionMerged(record=str() as address) | SessionRewound(record=str() as address):
                number = None
            case _:
                continue
        change = _find_change(service, address, name, binding.name if number is not None else None)
        if change is not None:
            left = change[1]
            return FileWriter(
                seq=record.seq, run=number, is_removed=left is None, is_drifted=_is_drifted(root, name, left)
            )
    return None


def _find_change(
    service: Service, address: str, name: str, binding: str | None
) -> tuple[Entry | None, Entry | None] | None:
    """Return the file's entries before and after a run or call. None if they are the same, or cannot be read."""
    try:
        for one in read_record(service.blobs, address).bindings:
            if not one.is_written or one.after is None or binding not in (None, one.name):
                continue
            before, after = (_find_entry(service, side, name) for side in (one.before, one.after))
            if not is_same(before, after):
                return before, after
    except (UnknownBlob, DamagedBlob, OperatorError):
        return None
    return None


def _find_entry(service: Service, side: Found | None, name: str) -> Entry | None:
    return next((entry for entry in read_entries(service.blobs, side) if entry.name == name), None)


def _is_drifted(root: str, name: str, left: Entry | None) -> bool:
    try:
        return not is_same(look_at(root, name), left)
    except (PathBlocked, OSError):
        return False

"""Access to a state folder without a daemon, for `verify`, `backup`, `restore`, `doctor` and `output`.

This is a second, small wiring. It constructs a reader of the log, and nothing that writes to a live store. `examine`
checks everything in a state folder that could be damaged. `mend_store` rebuilds all derived data, under the daemon's
own lock.
"""

from pathlib import Path

import msgspec

from wakeful.bundles.blob_archive import BlobArchive
from wakeful.bundles.inspection import (
    BrokenArchive,
    DamagedBlobs,
    MissingBlobs,
    find_broken_archives,
    find_damaged_blobs,
    find_missing_blobs,
)
from wakeful.core.record.state import DamagedSession, Session
from wakeful.errors import CallerError
from wakeful.eventlog.contract import Import, Progress, Report
from wakeful.eventlog.sqlite import judge_state, open_reader
from wakeful.eventlog.sqlite.backup import restore
from wakeful.eventlog.sqlite.files import WAL_KEPT_BYTES, is_affected, measure_wal
from wakeful.eventlog.sqlite.repair import find_search_damage, mend_store
from wakeful.eventlog.state_lock import REMOTE, find_file_system, find_holder
from wakeful.history.run_output import Found, RunOutput, check_run, find_in_output, read_output
from wakeful.history.stored_sessions import VerifiableLog, load_sessions
from wakeful.system.blobs import Blobs
from wakeful.text.display import count

__all__ = [
    "REMOTE",
    "WAL_KEPT_BYTES",
    "Examined",
    "examine",
    "find_file_system",
    "find_holder",
    "find_in_stored_output",
    "find_session",
    "is_affected",
    "judge_state",
    "mend_store",
    "open_reader",
    "read_stored_output",
    "restore",
]

# The most records for which `doctor` recomputes every hash. With more records that takes too long. Then `verify` does
# it, with a progress bar.
MOST_RECORDS = 200_000
# The most bytes of blobs that `doctor` reads and hashes, which takes about 3 s.
MOST_BLOB_BYTES = 1_000_000_000


class Examined(msgspec.Struct, frozen=True):
    """The findings in a state folder. `report` is None if the log has more than MOST_RECORDS: then run `verify`."""

    records: int
    report: Report | None
    search_wrong: str | None
    imports: tuple[Import, ...]
    archives: tuple[BrokenArchive, ...]
    blobs: tuple[MissingBlobs, ...]
    outputs_wrong: tuple[str, ...]
    damaged_blobs: DamagedBlobs
    wal_bytes: int


def read_stored_output(state_dir: Path, name: str, run: int | None) -> RunOutput:
    """Read the output of a run (the last one if `run` is None) of a session in a state folder. Changes nothing."""
    log = open_reader(state_dir)
    try:
        session = find_session(log, name)
        if session.run is not None and run == session.run.run:
            raise CallerError(f"run {run} was under way when its daemon ended: its output was not kept")
        blobs = Blobs(str(state_dir / "blobs"), BlobArchive(state_dir / "archive" / "outputs"))
        return read_output(log, blobs, session, check_run(session, run))
    finally:
        log.close()


def find_in_stored_output(state_dir: Path, name: str, run: int | None, text: str) -> tuple[int, Found]:
    """Find the lines of a run's output that contain a text. Returns the run too."""
    output = read_stored_output(state_dir, name, run)
    return output.run, find_in_output(output, text)


def find_session(log: VerifiableLog, name: str) -> Session:
    """Find a session by its present name, which only its folded state contains.

    A damaged session is found by the name in its readable records.
    """
    sessions, _ = load_sessions(log)
    found = next((session for session in sessions if session.name == name), None)
    if found is not None:
        return found
    unread = sum(isinstance(session, DamagedSession) for session in sessions)
    damaged = f"; {count(unread, 'session')} cannot be read to the end, wakeful verify says why" if unread else ""
    raise CallerError(f"no session in this log is called {name!r}{damaged}")


def examine(state_dir: Path, progress: Progress | None = None) -> Examined:
    """Check the log, its indexes and its blobs, with or without a running daemon. Changes nothing."""
    log = open_reader(state_dir)
    outputs = BlobArchive(state_dir / "archive" / "outputs")
    blobs = Blobs(str(state_dir / "blobs"), outputs)
    try:
        records = log.position()
        is_short = records <= MOST_RECORDS
        return Examined(
            records=records,
            report=log.verify(progress=progress) if is_short else None,
            search_wrong=find_search_damage(state_dir),
            imports=log.imports(),
            archives=tuple(find_broken_archives(log, state_dir / "archive")),
            blobs=tuple(find_missing_blobs(log, blobs)) if is_short else (),
            outputs_wrong=tuple(wrong for _, wrong in outputs.find_damage()),
            damaged_blobs=find_damaged_blobs(blobs, MOST_BLOB_BYTES),
            wal_bytes=measure_wal(state_dir),
        )
    finally:
        log.close()

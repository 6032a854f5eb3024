"""Finds the writer of one file of an output: the newest run, merge or rewind whose record of files shows a change of
that file.

An output may be a pattern of many files, and its version covers all of them together. This module reads the log, the
blobs and the present file. Blocking: called off the loop.
"""

from __future__ import annotations

import os

from wakeful.api.service import Service
from wakeful.core.record.events import RunFinished, SessionMerged, SessionRewound
from wakeful.core.record.state import Session
from wakeful.core.spec.session import FileBinding
from wakeful.errors import OperatorError
from wakeful.eventlog.codec import decode
from wakeful.run_files.file_record import Entry, Found, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.present_files import PathBlocked, look_at
from wakeful.run_files.restore import is_same
from wakeful.system.blobs import DamagedBlob, UnknownBlob
from wakeful.views.why import FileWriter

WRITING = ("run_finished", "session_merged", "session_rewound")
# The most records of runs and calls that are searched for the writer of a file.
MOST_RECORDS = 400


def find_file_writer(service: Service, session: Session, binding: FileBinding, path: str) -> FileWriter | None:
    """Find the writer of a file. None if no record of files shows it: the path is a folder, the session never wrote it,
    or contents were not kept."""
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

"""Writes the files of a merge after it is durable, from its record alone, so that it can be repeated after a crash.

A path is written only while it has the content that was compared. A path that already has the result is done. Marked
conflicts go to the daemon's own folder, never over a file of a person. Every call is blocking.
"""

from __future__ import annotations

from typing import Any

from wakeful.errors import WakefulError
from wakeful.run_files.file_record import Entry
from wakeful.run_files.present_files import PathBlocked, look_at, remove_file, write_file, write_link
from wakeful.run_files.restore import is_same, say_problem, show_name
from wakeful.system.blobs import Blobs, address_of
from wakeful.system.private_files import make_private
from wakeful.workspaces.merge import MergeRecord

CHANGED_SINCE = "changed by other hands since it was compared; yours stays, the fork's is kept as {}"


def write_merge(blobs: Blobs, record: MergeRecord) -> list[dict[str, Any]]:
    """Write the files. Returns the problems by path, empty if all was done as recorded."""
    failed = []
    files = record.bindings[0]
    before = {entry.name: entry for entry in files.before.entries} if files.before is not None else {}
    after = {entry.name: entry for entry in files.after.entries} if files.after is not None else {}
    for name in sorted(before.keys() | after.keys()):
        problem = _write_one(blobs, record.root, name, before.get(name), after.get(name))
        if problem is not None:
            failed.append({"path": show_name(name), "ending": problem[0], "reason": problem[1], "kept": None})
    for one in record.marked:
        try:
            make_private(record.marks)
            write_file(record.marks, one.path, blobs.get(one.address), 0o600, is_flushed=True)
        except (PathBlocked, OSError, WakefulError) as problem:
            failed.append(
                {
                    "path": one.path,
                    "ending": "failed",
                    "reason": f"its conflicts could not be marked: {say_problem(problem)}",
                    "kept": None,
                }
            )
    return failed


def _write_one(blobs: Blobs, root: str, name: str, before: Entry | None, after: Entry | None) -> tuple[str, str] | None:
    try:
        present = look_at(root, name)
        if is_same(present, after):
            return None
        if not is_same(present, before):
            return "refused", CHANGED_SINCE.format(after.address if after is not None else "removed")
        if after is None:
            remove_file(root, name)
        elif after.kind == "l":
            write_link(root, name, after.link or "")
        else:
            mode = after.mode if before is None else before.mode & ~0o111 | (after.mode & 0o111)
            write_file(root, name, blobs.get(address_of(bytes.fromhex(after.digest))), mode & 0o777, is_flushed=True)
    except (PathBlocked, OSError, WakefulError) as problem:
        return "failed", say_problem(problem)
    return None

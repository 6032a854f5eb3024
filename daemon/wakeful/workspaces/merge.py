"""Merges a fork's files into its parent's: decides by a three-way comparison, records the decisions, then writes.

`plan_merge` compares, and stores every content that it would write or overwrite, so that the record alone describes the
work. Only blobs are written, and in a dry run not even those. `write_merge` writes the files after the merge is
durable, from the record alone. So a merge that a crash cut short is finished from its record, and an unwanted merge is
undone from it. A path is written only while it has the content that was compared. Every call is blocking.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.errors import OperatorError, WakefulError
from wakeful.run_files.file_record import BindingFiles, Entry, Found, RunFiles
from wakeful.run_files.present_files import PathBlocked, look_at, read_content, remove_file, write_file, write_link
from wakeful.run_files.restore import is_same, say_problem, show_name
from wakeful.sources.contract import Git
from wakeful.system.blobs import SHORT_BYTES, Blobs, SecretContent, address_of
from wakeful.system.private_files import make_private
from wakeful.text.display import count
from wakeful.workspaces.contents import (
    LARGEST_KEPT_BYTES,
    NOT_WRITTEN,
    Meant,
    keep_entry,
    read_base,
    scan,
    write_base,
    write_name,
)

# The first word of the log's text for a path. `left` means that the change stays in the workspace.
Ending = Literal["taken", "removed", "merged", "conflict", "left"]
BROUGHT = ("taken", "removed", "merged")
# The largest text that is merged, because comparing lines takes memory a hundred times its size.
LARGEST_TEXT_BYTES = 4 << 20
# The most paths that the log names. The record has all paths.
MOST_NAMED = 1_000
Keep = Callable[[bytes], str]
CHANGED_SINCE = "changed by others since it was compared; yours stays, the fork's is kept as {}"


class Sides(Struct, frozen=True, kw_only=True):
    """The two sides of a merge: their roots, their names, and the folder for marked conflicts."""

    ours: str
    theirs: str
    name: str
    fork: str
    marks: str
    is_meant: Meant


class Change(Struct, frozen=True, kw_only=True):
    """One path that the fork changed. `before` is what the parent has, `after` what it will have."""

    name: str
    ending: Ending
    reason: str | None = None
    before: Entry | None = None
    after: Entry | None = None
    theirs: Entry | None = None
    # The blob with the text in which conflicts are marked.
    marked: str | None = None


class Marked(Struct, frozen=True):
    path: str
    address: str


class MergeRecord(RunFiles, frozen=True, kw_only=True):
    """The files of a merge, like those of a run.

    It also has the folder and the texts of its conflicts, and the base of the next merge.
    """

    base: str
    marks: str
    marked: tuple[Marked, ...] = ()


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a merge. `record` is None if no file would be written."""

    changes: tuple[Change, ...]
    record: str | None

    def words(self) -> dict[str, str]:
        """Return the log's text for each path.

        If there are too many, paths that stay in the workspace are left out first.
        """
        ordered = sorted(self.changes, key=lambda change: (change.ending == "left", change.name))
        said = {show_name(one.name): say_change(one) for one in ordered[:MOST_NAMED]}
        if len(ordered) > MOST_NAMED:
            said["…"] = f"{len(ordered) - MOST_NAMED} more; the record has them all"
        return dict(sorted(said.items()))


def say_change(change: Change) -> str:
    return change.ending + (f": {change.reason}" if change.reason else "")


def keep_nothing(content: bytes) -> str:
    """Return the address that a content would have, for a dry run."""
    return address_of(hashlib.blake2b(content, digest_size=SHORT_BYTES).digest())


async def plan_merge(blobs: Blobs, git: Git, sides: Sides, base_address: str, *, is_dry: bool) -> Plan:
    keep = keep_nothing if is_dry else blobs.add
    base, now = await asyncio.to_thread(_read_sides, blobs, sides, base_address)
    changed = sorted(name for name in base.keys() | now.keys() if not is_same(base.get(name), now.get(name)))
    changes, settled = [], dict(base)
    for name in changed:
        try:
            change = await _judge(blobs, git, keep, sides, name, base.get(name), now.get(name))
        except SecretContent:
            change = Change(
                name=name,
                ending="left",
                reason=f"holds a secret, which is never kept; copy it from {sides.theirs}/{show_name(name)}",
            )
        if change is not None:
            changes.append(change)
        if change is None or change.ending != "left":
            _settle(settled, name, change.theirs if change is not None else now.get(name))
    record = None
    if any(change.ending != "left" for change in changes):
        record = await asyncio.to_thread(_write_record, keep, sides, changes, settled)
    if not is_dry:
        await asyncio.to_thread(blobs.flush)
    return Plan(changes=tuple(changes), record=record)


def _read_sides(blobs: Blobs, sides: Sides, base_address: str) -> tuple[dict[str, Entry], dict[str, Entry]]:
    return read_base(blobs, base_address), scan(sides.theirs, sides.is_meant)


def _settle(settled: dict[str, Entry], name: str, theirs: Entry | None) -> None:
    """Update the base of the next merge with the fork's present content, which this merge has handled."""
    if theirs is None:
        settled.pop(name, None)
    else:
        settled[name] = theirs


async def _judge(
    blobs: Blobs, git: Git, keep: Keep, sides: Sides, name: str, base: Entry | None, theirs: Entry | None
) -> Change | None:
    """Decide what happens to one path, by the first rule that fits. None if both sides are equal."""
    if not sides.is_meant(name):
        return Change(name=name, ending="left", reason=NOT_WRITTEN)
    if theirs is not None and theirs.size > LARGEST_KEPT_BYTES:
        return Change(
            name=name,
            ending="left",
            reason=f"too large ({theirs.size} bytes); copy it from {sides.theirs}/{theirs.path}",
        )
    if theirs is not None and (theirs.kind not in ("f", "x", "l") or "\\x" in (theirs.link or "")):
        return Change(name=name, ending="left", reason="is not a file, or is a link whose target is not text")
    try:
        ours = await asyncio.to_thread(look_at, sides.ours, name)
    except (PathBlocked, OSError) as problem:
        return Change(name=name, ending="left", reason=say_problem(problem))
    if is_same(ours, theirs):
        return None
    if theirs is not None:
        theirs = await asyncio.to_thread(keep_entry, keep, sides.theirs, name, theirs)
    change = Change(
        name=name, ending="removed" if theirs is None else "taken", before=ours, after=theirs, theirs=theirs
    )
    if not is_same(ours, base):
        change = await _unite(blobs, git, keep, sides, change, base)
    if change.ending in BROUGHT and change.before is not None:
        return await asyncio.to_thread(_keep_ours, keep, sides, change)
    return change


def _keep_ours(keep: Keep, sides: Sides, change: Change) -> Change:
    """Store the contents that will be overwritten, so that a rewind can restore them."""
    assert change.before is not None
    if change.before.kind not in ("f", "x", "l"):
        return replace(
            change,
            ending="conflict",
            reason="the present file is not a regular file; yours is kept",
            after=None,
            before=None,
        )
    if change.before.size > LARGEST_KEPT_BYTES:
        reason = (
            f"the present file is too large ({change.before.size} bytes) to be kept; the fork's is "
            f"{sides.theirs}/{change.before.path}"
        )
        return replace(change, ending="conflict", reason=reason, after=None, before=None)
    return replace(change, before=keep_entry(keep, sides.ours, change.name, write_name(change.before, change.name)))


async def _unite(blobs: Blobs, git: Git, keep: Keep, sides: Sides, change: Change, base: Entry | None) -> Change:
    """Merge a path that both sides changed differently."""
    ours, theirs = change.before, change.theirs
    conflict = replace(change, ending="conflict", before=None, after=None)
    place = f"{sides.theirs}/{show_name(change.name)}"
    if theirs is None:
        return replace(conflict, reason="removed in the fork, changed here; yours is kept")
    if ours is None:
        return replace(conflict, reason=f"removed here, changed in the fork; the fork's is {place}")
    texts = await asyncio.to_thread(_read_texts, blobs, sides, change, base)
    if texts is None:
        return replace(
            conflict, reason=f"both changed it, and it cannot be merged as text; yours is kept, the fork's is {place}"
        )
    merged = await git.merge_texts(*texts, (f"{sides.name} (here)", "before the fork", f"{sides.fork} (fork)"))
    if merged.conflicts is None:
        return replace(conflict, reason=f"both changed it, and it is not text; yours is kept, the fork's is {place}")
    if merged.conflicts:
        where = f"{sides.marks}/{show_name(change.name)}"
        return replace(
            conflict,
            reason=f"both changed {count(merged.conflicts, 'place')}; yours is kept, both are marked in {where}",
            marked=keep(merged.text),
        )
    # The executable bit of the side that changed it counts.
    kind = theirs.kind if base is not None and ours.kind == base.kind else ours.kind
    mode = ours.mode | 0o111 if kind == "x" else ours.mode & ~0o111
    entry = replace(
        theirs, kind=kind, digest=keep(merged.text).removeprefix("blake2b-"), size=len(merged.text), mode=mode
    )
    return replace(change, ending="merged", reason="both changed it, in different places", after=entry)


def _read_texts(blobs: Blobs, sides: Sides, change: Change, base: Entry | None) -> tuple[bytes, bytes, bytes] | None:
    """Read base, ours and theirs. None if one is not a regular file, is too large or was not stored.

    A file that was added on both sides has an empty base.
    """
    entries = [entry for entry in (base, change.before, change.theirs) if entry is not None]
    if any(entry.kind not in ("f", "x") or entry.size > LARGEST_TEXT_BYTES for entry in entries):
        return None
    if base is not None and base.address is None:
        return None
    before = blobs.get(base.address) if base is not None and base.address is not None else b""
    return before, read_content(sides.ours, change.name), read_content(sides.theirs, change.name)


def _write_record(keep: Keep, sides: Sides, changes: list[Change], settled: dict[str, Entry]) -> str:
    brought = [change for change in changes if change.ending in BROUGHT]
    files = BindingFiles(
        name="merged",
        access="write",
        before=Found(entries=tuple(change.before for change in brought if change.before is not None)),
        after=Found(entries=tuple(change.after for change in brought if change.after is not None)),
    )
    record = MergeRecord(
        run_id=f"merge of {sides.fork}",
        root=sides.ours,
        bindings=(files,),
        base=write_base(keep, sides.theirs, settled, sides.is_meant),
        marks=sides.marks,
        marked=tuple(Marked(show_name(change.name), change.marked) for change in changes if change.marked is not None),
    )
    return keep(msgspec.json.encode(record))


_RECORD = msgspec.json.Decoder(MergeRecord)


def read_merge(blobs: Blobs, address: str) -> MergeRecord:
    try:
        return _RECORD.decode(blobs.get(address))
    except msgspec.DecodeError as error:
        raise OperatorError(f"blob {address}: expected the files of a merge, found something else: {error}") from error


def write_merge(blobs: Blobs, record: MergeRecord) -> list[dict[str, Any]]:
    """Write the files. Returns the problems by path. Empty if everything was done as recorded."""
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

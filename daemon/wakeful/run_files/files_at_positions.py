"""Compares the files of a session at two positions of its log, line by line, from the records of its runs.

`diff --contents` calls it, off the loop. It writes nothing, and does not look at the present files on disk. Texts are
compared within limits. A path without a diff has the reason instead: binary, not kept, too long.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from wakeful.run_files.file_record import GONE, Entry, RunFiles, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.replay_comparison import LARGEST_TEXT_BYTES, MOST_DIFF_LINES
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob
from wakeful.text.display import count

Change = Literal["added", "removed", "changed"]
# The most paths that are listed. Further paths are only counted.
MOST_PATHS = 200
# The most lines of all diffs of one answer together.
MOST_LINES = 2_000
# The most lines of a text that is compared. If the same lines repeat in another order, the time grows with the product
# of both lengths: up to 0.5 s for 3,000 lines each.
MOST_COMPARED_LINES = 3_000


class Wrote(Struct, frozen=True):
    """The address of the file record of a run or of a merge.

    The record of a merge has only the paths that it changed.
    """

    address: str
    is_merge: bool = False


class Held(Struct, frozen=True):
    """One path at a position, and the binding it belongs to."""

    binding: str
    entry: Entry


Files = dict[str, Held]


def read_files(blobs: Blobs, newest_first: Iterable[Wrote]) -> Files | None:
    """Return the files that the last run found and left, updated by later merges; None if no run's files are known."""
    merges: list[RunFiles] = []
    for wrote in newest_first:
        try:
            record = read_record(blobs, wrote.address)
            if wrote.is_merge:
                merges.append(record)
                continue
            files = _read_left(blobs, record)
        except (UnknownBlob, DamagedBlob):
            # The record was erased, or lost in a power cut just after the run. Use the run before it.
            continue
        for merge in reversed(merges):
            _bring(blobs, files, merge)
        return files
    return None


def read_found(blobs: Blobs, wrote: Wrote) -> Files | None:
    """Return the files that a run found. Those of the first run also stand for a position before any run."""
    try:
        bindings = read_record(blobs, wrote.address).bindings
        return {entry.name: Held(one.name, entry) for one in bindings for entry in read_entries(blobs, one.before)}
    except (UnknownBlob, DamagedBlob):
        return None


def _read_left(blobs: Blobs, record: RunFiles) -> Files:
    """Return the outputs as the run left them, and its other files as it found them."""
    sides = (
        (one.name, one.after if one.is_written and one.after is not None else one.before) for one in record.bindings
    )
    return {entry.name: Held(name, entry) for name, found in sides for entry in read_entries(blobs, found)}


def _bring(blobs: Blobs, files: Files, merge: RunFiles) -> None:
    for one in merge.bindings:
        gone = {entry.name: files.pop(entry.name, None) for entry in read_entries(blobs, one.before)}
        for entry in read_entries(blobs, one.after):
            before = gone.get(entry.name)
            files[entry.name] = Held(before.binding if before is not None else one.name, entry)


def compare_positions(blobs: Blobs, a: Mapping[str, Held], b: Mapping[str, Held]) -> dict[str, Any]:
    """List every path that differs, in order, with a diff if possible. Blocking.

    `left_out` counts the paths that are not listed.
    """
    changed = [name for name in sorted(a.keys() | b.keys()) if not _is_same(a.get(name), b.get(name))]
    room = MOST_LINES
    found = []
    for name in changed[:MOST_PATHS]:
        view, used = _compare(blobs, a.get(name), b.get(name), room)
        room -= used
        found.append(view)
    return {"files": found, "left_out": len(changed) - len(found)}


def _is_same(a: Held | None, b: Held | None) -> bool:
    if a is None or b is None:
        return a is b
    one, other = a.entry, b.entry
    return (one.kind, one.digest, one.link) == (other.kind, other.digest, other.link)


def _compare(blobs: Blobs, a: Held | None, b: Held | None, room: int) -> tuple[dict[str, Any], int]:
    change: Change = "added" if a is None else "removed" if b is None else "changed"
    known = b or a
    assert known is not None, "a path that differs is on one side"
    view: dict[str, Any] = {
        "binding": known.binding, "path": known.entry.path, "change": change,
        "a": _view(a), "b": _view(b), "diff": None, "note": None,
    }  # fmt: skip
    sides = [b"" if side is None else read_kept(blobs, side.entry) for side in (a, b)]
    note = next((side for side in sides if isinstance(side, str)), None)
    texts = [split_text(side) for side in sides if isinstance(side, bytes)] if note is None else []
    note = note or next((text for text in texts if isinstance(text, str)), None)
    if note is not None:
        return view | {"note": note}, 0
    old, new = (text for text in texts if isinstance(text, list))
    lines = list(diff_lines(old, new, known.entry.path))
    if not lines:
        return view | {"note": _say_kinds(a, b)}, 0
    shown = lines[: min(MOST_DIFF_LINES, max(room, 0))]
    cut = len(lines) - len(shown)
    note = f"{count(cut, 'more line')} of the diff" if cut else None
    return view | {"diff": "".join(shown) or None, "note": note}, len(shown)


def _view(held: Held | None) -> dict[str, Any] | None:
    return None if held is None else {"kind": held.entry.kind, "digest": held.entry.digest, "size": held.entry.size}


def read_kept(blobs: Blobs, entry: Entry) -> bytes | str:
    """Return the content as bytes, or as text the reason why it cannot be shown."""
    if entry.kind not in "fx":
        return f"a link to {entry.link}" if entry.kind == "l" else "not a file"
    if entry.not_kept is not None:
        return f"not kept: {entry.not_kept}"
    if entry.size > LARGEST_TEXT_BYTES:
        return f"larger than {LARGEST_TEXT_BYTES >> 10} KiB"
    try:
        return blobs.get(entry.address) if entry.address is not None else b""
    except UnknownBlob:
        return f"not kept: {GONE}"
    except DamagedBlob:
        return "the kept content is damaged"


def split_text(content: bytes) -> list[str] | str:
    """Return the lines of a text, or the reason why it cannot be split.

    Only a newline ends a line. Other line separators are shown escaped within a line.
    """
    if b"\0" in content:
        return "binary"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "binary"
    lines = text.split("\n")
    if len(lines) > MOST_COMPARED_LINES:
        return f"more than {MOST_COMPARED_LINES:,} lines"
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def diff_lines(old: list[str], new: list[str], path: str) -> Iterator[str]:
    for line in difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"):
        yield line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n"


def _say_kinds(a: Held | None, b: Held | None) -> str:
    """Describe how two files with the same text differ."""
    if a is None or b is None:
        return "empty"
    return (
        "is executable now"
        if b.entry.kind == "x"
        else "is not executable any more"
        if a.entry.kind == "x"
        else "another kind of file"
    )

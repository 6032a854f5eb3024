"""The files of a session at two positions, as the records of its runs know them: which differ, and how, line by line.

`diff --contents` asks, off the loop; nothing is written. Texts are compared within bounds, and whatever is not shown
says why: binary, not kept, too long. What stands on disk now is not looked at.
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
# Beyond these a path is counted, and no longer named.
MOST_PATHS = 200
# All diffs of one answer together: more than anybody reads at once.
MOST_LINES = 2_000
# Comparing two texts whose lines repeat in another order takes time that grows with the product of their lengths:
# 3,000 lines each, up to 0.5 s.
MOST_COMPARED_LINES = 3_000


class Wrote(Struct, frozen=True):
    """Where the files of a run or of a merge are recorded. A merge knows only the paths that it brought."""

    address: str
    is_merge: bool = False


class Held(Struct, frozen=True):
    """One path of a position, and the binding it belongs to."""

    binding: str
    entry: Entry


Files = dict[str, Held]


def read_files(blobs: Blobs, newest_first: Iterable[Wrote]) -> Files | None:
    """The files that the last run found and left, and those of merges since. None where no run's files are known."""
    merges: list[RunFiles] = []
    for wrote in newest_first:
        try:
            record = read_record(blobs, wrote.address)
            if wrote.is_merge:
                merges.append(record)
                continue
            files = _read_left(blobs, record)
        except (UnknownBlob, DamagedBlob):
            # Erased, or lost with the power just after the run: the one before it is the last that is known.
            continue
        for merge in reversed(merges):
            _bring(blobs, files, merge)
        return files
    return None


def read_found(blobs: Blobs, wrote: Wrote) -> Files | None:
    """The files that a run found: the nearest thing to a position before any run."""
    try:
        bindings = read_record(blobs, wrote.address).bindings
        return {entry.name: Held(one.name, entry) for one in bindings for entry in read_entries(blobs, one.before)}
    except (UnknownBlob, DamagedBlob):
        return None


def _read_left(blobs: Blobs, record: RunFiles) -> Files:
    """The files that the run left in its outputs, and those that it found elsewhere."""
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
    """Blocks.

    Every path that differs, in order, with a diff where there can be one; `left_out` counts what is not named.
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
    """The content, or why it cannot be shown."""
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
        return "what was kept is damaged"


def split_text(content: bytes) -> list[str] | str:
    """The lines of a text, or why it has none.

    Only a newline ends a line: what else may, is shown escaped within it.
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
    """The same text, and still not the same file."""
    if a is None or b is None:
        return "empty"
    return (
        "is executable now"
        if b.entry.kind == "x"
        else "is not executable any more"
        if a.entry.kind == "x"
        else "another kind of file"
    )

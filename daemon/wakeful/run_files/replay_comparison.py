"""Compares the files of a replay with those of the recorded run.

`replay` calls it off the loop. Texts up to a limit are compared by lines, everything else by digest.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from typing import Any, Literal

from wakeful.core.looking.patterns import Excludes, parse_under
from wakeful.core.record.observations import Output
from wakeful.core.spec.session import DEFAULT_EXCLUDES, SessionSpec
from wakeful.run_files.file_record import Entry, RunFiles
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.present_files import look_at, read_content
from wakeful.system.blobs import Blobs, UnknownBlob, address_of
from wakeful.text.display import count

Verdict = Literal["same", "different", "missing", "added"]
# The largest text that is compared by lines, because the time grows with the square of the number of lines.
LARGEST_TEXT_BYTES = 256 << 10
MOST_DIFF_LINES = 400


def compare_files(blobs: Blobs, files: RunFiles, spec: SessionSpec, copy: str) -> list[dict[str, Any]]:
    """Compare every output, path by path. `spec` is the one of the replay, with the copy as its root."""
    recorded: dict[str, Entry] = {}
    known: set[str] = set()
    for one in files.bindings:
        known |= {entry.name for entry in read_entries(blobs, one.before)}
        if one.is_written:
            recorded |= {entry.name: entry for entry in read_entries(blobs, one.after)}
    found = [_compare(blobs, copy, name, recorded[name]) for name in sorted(recorded)]
    # Files that the run deleted must be gone here as well. Files that only the replay wrote are reported.
    others = [name for name in _list_outputs(spec, copy) if name not in recorded]
    return found + [
        _view(name, "different" if name in known else "added", None, look_at(copy, name)) for name in others
    ]


def compare_output(blobs: Blobs, recorded: Output, now: Output) -> dict[str, Any]:
    """Compare the printed output, as far as it was kept."""
    before, after = (_read_output(blobs, one) for one in (recorded, now))
    if (recorded.total_bytes, before) == (now.total_bytes, after):
        return {"verdict": "same", "diff": None}
    return {"verdict": "different", "diff": diff_texts(before, after, "output")}


def diff_texts(before: bytes | None, after: bytes | None, name: str) -> str | None:
    """Make a unified diff; None if one side is not text, is too large, or is not kept."""
    if before is None or after is None or max(len(before), len(after)) > LARGEST_TEXT_BYTES or b"\0" in before + after:
        return None
    try:
        old, new = (side.decode().splitlines(keepends=True) for side in (before, after))
    except UnicodeDecodeError:
        return None
    lines = list(difflib.unified_diff(old, new, f"recorded/{name}", f"replayed/{name}"))
    cut = [f"… and {count(len(lines) - MOST_DIFF_LINES, 'more line')}\n"] if len(lines) > MOST_DIFF_LINES else []
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in (*lines[:MOST_DIFF_LINES], *cut))


def _compare(blobs: Blobs, copy: str, name: str, recorded: Entry) -> dict[str, Any]:
    now = look_at(copy, name)
    if now is None:
        return _view(name, "missing", recorded, None)
    # For a recorded link the content counts, because `replay_folder` lays out a link as the file behind it.
    is_same = now.digest == recorded.digest and (recorded.kind == "l" or now.kind == recorded.kind)
    if is_same and (now.kind != "l" or now.link == recorded.link):
        return _view(name, "same", recorded, now)
    content = read_content(copy, name) if now.kind in "fx" and now.size <= LARGEST_TEXT_BYTES else None
    return _view(name, "different", recorded, now) | {
        "diff": diff_texts(_read_kept(blobs, recorded), content, _show(name))
    }


def _read_kept(blobs: Blobs, entry: Entry) -> bytes | None:
    if not entry.digest or entry.size > LARGEST_TEXT_BYTES:
        return None
    try:
        return blobs.get(address_of(bytes.fromhex(entry.digest)))
    except UnknownBlob:
        return None


def _view(name: str, verdict: Verdict, recorded: Entry | None, now: Entry | None) -> dict[str, Any]:
    sides = {
        side: None if entry is None else {"kind": entry.kind, "digest": entry.digest, "size": entry.size}
        for side, entry in (("recorded", recorded), ("now", now))
    }
    return {"path": _show(name), "verdict": verdict, **sides, "diff": None}


def _list_outputs(spec: SessionSpec, copy: str) -> Iterable[str]:
    """List the files of the copy that match a write binding."""
    bindings = [binding for binding in spec.files if binding.access != "read"]
    meant = [
        (parse_under(binding.pattern, copy), Excludes.build(copy, DEFAULT_EXCLUDES, binding.exclude))
        for binding in bindings
    ]
    for folder, _, names in os.walk(copy):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if any(
                pattern.matches(path) and excludes.covers(path, len(pattern.base) + 1) is None
                for pattern, excludes in meant
            ):
                yield os.path.relpath(path, copy)


def _read_output(blobs: Blobs, output: Output) -> bytes | None:
    try:
        return b"".join(blobs.get(address) for address in (output.head, output.tail) if address)
    except UnknownBlob:
        return None


def _show(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")

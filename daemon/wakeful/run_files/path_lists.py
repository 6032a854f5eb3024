"""Long lists of paths, kept in parts, so that one changed file among 10,000 costs one small part and not the whole list
anew.

A path belongs to the part its name falls to; a part is a blob of entries, a list a blob of the addresses of its parts.
`Keeper` remembers the last list of each target: only parts with a path that was seen differently since are taken down
again.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from wakeful.run_files.capture import LASTING, Capture, Sight
from wakeful.run_files.file_record import Entry, Found
from wakeful.system.blobs import Blobs

_PARTS = msgspec.json.Decoder(tuple[str, ...])
_ENTRIES = msgspec.json.Decoder(tuple[Entry, ...])


@dataclass(frozen=True, slots=True)
class Listing:
    """A list as it was kept, and what it was made of.

    `unsettled` parts hold a path whose content may be had next time.
    """

    address: str
    parts: tuple[str, ...]
    members: Mapping[str, Sight]
    unsettled: frozenset[int]


def keep_listing(
    capture: Capture, root: str, members: Mapping[str, Sight], last: Listing | None, *, is_later: bool = False
) -> Listing:
    """Blocks.

    `members` as they were looked at; `last` is an earlier list of the same target; `is_later` as `Capture.take`.
    """
    count = _count_parts(len(members))
    if last is None or len(last.parts) != count:
        last = None
    parts = list(last.parts) if last is not None else [""] * count
    fell_to = _place_moved(members, last, count)
    moved = set(fell_to.values()) if last is not None else set(range(count))
    unsettled_before = last.unsettled if last is not None else frozenset()
    # Changed paths come first: they are read before the rest of an earlier run takes the room.
    groups: dict[int, dict[str, Sight]] = {number: {} for number in (*sorted(moved), *sorted(unsettled_before - moved))}
    if groups:
        still = [path for path in members if path not in fell_to]
        fell_to |= zip(still, _place(still, count), strict=True)
        for path, sight in members.items():
            if (group := groups.get(fell_to[path])) is not None:
                group[path] = sight
    unsettled = set()
    for number, group in groups.items():
        if capture.is_spent and number not in moved:
            # 100,000 paths that are kept 2,000 a run are not all asked about again by each of these runs.
            unsettled.add(number)
            continue
        entries = capture.take(root, group, is_later=is_later)
        parts[number] = capture.blobs.add(msgspec.json.encode(entries))
        if any(entry.not_kept not in LASTING for entry in entries):
            unsettled.add(number)
    return Listing(capture.blobs.add(msgspec.json.encode(parts)), tuple(parts), members, frozenset(unsettled))


def read_parts(blobs: Blobs, found: Found) -> tuple[str, ...]:
    """Blocks. The blobs a long list is made of; none of one that stands in the record."""
    return _PARTS.decode(blobs.get(found.listing)) if found.listing is not None else ()


def read_entries(blobs: Blobs, found: Found | None) -> tuple[Entry, ...]:
    """Blocks. Every path of one look, ordered; nothing of one that was never made."""
    if found is None or found.listing is None:
        return found.entries if found is not None else ()
    entries = [entry for part in read_parts(blobs, found) for entry in _ENTRIES.decode(blobs.get(part))]
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _place_moved(members: Mapping[str, Sight], last: Listing | None, count: int) -> dict[str, int]:
    """The paths that are not as they were in the last list, each with the part it falls to."""
    known = last.members if last is not None else {}
    # The same object is the same state of the path: that is what looks promise.
    moved = [path for path, sight in members.items() if known.get(path) is not sight]
    moved += [path for path in known if path not in members]
    return dict(zip(moved, _place(moved, count), strict=True))


def _count_parts(paths: int) -> int:
    """Some 10 to 60 paths a part, a few KB; a target that grows is divided anew, once for each of three sizes."""
    return 16 if paths <= 1_000 else 64 if paths <= 4_000 else 256


def _place(paths: Sequence[str], count: int) -> list[int]:
    """The part that each falls to."""
    # Encoded at once: no path holds a zero byte.
    return [zlib.crc32(path) % count for path in os.fsencode("\0".join(paths)).split(b"\0")] if paths else []

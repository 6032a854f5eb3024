"""Long lists of paths, stored in parts, so that one changed file among 10,000 costs one small part and not a new list.

The hash of a path's name decides to which part the path belongs. A part is a blob of entries, and a list is a blob with
the addresses of its parts. `Keeper` remembers the last list of each target, and only the parts with a changed path are
written again.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from wakeful.run_files.capture import LASTING, Capture, SeenPath
from wakeful.run_files.file_record import Entry, Found
from wakeful.system.blobs import Blobs

_PARTS = msgspec.json.Decoder(tuple[str, ...])
_ENTRIES = msgspec.json.Decoder(tuple[Entry, ...])


@dataclass(frozen=True, slots=True)
class Listing:
    """A stored list, and the state of its paths when it was made.

    An `unsettled` part has a path whose content was not kept, but could be kept the next time.
    """

    address: str
    parts: tuple[str, ...]
    members: Mapping[str, SeenPath]
    unsettled: frozenset[int]


def keep_listing(
    capture: Capture, root: str, members: Mapping[str, SeenPath], last: Listing | None, *, is_later: bool = False
) -> Listing:
    """Store a list of paths, and their contents. Blocking.

    `members` are the paths as seen at a look. `last` is an earlier list of the same target. `is_later` has the same
    meaning as in `Capture.take`.
    """
    count = _count_parts(len(members))
    if last is None or len(last.parts) != count:
        last = None
    parts = list(last.parts) if last is not None else [""] * count
    part_of_path = _place_moved(members, last, count)
    moved = set(part_of_path.values()) if last is not None else set(range(count))
    unsettled_before = last.unsettled if last is not None else frozenset()
    # Read the changed paths first. Contents that an earlier run could not keep get what is left of the limits.
    wanted = (*sorted(moved), *sorted(unsettled_before - moved))
    groups: dict[int, dict[str, SeenPath]] = {number: {} for number in wanted}
    if groups:
        still = [path for path in members if path not in part_of_path]
        part_of_path |= zip(still, _place(still, count), strict=True)
        for path, sight in members.items():
            if (group := groups.get(part_of_path[path])) is not None:
                group[path] = sight
    unsettled = set()
    for number, group in groups.items():
        if capture.is_spent and number not in moved:
            # The limits are used up. With 100,000 paths and 2,000 kept by each run, checking the rest would be useless.
            unsettled.add(number)
            continue
        entries = capture.take(root, group, is_later=is_later)
        parts[number] = capture.blobs.add(msgspec.json.encode(entries))
        if any(entry.not_kept not in LASTING for entry in entries):
            unsettled.add(number)
    return Listing(capture.blobs.add(msgspec.json.encode(parts)), tuple(parts), members, frozenset(unsettled))


def read_parts(blobs: Blobs, found: Found) -> tuple[str, ...]:
    """Return the addresses of a long list's parts. Empty if the list is in the record itself. Blocking."""
    return _PARTS.decode(blobs.get(found.listing)) if found.listing is not None else ()


def read_entries(blobs: Blobs, found: Found | None) -> tuple[Entry, ...]:
    """Return every path of one look, ordered. Empty if the look was never made. Blocking."""
    if found is None or found.listing is None:
        return found.entries if found is not None else ()
    entries = [entry for part in read_parts(blobs, found) for entry in _ENTRIES.decode(blobs.get(part))]
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _place_moved(members: Mapping[str, SeenPath], last: Listing | None, count: int) -> dict[str, int]:
    """Return the paths that changed since the last list, each with the number of its part."""
    known = last.members if last is not None else {}
    # Compare by identity, because a look reuses the object of a path that has not changed.
    moved = [path for path, sight in members.items() if known.get(path) is not sight]
    moved += [path for path in known if path not in members]
    return dict(zip(moved, _place(moved, count), strict=True))


def _count_parts(paths: int) -> int:
    """Return how many parts a list has, so that a part has about 10 to 60 paths, a few KB.

    There are only three sizes, because a target that grows to the next size is written again completely.
    """
    return 16 if paths <= 1_000 else 64 if paths <= 4_000 else 256


def _place(paths: Sequence[str], count: int) -> list[int]:
    """Return the number of each path's part."""
    # Encode all paths in one call, joined by zero bytes, which no path contains.
    return [zlib.crc32(path) % count for path in os.fsencode("\0".join(paths)).split(b"\0")] if paths else []

"""The anchor: the position of the newest acknowledged record, kept in a file outside the database.

A prefix of a hash chain is a valid chain, so the chain does not show that its end is lost. One flipped bit in the
write-ahead log silently dropped 501 of 1,000 acknowledged events while every check inside the database said ok. So the
writer notes the store's mark here after each commit and before it acknowledges. The kernel then has the note, so a
killed daemon does not lose it. The note is flushed milliseconds later (`writer.ANCHOR_SECONDS`), so a power cut may
leave the anchor a few groups behind. The file has two slots, each with its own checksum in its own 4 KiB block. A note
is never written to the slot that was flushed last, so a torn write can destroy the newer slot, never both.
"""

from __future__ import annotations

import os
import struct
from hashlib import sha256
from pathlib import Path

import msgspec

from wakeful.system.private_files import sync_folder

_SLOT_BYTES = 4096
_LAYOUT = struct.Struct(">8s16sQQ32s")
_MAGIC = b"wakeful1"
_CHECKSUM_BYTES = 32


class Mark(msgspec.Struct, frozen=True, gc=False):
    """The position of a store after a flush.

    It holds the id of the store, the number of flushes, the number of records, and the roll over them.
    """

    store: bytes
    flush: int
    position: int
    roll: bytes


def judge_store(anchor: Mark | None, newest: Mark, roll_at_anchor: bytes | None) -> str | None:
    """Return why the store must not be written. None if it contains everything that was acknowledged.

    `roll_at_anchor` is the roll that the store itself has for the anchor's flush. A store ahead of its anchor is sound:
    a crash came between the commit and the note, so the records after the anchor were never acknowledged.
    """
    if anchor is None and newest.flush == 0:
        return None
    if anchor is None:
        return f"its anchor is missing or unreadable, so records after record {newest.position} may be missing"
    if anchor.store != newest.store:
        return f"its anchor belongs to another store ({anchor.store.hex()[:8]}, this one is {newest.store.hex()[:8]})"
    if newest.flush < anchor.flush:
        missing = anchor.position - newest.position
        return f"it ends at record {newest.position} of {anchor.position} acknowledged ones: {missing} are missing"
    if roll_at_anchor != anchor.roll:
        return f"its history up to record {anchor.position} is not the one that was acknowledged"
    return None


class AnchorFile:
    """The open anchor file. One writer owns it; any process may read it."""

    def __init__(self, path: Path, mark: Mark) -> None:
        """Open the file for writing and bring it to `mark`. A new file appears complete or not at all."""
        slots = _read_slots(path)
        newest = _choose_newest(slots)
        if newest is None:
            _create(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        if newest is not None:
            # A killed daemon may have written the mark without a flush.
            os.fdatasync(self._file)
        self._slot = 0 if newest is None else 1 - slots.index(newest)
        # The number of notes that wait for the next flush.
        self.unflushed = 0
        if newest != mark:
            self.note(mark)
            self.flush()

    def note(self, mark: Mark) -> None:
        """Write the mark in place, with a fixed size.

        So its flush changes no metadata and cannot run out of space.
        """
        body = _LAYOUT.pack(_MAGIC, mark.store, mark.flush, mark.position, mark.roll)
        slot = body + sha256(body).digest()
        written = os.pwrite(self._file, slot, self._slot * _SLOT_BYTES)
        if written != len(slot):
            raise OSError(f"anchor: {written} of {len(slot)} bytes were written")
        self.unflushed += 1

    def flush(self) -> None:
        """Flush the notes to disk. A failed flush has an unknown effect and is not tried again."""
        os.fdatasync(self._file)
        self.unflushed = 0
        self._slot = 1 - self._slot

    def close(self) -> None:
        if self.unflushed:
            self.flush()
        os.close(self._file)


def read_anchor(path: Path) -> Mark | None:
    """Read the newest undamaged mark. None if there is none."""
    return _choose_newest(_read_slots(path))


def _choose_newest(slots: tuple[Mark | None, ...]) -> Mark | None:
    return max((mark for mark in slots if mark is not None), key=lambda mark: mark.flush, default=None)


def _read_slots(path: Path) -> tuple[Mark | None, ...]:
    """Read the mark of each slot. None for a slot that is empty or damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return (None, None)
    return tuple(_parse_slot(content[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES))


def _parse_slot(slot: bytes) -> Mark | None:
    body = slot[: _LAYOUT.size]
    checksum = slot[_LAYOUT.size : _LAYOUT.size + _CHECKSUM_BYTES]
    if len(body) < _LAYOUT.size or sha256(body).digest() != checksum:
        return None
    magic, store, flush, position, roll = _LAYOUT.unpack(body)
    return Mark(store, flush, position, roll) if magic == _MAGIC else None


def _create(path: Path) -> None:
    """Make a file of two empty slots.

    Its blocks are allocated now, so that a full disk does not stop the anchor later.
    """
    fresh = path.with_name(path.name + ".new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, bytes(2 * _SLOT_BYTES))
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(fresh, path)
    sync_folder(path.parent)

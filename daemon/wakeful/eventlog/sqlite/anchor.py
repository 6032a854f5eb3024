"""The head anchor: how far the store had come, kept outside the store.

A prefix of a hash chain is a valid chain: one flipped bit in the write-ahead log silently dropped 501 of 1,000
acknowledged events while every check inside the database said ok. So after each flush the writer notes the store's
mark here before it acknowledges. The note is with the kernel then (a daemon that is killed loses nothing of it); its
flush comes milliseconds later (`writer.ANCHOR_SECONDS`), so a power cut may leave the anchor a few groups behind.
There are two slots, each with its own checksum in its own 4 KiB block. The one that is written is never the one that
was flushed last: a torn write can spoil the newer one, never both.
"""

from __future__ import annotations

import os
import struct
from hashlib import sha256
from pathlib import Path

import msgspec

from wakeful.system.private_folders import sync_folder
from wakeful.text.counting import count

_SLOT_BYTES = 4096
_LAYOUT = struct.Struct(">8s16sQQ32s")
_MAGIC = b"wakeful1"
_CHECKSUM_BYTES = 32


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A store's place after a flush: which store, how many flushes, how many records, and the roll over all of them."""

    store: bytes
    flush: int
    position: int
    roll: bytes


def judge_store(anchor: Mark | None, newest: Mark, roll_at_anchor: bytes | None) -> str | None:
    """Why the store must not be written, in words; None when it holds everything that was acknowledged.

    `roll_at_anchor` is the roll the store itself remembers for the anchor's flush. A store ahead of its anchor is
    sound: a crash fell between the commit and the anchor, and what is ahead was never acknowledged.
    """
    if anchor is None and newest.flush == 0:
        return None
    if anchor is None:
        return (
            f"its anchor is missing or unreadable, so nothing shows that {count(newest.position, 'record')} is all "
            "there was"
        )
    if anchor.store != newest.store:
        return f"its anchor belongs to another store ({anchor.store.hex()[:8]}, this one is {newest.store.hex()[:8]})"
    if newest.flush < anchor.flush:
        missing = anchor.position - newest.position
        return f"it ends at record {newest.position} of {anchor.position} acknowledged ones: {missing} are missing"
    if roll_at_anchor != anchor.roll:
        return f"its history up to record {anchor.position} is not the one that was acknowledged"
    return None


class AnchorFile:
    """The file of two slots. One writer owns it; reading needs no ownership."""

    def __init__(self, path: Path, mark: Mark) -> None:
        """Open for writing, holding at least `mark`; a new file comes into being whole or not at all."""
        slots = _read_slots(path)
        newest = _choose_newest(slots)
        if newest is None:
            _create(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        if newest is not None:
            # Who was killed may have noted it and not flushed.
            os.fdatasync(self._file)
        self._slot = 0 if newest is None else 1 - slots.index(newest)
        # How many notes wait for the next flush.
        self.unflushed = 0
        if newest != mark:
            self.note(mark)
            self.flush()

    def note(self, mark: Mark) -> None:
        """Put the mark down, in place and of fixed size, so that the flush touches no metadata and cannot run out of
        space."""
        body = _LAYOUT.pack(_MAGIC, mark.store, mark.flush, mark.position, mark.roll)
        slot = body + sha256(body).digest()
        written = os.pwrite(self._file, slot, self._slot * _SLOT_BYTES)
        if written != len(slot):
            raise OSError(f"anchor: {written} of {len(slot)} bytes were written")
        self.unflushed += 1

    def flush(self) -> None:
        """Until what was noted is on disk.

        Where that fails, whether it is there is unknown, and it is not tried again.
        """
        os.fdatasync(self._file)
        self.unflushed = 0
        self._slot = 1 - self._slot

    def close(self) -> None:
        if self.unflushed:
            self.flush()
        os.close(self._file)


def read_anchor(path: Path) -> Mark | None:
    """The newest undamaged mark; None when there is none."""
    return _choose_newest(_read_slots(path))


def _choose_newest(slots: tuple[Mark | None, ...]) -> Mark | None:
    return max((mark for mark in slots if mark is not None), key=lambda mark: mark.flush, default=None)


def _read_slots(path: Path) -> tuple[Mark | None, ...]:
    """Of each slot its mark, None where it holds none."""
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
    """A file of two empty slots, its blocks allocated now: a full disk later must not stop the anchor."""
    fresh = path.with_name(path.name + ".new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, bytes(2 * _SLOT_BYTES))
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(fresh, path)
    sync_folder(path.parent)

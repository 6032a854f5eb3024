"""Checks the files that the log depends on: the bundles of archived sessions, and the blobs that records name.

Called by doctor, next to a running daemon or without one. It reports missing and damaged files. It changes nothing and
inflates no bundle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from wakeful.bundles.format import DIGEST_BYTES, HEADER_BYTES, BundleRefused, read_header, write_declaration
from wakeful.bundles.references import References
from wakeful.eventlog.contract import LogReader, PayloadStore
from wakeful.system.blobs import Blobs

_PAGE = 1_000
_READ_BYTES = 1024 * 1024
# The kinds of records whose blobs doctor looks for and retention moves.
NAMING = ("run_finished", "session_opened", "session_merged", "session_rewound", "delivery_received")


class BrokenArchive(msgspec.Struct, frozen=True):
    """An archived session whose payloads cannot be restored, its bundle, and the problem with the bundle."""

    session: str
    bundle: Path
    wrong: str


class MissingBlobs(msgspec.Struct, frozen=True):
    """The number of blobs that a session's records name, and how many of them no longer exist."""

    session: str
    missing: int
    named: int


class DamagedBlobs(msgspec.Struct, frozen=True):
    """The addresses of open blobs whose content differs from the address, and the bytes that the limit left unread."""

    addresses: tuple[str, ...]
    unread_bytes: int


class _Archived(msgspec.Struct):
    bundle: str = ""


class _Promised(References):
    """The blobs that must exist: outputs, and lists of files.

    The contents in such a list are not counted, because not every listed content is kept.
    """

    def _add_files(self, address: str) -> None:
        return


class ArchivingLog(LogReader, PayloadStore, Protocol):
    """A log that knows which payloads are archived."""


def find_broken_archives(log: ArchivingLog, folder: Path) -> Iterator[BrokenArchive]:
    """Check the bundle of every archived session, all of its bytes, against the digest in its header."""
    for session in log.heads():
        if log.archived(session) is None:
            continue
        record = next(log.read(session, kinds=("session_archived",), limit=1, newest_first=True), None)
        if record is None or record.payload is None:
            yield BrokenArchive(session, folder, "no record says which bundle holds its payloads")
            continue
        path = folder / Path(msgspec.json.decode(record.payload, type=_Archived).bundle).name
        wrong = find_file_damage(path)
        if wrong is not None:
            yield BrokenArchive(session, path, wrong)


def find_file_damage(path: Path) -> str | None:
    """Describe the damage of a bundle's file. None if its bytes match its digest."""
    try:
        with path.open("rb") as file:
            total, digest = read_header(file.read(HEADER_BYTES))
            body = hashlib.sha256()
            while piece := file.read(_READ_BYTES):
                body.update(piece)
    except BundleRefused as refused:
        return str(refused)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if hashlib.sha256(write_declaration(total) + body.digest()).digest() != digest[:DIGEST_BYTES]:
        return "its bytes are not those that were written"
    return None


def find_damaged_blobs(blobs: Blobs, most_bytes: int) -> DamagedBlobs:
    """Check open blobs, up to `most_bytes` in total. The smallest come first, so that most blobs are checked."""
    damaged = []
    unread = 0
    for address, size in sorted(blobs.listing(), key=lambda one: one[1]):
        if size > most_bytes:
            unread += size
            continue
        most_bytes -= size
        if not blobs.is_sound(address):
            damaged.append(address)
    return DamagedBlobs(tuple(damaged), unread)


def find_missing_blobs(log: LogReader, blobs: Blobs) -> Iterator[MissingBlobs]:
    """Yield the sessions that lack blobs, in the order of the first record that names one."""
    named: dict[str, _Promised] = {}
    position, records = log.read_after(0, _PAGE, NAMING, imported=True)
    while records:
        for record in records:
            named.setdefault(record.session, _Promised(blobs)).add(record)
        position, records = log.read_after(position, _PAGE, NAMING, imported=True)
    for session, references in named.items():
        addresses = list(references)
        missing = sum(not blobs.is_kept(address) for address in addresses)
        if missing:
            yield MissingBlobs(session, missing, len(addresses))

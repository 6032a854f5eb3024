"""Erases payloads from the bundles of archived sessions, so that they do not keep what was erased from the log.

Called by erase, off the loop, before the log is changed. If the daemon is killed in between, the log still has the
payload, and the erasure can be repeated. The bundle is rewritten without the payloads and replaces the old one
atomically. Records and hashes stay, so the bundle still verifies and restores. Only its digest changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from wakeful.bundles.format import BlobLine, BundleRefused, Contents, EndLine, Limits, RecordLine
from wakeful.bundles.load import check_bundle
from wakeful.bundles.reader import OpenBundle, read_content
from wakeful.bundles.writer import BundleWriter
from wakeful.errors import OperatorError
from wakeful.system.private_files import sync_folder


class ArchiveUnreadable(OperatorError):
    """A bundle of the archive may hold the payload to erase, and cannot be read."""


def erase_from_bundle(
    path: Path, seqs: Iterable[int], *, blobs: Iterable[str] = (), limits: Limits | None = None
) -> Contents:
    """Rewrite a bundle without these payloads and blobs. Returns its new contents, with the new digest."""
    limits = limits or Limits()
    erased, dropped = frozenset(seqs), frozenset(blobs)
    fresh = path.with_name(f"{path.name}.erased")
    fresh.unlink(missing_ok=True)  # left by an erasure that was killed
    with OpenBundle(path, limits) as bundle:
        check_bundle(bundle)
        with BundleWriter(fresh, limits) as writer:
            _copy(bundle, writer, erased, dropped)
    os.replace(fresh, path)
    sync_folder(path.parent)
    with OpenBundle(path, limits) as bundle:
        return check_bundle(bundle)


def erase_from_archives(folder: Path, session: str, seq: int, *, blobs: Iterable[str] = ()) -> int:
    """Erase one payload from every archive bundle of this session. Returns the number of bundles that held it.

    Bundles that were loaded back since are included. Raises ArchiveUnreadable if a bundle cannot be read, because it
    may hold the payload, and the erasure must not be reported as done.
    """
    dropped = tuple(blobs)
    held = 0
    for path in sorted(folder.glob(f"{session}-*.bundle")):
        try:
            with OpenBundle(path) as bundle:
                manifest = bundle.read_manifest()
            if manifest.session == session and manifest.records >= seq:
                erase_from_bundle(path, [seq], blobs=dropped)
                held += 1
        except BundleRefused as refused:
            raise ArchiveUnreadable(
                f"record {seq} is not erased yet: an old archive of its session may hold it and cannot be read "
                f"({refused}); delete that file, then erase it again"
            ) from refused
    return held


def find_in_bundle(path: Path, words: Iterable[str]) -> list[int]:
    """Return the seqs of a bundle's records whose payload text has one of these strings. Reads the whole bundle."""
    needles = tuple(words)
    with OpenBundle(path) as bundle:
        payloads = ((line.seq, line.payload) for line in bundle.read_lines() if isinstance(line, RecordLine))
        return [
            seq for seq, payload in payloads if payload is not None and any(needle in payload for needle in needles)
        ]


def _copy(bundle: OpenBundle, writer: BundleWriter, erased: frozenset[int], dropped: frozenset[str]) -> None:
    lines = bundle.read_lines()
    kept = 0
    for line in lines:
        match line:
            case RecordLine() if line.seq in erased:
                writer.put(msgspec.structs.replace(line, payload=None, raw=None))
            case BlobLine() if line.address in dropped:
                for _ in read_content(bundle, line.size, lines):
                    pass
            case EndLine():
                writer.finish(line.records, kept, line.files)
            case _:
                kept += isinstance(line, BlobLine)
                writer.put(line)

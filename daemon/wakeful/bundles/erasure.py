"""Payloads erased from a bundle that is kept: the archive of a session must not remember what its log forgot.

Called by erase, off the loop, before the log: killed in between, the log still holds the payload, and the erasure can
be asked for again. The bundle is written anew without them and takes the place of the old one in one step; its records
and their hashes stay, so it verifies and restores as before, and its digest is another.
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
from wakeful.system.private_folders import sync_folder


class ArchiveUnreadable(OperatorError):
    """A bundle of the archive may hold what shall be erased, and cannot be rewritten."""


def erase_from_bundle(
    path: Path, seqs: Iterable[int], *, blobs: Iterable[str] = (), limits: Limits | None = None
) -> Contents:
    """Write a bundle anew without these payloads and these blobs; returns what it holds then, under its new digest."""
    limits = limits or Limits()
    erased, dropped = frozenset(seqs), frozenset(blobs)
    fresh = path.with_name(f"{path.name}.erased")
    fresh.unlink(missing_ok=True)  # of an erasure that was killed
    with OpenBundle(path, limits) as bundle:
        check_bundle(bundle)
        with BundleWriter(fresh, limits) as writer:
            _copy(bundle, writer, erased, dropped)
    os.replace(fresh, path)
    sync_folder(path.parent)
    with OpenBundle(path, limits) as bundle:
        return check_bundle(bundle)


def erase_from_archives(folder: Path, session: str, seq: int, *, blobs: Iterable[str] = ()) -> int:
    """Erase one payload from every bundle that an archive of this session left; returns how many held it.

    A bundle that was loaded back since counts as well. A bundle that cannot be read may hold the payload: the call then
    raises ArchiveUnreadable, so that nobody is told that the words are gone.
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
    """The seqs of a bundle's records that hold one of these words, as they stand in a payload; reads all of it."""
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

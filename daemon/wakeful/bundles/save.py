"""Saves a session from a log into a bundle.

Called by save, by migrate (after the session is frozen) and by retention, off the loop. It reads up to a head that is
fixed at the beginning, so records that are added meanwhile are not in the bundle. It changes nothing in the log.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from wakeful import __version__
from wakeful.bundles.format import (
    CHUNK_BYTES,
    FORMAT,
    BlobLine,
    BundleNotWritten,
    Contents,
    Cut,
    Limits,
    Manifest,
    count_digest,
    write_record,
)
from wakeful.bundles.references import References
from wakeful.bundles.scratch_files import find_files, read_file
from wakeful.bundles.writer import BundleWriter
from wakeful.eventlog.contract import Head, LogReader, PayloadStore, Progress, Record, RecordImports
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob, address_of
from wakeful.text.display import count

_PROGRESS_RECORDS = 1_000


class Saved(msgspec.Struct, frozen=True):
    """A bundle on disk, and its contents.

    `missing_blobs` counts blobs that no longer exist. `passed_files` names files that were skipped: links, devices,
    unsuitable names, files with secrets.
    """

    path: Path
    contents: Contents
    missing_blobs: int = 0
    passed_files: tuple[str, ...] = ()


class SavedLog(LogReader, PayloadStore, RecordImports, Protocol):
    """A log that can be saved from. It also shows archived payloads and unfinished imports, which prevent a save."""


def save(
    log: SavedLog,
    blobs: Blobs,
    session: str,
    out: Path,
    *,
    name: str,
    cut_at: int,
    cut: Cut = "save",
    to_seq: int | None = None,
    spec: str | None = None,
    about: Mapping[str, str] | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Saved:
    """Write a session's records up to `to_seq`, the blobs they name and its scratch files to a new file.

    None as `to_seq` means all records. `about` is put into the manifest for the caller. `progress` counts records.
    """
    limits = limits or Limits()
    head = _find_head(log, session, to_seq)
    manifest = Manifest(
        format=FORMAT, wakeful=__version__, session=session, name=name, cut=cut, cut_at=cut_at, records=head.seq,
        head=head.hash.hex(),
        spec=spec, about=dict(about or {}),
    )  # fmt: skip
    with BundleWriter(out, limits) as writer:
        writer.put(manifest)
        references = References(blobs)
        erased = _put_records(writer, log, session, head, references, progress)
        kept, blob_bytes = _put_blobs(writer, blobs, references, limits)
        files, passed = find_files(scratch, blobs.screen) if scratch is not None and scratch.is_dir() else ([], [])
        if len(files) > limits.files:
            raise BundleNotWritten(
                f"{scratch} has {len(files):,} files, a bundle can have {limits.files:,}; clear it first"
            )
        for line in files:
            assert scratch is not None
            writer.put(line)
            writer.put_content(read_file(scratch, line))
        digest = writer.finish(head.seq, kept, len(files))
    contents = Contents(
        manifest=manifest, digest=digest, total_bytes=writer.total_bytes, records=head.seq, erased=erased,
        blobs=kept, blob_bytes=blob_bytes,
        files=len(files), file_bytes=sum(line.size for line in files),
    )  # fmt: skip
    return Saved(out, contents, references.missing, tuple(passed))


def _find_head(log: SavedLog, session: str, to_seq: int | None) -> Head:
    head = log.head(session)
    if to_seq is not None and to_seq != head.seq:
        record = next(log.read(session, to_seq, to_seq), None)
        head = Head(record.seq, record.hash) if record is not None else Head(0, b"")
    if head.seq == 0:
        raise BundleNotWritten(
            f"session {session} has no record{f' {to_seq}' if to_seq is not None else 's'} that could be saved"
        )
    archived = log.archived(session)
    if archived is not None and archived.first <= head.seq:
        raise BundleNotWritten(
            f"session {session}: its payloads {archived.first} to {archived.last} are archived; load its archive first"
        )
    if any(begun.session == session for begun in log.imports()):
        raise BundleNotWritten(f"session {session}: its import is not finished; load its bundle again first")
    return head


def _put_records(
    writer: BundleWriter, log: LogReader, session: str, head: Head, references: References, progress: Progress | None
) -> int:
    """Write all records and collect the blobs they name. Returns the number of erased records."""
    erased = seq = 0
    for record in log.read(session, to_seq=head.seq):
        seq += 1
        _check_next(session, record, seq)
        if record.is_damaged:
            raise BundleNotWritten(
                f"session {session}: record {seq} is damaged, and a bundle would show it as erased; restore a "
                "backup with: wakeful restore BACKUP"
            )
        writer.put(write_record(record))
        references.add(record)
        erased += record.payload is None
        if progress is not None and (seq % _PROGRESS_RECORDS == 0 or seq == head.seq):
            progress(seq, head.seq)
    if seq != head.seq:
        raise BundleNotWritten(
            f"session {session}: {seq} of {count(head.seq, 'record')} could be read; run wakeful verify"
        )
    return erased


def _check_next(session: str, record: Record, seq: int) -> None:
    if record.seq != seq:
        raise BundleNotWritten(f"session {session}: seq {record.seq} follows {seq - 1}; run wakeful verify")


def _put_blobs(writer: BundleWriter, blobs: Blobs, references: References, limits: Limits) -> tuple[int, int]:
    """Write each blob that exists and count the others as missing. Returns the number written, and their bytes."""
    kept = total = 0
    for address in references:
        try:
            file = blobs.open(address)
        except UnknownBlob:
            references.missing += 1
            continue
        with file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size > limits.blob_bytes:
                raise BundleNotWritten(
                    f"blob {address} has {size:,} bytes, a bundle accepts {limits.blob_bytes:,}; "
                    "raise the limit of blobs"
                )
            writer.put(BlobLine(address=address, size=size))
            writer.put_content(_read_blob(file, address))
        kept += 1
        total += size
    return kept, total


def _read_blob(file: BinaryIO, address: str) -> Iterator[bytes]:
    """Read a blob in chunks. Raises DamagedBlob at the end if the content differs from its address."""
    digest = hashlib.blake2b(digest_size=count_digest(address))
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
        yield piece
    if address_of(digest.digest()) != address:
        raise DamagedBlob(f"blob {address}: the content differs from its address; restore it from a backup")

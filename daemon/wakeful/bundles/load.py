"""Loads a bundle into a log in two steps: verify everything, then import it.

Called off the loop by load, by `load --move`, and to restore an archive. The imported data has no effect by itself: a
session in the log that no call has opened, blobs that nothing names, and an unused folder. If the daemon is killed, the
same call continues where it stopped. The import is finished only after the digests were checked a second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from wakeful.bundles.format import (
    AnyLine,
    BlobLine,
    BundleRefused,
    BundleTooLarge,
    Contents,
    EndLine,
    FileLine,
    Limits,
    Manifest,
    RecordLine,
    count_digest,
    read_record,
)
from wakeful.bundles.reader import OpenBundle, read_content
from wakeful.bundles.scratch_files import ScratchFolder, ScratchNames
from wakeful.eventlog.chain import NOTHING, hash_bytes, hash_record
from wakeful.eventlog.contract import Head, PayloadStore, Progress, Record, RecordImports
from wakeful.system.blobs import SHORT_BYTES, Blobs, address_of
from wakeful.text.display import count

BATCH_RECORDS = 500


class Loaded(msgspec.Struct, frozen=True):
    """The result of a load. `records` is 0 if the log had all of them already."""

    contents: Contents
    head: Head
    records: int
    blobs: int
    files: int


def inspect(path: Path, limits: Limits | None = None) -> Manifest:
    """Read a bundle's description of itself, quickly and unverified."""
    with OpenBundle(path, limits) as bundle:
        return bundle.read_manifest()


def read_payloads(path: Path, kinds: Iterable[str]) -> dict[int, bytes]:
    """Read the payloads of a bundle's records of these kinds, by seq. Reads the whole bundle, without verifying it."""
    wanted, found = frozenset(kinds), dict[int, bytes]()
    with OpenBundle(path) as bundle:
        for line in bundle.read_lines():
            if isinstance(line, RecordLine) and line.kind in wanted:
                payload = line.payload.encode() if line.payload is not None else line.raw
                if payload is not None:
                    found[line.seq] = payload
    return found


def verify_bundle(path: Path, progress: Progress | None = None, limits: Limits | None = None) -> Contents:
    """Check every byte, record, hash, blob and file name. Writes nothing. `progress` counts bytes."""
    with OpenBundle(path, limits) as bundle:
        return check_bundle(bundle, progress)


def load(
    log: RecordImports,
    blobs: Blobs,
    path: Path,
    *,
    extend: bool = False,
    is_inert: bool = False,
    is_moved: bool = False,
    scratch: Path | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Loaded:
    """Verify a bundle, then import its records under their own session, its blobs, and its files into `scratch`.

    - `extend` appends to a shorter copy of the session in this log, for a session that moved away and comes back.
    - `is_moved` leaves the import open. The record of the arrival finishes it.
    - `is_inert` imports a session only as the origin of its forks: they read it, and it is never opened. If the session
      already lives here, it stays as it is.
    """
    with OpenBundle(path, limits) as bundle:
        contents = check_bundle(bundle, progress)
        return take_in(
            log,
            blobs,
            bundle,
            contents,
            extend=extend,
            is_inert=is_inert,
            is_moved=is_moved,
            scratch=scratch,
            progress=progress,
        )


def restore_archive(
    log: PayloadStore, blobs: Blobs, path: Path, progress: Progress | None = None, limits: Limits | None = None
) -> int:
    """Verify a bundle, then restore its archived payloads and its blobs. Returns the number of payloads."""
    restored = 0
    with OpenBundle(path, limits) as bundle:
        contents = check_bundle(bundle, progress)
        session = contents.manifest.session
        lines = bundle.read_lines(progress)
        for batch in _cut_batches(bundle, session, lines):
            match batch:
                case list():
                    restored += log.restore_payloads(session, batch)
                case BlobLine():
                    _take_blob(bundle, blobs, batch, lines)
                case FileLine():
                    _drain(read_content(bundle, batch.size, lines))
        blobs.flush()
    return restored


# Verifying


def check_bundle(bundle: OpenBundle, progress: Progress | None = None) -> Contents:
    """Read all of an open bundle and check its contents against its hashes and counts."""
    lines = bundle.read_lines(progress)
    manifest = next(lines)
    assert isinstance(manifest, Manifest)
    check = _Check(bundle, manifest)
    for line in lines:
        match line:
            case RecordLine():
                check.take_record(line)
            case BlobLine():
                check.take_blob(line, lines)
            case FileLine():
                check.take_file(line, lines)
            case EndLine():
                check.take_end(line)
            case _:
                raise bundle.refuse("a chunk belongs to no blob or file")
    return check.contents()


class _Check:
    """The state while a bundle is checked: the last hash of the chain, and the counts so far."""

    def __init__(self, bundle: OpenBundle, manifest: Manifest) -> None:
        self._bundle = bundle
        self._manifest = manifest
        self._previous = NOTHING
        self._names = ScratchNames()
        self._records = self._erased = self._blobs = self._blob_bytes = self._file_bytes = 0

    def take_record(self, line: RecordLine) -> None:
        self._records += 1
        where = f"record {line.seq}"
        if line.seq != self._records or self._blobs or len(self._names):
            raise self._bundle.refuse(f"{where} is in the place of record {self._records}")
        record = read_record(self._manifest.session, line)
        if record.payload is None:
            self._erased += 1
        elif hash_bytes(record.payload) != record.payload_hash:
            raise self._bundle.refuse(f"{where}: its payload is not the one that was recorded")
        try:
            link = hash_record(self._previous, record)
        except (OverflowError, ValueError) as error:
            raise self._bundle.refuse(f"{where} cannot be a record: {error}") from error
        if link != record.hash:
            raise self._bundle.refuse(f"{where}: its hash does not follow from its content and the record before it")
        self._previous = record.hash

    def take_blob(self, line: BlobLine, lines: Iterator[AnyLine]) -> None:
        if len(self._names):
            raise self._bundle.refuse("a blob comes after the files")
        limit = self._bundle.limits.blob_bytes
        if not 0 <= line.size <= limit:
            raise self._bundle.refuse(
                f"blob {line.address[:80]} has {count(line.size, 'byte')}, at most {limit:,} are accepted",
                kind=BundleTooLarge,
            )
        digest = hashlib.blake2b(digest_size=count_digest(line.address))
        for piece in read_content(self._bundle, line.size, lines):
            digest.update(piece)
        if address_of(digest.digest()) != line.address:
            raise self._bundle.refuse(f"blob {line.address[:80]}: the content differs from its address")
        self._blobs += 1
        self._blob_bytes += line.size

    def take_file(self, line: FileLine, lines: Iterator[AnyLine]) -> None:
        if len(self._names) >= self._bundle.limits.files:
            raise self._bundle.refuse(f"it has more than {self._bundle.limits.files:,} files", kind=BundleTooLarge)
        if line.size < 0:
            raise self._bundle.refuse(f"file {line.path!r} has {line.size} bytes")
        try:
            self._names.add(line.path)
        except BundleRefused as error:
            raise self._bundle.refuse(str(error), kind=BundleRefused) from error
        self._file_bytes += line.size
        _drain(read_content(self._bundle, line.size, lines))

    def take_end(self, line: EndLine) -> None:
        found = (self._records, self._blobs, len(self._names))
        if (line.records, line.blobs, line.files) != found or self._records != self._manifest.records:
            raise self._bundle.refuse(
                f"it has {count(self._records, 'record')}, {count(self._blobs, 'blob')} and "
                f"{count(len(self._names), 'file')}, but declares other numbers"
            )
        if self._records == 0 or self._previous.hex() != self._manifest.head:
            raise self._bundle.refuse("its records do not end at the head it names")

    def contents(self) -> Contents:
        return Contents(
            manifest=self._manifest, digest=self._bundle.digest, total_bytes=self._bundle.total_bytes,
            records=self._records,
            erased=self._erased, blobs=self._blobs, blob_bytes=self._blob_bytes, files=len(self._names),
            file_bytes=self._file_bytes,
        )  # fmt: skip


# Importing


def take_in(
    log: RecordImports,
    blobs: Blobs,
    bundle: OpenBundle,
    contents: Contents,
    *,
    extend: bool = False,
    is_inert: bool = False,
    is_moved: bool = False,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Import a bundle that was checked: the second step. The session's import is finished after the last line."""
    manifest = contents.manifest
    session = manifest.session
    folder = ScratchFolder(scratch) if scratch is not None and contents.files else None
    try:
        missing = log.begin_import(session, manifest.records, bytes.fromhex(manifest.head), extend=extend)
        with closing(bundle.read_lines(progress)) as lines:
            for batch in _cut_batches(bundle, session, lines):
                match batch:
                    case list():
                        _take_records(log, session, batch, missing)
                    case BlobLine():
                        _take_blob(bundle, blobs, batch, lines)
                    case FileLine():
                        _take_file(bundle, folder, batch, lines)
        blobs.flush()
        if folder is not None:
            folder.finish()
    except BaseException:
        if folder is not None:
            folder.discard()
        raise
    is_new = missing <= manifest.records
    if not is_moved and (is_new or not is_inert):
        log.finish_import(session, is_inert=is_inert)
    head = Head(manifest.records, bytes.fromhex(manifest.head))
    files = contents.files if folder is not None else 0
    return Loaded(contents, head, max(0, manifest.records - missing + 1), contents.blobs, files)


def _cut_batches(
    bundle: OpenBundle, session: str, lines: Iterator[AnyLine]
) -> Iterator[list[Record] | BlobLine | FileLine]:
    """Yield records in batches, and lines of blobs and files. The caller reads their chunks from the same stream."""
    batch: list[Record] = []
    for line in lines:
        if isinstance(line, RecordLine):
            batch.append(read_record(session, line))
            if len(batch) < BATCH_RECORDS:
                continue
        if batch:
            yield batch
            batch = []
        if isinstance(line, (BlobLine, FileLine)):
            yield line


def _take_records(log: RecordImports, session: str, batch: list[Record], missing: int) -> None:
    fresh = [record for record in batch if record.seq >= missing]
    if fresh:
        log.import_records(session, fresh)


def _take_blob(bundle: OpenBundle, blobs: Blobs, line: BlobLine, lines: Iterator[AnyLine]) -> None:
    """Store a blob under the address of its content. Raises BundleRefused if the bundle names another address."""
    if not 0 <= line.size <= bundle.limits.blob_bytes:
        raise _changed(bundle)
    content = b"".join(read_content(bundle, line.size, lines))
    address = blobs.add(content) if count_digest(line.address) == SHORT_BYTES else blobs.put(content)
    if address != line.address:
        raise _changed(bundle)


def _changed(bundle: OpenBundle) -> BundleRefused:
    return bundle.refuse("it changed while it was loaded; nothing was imported, load it again")


def _take_file(bundle: OpenBundle, folder: ScratchFolder | None, line: FileLine, lines: Iterator[AnyLine]) -> None:
    pieces = read_content(bundle, line.size, lines)
    if folder is None:
        _drain(pieces)
    else:
        folder.write(line, pieces)


def _drain(pieces: Iterable[bytes]) -> None:
    for _ in pieces:
        pass

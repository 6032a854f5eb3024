"""The format of a bundle: one gzip file of JSON lines, and the limits for reading one.

The first line is the manifest. Then come the records in order, the blobs, the scratch files, and an end line with
counts and the SHA-256 of all lines before it. The contents of blobs and files come as chunks after the line that names
them. The extra field of the gzip header has the size of all lines and a digest of every other byte of the file:
SHA-256(header before the digest + SHA-256(bytes after it)). So a flipped bit anywhere is found, even in bits that
inflating ignores, and a decompression bomb must declare its size first. Any gzip program can read it. Pure, no I/O.
"""

from __future__ import annotations

import struct
from typing import Literal, TypeAlias

import msgspec

from wakeful.errors import CallerError
from wakeful.eventlog.contract import Record

FORMAT = 1
SUFFIX = ".wakeful"
CHUNK_BYTES = 256 * 1024

Cut: TypeAlias = Literal["save", "migrate", "archive"]


class BundleRefused(CallerError):
    """The file is not a bundle, or may not be loaded. Nothing was written."""


class BundleDamaged(BundleRefused):
    """The bytes of the bundle differ from those that were written, or its hash chain is broken."""


class BundleTooLarge(BundleRefused):
    """The inflated bundle, or a part of it, is larger than the limits allow."""


class BundleNotWritten(CallerError):
    """The bundle cannot be written to this path, or the session cannot be saved now."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of one bundle. A bundle that declares more is refused before it is inflated."""

    total_bytes: int = 64 * 1024**3
    line_bytes: int = 32 * 1024**2
    blob_bytes: int = 64 * 1024**2
    files: int = 100_000
    # A small file that inflates to a very large size is taken for a decompression bomb. Below the floor any ratio is
    # harmless.
    largest_ratio: int = 200
    ratio_floor_bytes: int = 1024**3


class Line(msgspec.Struct, frozen=True, tag_field="line", forbid_unknown_fields=True, omit_defaults=True):
    """One line of a bundle. Its field `line` names its type."""


class Manifest(Line, frozen=True, tag="manifest", kw_only=True):
    """The description of a bundle, in its first line.

    `about` has data of the call that made the bundle. Nothing here may be trusted before the bundle is verified.
    """

    format: int
    wakeful: str
    session: str
    name: str
    cut: Cut
    cut_at: int
    records: int
    head: str
    spec: str | None = None
    about: dict[str, str] = {}


class RecordLine(Line, frozen=True, tag="record", kw_only=True, gc=False):
    """One record, verbatim. `payload` is text. A payload that is not UTF-8 is in `raw`. An erased one is in neither."""

    seq: int
    at: int
    kind: str
    author: str
    run: int | None = None
    parent: str | None = None
    rationale: str | None = None
    payload: str | None = None
    raw: bytes | None = None
    payload_hash: bytes
    hash: bytes


class BlobLine(Line, frozen=True, tag="blob", kw_only=True):
    """The line before a blob's content, which follows in chunks."""

    address: str
    size: int


class FileLine(Line, frozen=True, tag="file", kw_only=True):
    """The line before a scratch file's content, which follows in chunks. `path` is relative, with slashes."""

    path: str
    size: int
    is_executable: bool = False


class ChunkLine(Line, frozen=True, tag="chunk", gc=False):
    data: bytes


class EndLine(Line, frozen=True, tag="end", kw_only=True):
    records: int
    blobs: int
    files: int
    sha256: str


AnyLine: TypeAlias = Manifest | RecordLine | BlobLine | FileLine | ChunkLine | EndLine


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a whole bundle, as counted. `digest` identifies the file: the SHA-256 in its header, in hex."""

    manifest: Manifest
    digest: str
    total_bytes: int
    records: int = 0
    erased: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    files: int = 0
    file_bytes: int = 0


def count_digest(address: str) -> int:
    """Return the digest size of a blob address: 20 or 32 bytes. An invalid address counts as 32, and never matches."""
    return 20 if len(address) == len("blake2b-") + 40 else 32


def write_record(record: Record) -> RecordLine:
    text, raw = None, None
    if record.payload is not None:
        try:
            text = record.payload.decode()
        except UnicodeDecodeError:
            raw = record.payload
    return RecordLine(
        seq=record.seq, at=record.at, kind=record.kind, author=record.author, run=record.run, parent=record.parent,
        rationale=record.rationale, payload=text, raw=raw, payload_hash=record.payload_hash, hash=record.hash,
    )  # fmt: skip


def read_record(session: str, line: RecordLine) -> Record:
    payload = line.raw if line.payload is None else line.payload.encode()
    return Record(
        session,
        line.seq,
        line.at,
        line.kind,
        line.author,
        line.run,
        line.parent,
        line.rationale,
        payload,
        line.payload_hash,
        line.hash,
    )


# The start of the gzip header: magic, deflate, an extra field, no time, no name. Our only extra subfield, "Wk", follows
# with size and digest.
HEADER_START = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x2c\x00Wk\x28\x00"
DIGEST_BYTES = 32
_SIZE = struct.Struct("<Q")
HEADER_BYTES = len(HEADER_START) + _SIZE.size + DIGEST_BYTES
TRAILER = struct.Struct("<II")


def write_header(total_bytes: int, digest: bytes) -> bytes:
    return write_declaration(total_bytes) + digest


def write_declaration(total_bytes: int) -> bytes:
    """Write the part of the header that the digest covers."""
    return HEADER_START + _SIZE.pack(total_bytes)


def read_header(header: bytes) -> tuple[int, bytes]:
    """Return the declared size of the lines and digest of the file. Raises BundleRefused if this is not our header."""
    if len(header) != HEADER_BYTES or not header.startswith(HEADER_START):
        raise BundleRefused("it does not begin like a bundle; was it made by `wakeful save`, and copied whole?")
    (total,) = _SIZE.unpack_from(header, len(HEADER_START))
    return total, header[-DIGEST_BYTES:]

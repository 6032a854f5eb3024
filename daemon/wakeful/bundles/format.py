"""The format of a bundle: one gzip file of JSON lines, and the limits within which one is read.

The first line is the manifest, then come the records in order, the blobs, the scratch files, and an end with counts and
the SHA-256 of all lines before it. Contents larger than a line come as chunks after the line that names them. The gzip
header carries, in its extra field, how large the lines are and a digest over every other byte of the file,
SHA-256(header before it + SHA-256(what follows it)): a flipped bit anywhere is found, also in the bits that inflating
ignores, and a bomb has to say its size first. Any gzip program can read it. Pure values, no I/O.
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
    """The file is no bundle, or not one that may be taken in; nothing was written."""


class BundleDamaged(BundleRefused):
    """Bytes of the bundle are not those that were written, or its records do not follow from each other."""


class BundleTooLarge(BundleRefused):
    """The bundle is larger, inside, than may be taken in."""


class BundleNotWritten(CallerError):
    """The bundle cannot be written there, or not of this session now."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of one bundle. A bundle that declares more is refused before it is inflated."""

    total_bytes: int = 64 * 1024**3
    line_bytes: int = 32 * 1024**2
    blob_bytes: int = 64 * 1024**2
    files: int = 100_000
    # A small file that inflates to very much is a bomb before it is a session; below the floor any ratio is harmless.
    largest_ratio: int = 200
    ratio_floor_bytes: int = 1024**3


class Line(msgspec.Struct, frozen=True, tag_field="line", forbid_unknown_fields=True, omit_defaults=True):
    """One line of a bundle, told apart by its `line`."""


class Manifest(Line, frozen=True, tag="manifest", kw_only=True):
    """The description of a bundle, in its first line.

    `about` is for the call that cut the bundle; nothing here is believed before it is verified.
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
    """One record, verbatim. Its payload stands as text; one that is not Unicode as `raw`; an erased one has neither."""

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
    """A blob follows, in chunks."""

    address: str
    size: int


class FileLine(Line, frozen=True, tag="file", kw_only=True):
    """A scratch file follows, in chunks. `path` is relative, with slashes."""

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
    """The contents of a whole bundle, as found. `digest` names the file: the SHA-256 in its header, in hexadecimal."""

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
    """How many bytes of blake2b an address has: blobs know 32 and 20. Any other ends as 32, which it will not match."""
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


# The gzip header: magic, deflate, an extra field, no time, no name; then our one extra subfield "Wk": size and digest.
HEADER_START = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x2c\x00Wk\x28\x00"
DIGEST_BYTES = 32
_SIZE = struct.Struct("<Q")
HEADER_BYTES = len(HEADER_START) + _SIZE.size + DIGEST_BYTES
TRAILER = struct.Struct("<II")


def write_header(total_bytes: int, digest: bytes) -> bytes:
    return write_declaration(total_bytes) + digest


def write_declaration(total_bytes: int) -> bytes:
    """The part of the header that its digest covers."""
    return HEADER_START + _SIZE.pack(total_bytes)


def read_header(header: bytes) -> tuple[int, bytes]:
    """The size of the lines and the digest of the file, as declared."""
    if len(header) != HEADER_BYTES or not header.startswith(HEADER_START):
        raise BundleRefused("it does not begin as a bundle does; was it made by `wakeful save`, and copied whole?")
    (total,) = _SIZE.unpack_from(header, len(HEADER_START))
    return total, header[-DIGEST_BYTES:]

"""Reads a bundle as a stream and trusts nothing in it: the size, type and order of every line is checked.

`load` reads the same open file twice: once to verify everything, once to import it. The bundle's digests are checked
only at the end of the stream. A caller that acts on earlier lines must be able to undo that.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from wakeful.bundles.format import (
    CHUNK_BYTES,
    FORMAT,
    HEADER_BYTES,
    TRAILER,
    AnyLine,
    BlobLine,
    BundleDamaged,
    BundleRefused,
    BundleTooLarge,
    ChunkLine,
    EndLine,
    FileLine,
    Limits,
    Manifest,
    RecordLine,
    read_header,
    write_declaration,
)
from wakeful.eventlog.contract import Progress
from wakeful.text.display import count

_READ_BYTES = 64 * 1024
_INFLATED_BYTES = 1024 * 1024
_U32 = 0xFFFFFFFF
_CHANGED = "its bytes are not those that were written; it was damaged or changed, fetch it again"


class _Version(msgspec.Struct):
    """The part of a manifest that every format has. It decides whether the rest can be read."""

    format: int


class OpenBundle:
    """A bundle's file, kept open so that the verified file is the imported one."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        try:
            # O_NONBLOCK, because a pipe would block. Links are followed: the person chose the path.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._file: BinaryIO = open(descriptor, "rb")
        except OSError as error:
            raise BundleRefused(f"{path} cannot be read: {error.strerror or error}") from error
        self.path = path
        try:
            self.total_bytes, self._digest = self._read_header()
        except BaseException:
            self._file.close()
            raise

    @property
    def digest(self) -> str:
        return self._digest.hex()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> OpenBundle:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def refuse(self, what: str, *, kind: type[BundleRefused] = BundleDamaged) -> BundleRefused:
        return kind(f"{self.path}: {what}")

    def read_manifest(self) -> Manifest:
        """Read the first line, unverified."""
        with_first = self._read_lines(None)
        return self._parse_manifest(next(with_first, b""))

    def read_lines(self, progress: Progress | None = None) -> Generator[AnyLine, None, None]:
        """Yield every line in order, from the manifest to the end. Raises BundleRefused if a check fails.

        All digests have been checked before the end line is yielded.
        """
        lines = hashlib.sha256()
        parse = msgspec.json.Decoder(RecordLine | BlobLine | FileLine | ChunkLine | EndLine).decode
        texts = self._read_lines(progress)
        first = next(texts, b"")
        lines.update(first + b"\n")
        yield self._parse_manifest(first)
        end: EndLine | None = None
        for number, text in enumerate(texts, 2):
            if end is not None:
                raise self.refuse(f"line {number} comes after its end")
            try:
                line = parse(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self.refuse(f"line {number} is not a line of a bundle: {error}") from error
            if isinstance(line, EndLine):
                end = line
                continue
            lines.update(text)
            lines.update(b"\n")
            yield line
        if end is None or lines.hexdigest() != end.sha256:
            raise self.refuse(_CHANGED if end is not None else "its end is missing; it was not copied whole")
        yield end

    def _read_header(self) -> tuple[int, bytes]:
        try:
            found = os.fstat(self._file.fileno())
            header = self._file.read(HEADER_BYTES) or b""
            total, digest = read_header(header)
        except (BundleRefused, OSError) as error:
            raise self.refuse(str(error), kind=BundleRefused) from error
        if total > self.limits.total_bytes:
            raise self.refuse(
                f"it has {total:,} bytes, at most {self.limits.total_bytes:,} are accepted", kind=BundleTooLarge
            )
        if total > self.limits.ratio_floor_bytes and total > found.st_size * self.limits.largest_ratio:
            raise self.refuse(
                f"it has {found.st_size:,} bytes that inflate to {total:,}: it is a decompression bomb",
                kind=BundleTooLarge,
            )
        return total, digest

    def _parse_manifest(self, text: bytes) -> Manifest:
        try:
            version = msgspec.json.decode(text, type=_Version).format
            if version != FORMAT:
                raise self.refuse(
                    f"it has format {version}, this release reads {FORMAT}; load it with the wakeful that wrote it",
                    kind=BundleRefused,
                )
            return msgspec.json.decode(text, type=Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.refuse(f"its first line is not a manifest: {error}") from error

    def _read_lines(self, progress: Progress | None) -> Iterator[bytes]:
        """Yield lines without their line ends. Raises BundleDamaged if the last line has no line end."""
        rest = b""
        for piece in self._inflate(progress):
            rest += piece
            if b"\n" in piece:
                *whole, rest = rest.split(b"\n")
                yield from whole
            if len(rest) > self.limits.line_bytes:
                raise self.refuse(f"a line is longer than {self.limits.line_bytes:,} bytes", kind=BundleTooLarge)
        if rest:
            raise self.refuse("its last line has no end; it was not copied whole")

    def _inflate(self, progress: Progress | None) -> Iterator[bytes]:
        """Yield the inflated bytes in pieces of at most a megabyte. All checks of sizes, CRC and digest are here."""
        self._file.seek(HEADER_BYTES)
        body, crc, done = hashlib.sha256(), 0, 0
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        while not inflate.eof:
            data = inflate.unconsumed_tail
            if not data:
                data = self._file.read(_READ_BYTES)
                body.update(data)
            if not data:
                raise self.refuse("it ends too early; it was not copied whole")
            try:
                piece = inflate.decompress(data, _INFLATED_BYTES)
            except zlib.error as error:
                raise self.refuse(f"{_CHANGED} ({error})") from error
            done += len(piece)
            if done > self.total_bytes:
                raise self.refuse(f"it has more than the {self.total_bytes:,} bytes it declares")
            crc = zlib.crc32(piece, crc)
            yield piece
            if progress is not None:
                progress(done, self.total_bytes)
        trailer = inflate.unused_data + self._file.read(TRAILER.size + 1)
        body.update(trailer[len(inflate.unused_data) :])
        digest = hashlib.sha256(write_declaration(self.total_bytes) + body.digest()).digest()
        if trailer != TRAILER.pack(crc, done & _U32) or done != self.total_bytes or digest != self._digest:
            raise self.refuse(_CHANGED)


def read_content(bundle: OpenBundle, size: int, lines: Iterator[AnyLine]) -> Iterator[bytes]:
    """Yield the chunks of a content of this size. Raises BundleDamaged if a chunk is missing or has another size."""
    left = size
    while left > 0:
        line = next(lines, None)
        expected = min(left, CHUNK_BYTES)
        if not isinstance(line, ChunkLine) or len(line.data) != expected:
            raise bundle.refuse(
                f"a chunk of {count(expected, 'byte')} was expected; it was damaged or changed, fetch it again"
            )
        left -= expected
        yield line.data

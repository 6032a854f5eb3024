"""The record of one run's files: which paths it found, which it left, and where their contents are kept.

A record is one JSON blob, whose address stands in `run_finished`; a long list of paths is kept apart, so that a
binding that did not change costs the next record one address. Values and their reading, nothing else.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from wakeful.errors import OperatorError
from wakeful.system.blobs import Blobs, address_of

FORMAT = 1
# A list of so many paths stands in the record itself: a small run is one small blob.
INLINE_PATHS = 64
# The reason for a content that the record names and nobody finds. Contents that runs read are kept after the record is
# written.
GONE = "it changed before it was read, or was removed since"


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One path, relative to root or absolute where it lies outside.

    `kind` is f, x (executable), l (link), or p, s, c, b.

    `digest` is that of the content, of the file behind it for a link; empty where there is none to keep.
    """

    path: str
    kind: str
    digest: str = ""
    size: int = 0
    mode: int = 0
    # Where a link leads, in its own words.
    link: str | None = None
    # Why its content cannot be had: `too large`, `changed`.
    not_kept: str | None = None
    # The path's bytes where they are no UTF-8, in hexadecimal digits.
    raw: str | None = None

    @property
    def name(self) -> str:
        """The path as the system calls take it."""
        return self.path if self.raw is None else os.fsdecode(bytes.fromhex(self.raw))

    @property
    def address(self) -> str | None:
        """The blob that holds its content, if it was kept; None where it was not."""
        return address_of(bytes.fromhex(self.digest)) if self.digest and self.not_kept is None else None


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The contents of a binding's target at one look: in place,
    or as the address of a list in parts (path_lists.py)."""

    version: str | None = None
    entries: tuple[Entry, ...] = ()
    listing: str | None = None
    # Something had changed since that look: this may not be what the run found.
    is_stale: bool = False


class BindingFiles(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`after` only of what the run may write."""

    name: str
    access: str
    before: Found | None = None
    after: Found | None = None

    @property
    def is_written(self) -> bool:
        return self.access != "read"


class RunFiles(Struct, frozen=True, kw_only=True):
    """The files of one run."""

    format: int = FORMAT
    run_id: str
    root: str
    bindings: tuple[BindingFiles, ...]


_RECORD = msgspec.json.Decoder(RunFiles)


def read_record(blobs: Blobs, address: str) -> RunFiles:
    """Blocks. Raises UnknownBlob when it was erased, OperatorError when it is damaged."""
    try:
        return _RECORD.decode(blobs.get(address))
    except msgspec.DecodeError as error:
        raise OperatorError(f"blob {address}: expected the files of a run, found something else: {error}") from error

"""The record of one run's files: the paths that it found, the paths that it left, and where their contents are kept.

A record is one JSON blob, whose address is in `run_finished`. A long list of paths is a separate blob, so that an
unchanged binding costs the next record only an address. This module has only these values and how to read them.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from wakeful.errors import OperatorError
from wakeful.system.blobs import Blobs, address_of

FORMAT = 1
# The most paths of a list that is stored in the record itself, so that a small run is one small blob.
INLINE_PATHS = 64
# The reason shown for a content that the record names but that is not found. Inputs are kept only after the record is
# written, so some may be missing.
GONE = "it changed before it was read, or was removed since"


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One path, relative to root, or absolute if it is outside of root.

    `kind` is f (file), x (executable file), l (link), p (FIFO), s (socket), c or b (device). `digest` is the digest of
    the content. For a link, it is the digest of the file behind it. It is empty if there is no content to keep.
    """

    path: str
    kind: str
    digest: str = ""
    size: int = 0
    mode: int = 0
    # The target of a link, as the link spells it.
    link: str | None = None
    # The reason why its content is not kept: `too large`, `changed`.
    not_kept: str | None = None
    # The path's bytes in hexadecimal digits, if they are not UTF-8.
    raw: str | None = None

    @property
    def name(self) -> str:
        """The path for system calls."""
        return self.path if self.raw is None else os.fsdecode(bytes.fromhex(self.raw))

    @property
    def address(self) -> str | None:
        """The address of the blob with its content; None if the content was not kept."""
        return address_of(bytes.fromhex(self.digest)) if self.digest and self.not_kept is None else None


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The paths of a binding's target at one look: in `entries`, or in a list in parts (path_lists.py) at `listing`."""

    version: str | None = None
    entries: tuple[Entry, ...] = ()
    listing: str | None = None
    # Something changed after that look, so the run may have found other files.
    is_stale: bool = False


class BindingFiles(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files of one binding. `after` is set only if the run may write them."""

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
    """Read a record. Blocking. Raises UnknownBlob if it was erased, OperatorError if it is damaged."""
    try:
        return _RECORD.decode(blobs.get(address))
    except msgspec.DecodeError as error:
        raise OperatorError(f"blob {address}: expected the files of a run, found something else: {error}") from error

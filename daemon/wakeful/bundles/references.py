"""Finds the blobs that records name: outputs of runs, lists of files and their contents, prompts, images, deliveries.

`save`, doctor and retention pass records in turn. A new kind of event that uses blobs must be added here, in one place.
Each blob is returned once, however many records name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from wakeful.core.agents.turns import Image
from wakeful.core.record.observations import Output
from wakeful.errors import OperatorError
from wakeful.eventlog.contract import Record
from wakeful.run_files.file_record import read_record
from wakeful.run_files.path_lists import read_entries, read_parts
from wakeful.system.blobs import Blobs, UnknownBlob

_PREFIX = "blake2b-"
_ADDRESS = re.compile(r"blake2b-(?:[0-9a-f]{40}|[0-9a-f]{64})")


class _Finished(msgspec.Struct):
    """The fields of a run's end that name blobs."""

    output: Output = Output()
    files: str | None = None


class _Prompt(msgspec.Struct):
    """The fields of a prompt that name blobs."""

    instructions: str | None = None
    opening: str | None = None


class _Returned(msgspec.Struct):
    """The result of a tool."""

    images: tuple[Image, ...] = ()


class _Delivered(msgspec.Struct):
    """A delivery to a webhook."""

    payload: str | None = None


class _Base(msgspec.Struct):
    base: str | None = None


class _Branched(msgspec.Struct):
    """The fields of a fork's first record, or of a merge, that name blobs."""

    workspace: _Base | None = None
    record: str | None = None


class _Merged(msgspec.Struct):
    """The blobs that a merge's record names besides its files."""

    base: str | None = None
    marked: tuple[dict[str, str], ...] = ()


_decode = msgspec.json.Decoder(_Finished).decode
_decode_prompt = msgspec.json.Decoder(_Prompt).decode
_decode_returned = msgspec.json.Decoder(_Returned).decode
_decode_delivered = msgspec.json.Decoder(_Delivered).decode
_decode_branched = msgspec.json.Decoder(_Branched).decode
_decode_merged = msgspec.json.Decoder(_Merged).decode


class References:
    """The blobs named so far, each once. `missing` counts the blobs that the caller did not find."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        # Digests as bytes. As text, the addresses of a million outputs would take 200 MB.
        self._named: set[bytes] = set()
        self.missing = 0

    def add(self, record: Record) -> None:
        if record.payload is None:
            return
        if record.kind in ("session_opened", "session_merged", "session_rewound"):
            self._add_branched(record.payload)
        if record.kind == "prompt_assembled":
            self._add_prompt(record.payload)
        if record.kind == "tool_returned":
            self._add_images(record.payload)
        if record.kind == "delivery_received":
            self._add_payload(record.payload)
        if record.kind != "run_finished":
            return
        try:
            finished = _decode(record.payload)
        except msgspec.DecodeError:
            return  # not an event of this release: the log keeps the record, and so does the bundle
        for address in (finished.output.head, finished.output.tail):
            if address is not None:
                self._name(address)
        if finished.files is not None and self._name(finished.files):
            self._add_files(finished.files)

    def _add_prompt(self, payload: bytes) -> None:
        """Add the blobs of a prompt, because the conversation moves with the session."""
        try:
            prompt = _decode_prompt(payload)
        except msgspec.DecodeError:
            return  # not an event of ours
        for address in (prompt.instructions, prompt.opening):
            # The address is empty if the prompt was erased.
            if address:
                self._name(address)

    def _add_images(self, payload: bytes) -> None:
        """Add the images of a tool's result. Nearly every result has no images, and such a result is not decoded."""
        if b'"images"' not in payload:
            return
        try:
            returned = _decode_returned(payload)
        except msgspec.DecodeError:
            return  # not an event of ours
        for image in returned.images:
            self._name(image.address)

    def _add_payload(self, payload: bytes) -> None:
        try:
            delivered = _decode_delivered(payload)
        except msgspec.DecodeError:
            return  # not an event of ours
        if delivered.payload is not None:
            self._name(delivered.payload)

    def _add_branched(self, payload: bytes) -> None:
        """Add the base of a fork's workspace, and the files that a merge overwrote.

        Any host then can compare the workspace with its base and give back the overwritten files.
        """
        try:
            branched = _decode_branched(payload)
            if (
                branched.workspace is not None
                and branched.workspace.base is not None
                and self._name(branched.workspace.base)
            ):
                self._add_files(branched.workspace.base)
            if branched.record is None or not self._name(branched.record):
                return
            self._add_files(branched.record)
            merged = _decode_merged(self._blobs.get(branched.record))
        except (msgspec.DecodeError, UnknownBlob, OperatorError):
            return  # not an event of this release, or the list is missing: `save` counts it when it opens the blob
        for marked in merged.marked:
            self._name(marked.get("address", ""))
        if merged.base is not None and self._name(merged.base):
            self._add_files(merged.base)

    def __iter__(self) -> Iterator[str]:
        """Yield the addresses in order, so that the same session always gives the same bundle."""
        return (_PREFIX + digest.hex() for digest in sorted(self._named))

    def _add_files(self, address: str) -> None:
        try:
            bindings = read_record(self._blobs, address).bindings
            for found in (
                found for binding in bindings for found in (binding.before, binding.after) if found is not None
            ):
                # The contents of a list that was named before are known already.
                if found.listing is None or self._name(found.listing):
                    for part in read_parts(self._blobs, found):
                        self._name(part)
                    for entry in read_entries(self._blobs, found):
                        if entry.address is not None:
                            self._name(entry.address)
        except (UnknownBlob, OperatorError, msgspec.DecodeError):
            # The list is missing or damaged, so its contents are unknown. `save` counts it when it opens the blob.
            return

    def _name(self, address: str) -> bool:
        """Add an address. False if it was named before or is not a valid address, because payloads are not trusted."""
        if _ADDRESS.fullmatch(address) is None:
            return False
        digest = bytes.fromhex(address.removeprefix(_PREFIX))
        if digest in self._named:
            return False
        self._named.add(digest)
        return True

"""The verdict of a file target on one path, and the comparison of two versions, as values.

The file source finds the verdict, and the API turns it into text (`why PATH`).
"""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.record.events import ChangedPath


class Excluded(Struct, frozen=True):
    """The path matches the pattern, but the exclude `by` covers it."""

    by: str


class NotYetLooked(Struct, frozen=True):
    """The path matches, and the first look has not ended."""


class Found(Struct, frozen=True):
    """The path matches. `is_there` says whether the last look found it."""

    is_there: bool


class CannotTell(Struct, frozen=True):
    """The path matches, and the last look could not see its target."""

    problem: str


class NearlyMatched(Struct, frozen=True):
    """The path does not match, but perhaps was meant to match. `words` say how it differs."""

    pattern: str
    words: str


PathMeaning = Excluded | NotYetLooked | Found | CannotTell | NearlyMatched


# The content of one side, or a text that says why it cannot be shown, or None if there is no file.
Side = bytes | str | None


class Changed(Struct, frozen=True):
    """One path, with its content before and now."""

    path: str
    before: Side
    after: Side


class Delivered(Struct, frozen=True):
    """One delivery to a webhook: its label, its payload or why there is none, and the place of the whole payload."""

    label: str
    content: bytes | str
    where: str


class Compared(Struct, frozen=True, kw_only=True):
    """The comparison of two versions of a binding: the paths that differ, and the contents of the first of them."""

    paths: tuple[ChangedPath, ...] = ()
    sides: tuple[Changed, ...] = ()
    # For a webhook: its deliveries, instead of paths.
    deliveries: tuple[Delivered, ...] = ()
    # Why nothing can be compared, as text.
    problem: str | None = None


class Bounds(Struct, frozen=True, kw_only=True):
    """The limits of a comparison: the number of paths listed, of contents read, and of bytes of each content."""

    paths: int
    contents: int
    content_bytes: int

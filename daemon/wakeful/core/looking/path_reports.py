"""The verdict of a file target on one path, as values: the file source finds it, the API words it (`why PATH`)."""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.record.events import ChangedPath


class Excluded(Struct, frozen=True):
    """The pattern matches; this exclude takes the path out again."""

    by: str


class NotYetLooked(Struct, frozen=True):
    """It matches, and the first look has not ended."""


class Found(Struct, frozen=True):
    """It matches, and the last look found it there, or found nothing."""

    is_there: bool


class CannotTell(Struct, frozen=True):
    """It matches, and the last look could not see its target."""

    problem: str


class NearlyMatched(Struct, frozen=True):
    """It does not match, but perhaps was meant to: `words` say by what it differs."""

    pattern: str
    words: str


PathMeaning = Excluded | NotYetLooked | Found | CannotTell | NearlyMatched


# A content, why it cannot be shown, or None where there is nothing.
Side = bytes | str | None


class Changed(Struct, frozen=True):
    """One path and what it held before and holds now."""

    path: str
    before: Side
    after: Side


class Delivered(Struct, frozen=True):
    """One delivery to a webhook: what it is called, its payload or why there is none, and where the whole of it is."""

    label: str
    content: bytes | str
    where: str


class Compared(Struct, frozen=True, kw_only=True):
    """Two versions of a binding beside each other: which paths differ, the contents of the first of them,
    and why there is no more."""

    paths: tuple[ChangedPath, ...] = ()
    sides: tuple[Changed, ...] = ()
    # Of a webhook, the deliveries instead.
    deliveries: tuple[Delivered, ...] = ()
    # Why nothing can be compared, in words.
    problem: str | None = None


class Bounds(Struct, frozen=True, kw_only=True):
    """How much of two versions is compared: paths that are named, contents that are read,
    and bytes of each of these."""

    paths: int
    contents: int
    content_bytes: int

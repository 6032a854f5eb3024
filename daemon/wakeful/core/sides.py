"""What a path held before and holds now: the values in which sources hand contents to who compares them. Pure."""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.events import ChangedPath

# A content, why it cannot be shown, or None where there is nothing.
Side = bytes | str | None


class Changed(Struct, frozen=True):
    """One path and what it held before and holds now."""

    path: str
    before: Side
    after: Side


class Compared(Struct, frozen=True, kw_only=True):
    """Two versions of a binding beside each other: which paths differ, the contents of the first of them, and why there is no more."""

    paths: tuple[ChangedPath, ...] = ()
    sides: tuple[Changed, ...] = ()
    # Why nothing can be compared, in words.
    problem: str | None = None


class Bounds(Struct, frozen=True, kw_only=True):
    """How much of two versions is compared: paths that are named, contents that are read, and bytes of each of these."""

    paths: int
    contents: int
    content_bytes: int

"""What a file target makes of one path, as values: the file source finds it, the API says it in words (`why PATH`)."""

from __future__ import annotations

from msgspec import Struct


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

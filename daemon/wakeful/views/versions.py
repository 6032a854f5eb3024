"""Versions as people read them: the same few characters wherever one is shown, so that two places can be compared by eye.

Used by the sentences of `why` and by the command line; leans on nothing, so that a command can afford it.
"""

from __future__ import annotations

SHORT_VERSION = 12


def shorten(version: str | None) -> str:
    """Digests are told apart by their beginning; slots and positions are short anyway."""
    if version is None:
        return "nothing"
    return version if len(version) <= 24 else version[:SHORT_VERSION]

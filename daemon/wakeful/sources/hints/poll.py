"""No hints at all: every folder is refused with the reason, so that the file source polls what it follows.

Chosen by `hints: poll`, and where the system gives no watcher. The polling itself is the file source's own: it compares
stat keys with what it last saw, which no watcher of foreign make can do for it.
"""

from __future__ import annotations

from collections.abc import Iterable


class NoHints:
    """Implements `Hints`; never reports anything, and says so."""

    def __init__(self, why: str) -> None:
        self._why = why
        self.degraded: str | None = f"polling: {why}"

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(folders, self._why)

    def disarm(self, folders: Iterable[str]) -> None:
        """Nothing was armed."""

    def hear(self) -> None:
        """Nothing is held ready: it tells when it tells."""

    def close(self) -> None:
        """Nothing is open."""

"""Looks made before they are asked for: when hints were lost everything is to be looked at, and while it settles nobody works.

Owned by the file source, on the loop. A look arms before it reads, so what it found early is what the look that is asked for
would find, unless something was hinted at its target since: then it counts for nothing. One early look at a target for each
that is asked for: while a writer goes on and hints are lost again and again, reading as often would only take his time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from wakeful.sources.files.look import Finding, Followed


class Early:
    def __init__(self) -> None:
        self._waiting: deque[Followed] = deque()
        # Target -> what was found, until it is asked for.
        self._found: dict[str, Finding] = {}
        # Targets that had their early look since one was asked for.
        self._had: set[str] = set()

    def __bool__(self) -> bool:
        """Is there something that was found, armed folders with it, and not taken yet?"""
        return bool(self._found)

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def expect(self, many: Iterable[Followed]) -> None:
        """A look at each of these, at all of it, will be asked for."""
        self._waiting = deque(followed for followed in many if followed.key not in self._had)

    def next(self) -> Followed | None:
        """The next to be looked at; those that were asked for meanwhile are not."""
        while self._waiting:
            followed = self._waiting.popleft()
            if followed.is_whole and not followed.is_looking:
                self._had.add(followed.key)
                return followed
        return None

    def put(self, key: str, finding: Finding) -> None:
        self._found[key] = finding

    def take(self, key: str) -> Finding | None:
        self._had.discard(key)
        return self._found.pop(key, None)

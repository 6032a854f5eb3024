"""Unexpected exceptions met while looking: each is told once, counted, and shown by `doctor`.

All sources share one object. A source catches the exception of one path, one target or one repository, hands it over,
and goes on with the rest. Nothing here decides what becomes of the target: its source reports it as unknown (rule 5).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

# A defect that takes a new form with every path must not fill the memory.
_MOST_KEPT = 50


@dataclass(slots=True)
class Defect:
    """One kind of exception at one line of our code. The words name the path or target that was looked at first."""

    words: str
    count: int


class Defects:
    def __init__(self, tell: Callable[[str, BaseException], None] = lambda words, error: None) -> None:
        """`tell` is called when a defect is met for the first time."""
        self._tell = tell
        self._met: dict[str, Defect] = {}

    def take(self, what: str, error: BaseException) -> str:
        """Count an exception that was met while looking at `what`; the words in which a target says so."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "an unknown place"
        kind = f"{type(error).__name__} in {place}"
        known = self._met.get(kind)
        if known is None and len(self._met) < _MOST_KEPT:
            words = f"a defect of wakeful: {kind} while looking at {what}"
            self._met[kind] = Defect(words, 1)
            self._tell(words, error)
        elif known is not None:
            known.count += 1
        return f"a defect of wakeful: {kind} (wakeful doctor)"

    @property
    def met(self) -> tuple[Defect, ...]:
        return tuple(self._met.values())

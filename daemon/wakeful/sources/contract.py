"""What the reactor knows of a source: follow targets, look when asked, report observations.

Reports come on the loop, as `TargetsHinted` (look sooner) and `TargetLooked` (what was found). A source decides nothing:
it compares nothing with what was seen before a wake, keeps nothing in the log, and may report too often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from wakeful.core.observation import TargetLooked, TargetsHinted
from wakeful.core.target import Target

SourceReport = Callable[[TargetsHinted | TargetLooked], None]
TargetT = TypeVar("TargetT", bound=Target, contravariant=True)


class Source(Protocol[TargetT]):
    """One kind of target. Every method is called on the loop."""

    def follow(self, targets: Iterable[TargetT]) -> None:
        """Begin to watch these; known keys are left alone. Reports nothing by itself: the first look is asked for."""
        ...

    def forget(self, keys: Iterable[str]) -> None:
        """Watch these no longer; a look under way for one of them reports nothing."""
        ...

    def look(self, key: str, generation: int) -> None:
        """Look now and report a `TargetLooked` of this generation, at once when that is cheap, else soon."""
        ...

    async def close(self) -> None: ...

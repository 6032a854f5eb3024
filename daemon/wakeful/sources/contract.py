"""The contract of a source: follow targets, look when asked, report observations.

Reports come on the loop, as `TargetsHinted` (look sooner) and `TargetLooked` (what was found). A source decides
nothing. It does not compare a version with the one a session has seen, writes nothing to the log, and may report too
often. `Defects` collects the unexpected exceptions that all sources meet.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import Struct

from wakeful.core.deciding.plan import Look
from wakeful.core.looking.path_reports import Bounds, Compared, PathMeaning
from wakeful.core.looking.targets import Target
from wakeful.core.record.observations import TargetLooked, TargetsHinted

SourceReport = Callable[[TargetsHinted | TargetLooked], None]
TargetT = TypeVar("TargetT", bound=Target, contravariant=True)
# The type of a reading of the specs: the daemon only passes it on.
ReadingT = TypeVar("ReadingT")


class Source(Protocol[TargetT]):
    """One kind of target. Every method is called on the loop."""

    def follow(self, targets: Iterable[TargetT]) -> None:
        """Begin to watch these targets; known keys are left alone.

        Reports nothing: the first look must be asked for.
        """
        ...

    def forget(self, keys: Iterable[str]) -> None:
        """Stop watching these targets. A look under way for one of them reports nothing."""
        ...

    def look(self, key: str, generation: int) -> None:
        """Look now and report a `TargetLooked` of this generation: at once if the look is cheap, else soon."""
        ...

    async def close(self) -> None: ...


class SeenPath(Protocol):
    """One path as it was last seen: its stat key, its kind and the digest of its content (files/entry.py)."""

    @property
    def key(self) -> bytes: ...
    @property
    def kind(self) -> str: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def hashed_at(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_unstable(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class LatestLook:
    """The members of a file target at its latest look.

    `members` belongs to the source: copy it before the loop goes on. `stamp` moves whenever a stat key moved, and is
    empty where there is nothing to compare it with. `is_stale`: a hint has come since.
    """

    version: str | None
    members: Mapping[str, SeenPath]
    stamp: str = ""
    is_stale: bool = False


class Sources(Protocol):
    """All sources as the daemon knows them.

    It has targets of every kind, and the questions that only files or commits can answer.
    """

    def follow(self, targets: Iterable[Target]) -> None: ...

    def forget(self, keys: Iterable[str]) -> None: ...

    def look(self, look: Look) -> None: ...

    def hear(self) -> None:
        """Report the events that watchers hold ready, at once."""
        ...

    def list_defects(self) -> dict[str, int]:
        """Unexpected exceptions met while looking, in words, and how often each was met."""
        ...

    def explain(self, path: str) -> list[tuple[str, PathMeaning]]:
        """The meaning of this path to each file target that matches it, excludes it or nearly matches it, by key."""
        ...

    def describe(self, key: str) -> str | None:
        """A target in words: how it is watched and how much was found there. None if nobody follows it."""
        ...

    def find(self, key: str) -> LatestLook | None:
        """The result of the latest look at a file target; None before the first look,
        and for every other kind of target."""
        ...

    def peek(self, key: str) -> LatestLook | None:
        """The members of a file target at this very moment; None if finding out would take too long."""
        ...

    async def export(self, key: str, version: str, folder: str) -> None:
        """A clean copy of this version of a commits target, in a folder that is not there yet;
        raises WakefulError or OSError."""
        ...

    async def compare(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        """Two versions of a commits target side by side, with contents; or the reason why they cannot be compared."""
        ...

    async def close(self) -> None: ...


class SpecWatch(Protocol[ReadingT]):
    """The watch over the declarations themselves, as the daemon knows it."""

    @property
    def hinted(self) -> asyncio.Future[None] | None:
        """The reading under way that a hint began; None: there is none."""
        ...

    async def look(self) -> ReadingT:
        """Read the files off the loop, for `take`: at a start nothing may be decided before they are read."""
        ...

    def take(self, reading: ReadingT) -> bool:
        """Report the differences; whether another reading must follow."""
        ...

    def read(self) -> Awaitable[None]:
        """Begin a reading; done when its differences are reported. Asked for during another, it follows that."""
        ...

    def outdate(self) -> None:
        """A file gets another name: a reading under way is made again."""
        ...

    def report_again(self, name: str) -> None: ...

    async def keep(self) -> None:
        """Read again and again, unasked, until cancelled."""
        ...

    def close(self) -> None: ...


class DiskWatch(Protocol):
    """The watch over the room on disk, as the daemon knows it."""

    def look(self) -> float:
        """Report a change; returns the seconds until the next look."""
        ...

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        ...


def read_boot_seconds() -> float:
    """Seconds since boot, sleep included; where the system has no such clock,
    sleep shows as a jump of the wall clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WallClock(Protocol):
    """The clock as the daemon knows it: it rings at a wall time, and says when the wall clock jumped."""

    def start(self) -> None: ...

    def wake_at(self, wall_us: int | None) -> None: ...

    def stop(self) -> None: ...


class RepositoryNow(Struct, frozen=True, kw_only=True):
    """The repository around a folder, as it stands now. `prefix` is the folder's path in it, empty at its top."""

    git_dir: str
    common_dir: str
    prefix: str
    commit: str
    # The branch HEAD names, None where it is detached.
    branch: str | None
    object_format: str


class MergedText(Struct, frozen=True, kw_only=True):
    """A merged text. `conflicts` is None where git takes one of the three for a binary file."""

    text: bytes
    conflicts: int | None


class Git(Protocol):
    """Git for workspaces.

    Nothing is written into a user's repository, and nothing that the repository configures is run.

    Raises OperatorError with git's own words if git fails or refuses.
    """

    async def find(self, folder: str) -> RepositoryNow | None:
        """The repository around a folder; None if there is none, or if it has no commit."""
        ...

    async def check_out(self, repository: RepositoryNow, folder: str, branches: Sequence[str]) -> None:
        """Check out into an empty folder. The branches with these names are created there as well."""
        ...

    async def merge_texts(self, base: bytes, ours: bytes, theirs: bytes, names: tuple[str, str, str]) -> MergedText: ...


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
        """Count an exception that was met while looking at `what`. Returns the words for the target's problem."""
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

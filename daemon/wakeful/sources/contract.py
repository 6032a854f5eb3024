"""The contract of a source: follow targets, look when asked, report observations.

Reports arrive on the loop, as `TargetsHinted` (look sooner) and `TargetLooked` (the result of a look). A source decides
nothing: it does not compare a version with the one that a session has seen, and writes nothing to the log. It may
report too often. `Defects` collects the unexpected exceptions of all sources.
"""

from __future__ import annotations

import asyncio
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
# The type of a reading of the specs. The daemon only passes it on.
ReadingT = TypeVar("ReadingT")


class Source(Protocol[TargetT]):
    """A source for one kind of target. Every method is called on the loop."""

    def follow(self, targets: Iterable[TargetT]) -> None:
        """Begin to watch these targets. Keys that are already followed are left alone.

        Reports nothing. The caller must ask for the first look.
        """
        ...

    def forget(self, keys: Iterable[str]) -> None:
        """Stop watching these targets. A look at one of them that is under way reports nothing."""
        ...

    def look(self, key: str, generation: int) -> None:
        """Look now and report a `TargetLooked` of this generation. A cheap look reports at once, other looks soon."""
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

    `members` belongs to the source: copy it before the loop goes on. `stamp` changes whenever a stat key changes, and
    is empty if there is nothing to compare it with. `is_stale` means that a hint has arrived since.
    """

    version: str | None
    members: Mapping[str, SeenPath]
    stamp: str = ""
    is_stale: bool = False


class Sources(Protocol):
    """All sources, as the daemon uses them: targets of every kind, and the queries that only files or commits can
    answer.
    """

    def follow(self, targets: Iterable[Target]) -> None: ...

    def forget(self, keys: Iterable[str]) -> None: ...

    def look(self, look: Look) -> None: ...

    def hear(self) -> None:
        """Report the events that watchers hold ready, at once."""
        ...

    def list_defects(self) -> dict[str, int]:
        """Count the unexpected exceptions of looks, by their message."""
        ...

    def explain(self, path: str) -> list[tuple[str, PathMeaning]]:
        """Explain this path for each file target that matches it, excludes it or nearly matches it. Returns pairs of
        key and meaning.
        """
        ...

    def describe(self, key: str) -> str | None:
        """Describe a target: how it is watched, and how much was found there. None if the target is not followed."""
        ...

    def find(self, key: str) -> LatestLook | None:
        """Return the latest look at a file target. None before the first look, and for every other kind of target."""
        ...

    def peek(self, key: str) -> LatestLook | None:
        """Return the members of a file target at this moment. None if that would take too long."""
        ...

    async def export(self, key: str, version: str, folder: str) -> None:
        """Write a clean copy of this version of a commits target to a folder that does not exist yet. Raises
        WakefulError or OSError.
        """
        ...

    async def compare(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        """Compare two versions of a commits target, with contents. Returns the reason if they cannot be compared."""
        ...

    async def close(self) -> None: ...


class SpecWatch(Protocol[ReadingT]):
    """The watch over the declarations, as the daemon uses it."""

    @property
    def hinted(self) -> asyncio.Future[None] | None:
        """The reading under way that a hint began. None if there is none."""
        ...

    async def look(self) -> ReadingT:
        """Read the files off the loop, for `take`. At a start, the daemon decides nothing before the first reading."""
        ...

    def take(self, reading: ReadingT) -> bool:
        """Report the differences. Returns True if another reading must follow."""
        ...

    def read(self) -> Awaitable[None]:
        """Begin a reading. The returned awaitable is done when the differences are reported. A call during a reading
        begins another reading after it.
        """
        ...

    def outdate(self) -> None:
        """Repeat the reading under way, because a file is being renamed."""
        ...

    def report_again(self, name: str) -> None: ...

    async def keep(self) -> None:
        """Read the files repeatedly, without a request, until cancelled."""
        ...

    def close(self) -> None: ...


class DiskWatch(Protocol):
    """The watch over the free disk space, as the daemon uses it."""

    def look(self) -> float:
        """Report a change. Returns the seconds until the next look."""
        ...

    async def keep(self) -> None:
        """Look repeatedly, until cancelled."""
        ...


class WallClock(Protocol):
    """The clock as the daemon uses it: it rings at a wall time, and reports when the wall clock jumped."""

    def start(self) -> None: ...

    def wake_at(self, wall_us: int | None) -> None: ...

    def stop(self) -> None: ...


class RepositoryNow(Struct, frozen=True, kw_only=True):
    """The present state of the repository around a folder. `prefix` is the folder's path in it, empty at its top."""

    git_dir: str
    common_dir: str
    prefix: str
    commit: str
    # The branch that HEAD names. None if HEAD is detached.
    branch: str | None
    object_format: str


class MergedText(Struct, frozen=True, kw_only=True):
    """A merged text. `conflicts` is None if git treats one of the three texts as binary."""

    text: bytes
    conflicts: int | None


class Git(Protocol):
    """Git for workspaces.

    Nothing is written to a user's repository, and no command that the repository configures is run. Raises
    OperatorError with git's own message if git fails or refuses.
    """

    async def find(self, folder: str) -> RepositoryNow | None:
        """Find the repository around a folder. None if there is none, or if it has no commit."""
        ...

    async def check_out(self, repository: RepositoryNow, folder: str, branches: Sequence[str]) -> None:
        """Check out into an empty folder. The branches with these names are created there as well."""
        ...

    async def merge_texts(self, base: bytes, ours: bytes, theirs: bytes, names: tuple[str, str, str]) -> MergedText: ...


# The most kinds of defects that are stored. A defect that looks different for every path must not fill the memory.
_MOST_KEPT = 50


@dataclass(slots=True)
class Defect:
    """One kind of exception at one line of our code. `words` names the first path or target that met it."""

    words: str
    count: int


class Defects:
    def __init__(self, tell: Callable[[str, BaseException], None] = lambda words, error: None) -> None:
        """`tell` is called when a defect occurs for the first time."""
        self._tell = tell
        self._met: dict[str, Defect] = {}

    def take(self, what: str, error: BaseException) -> str:
        """Count an exception that occurred while looking at `what`. Returns the text of the target's problem."""
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

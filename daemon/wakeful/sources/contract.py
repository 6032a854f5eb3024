"""What the reactor knows of a source: follow targets, look when asked, report observations.

Reports come on the loop, as `TargetsHinted` (look sooner) and `TargetLooked` (what was found). A source decides
nothing: it compares nothing with what was seen before a wake, keeps nothing in the log, and may report too often.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import Struct

from wakeful.core.deciding.plan import Look
from wakeful.core.looking.path_reports import Bounds, Compared, PathMeaning
from wakeful.core.looking.targets import Target
from wakeful.core.record.observations import TargetLooked, TargetsHinted

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
    """What a file target held when it was last looked at.

    `members` belongs to the source: copy it before the loop goes on. `stamp` moves whenever a stat key did, and is
    empty where there is nothing to compare it with. `is_stale`: something was hinted since.
    """

    version: str | None
    members: Mapping[str, SeenPath]
    stamp: str = ""
    is_stale: bool = False


class Sources(Protocol):
    """All sources as the daemon knows them: targets of every kind, and what only files or commits can answer."""

    def follow(self, targets: Iterable[Target]) -> None: ...

    def forget(self, keys: Iterable[str]) -> None: ...

    def look(self, look: Look) -> None: ...

    def hear(self) -> None:
        """Take in at once what watchers hold ready."""
        ...

    def list_defects(self) -> dict[str, int]:
        """Unexpected exceptions met while looking, in words, and how often each was met."""
        ...

    def explain(self, path: str) -> list[tuple[str, PathMeaning]]:
        """What each file target that has to do with this path makes of it, by key."""
        ...

    def describe(self, key: str) -> str | None:
        """How a target is watched and what was found there, in words; None when nobody follows it."""
        ...

    def find(self, key: str) -> LatestLook | None:
        """What the latest look at a file target found; None before the first, and for every other kind."""
        ...

    def peek(self, key: str) -> LatestLook | None:
        """What a file target holds at this very moment; None where telling would take more than that."""
        ...

    async def export(self, key: str, version: str, folder: str) -> None:
        """A clean copy of this version of a commits target, in a folder that is not there yet;
        raises WakefulError or OSError."""
        ...

    async def compare(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        """Two versions of a commits target beside each other, with contents; why not, where that cannot be."""
        ...

    async def close(self) -> None: ...


class SpecWatch(Protocol):
    """The watch over the declarations themselves, as the daemon knows it."""

    def read(self) -> None:
        """Read them now, and report what differs."""
        ...

    def report_again(self, name: str) -> None: ...

    async def keep(self) -> None:
        """Read again and again, unasked, until cancelled."""
        ...

    def close(self) -> None: ...


class DiskWatch(Protocol):
    """The watch over the room on disk, as the daemon knows it."""

    def look(self) -> float:
        """Report what changed; returns the seconds until it should look again."""
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
    """The clock as the daemon knows it: it is woken at a wall time, and says when that time jumped."""

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
    """`conflicts` None: git takes one of them for no text."""

    text: bytes
    conflicts: int | None


class Git(Protocol):
    """What workspaces ask of git. Nothing is written into a user's repository, and nothing it configures is run.

    Raises OperatorError with git's own words where it cannot or will not.
    """

    async def find(self, folder: str) -> RepositoryNow | None:
        """None where there is no repository around it, or none with a commit."""
        ...

    async def check_out(self, repository: RepositoryNow, folder: str, branches: Sequence[str]) -> None:
        """Into an empty folder; `branches` by these names are there as well."""
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

"""Runs that outlive the daemon: what the next one needs of each, held by the supervisor of both as descriptors.

Of every run the supervisor has five: its process, the reading end of its output, what was captured of that, a keepsake
in words of our own, and the list of what it found. All are memory: no secret and no token comes to a disk by it. A run
can neither reach nor forge one, since the supervisor takes them from the daemon alone. `LiveRun` keeps, `CommandRunner`
takes and drops; a run that is not kept whole ends with its daemon, as ever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from wakeful.core.record.observations import Enforced
from wakeful.runners.contract import RunOrder
from wakeful.runners.outputs.staging import StagedBefore
from wakeful.runners.outputs.undeclared import Surveyed
from wakeful.runners.process.output_capture import measure_memory

# Of keepsakes: a daemon of another release that finds one it cannot read ends that run, which is then owed again.
_FORMAT = 1
_NAME_PREFIX, _LIST_PREFIX = "run-", "list-"
_DESCRIPTORS_PER_RUN = 5
_KEEPSAKE, _OUTPUT, _LIST = "wakeful-keepsake", "wakeful-output", "wakeful-list"


class DescriptorStore(Protocol):
    """Holds descriptors by name for as long as the supervisor lives; `capacity` is how many."""

    @property
    def capacity(self) -> int: ...
    def put(self, name: str, fds: Sequence[int]) -> bool:
        """All of them, or none: whether they were sent."""

    def remove(self, name: str) -> None:
        """Safe to repeat, and for names that were never put."""


class Keepsake(Struct, frozen=True, kw_only=True):
    """The state of a run that neither the log nor a descriptor holds.

    Times are of clocks that all processes share until the next boot.
    """

    format: int = _FORMAT
    # The state folder: its log is the one that knows the run.
    state: str
    order: RunOrder
    pid: int
    is_checking: bool
    is_wrapped: bool
    started: float
    started_boottime: float
    environment: dict[str, str]
    isolation: Enforced | None
    surveyed: tuple[Surveyed, ...]
    staged: StagedBefore | None
    # Why what it asks for is not found out, where it should be.
    untraced: str | None = None


class LeftRun(NamedTuple):
    """A run as an earlier daemon left it. The descriptors are its taker's."""

    keepsake: Keepsake
    pidfd: int
    # None: nobody had it open any more.
    output: int | None
    memory: int


class KeptRuns:
    """`left` are the descriptors that an earlier daemon had put, by name, as they were handed to this one."""

    def __init__(self, store: DescriptorStore, left: Mapping[str, Sequence[int]]) -> None:
        self._store = store
        self._left = {
            name.removeprefix(_NAME_PREFIX): tuple(fds) for name, fds in left.items() if name.startswith(_NAME_PREFIX)
        }
        self._lists = {
            name.removeprefix(_LIST_PREFIX): tuple(fds) for name, fds in left.items() if name.startswith(_LIST_PREFIX)
        }
        self._kept = set(self._left)
        # Lists of runs that have no process yet.
        self._early: dict[str, bytes] = {}

    @property
    def left(self) -> frozenset[str]:
        """The ids of runs that an earlier daemon left, and that nobody has taken yet."""
        return frozenset(self._left)

    def list_tokens(self) -> dict[str, str]:
        """Of the runs that were left, by their ids: they go on calling, whether somebody has taken them yet or not."""
        found = ((run_id, _sort(fds).get(_KEEPSAKE)) for run_id, fds in self._left.items())
        keepsakes = ((run_id, _read(fd)) for run_id, fd in found if fd is not None)
        return {run_id: keepsake.order.token for run_id, keepsake in keepsakes if keepsake is not None}

    def make_memory(self, limit_bytes: int) -> int:
        """For what is captured of an output."""
        fd = os.memfd_create(_OUTPUT)
        os.ftruncate(fd, measure_memory(limit_bytes))
        return fd

    def keep(self, keepsake: Keepsake, pidfd: int, output: int | None, memory: int) -> None:
        """In the place of what was kept of this run before."""
        run_id = keepsake.order.run_id
        if run_id in self._kept:
            self._kept.discard(run_id)
            self._store.remove(f"{_NAME_PREFIX}{run_id}")
        if (len(self._kept) + 1) * _DESCRIPTORS_PER_RUN > self._store.capacity:
            return
        try:
            words = msgspec.msgpack.encode(keepsake)
        except UnicodeEncodeError:
            # A path that is no UTF-8: such a run ends with its daemon.
            return
        fd = _remember(_KEEPSAKE, words)
        try:
            if self._store.put(
                f"{_NAME_PREFIX}{run_id}", [one for one in (pidfd, fd, memory, output) if one is not None]
            ):
                self._kept.add(run_id)
        finally:
            os.close(fd)
        if (early := self._early.pop(run_id, None)) is not None:
            self.put_list(run_id, early)

    def put_list(self, run_id: str, words: bytes) -> None:
        """Keep the list of the files it found when it began, as soon as the run is kept."""
        if run_id not in self._kept:
            self._early[run_id] = words
            return
        fd = _remember(_LIST, words)
        try:
            self._store.put(f"{_LIST_PREFIX}{run_id}", [fd])
        finally:
            os.close(fd)

    def take_list(self, run_id: str) -> bytes | None:
        """As an earlier daemon put it, once."""
        fds = self._lists.pop(run_id, ())
        words = os.pread(fds[0], os.fstat(fds[0]).st_size, 0) if fds else None
        _close(fds)
        return words

    def keeps(self, run_id: str) -> bool:
        return run_id in self._kept

    def drop(self, run_id: str) -> None:
        """Its end is recorded: nothing of it is needed any more. Safe to repeat."""
        self._early.pop(run_id, None)
        if run_id not in self._kept:
            return
        self._kept.discard(run_id)
        _close(self._left.pop(run_id, ()))
        _close(self._lists.pop(run_id, ()))
        self._store.remove(f"{_NAME_PREFIX}{run_id}")
        self._store.remove(f"{_LIST_PREFIX}{run_id}")

    def drop_others(self, run_ids: Iterable[str]) -> None:
        """Drop what an earlier daemon left of other runs than these."""
        wanted = set(run_ids)
        for run_id in (self._left.keys() | self._lists.keys()) - wanted:
            self._kept.add(run_id)
            self.drop(run_id)

    def take(self, run_id: str, state: str) -> LeftRun | None:
        """Hand out, once, what an earlier daemon left of this run; None if it is not enough to go on with.

        `state` is our state folder.
        """
        fds = self._left.pop(run_id, ())
        found = _sort(fds)
        keepsake = _read(found[_KEEPSAKE]) if _KEEPSAKE in found else None
        is_whole = keepsake is not None and "pidfd" in found and _OUTPUT in found
        if keepsake is None or not is_whole or (keepsake.state, keepsake.order.run_id) != (state, run_id):
            _close(fds)
            return None
        os.close(found[_KEEPSAKE])
        return LeftRun(keepsake, found["pidfd"], found.get("pipe"), found[_OUTPUT])


def _sort(fds: Iterable[int]) -> dict[str, int]:
    """By what they are: the store gives them back in an order of its own."""
    found = {}
    for fd in fds:
        kind = os.fstat(fd).st_mode
        if stat.S_ISFIFO(kind):
            found["pipe"] = fd
        elif stat.S_ISREG(kind):
            # "/memfd:NAME (deleted)"
            found[os.readlink(f"/proc/self/fd/{fd}").removeprefix("/memfd:").removesuffix(" (deleted)")] = fd
        else:
            found["pidfd"] = fd
    return found


def _read(fd: int) -> Keepsake | None:
    size = os.fstat(fd).st_size
    try:
        keepsake = msgspec.msgpack.decode(os.pread(fd, size, 0), type=Keepsake)
    except msgspec.MsgspecError:
        return None
    return keepsake if keepsake.format == _FORMAT else None


def _remember(name: str, words: bytes) -> int:
    """A file in memory."""
    fd = os.memfd_create(name)
    view = memoryview(words)
    while view:
        view = view[os.write(fd, view) :]
    return fd


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)

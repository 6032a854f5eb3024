"""Runs that outlive the daemon. The supervisor (systemd) holds descriptors with all that the next daemon needs.

Each run has five descriptors: its pidfd, the reading end of its output, the captured output, its saved state
(`KeptRunState`), and the list of files that it found. All are in memory, so no secret and no token reaches a disk. A
run can neither read nor forge them, because the supervisor accepts descriptors only from the daemon. `LiveRun` keeps
runs, and `CommandRunner` takes and drops them. A run that cannot be kept completely ends with its daemon.
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
from wakeful.runners.outputs.undeclared_changes import Surveyed
from wakeful.runners.process.output_capture import measure_memory

# The format of the saved state. A daemon that cannot read the state of another release ends that run, and its work is
# owed again.
_FORMAT = 1
_NAME_PREFIX, _LIST_PREFIX = "run-", "list-"
_DESCRIPTORS_PER_RUN = 5
_KEPT_STATE, _OUTPUT, _LIST = "wakeful-keepsake", "wakeful-output", "wakeful-list"


class DescriptorStore(Protocol):
    """Holds descriptors by name for as long as the supervisor lives. `capacity` is the most descriptors it holds."""

    @property
    def capacity(self) -> int: ...
    def put(self, name: str, fds: Sequence[int]) -> bool:
        """Store all of these descriptors, or none. True if they were sent."""

    def remove(self, name: str) -> None:
        """Remove the descriptors of this name. Safe to repeat, and for unknown names."""


class KeptRunState(Struct, frozen=True, kw_only=True):
    """The state of a run that neither the log nor a descriptor holds.

    Its times are of clocks that all processes share until the next boot.
    """

    format: int = _FORMAT
    # The state folder whose log records the run.
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
    # Describes why the run is not traced although it should be; None otherwise.
    untraced: str | None = None


class LeftRun(NamedTuple):
    """A run as an earlier daemon left it. The caller that takes it owns the descriptors."""

    kept_state: KeptRunState
    pidfd: int
    # None if no process had the output open any more.
    output: int | None
    memory: int


class KeptRuns:
    """The runs that outlive the daemon.

    `left` holds the descriptors, by name, that an earlier daemon stored and the supervisor passed to this one.
    """

    def __init__(self, store: DescriptorStore, left: Mapping[str, Sequence[int]]) -> None:
        self._store = store
        self._left = {
            name.removeprefix(_NAME_PREFIX): tuple(fds) for name, fds in left.items() if name.startswith(_NAME_PREFIX)
        }
        self._lists = {
            name.removeprefix(_LIST_PREFIX): tuple(fds) for name, fds in left.items() if name.startswith(_LIST_PREFIX)
        }
        self._kept = set(self._left)
        # The file lists of runs that are not kept yet.
        self._early: dict[str, bytes] = {}

    @property
    def left(self) -> frozenset[str]:
        """The ids of runs that an earlier daemon left and that were not taken yet."""
        return frozenset(self._left)

    def list_tokens(self) -> dict[str, str]:
        """Map the ids of left runs to their tokens. These runs call the daemon even before it has taken them."""
        found = ((run_id, _sort(fds).get(_KEPT_STATE)) for run_id, fds in self._left.items())
        read = ((run_id, _read(fd)) for run_id, fd in found if fd is not None)
        return {run_id: kept_state.order.token for run_id, kept_state in read if kept_state is not None}

    def make_memory(self, limit_bytes: int) -> int:
        """Make a memory file for captured output."""
        fd = os.memfd_create(_OUTPUT)
        os.ftruncate(fd, measure_memory(limit_bytes))
        return fd

    def keep(self, kept_state: KeptRunState, pidfd: int, output: int | None, memory: int) -> None:
        """Keep a run. The new state replaces an earlier one. If the store is full, the run is not kept any more."""
        run_id = kept_state.order.run_id
        if run_id in self._kept:
            self._kept.discard(run_id)
            self._store.remove(f"{_NAME_PREFIX}{run_id}")
        if (len(self._kept) + 1) * _DESCRIPTORS_PER_RUN > self._store.capacity:
            return
        try:
            words = msgspec.msgpack.encode(kept_state)
        except UnicodeEncodeError:
            # A path is not UTF-8. Such a run ends with its daemon.
            return
        fd = _remember(_KEPT_STATE, words)
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
        """Keep the list of the files that the run found when it began: now, or as soon as the run is kept."""
        if run_id not in self._kept:
            self._early[run_id] = words
            return
        fd = _remember(_LIST, words)
        try:
            self._store.put(f"{_LIST_PREFIX}{run_id}", [fd])
        finally:
            os.close(fd)

    def take_list(self, run_id: str) -> bytes | None:
        """Return, once, the list that an earlier daemon stored; None if there is none."""
        fds = self._lists.pop(run_id, ())
        words = os.pread(fds[0], os.fstat(fds[0]).st_size, 0) if fds else None
        _close(fds)
        return words

    def keeps(self, run_id: str) -> bool:
        return run_id in self._kept

    def drop(self, run_id: str) -> None:
        """Drop everything that is kept about a run, because the run's end is recorded. Safe to repeat."""
        self._early.pop(run_id, None)
        if run_id not in self._kept:
            return
        self._kept.discard(run_id)
        _close(self._left.pop(run_id, ()))
        _close(self._lists.pop(run_id, ()))
        self._store.remove(f"{_NAME_PREFIX}{run_id}")
        self._store.remove(f"{_LIST_PREFIX}{run_id}")

    def drop_others(self, run_ids: Iterable[str]) -> None:
        """Drop everything that an earlier daemon left, except for these runs."""
        wanted = set(run_ids)
        for run_id in (self._left.keys() | self._lists.keys()) - wanted:
            self._kept.add(run_id)
            self.drop(run_id)

    def take(self, run_id: str, state: str) -> LeftRun | None:
        """Return, once, this run as an earlier daemon left it; None if its descriptors are not complete.

        `state` is this daemon's state folder.
        """
        fds = self._left.pop(run_id, ())
        found = _sort(fds)
        kept_state = _read(found[_KEPT_STATE]) if _KEPT_STATE in found else None
        is_whole = kept_state is not None and "pidfd" in found and _OUTPUT in found
        if kept_state is None or not is_whole or (kept_state.state, kept_state.order.run_id) != (state, run_id):
            _close(fds)
            return None
        os.close(found[_KEPT_STATE])
        return LeftRun(kept_state, found["pidfd"], found.get("pipe"), found[_OUTPUT])


def _sort(fds: Iterable[int]) -> dict[str, int]:
    """Map descriptors by their kind, because the store returns them in any order."""
    found = {}
    for fd in fds:
        kind = os.fstat(fd).st_mode
        if stat.S_ISFIFO(kind):
            found["pipe"] = fd
        elif stat.S_ISREG(kind):
            # The link reads "/memfd:NAME (deleted)".
            found[os.readlink(f"/proc/self/fd/{fd}").removeprefix("/memfd:").removesuffix(" (deleted)")] = fd
        else:
            found["pidfd"] = fd
    return found


def _read(fd: int) -> KeptRunState | None:
    size = os.fstat(fd).st_size
    try:
        kept_state = msgspec.msgpack.decode(os.pread(fd, size, 0), type=KeptRunState)
    except msgspec.MsgspecError:
        return None
    return kept_state if kept_state.format == _FORMAT else None


def _remember(name: str, words: bytes) -> int:
    """Write bytes to a new memory file, and return its descriptor."""
    fd = os.memfd_create(name)
    view = memoryview(words)
    while view:
        view = view[os.write(fd, view) :]
    return fd


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)

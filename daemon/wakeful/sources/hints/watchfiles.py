"""Hints by watchfiles, for systems without inotify and for the setting `hints: watchfiles`.

watchfiles cannot add a folder to a running watch. So folders are watched in groups of doubling size, each with its own
notifier and thread. Adding n folders one by one then takes n log n steps, and only a few notifiers exist. watchfiles
drops overflow silently and fails on a name that is not UTF-8 (measured with 1.3.0). So a very large batch and every
error are reported as `Lost`.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Iterable
from typing import Literal, Protocol

from wakeful.sources.hints.contract import NOT_A_FOLDER, NOT_THERE, Dirt, Dirty, Gone, Lost, Report

# A batch is passed on when nothing was added for one step, so the step is the latency. A group at rest costs 1 ms per
# second.
_DEBOUNCE_MS = 100
_STEP_MS = 20
# Milliseconds until a group notices that it was closed.
_TIMEOUT_MS = 500
_FIRST_BACK_OFF_SECONDS = 0.1
_LONGEST_BACK_OFF_SECONDS = 30.0
# The most seconds to wait for the threads of the groups at a close.
_CLOSING_SECONDS = 5.0
# The number of changes from which a batch may be the rest of an overflow. The kernel's queue holds 16,384 events, two
# or three per file.
_SUSPICIOUS_BATCH = 4096


# The value of `watchfiles.Change.deleted`, without the import.
DELETED = 3


class Notifier(Protocol):
    """One watch of some folders, as the extension of watchfiles provides it."""

    def watch(
        self, debounce_ms: int, step_ms: int, timeout_ms: int, stop: threading.Event
    ) -> set[tuple[int, str]] | Literal["signal", "stop", "timeout"]: ...

    def close(self) -> None: ...


def open_notifier(folders: Iterable[str]) -> Notifier:
    """Watch these folders from now on.

    Only this function uses a private module of watchfiles, and a test names the version with which it was measured. The
    public `watch` opens the watch at its first wait, but a folder must be watched before it is listed. The import is
    here, because only `hints: watchfiles` and systems other than Linux need it.
    """
    from watchfiles._rust_notify import RustNotify

    # No debugging, no polling (no delay), not recursive, and folders that cannot be read are ignored.
    return RustNotify(sorted(folders), False, False, 0, False, True)


class WatchfilesHints:
    """Implements `Hints`."""

    degraded: str | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        self._loop = loop
        self._report = report
        self._lock = threading.Lock()
        self._groups: list[_Group] = []
        # The device and inode of each watched folder. Removed when it is reported gone, because inode numbers are soon
        # used again.
        self._identities: dict[str, tuple[int, int]] = {}
        self._is_closed = False

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        with self._lock:
            problems, alive = _sort_out(folders)
            # There may be another folder at a known path, while its notifier still watches the old one.
            fresh = {folder for folder, identity in alive.items() if self._identities.get(folder) != identity}
            for group in [group for group in self._groups if group.folders & fresh]:
                fresh |= group.folders
                self._end(group)
            self._identities |= alive
            return problems | self._begin(fresh)

    def disarm(self, folders: Iterable[str]) -> None:
        # Removing a folder from a notifier would need a new notifier for the rest of the group. So the notifier keeps
        # the folder until the group is merged next, and the folder's names are dropped.
        with self._lock:
            unwanted = set(folders)
            for folder in unwanted:
                self._identities.pop(folder, None)
            for group in list(self._groups):
                group.folders -= unwanted
                if not group.folders:
                    self._end(group)

    def hear(self) -> None:
        """Do nothing, because there is no queue."""

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            groups, self._groups = self._groups, []
        for group in groups:
            group.stop.set()
        for group in groups:
            group.runner.join(_CLOSING_SECONDS)

    def _begin(self, folders: set[str]) -> dict[str, str]:
        if not folders:
            return {}
        while self._groups and len(self._groups[-1].folders) < 2 * len(folders):
            group = self._groups[-1]
            folders |= group.folders
            self._end(group)
        try:
            notifier = open_notifier(folders)
        except Exception as problem:  # the extension raises its own bare exceptions in addition to OSError
            self._post((Lost(f"watchfiles: {problem}"),))
            for folder in folders:
                self._identities.pop(folder, None)
            return dict.fromkeys(folders, f"watchfiles: {problem}")
        group = _Group(folders)
        group.runner = threading.Thread(target=self._follow, args=(group, notifier), name="hints", daemon=True)
        self._groups.append(group)
        group.runner.start()
        return {}

    def _end(self, group: _Group) -> None:
        """End a group. Its folders count as dirty, which covers the events that it had not passed on."""
        group.stop.set()
        self._groups.remove(group)
        self._post(tuple(Dirty(folder, None) for folder in group.folders))

    def _follow(self, group: _Group, notifier: Notifier) -> None:
        """Wait for batches, and start again after every error. Runs in the group's own thread."""
        pause = _FIRST_BACK_OFF_SECONDS
        while not group.stop.is_set():
            try:
                found = notifier.watch(_DEBOUNCE_MS, _STEP_MS, _TIMEOUT_MS, group.stop)
                if isinstance(found, set):
                    self._post(self._note_endings(_translate(found, group.folders)))
                    pause = _FIRST_BACK_OFF_SECONDS
            except Exception as problem:  # as in _begin; hints were lost in any case
                if group.stop.wait(pause):
                    break
                pause = min(pause * 2, _LONGEST_BACK_OFF_SECONDS)
                notifier = self._reopen(group, notifier, problem)
        notifier.close()

    def _reopen(self, group: _Group, notifier: Notifier, problem: Exception) -> Notifier:
        notifier.close()
        _, alive = _sort_out(group.folders)
        try:
            notifier = open_notifier(alive)
        except Exception as another:  # as in _begin; the closed notifier raises again and the pause doubles
            problem = another
        # Reported after the new notifier watches, so that the look that follows misses nothing.
        self._post(
            (
                Lost(f"watchfiles: {problem}"),
                *self._note_endings(tuple(Gone(folder) for folder in group.folders - alive.keys())),
            )
        )
        return notifier

    def _note_endings(self, dirt: tuple[Dirt, ...]) -> tuple[Dirt, ...]:
        for one in dirt:
            if isinstance(one, Gone):
                self._identities.pop(one.folder, None)
        return dirt

    def _post(self, dirt: tuple[Dirt, ...]) -> None:
        if dirt and not self._is_closed:
            self._loop.call_soon_threadsafe(self._hand_over, dirt)

    def _hand_over(self, dirt: tuple[Dirt, ...]) -> None:
        if not self._is_closed:
            self._report(dirt)


class _Group:
    """Folders that share one notifier."""

    __slots__ = ("folders", "runner", "stop")

    def __init__(self, folders: set[str]) -> None:
        self.folders = folders
        self.stop = threading.Event()
        self.runner: threading.Thread


def _sort_out(folders: Iterable[str]) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Separate the folders that cannot be watched, each with the reason, because one bad path would fail the whole
    group.
    """
    problems: dict[str, str] = {}
    alive: dict[str, tuple[int, int]] = {}
    for folder in folders:
        try:
            folder.encode()
            found = os.stat(folder)
        except UnicodeEncodeError:
            problems[folder] = "watchfiles cannot watch a name that is not UTF-8"
            continue
        except OSError as problem:
            problems[folder] = NOT_THERE if isinstance(problem, FileNotFoundError) else str(problem.strerror)
            continue
        if not stat.S_ISDIR(found.st_mode):
            problems[folder] = NOT_A_FOLDER
        elif not os.access(folder, os.R_OK | os.X_OK):
            problems[folder] = "permission denied"
        else:
            alive[folder] = (found.st_dev, found.st_ino)
    return problems, alive


def _translate(found: set[tuple[int, str]], folders: set[str]) -> tuple[Dirt, ...]:
    names: dict[str, list[str]] = {}
    endings: list[Dirt] = []
    for change, path in found:
        if path in folders and change == DELETED:
            endings.append(Gone(path))
        elif path in folders:
            endings.append(Dirty(path, None))
        folder, _, name = path.rpartition("/")
        if folder in folders:
            names.setdefault(folder, []).append(name)
    if len(found) >= _SUSPICIOUS_BATCH:
        endings.append(Lost(f"watchfiles: {len(found)} changes at once may hide an overflow"))
    return (*(Dirty(folder, tuple(dict.fromkeys(inside))) for folder, inside in names.items()), *endings)

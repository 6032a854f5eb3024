"""Opens the system's own places, which every run may read: programs and libraries, /proc, a few devices, and /etc
without its secrets.

`reach` asks for them at every run. They are opened once and stay open. Files of /etc that not everybody may read
(shadow, private keys) are closed to every run, also if the daemon is root. They stay closed if their mode changes later
(`ClosedSettings`). Landlock cannot subtract from a folder, so a second ruleset, the guard, lists all paths that are
open. The guard has some hundred rules, so it is made in advance. It is renewed if /, /etc or the mounts change, and
when it is a minute old.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import stat
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from threading import Lock

import msgspec
from msgspec import Struct

from wakeful.errors import OperatorError
from wakeful.runners.isolation.confined_spawn import OpenGrant
from wakeful.runners.isolation.landlock import DEVICE, READ, READ_DIR, READ_FILE, Ruleset

SETTINGS = "/etc"
RESOLVER = "/etc/resolv.conf"
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# Language runtimes read these places at their start: cores, memory, their control group.
_KERNEL = ("/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm")
# /dev/pts is left out: it holds the person's terminals, and a run could read keys there. /dev/shm is left out, because
# all programs of the user share it.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
SYSTEM = (*PROGRAMS, *_KERNEL, SETTINGS, "/dev")
_INSIDE_SYSTEM = tuple(f"{place}/" for place in SYSTEM)
_STALE_SECONDS = 60.0
# The longest that a thread waits for a guard that another thread makes. Some ten milliseconds are usual.
_PATIENCE_SECONDS = 10.0


class _Made(Struct, frozen=True):
    """A guard, and the state of / and /etc when it was made."""

    guard: Ruleset
    changed: tuple[int, int]
    made_at: float


class SystemPlaces:
    """The system's opened places and the guard. The runner constructs it, and passes a pool for the slow part.

    Called in threads that prepare runs, and on the loop if `is_ready` says that nothing has to be waited for.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self.grants = tuple(_open_grants())
        found = os.stat(SETTINGS)
        # The descriptor of the grant that opens /etc.
        self.settings_fd = next(
            (grant.fd for grant in self.grants if os.path.samestat(os.fstat(grant.fd), found)), None
        )
        self._mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._mount_changes = select.poll()
        self._mount_changes.register(self._mounts, select.POLLPRI)
        self._is_closed = False
        self._asking = Lock()
        self._made: _Made | None = None
        self._making: Future[_Made] | None = pool.submit(_make_guard)

    def is_ready(self) -> bool:
        """Would `guard` answer at once? Never waits, not even for a thread that asks."""
        if not self._asking.acquire(blocking=False):
            return False
        try:
            if self._making is not None and self._making.done():
                self._take_made()
            self._drop_changed()
            return self._made is not None
        finally:
            self._asking.release()

    def guard(self) -> Ruleset:
        """Return a guard for /etc as it is now. Blocking if there is no valid guard; an old one is renewed in the pool.

        A guard stays open as long as a run refers to it: the run's check uses it, too, perhaps hours later.
        """
        with self._asking:
            if self._making is not None and (self._making.done() or self._made is None):
                self._take_made()
            self._drop_changed()
            if self._made is None:
                self._made = _make_guard()
            elif self._making is None and time.monotonic() - self._made.made_at > _STALE_SECONDS:
                self._making = self._pool.submit(_make_guard)
            return self._made.guard

    def close(self) -> None:
        """Close all descriptors. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._making is not None:
            self._take_made()
        self._made = None
        for grant in self.grants:
            os.close(grant.fd)
        os.close(self._mounts)

    def _drop_changed(self) -> None:
        """Forget the guard if /etc, / or the mounts have changed since it was made."""
        if self._made is not None and (self._made.changed != _read_changes() or self._mount_changes.poll(0)):
            # The kernel reports a change of the mounts only once. So a guard that a thread began before the change must
            # not be taken later.
            self._made = self._making = None

    def _take_made(self) -> None:
        assert self._making is not None
        making, self._making = self._making, None
        # The thread may have run out of descriptors, or wait behind work that hangs. The next caller of `guard` makes a
        # guard itself, and raises the error.
        with contextlib.suppress(OSError, MemoryError):
            self._made = making.result(_PATIENCE_SECONDS)


def is_of_system(path: str) -> bool:
    """Is this path one of the system's own places, which every run is granted?"""
    return path in SYSTEM or path.startswith(_INSIDE_SYSTEM)


def list_resolver() -> tuple[str, ...]:
    """List the resolver's file if it lies outside the system's places: with systemd it is a link into /run.

    Only a run with a network needs it.
    """
    real = os.path.realpath(RESOLVER)
    return () if is_of_system(real) else (real,)


def list_settings(folder: str = SETTINGS) -> list[str]:
    """List the paths of /etc that every run may read. A folder stands for its files if all of them are open."""
    return _list_open(folder)[0]


def list_secrets() -> list[tuple[str, bool]]:
    """List the paths of /etc that not everybody may read, and whether each is a folder.

    Blocking. The list is cached for up to a minute, and until / or /etc changes.
    """
    return _find_secrets(_read_changes(), int(time.monotonic() / _STALE_SECONDS))


@functools.lru_cache(maxsize=1)
def _find_secrets(_changed: tuple[int, int], _minute: int) -> list[tuple[str, bool]]:
    found = list(_walk_secrets(SETTINGS))
    CLOSED.save()
    return found


def _walk_secrets(folder: str) -> Iterator[tuple[str, bool]]:
    for entry in os.scandir(folder):
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISLNK(found.st_mode):
            continue
        is_folder = stat.S_ISDIR(found.st_mode)
        if not CLOSED.is_open(entry.path, found):
            yield entry.path, is_folder
        elif is_folder:
            yield from _walk_secrets(entry.path)


def _open_grants() -> list[OpenGrant]:
    wanted = [(path, READ) for path in (*PROGRAMS, *_KERNEL, SETTINGS)] + [(path, DEVICE) for path in _DEVICES]
    opened: dict[tuple[int, int], OpenGrant] = {}
    for path, rights in wanted:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        found = os.fstat(fd)
        # /bin is a link to /usr/bin on most systems, so one rule is enough for both.
        if (key := (found.st_dev, found.st_ino)) in opened or (
            os.path.realpath(path) != path and is_of_system(os.path.realpath(path))
        ):
            os.close(fd)
            continue
        opened[key] = OpenGrant(fd, rights)
    return list(opened.values())


def _make_guard() -> _Made:
    """Make a guard. Blocking: it looks at all of /etc, which takes 10 ms."""
    changed = _read_changes()
    guard = Ruleset(is_reading_only=True)
    guard.close_when_unheld()
    for entry in os.scandir("/"):
        if entry.path != SETTINGS and not entry.is_symlink():
            _allow_reading(guard, entry.path)
    for path in list_settings():
        _allow_reading(guard, path)
    CLOSED.save()
    return _Made(guard, changed, time.monotonic())


def _allow_reading(guard: Ruleset, path: str) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        # The entry was removed after it was listed.
        return
    try:
        guard.allow(fd, READ_FILE | READ_DIR)
    finally:
        os.close(fd)


def _list_open(folder: str) -> tuple[list[str], bool]:
    """List the parts of a folder that everybody may read, and whether that is all of the folder."""
    parts, is_whole = [], True
    for entry in os.scandir(folder):
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            is_whole = False
            continue
        if stat.S_ISLNK(found.st_mode):
            # The target of a link decides: it lies in the system, which has its own rules, or elsewhere, where a run
            # has no access.
            continue
        below: list[str] = []
        is_open = CLOSED.is_open(entry.path, found)
        if is_open and stat.S_ISDIR(found.st_mode):
            below, is_open = _list_open(entry.path)
        parts += [entry.path] if is_open else below
        is_whole = is_whole and is_open
    return parts, is_whole


def _read_changes() -> tuple[int, int]:
    return os.stat("/").st_mtime_ns, os.stat(SETTINGS).st_mtime_ns


CLOSED_FILE = "etc-closed.json"


class ClosedSettings:
    """Remembers the files of /etc that were ever closed to others, so that they stay closed if their mode changes.

    One instance per process (`CLOSED`); every look at /etc adds to it. May be used from any thread.
    """

    def __init__(self) -> None:
        self._file: str | None = None
        # Path -> inode number. Without the device number, because that may change for the same disk after a reboot.
        self._known: dict[str, int] = {}
        self._is_written = True
        self._changing = Lock()

    def keep_in(self, file: str) -> None:
        """Load the entries that an earlier daemon of this state folder saved, and save new ones to the same file.

        Raises OperatorError if the file is damaged.
        """
        try:
            with open(file, "rb") as opened:
                self._known |= msgspec.json.decode(opened.read(), type=dict[str, int])
        except FileNotFoundError:
            pass
        except msgspec.DecodeError as error:
            raise OperatorError(
                f"{file} cannot be parsed: {error}; it lists the files of /etc that were closed to others: "
                "remove it if all modes in /etc are as they should be"
            ) from error
        self._file = file

    def is_open(self, path: str, found: os.stat_result) -> bool:
        """May everybody read this file (or list and enter this folder), and was that so at every earlier look?"""
        is_known = self._known.get(path) == found.st_ino
        if _is_for_everybody(found):
            return not is_known
        if not is_known:
            with self._changing:
                self._known[path] = found.st_ino
                self._is_written = False
        return False

    def save(self) -> None:
        """Write the entries to the file, if there are new ones. If that fails, the next look at /etc tries again."""
        with self._changing:
            if self._is_written or self._file is None:
                return
            fresh = f"{self._file}.new"
            try:
                fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with open(fd, "wb") as file:
                    file.write(msgspec.json.encode(self._known))
                    file.flush()
                    os.fsync(fd)
                os.rename(fresh, self._file)
            except OSError:
                return
            self._is_written = True

    def list_kept_closed(self) -> tuple[str, ...]:
        """List the entries that a run or a person has since made readable for everybody.

        Blocking, because it calls lstat on each.
        """
        return tuple(sorted(path for path, number in list(self._known.items()) if _opened_since(path, number)))


def _opened_since(path: str, number: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_ino == number and _is_for_everybody(found)


def _is_for_everybody(found: os.stat_result) -> bool:
    """May everybody read this file, and enter it if it is a folder?"""
    needed = 0o005 if stat.S_ISDIR(found.st_mode) else 0o004
    return found.st_mode & needed == needed


CLOSED = ClosedSettings()

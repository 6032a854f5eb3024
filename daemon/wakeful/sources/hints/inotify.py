"""Hints by raw inotify: one instance and one reader for the whole daemon, about a millisecond of delay, no cost at
rest.

It needs only three libc calls and the header of an event, so it uses no library. Watches are plain numbers, and events
are read in bulk. One object per watch cost ten times the call itself (10,000 folders at a start), and a burst would
overflow the queue. An overflow is visible, and is reported as `Lost`.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterable

from wakeful.sources.hints.contract import NOT_A_FOLDER, NOT_THERE, Dirt, Dirty, Gone, Lost, Report

# The constants of inotify(7), the same on every architecture.
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _EXCL_UNLINK, _ISDIR = 0x0100_0000, 0x0400_0000, 0x4000_0000
# Without OPEN and ACCESS, because reading must not fill the queue. MODIFY in addition to CLOSE_WRITE, because a log
# that stays open also changes.
_WATCHED = (
    _MODIFY | _CLOSE_WRITE | _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _ATTRIB
    | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _EXCL_UNLINK
)  # fmt: skip
# Events that are not writes. `touch` causes both, and a write also causes MODIFY.
_UNWRITTEN = _ATTRIB | _CLOSE_WRITE
_SELF = _DELETE_SELF | _MOVE_SELF | _UNMOUNT

_HEADER = struct.Struct("iIII")
READ_BYTES = 64 * 1024
# The size of an event with the longest possible name and a zero byte.
LONGEST_EVENT_BYTES = _HEADER.size + 256
# The most reads in one turn, so that the loop does other work during a burst. The descriptor stays readable, so the
# next turn follows at once. One turn reads a whole queue of the usual length. If the queue overflowed and its end was
# lost, the events before the overflow need not be reported.
_READS_PER_TURN = 16
# The most turns within `SPAN_SECONDS`, after which reading pauses. In a burst each event would be its own batch
# (100,000 files gave 41,000 reports, measured). A single save takes two or three turns and never waits.
READS_PER_SPAN = 8
SPAN_SECONDS = 0.01
# A file that was created or written and is not yet closed is reported after one to two of these spans. An earlier look
# would see half of the file.
_OPEN_FILE_SECONDS = 0.025
# Seconds until an unreadable instance is replaced: none for the first, then more for each new one that fails as well.
_FIRST_EXCHANGE_SECONDS = 0.0
_SECOND_EXCHANGE_SECONDS = 0.5
_LONGEST_EXCHANGE_SECONDS = 30.0

_REASONS = {
    errno.ENOSPC: "watch limit reached (fs.inotify.max_user_watches)",
    errno.ENOENT: NOT_THERE,
    errno.ENOTDIR: NOT_A_FOLDER,
    errno.EACCES: "permission denied",
}

# The place of an event: a watch descriptor and a raw name.
_Place = tuple[int, bytes]


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.inotify_init1.argtypes = (ctypes.c_int,)
    libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    libc.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)
    return libc


_libc = _load_libc()


def _check(result: int) -> int:
    """Return the result of a libc call. Raises OSError if the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class _Instance:
    """An inotify instance: its descriptor, and the calls that add and remove watches. Its creator closes it."""

    def __init__(self) -> None:
        # IN_NONBLOCK and IN_CLOEXEC equal these flags of open(2). Reading an empty queue must not block the loop.
        self.fd = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, folder: str) -> int:
        return _check(_libc.inotify_add_watch(self.fd, os.fsencode(folder), _WATCHED))

    def unwatch(self, wd: int) -> None:
        _check(_libc.inotify_rm_watch(self.fd, wd))

    def close(self) -> None:
        os.close(self.fd)


class InotifyHints:
    """Implements `Hints`. One folder may be watched under several paths, which share the kernel's watch."""

    degraded: str | None

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        """Raises OSError if the kernel refuses an instance (fs.inotify.max_user_instances)."""
        self._loop = loop
        self._report = report
        self._instance = _Instance()
        # Held while a watch is added and recorded, so that the watch is known at its first event.
        self._lock = threading.Lock()
        self._watches: dict[str, int] = {}
        self._folders: dict[int, tuple[str, ...]] = {}
        # Files that are being written, by age. They are reported when `_older` is emptied, or as soon as they are
        # closed.
        self._newer: dict[_Place, None] = {}
        self._older: dict[_Place, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._span_ends = 0.0
        self._turns = 0
        self._pause: asyncio.TimerHandle | None = None
        self.degraded = None
        # The timer until the unreadable instance is replaced.
        self._exchange: asyncio.TimerHandle | None = None
        self._exchange_seconds = _FIRST_EXCHANGE_SECONDS
        self._is_read = False
        # True if other code closed the instance's descriptor.
        self._is_closed = False
        loop.add_reader(self._instance.fd, self._drain)

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        problems: dict[str, str] = {}
        for folder in folders:
            with self._lock:
                try:
                    wd = self._instance.watch(folder)
                except OSError as problem:
                    problems[folder] = _REASONS.get(problem.errno or 0, os.strerror(problem.errno or 0))
                    continue
                self._note(folder, wd)
        return problems

    def disarm(self, folders: Iterable[str]) -> None:
        for folder in folders:
            with self._lock:
                self._release(folder)

    def hear(self) -> None:
        self._drain()
        # Report the files that were held back as well, because they changed before this call (rule 17).
        batch = _Batch()
        with self._lock:
            for wd, name in (*self._older, *self._newer):
                batch.add(self._folders.get(wd, ()), name, is_folder=False, is_written=True)
        self._older, self._newer = {}, {}
        dirt = batch.dirt()
        if dirt:
            self._report(dirt)

    def close(self) -> None:
        for timer in (self._timer, self._pause, self._exchange):
            if timer is not None:
                timer.cancel()
        if not self._is_closed:
            self._loop.remove_reader(self._instance.fd)
            self._instance.close()

    def _note(self, folder: str, wd: int) -> None:
        known = self._watches.get(folder)
        if known == wd:
            return
        # There is another folder at this path now. The watch of the old folder does not report it.
        if known is not None:
            self._release(folder)
        self._watches[folder] = wd
        self._folders[wd] = (*self._folders.get(wd, ()), folder)

    def _release(self, folder: str) -> None:
        wd = self._watches.pop(folder, None)
        if wd is None:
            return
        left = tuple(path for path in self._folders.get(wd, ()) if path != folder)
        if left:
            self._folders[wd] = left
            return
        self._folders.pop(wd, None)
        try:
            self._instance.unwatch(wd)
        except OSError as problem:
            # The folder and its watch are gone. The kernel has queued an event about it, which is still to be read.
            if problem.errno != errno.EINVAL:
                raise

    def _drain(self) -> None:
        """Read the queued events and report them as one batch."""
        if self._exchange is not None:
            return
        batch = _Batch()
        for _ in range(_READS_PER_TURN):
            try:
                data = os.read(self._instance.fd, READ_BYTES)
            except BlockingIOError:
                data = b""
            except OSError as problem:
                self._give_up(problem)
                return
            self._is_read = True
            with self._lock:
                self._take(data, batch)
            # The buffer had room for one more event, so the queue is empty and another read is not needed.
            if len(data) <= READ_BYTES - LONGEST_EVENT_BYTES:
                break
        dirt = batch.dirt()
        if (self._newer or self._older) and self._timer is None:
            self._timer = self._loop.call_later(_OPEN_FILE_SECONDS, self._age_open_files)
        self._pause_reading()
        if dirt:
            self._report(dirt)

    def _give_up(self, problem: OSError) -> None:
        """Replace the instance, because it can no longer be read.

        The first replacement is made at once. If the new instance fails as well, the next replacement waits longer.
        """
        if self._is_read:
            self._exchange_seconds = _FIRST_EXCHANGE_SECONDS
        self._is_read = False
        self._loop.remove_reader(self._instance.fd)
        if problem.errno == errno.EBADF:
            # The descriptor may belong to another file by now, so it is not closed here.
            self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        words = f"inotify cannot be read ({problem.strerror})"
        self.degraded = f"polling: {words}"
        self._exchange = self._loop.call_later(self._exchange_seconds, self._exchange_instance)
        self._exchange_seconds = min(
            max(2 * self._exchange_seconds, _SECOND_EXCHANGE_SECONDS), _LONGEST_EXCHANGE_SECONDS
        )
        self._report((Lost(words),))

    def _exchange_instance(self) -> None:
        try:
            fresh = _Instance()
        except OSError:
            self._exchange = self._loop.call_later(_LONGEST_EXCHANGE_SECONDS, self._exchange_instance)
            return
        self._exchange, self.degraded = None, None
        with self._lock:
            if not self._is_closed:
                self._instance.close()
            self._is_closed = False
            folders, self._instance = list(self._watches), fresh
            self._watches, self._folders, self._newer, self._older = {}, {}, {}, {}
        # The reader is added before the watches, so that no event is missed.
        self._loop.add_reader(fresh.fd, self._drain)
        refused = self.arm(folders)
        self._report((Lost("inotify was restarted"), *(Gone(folder) for folder in refused)))

    def _pause_reading(self) -> None:
        """Stop reading until `_span_ends` if this span has used up its turns.

        The kernel keeps new events meanwhile.
        """
        now = self._loop.time()
        if now >= self._span_ends:
            self._span_ends, self._turns = now + SPAN_SECONDS, 0
        self._turns += 1
        if self._turns >= READS_PER_SPAN and self._pause is None:
            self._loop.remove_reader(self._instance.fd)
            self._pause = self._loop.call_at(self._span_ends, self._listen)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._instance.fd, self._drain)

    def _take(self, data: bytes, batch: _Batch) -> None:
        position = 0
        while position < len(data):
            wd, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            name = data[position : position + length].rstrip(b"\0")
            position += length
            if mask & (_OVERFLOW | _IGNORED | _SELF):
                self._take_ending(wd, mask, batch)
            elif mask & (_MODIFY | _CREATE) and not mask & _ISDIR:
                if (wd, name) not in self._older:
                    self._newer[wd, name] = None
            else:
                was_written = (wd, name) in self._newer or (wd, name) in self._older
                self._newer.pop((wd, name), None)
                self._older.pop((wd, name), None)
                is_written = was_written or not mask & _UNWRITTEN
                batch.add(self._folders.get(wd, ()), name, is_folder=bool(mask & _ISDIR), is_written=is_written)

    def _take_ending(self, wd: int, mask: int, batch: _Batch) -> None:
        if mask & _OVERFLOW:
            batch.endings.append(Lost("inotify queue overflow"))
            return
        folders = self._folders.get(wd, ())
        batch.endings += [Gone(folder) for folder in folders]
        if mask & _MOVE_SELF:
            # The watch follows the folder to its new place, which is not to be watched.
            for folder in folders:
                self._release(folder)
        elif mask & _IGNORED:
            for folder in self._folders.pop(wd, ()):
                self._watches.pop(folder, None)

    def _age_open_files(self) -> None:
        batch = _Batch()
        with self._lock:
            for wd, name in self._older:
                batch.add(self._folders.get(wd, ()), name, is_folder=False, is_written=True)
        self._older, self._newer = self._newer, {}
        self._timer = self._loop.call_later(_OPEN_FILE_SECONDS, self._age_open_files) if self._older else None
        dirt = batch.dirt()
        if dirt:
            self._report(dirt)


class _Batch:
    """The events of one turn, by folder. A name that was written ten times is listed once."""

    __slots__ = ("endings", "folders", "names")

    def __init__(self) -> None:
        # By folder and name: True if it was written.
        self.names: dict[str, dict[bytes, bool]] = {}
        self.folders: dict[str, dict[bytes, None]] = {}
        self.endings: list[Gone | Lost] = []

    def add(self, folders: tuple[str, ...], name: bytes, *, is_folder: bool, is_written: bool) -> None:
        # An event about the watched folder itself (its permissions) has no name. Anything in it may have changed.
        for folder in folders:
            names = self.names.setdefault(folder, {})
            names[name] = is_written or names.get(name, False)
            if is_folder:
                self.folders.setdefault(folder, {})[name] = None

    def dirt(self) -> tuple[Dirt, ...]:
        if any(isinstance(one, Lost) for one in self.endings):
            # Everything is looked at again anyway.
            return tuple(dict.fromkeys(self.endings))
        dirty: list[Dirt] = []
        for folder, names in self.names.items():
            if b"" in names:
                dirty.append(Dirty(folder, None))
                continue
            folders = tuple(map(os.fsdecode, self.folders.get(folder, ())))
            unwritten = tuple([os.fsdecode(name) for name, is_written in names.items() if not is_written])
            dirty.append(Dirty(folder, tuple(map(os.fsdecode, names)), folders, unwritten))
        return (*dirty, *dict.fromkeys(self.endings))

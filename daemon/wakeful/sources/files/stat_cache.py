"""The last seen state of every path, for the whole daemon (rule 10), kept over restarts so that no file is read twice.

It is only a cache: it has its own database file, is written in batches by a thread, and is deleted if it cannot be
read. It also stores the last version of each target. If the stored paths still add up to that version, the changes made
while the daemon was down are known. Owned by the file source.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import cast

import apsw

from wakeful.core.looking.patterns import Pattern
from wakeful.sources.files.entry import Seen

_FILE = "cache.db"
# The format of the cache. A cache with another number is discarded.
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS path (
  path      BLOB PRIMARY KEY,
  key       BLOB NOT NULL,
  kind      TEXT NOT NULL,
  digest    BLOB NOT NULL,
  hashed_at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS target (
  key     TEXT PRIMARY KEY,
  version TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS mount (
  key    TEXT PRIMARY KEY,
  points BLOB NOT NULL
);
"""


class StatCache:
    """`seen` is read from any thread and changed only by `put` and `put_all`. `take_batch` and `write` write changes to
    disk.
    """

    def __init__(
        self, state_dir: str | os.PathLike[str] | None, holds_secret: Callable[[bytes], bool] = lambda text: False
    ) -> None:
        """Read the paths that an earlier daemon saw. With `state_dir` None, everything stays in memory.

        If `holds_secret` finds the value of a secret in a path, that path is not written to disk. The next daemon
        hashes it again.
        """
        self.seen: dict[str, Seen] = {}
        self._versions: dict[str, str] = {}
        # By target: the mount points that it is on. Few targets are on any.
        self._mounts: dict[str, frozenset[str]] = {}
        self._changed_mounts: set[str] = set()
        self._changed_paths: set[str] = set()
        self._changed_targets: set[str] = set()
        self._holds_secret = holds_secret
        self._path = Path(state_dir, _FILE) if state_dir is not None else None
        self._database: apsw.Connection | None = None
        # Looks in threads record what they saw while the loop takes a batch.
        self._lock = threading.Lock()
        # The cache as it was on disk at the start, and its sorted paths. A first look compares with this copy, because
        # another first look may already have changed the cache. The copy is dropped when every target has had a look.
        self._kept: dict[str, Seen] = {}
        self._kept_paths: list[str] = []
        if self._path is not None:
            self._open(self._path)

    @property
    def has_changes(self) -> bool:
        return bool(self._changed_paths or self._changed_targets or self._changed_mounts)

    def put(self, path: str, seen: Seen | None) -> None:
        with self._lock:
            if seen is None:
                self.seen.pop(path, None)
            else:
                self.seen[path] = seen
            if self._database is not None:
                self._changed_paths.add(path)

    def put_all(self, found: Mapping[str, Seen | None]) -> None:
        """Put the results of one look. Takes the lock once, which matters for a burst of 100,000 files."""
        gone = [path for path, seen in found.items() if seen is None]
        with self._lock:
            # If no path is gone, one update without a loop of our own.
            self.seen.update(
                {path: seen for path, seen in found.items() if seen is not None}
                if gone
                else cast("Mapping[str, Seen]", found)
            )
            for path in gone:
                self.seen.pop(path, None)
            if self._database is not None:
                self._changed_paths.update(found)

    def put_version(self, target: str, version: str | None) -> None:
        if self._versions.get(target) == version:
            return
        with self._lock:
            if version is None:
                self._versions.pop(target, None)
            else:
                self._versions[target] = version
            if self._database is not None:
                self._changed_targets.add(target)

    def put_mounts(self, target: str, points: frozenset[str]) -> None:
        if self._mounts.get(target, frozenset()) == points:
            return
        with self._lock:
            if points:
                self._mounts[target] = points
            else:
                self._mounts.pop(target, None)
            if self._database is not None:
                self._changed_mounts.add(target)

    def mounts(self, target: str) -> frozenset[str]:
        """Return the mount points of this target when it was last seen, also by an earlier daemon."""
        return self._mounts.get(target, frozenset())

    def version(self, target: str) -> str | None:
        """Return the version that the last look found, also that of an earlier daemon."""
        return self._versions.get(target)

    def kept_below(self, pattern: Pattern) -> list[tuple[str, Seen]]:
        """List the stored paths at or below the literal part of a pattern. The caller filters them."""
        base, kept = pattern.base, self._kept
        lead = base.rstrip("/")
        # "0" is the character after "/", so everything in between begins with the folder.
        first, last = bisect.bisect_left(self._kept_paths, f"{lead}/"), bisect.bisect_left(self._kept_paths, f"{lead}0")
        below = [(path, kept[path]) for path in self._kept_paths[first:last]]
        return [(base, kept[base]), *below] if pattern.is_literal and base in kept else below

    @property
    def has_kept(self) -> bool:
        return bool(self._kept)

    def drop_kept(self) -> None:
        """Drop the paths of an earlier daemon, because every target has had its first look."""
        # In this order, so that a look in a thread that finds no paths does not read the rest.
        self._kept_paths, self._kept = [], {}

    def take_batch(self) -> Batch:
        """Take the changes since the last batch. `write` writes them, in any thread."""
        with self._lock:
            paths = {path: self.seen.get(path) for path in self._changed_paths}
            targets = {key: self._versions.get(key) for key in self._changed_targets}
            mounts = {key: self._mounts.get(key) for key in self._changed_mounts}
            self._changed_paths, self._changed_targets, self._changed_mounts = set(), set(), set()
        return Batch(paths, targets, mounts)

    def write(self, batch: Batch) -> None:
        """Write a batch in one transaction, so that a version and its paths are stored together or not at all.
        Blocking.
        """
        if self._database is None:
            return
        batch = batch.leave_out(self._holds_secret)
        try:
            with self._database:
                self._database.executemany("DELETE FROM path WHERE path = ?", batch.removed_paths())
                self._database.executemany("INSERT OR REPLACE INTO path VALUES (?, ?, ?, ?, ?)", batch.path_rows())
                self._database.executemany("DELETE FROM target WHERE key = ?", batch.removed_targets())
                self._database.executemany("INSERT OR REPLACE INTO target VALUES (?, ?)", batch.target_rows())
                self._database.executemany("DELETE FROM mount WHERE key = ?", batch.removed_mounts())
                self._database.executemany("INSERT OR REPLACE INTO mount VALUES (?, ?)", batch.mount_rows())
        except apsw.Error:
            # A full or broken disk costs only the cache. The next start hashes the files again.
            self._discard()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self, path: Path) -> None:
        try:
            self._read(path)
        except (apsw.Error, OSError):
            self._discard()
            self.seen, self._versions, self._mounts = {}, {}, {}
            self.drop_kept()
            try:
                self._read(path)
            except (apsw.Error, OSError):
                # Not even an empty cache can be made here, so go on without one.
                self._discard()

    def _read(self, path: Path) -> None:
        # SQLite would create a file that all users can read. Its side files get the mode of the main file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._database = database = apsw.Connection(str(path))
        # Without waiting for the disk. A power cut may lose the cache, which costs one hashing of all files.
        database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
        if database.pragma("user_version") not in (0, _FORMAT):
            database.execute("DROP TABLE IF EXISTS path; DROP TABLE IF EXISTS target; DROP TABLE IF EXISTS mount")
        database.execute(_SCHEMA)
        database.pragma("user_version", _FORMAT)
        for raw, key, kind, digest, hashed_at in database.execute(
            "SELECT path, key, kind, digest, hashed_at FROM path"
        ):
            self.seen[os.fsdecode(raw)] = Seen(key, sys.intern(kind), digest, hashed_at)
        self._versions.update(database.execute("SELECT key, version FROM target"))
        for key, points in database.execute("SELECT key, points FROM mount"):
            self._mounts[key] = frozenset(map(os.fsdecode, points.split(b"\0")))
        self._kept = self.seen.copy()
        self._kept_paths = sorted(self.seen)

    def _discard(self) -> None:
        """Delete the file. The cache in memory stays valid, because every use compares it with a new stat."""
        try:
            self.close()
        except apsw.Error:
            self._database = None
        if self._path is None:
            return
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)


class CacheWriter:
    """Writes the cache after some ticks without looks.

    Otherwise looks, and the runs that follow them, would wait for the interpreter lock: 100,000 paths take 0.4 s.
    """

    _CALM_TICKS = 3
    # The most ticks after which the cache is written in any case.
    _LONGEST_UNWRITTEN_TICKS = 30

    def __init__(self, cache: StatCache) -> None:
        self._cache = cache
        self._writing: asyncio.Future[None] | None = None
        self._unwritten_ticks = 0
        # `has_looked` is True if local files were looked at since the last tick. `_calm_ticks` counts ticks without a
        # look.
        self.has_looked = False
        self._calm_ticks = 0

    def write_when_calm(self, loop: asyncio.AbstractEventLoop, threads: Executor, *, is_pressed: bool) -> None:
        """Write the cache if it has been calm long enough. Called on the loop, once per tick."""
        if not self._cache.has_changes or self._writing is not None:
            return
        self._unwritten_ticks += 1
        is_pressed, self.has_looked = is_pressed or self.has_looked, False
        self._calm_ticks = 0 if is_pressed else self._calm_ticks + 1
        if self._calm_ticks < self._CALM_TICKS and self._unwritten_ticks < self._LONGEST_UNWRITTEN_TICKS:
            return
        self._unwritten_ticks = self._calm_ticks = 0
        self._writing = loop.run_in_executor(threads, self._cache.write, self._cache.take_batch())
        self._writing.add_done_callback(self._note_written)

    async def wait(self) -> None:
        if self._writing is not None:
            await self._writing

    def _note_written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        done.result()


class Batch:
    """The changes to write to the database, copied at one moment."""

    __slots__ = ("_mounts", "_paths", "_targets")

    def __init__(
        self, paths: dict[str, Seen | None], targets: dict[str, str | None], mounts: dict[str, frozenset[str] | None]
    ) -> None:
        self._paths = paths
        self._targets = targets
        self._mounts = mounts

    def mount_rows(self) -> Iterable[tuple[str, bytes]]:
        return (
            (key, b"\0".join(map(os.fsencode, sorted(points))))
            for key, points in self._mounts.items()
            if points is not None
        )

    def removed_mounts(self) -> Iterable[tuple[str]]:
        return ((key,) for key, points in self._mounts.items() if points is None)

    def leave_out(self, holds_secret: Callable[[bytes], bool]) -> Batch:
        """Return the batch with the paths that hold a secret marked for removal. Such a path may have been written
        before the secret was known.
        """
        if not holds_secret(b"\0".join(map(os.fsencode, self._paths))):
            return self
        return Batch(
            {path: None if holds_secret(os.fsencode(path)) else seen for path, seen in self._paths.items()},
            self._targets,
            self._mounts,
        )

    def path_rows(self) -> Iterable[tuple[bytes, bytes, str, bytes, int]]:
        for path, seen in self._paths.items():
            if seen is not None:
                yield os.fsencode(path), seen.key, seen.kind, seen.digest, seen.hashed_at

    def removed_paths(self) -> Iterable[tuple[bytes]]:
        return ((os.fsencode(path),) for path, seen in self._paths.items() if seen is None)

    def target_rows(self) -> Iterable[tuple[str, str]]:
        return ((key, version) for key, version in self._targets.items() if version is not None)

    def removed_targets(self) -> Iterable[tuple[str]]:
        return ((key,) for key, version in self._targets.items() if version is None)

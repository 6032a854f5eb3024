"""Reads the mount table for looks.

`Mounts` reports which folders are on a file system whose changes inotify cannot see, because other machines write
there. It also reports the mount points of a target, so that an unmounted share does not count as deleted files (rule
5).
/proc/self/mountinfo is read again when the kernel reports a change. If that file does not exist, nothing is known.
"""

from __future__ import annotations

import bisect
import io
import os
import re
import select
import threading
from collections.abc import Container, Iterable

from wakeful.core.looking.patterns import contains

_REMOTE = re.compile(
    r"nfs4?|cifs|smb3|smbfs|9p|afs|ceph|lustre|beegfs|gpfs|ocfs2|gfs2|vboxsf|prl_fs|virtiofs|davfs2?|coda|fuse(\..+)?"
)
_MOUNT_POINT, _SEPARATOR = 4, "-"


class Mounts:
    """Reads and caches the mount table. May be used from any thread."""

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        self._lock = threading.Lock()
        self._poll = select.poll()
        # By mount point: its kind of file system, and the number of the mount. `_points` holds the mount points in
        # order, without "/".
        self._kinds: dict[str, str] = {}
        self._numbers: dict[str, str] = {}
        self._points: list[str] = []
        self._has_remote = False
        self._changed: set[str] = set()
        # By folder: the mount point that it is on. A cache, because every target asks for it and the answer rarely
        # changes.
        self._covering: dict[str, str | None] = {}
        self._table: io.FileIO | None
        try:
            self._table = open(table, "rb", buffering=0)
        except OSError:
            self._table = None
            return
        # The kernel reports a change of the table with POLLPRI, once. An ordinary file never reports one.
        self._poll.register(self._table, select.POLLPRI)
        self._read()
        self._changed.clear()

    def close(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    def remote_kind(self, folder: str) -> str | None:
        """Return the kind of remote file system (`nfs4`, `fuse.sshfs`, …) that this folder is on.

        None if the file system is local.
        """
        self._refresh()
        if not self._has_remote:
            return None
        point = self._find_covering(folder)
        kind = self._kinds.get(point, "") if point is not None else ""
        return kind if _REMOTE.fullmatch(kind) else None

    def find_points(self, root: str, base: str, folders: Container[str]) -> frozenset[str]:
        """Find the mount points that a target needs: that of its base, and those among the folders below that were
        entered.

        A mount point above `root` is not needed: if it is not mounted, the root does not exist either.
        """
        point = self._find_covering(base)
        is_above_root = point is not None and contains(root, base) and not contains(root, point)
        needed = {point} if point is not None and not is_above_root else set[str]()
        inside = f"{base.rstrip('/')}/"
        for below in self._points[bisect.bisect_left(self._points, inside) :]:
            if not below.startswith(inside):
                break
            if below in folders:
                needed.add(below)
        return frozenset(needed)

    def find_missing(self, points: Iterable[str]) -> str | None:
        """Return the first of these mount points at which nothing is mounted now."""
        self._refresh()
        return (
            next((point for point in sorted(points) if point not in self._kinds), None)
            if self._table is not None
            else None
        )

    def take_changed(self) -> set[str]:
        """Take the points at which something was mounted or unmounted since the last call."""
        self._refresh()
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed - {"/"}

    def _find_covering(self, folder: str) -> str | None:
        known = self._covering
        if folder in known:
            return known[folder]
        point = folder if folder in self._kinds else None
        parent = os.path.dirname(folder)
        if point is None and parent != folder:
            point = self._find_covering(parent)
        known[folder] = point
        return point

    def _refresh(self) -> None:
        with self._lock:
            if self._table is not None and self._poll.poll(0):
                self._read()

    def _read(self) -> None:
        assert self._table is not None
        self._table.seek(0)
        mounts = [_parse(line) for line in os.fsdecode(self._table.read()).split("\n") if line]
        kinds = {point: kind for _, point, kind in mounts if point != "/"}
        numbers = {point: number for number, point, _ in mounts}
        self._changed |= {
            point for point in numbers.keys() | self._numbers.keys() if numbers.get(point) != self._numbers.get(point)
        }
        self._kinds, self._numbers, self._points, self._covering = kinds, numbers, sorted(kinds), {}
        self._has_remote = any(_REMOTE.fullmatch(kind) for kind in kinds.values())


def _parse(line: str) -> tuple[str, str, str]:
    """Parse a line into the mount's number, its point, and the kind of file system."""
    fields = line.split(" ")
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[_MOUNT_POINT])
    return fields[0], os.path.normpath(point), fields[fields.index(_SEPARATOR) + 1]

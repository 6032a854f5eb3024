"""Which folders lie on a file system whose changes inotify cannot see: other machines write there behind our kernel.

Called when a folder is armed. Reads /proc/self/mountinfo at most every few seconds; where that does not exist, nothing
is known to be remote.
"""

from __future__ import annotations

import os
import re
import time

_REMOTE = re.compile(r"nfs4?|cifs|smb3|smbfs|9p|afs|ceph|lustre|beegfs|gpfs|ocfs2|gfs2|vboxsf|prl_fs|virtiofs|davfs2?|coda|fuse(\..+)?")
_REMEMBERED_SECONDS = 5.0
_MOUNT_POINT, _SEPARATOR = 4, "-"


class Mounts:
    """The mount table, as far as it concerns watching."""

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        self._table = table
        # Empty while nothing remote is mounted at all, which is the rule.
        self._points: tuple[tuple[str, str], ...] = ()
        self._read_at = float("-inf")

    def remote_kind(self, folder: str) -> str | None:
        """`nfs4`, `fuse.sshfs`, ... when this folder lies on such a mount, else None."""
        now = time.monotonic()
        if now - self._read_at > _REMEMBERED_SECONDS:
            self._points, self._read_at = self._read_table(), now
        for point, kind in self._points:
            if folder == point or folder.startswith(f"{point.rstrip('/')}/"):
                return kind if _REMOTE.fullmatch(kind) else None
        return None

    def _read_table(self) -> tuple[tuple[str, str], ...]:
        try:
            with open(self._table, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().splitlines()
        except OSError:
            return ()
        mounts = dict(_parse(line) for line in lines)
        if not any(_REMOTE.fullmatch(kind) for kind in mounts.values()):
            return ()
        # The longest point wins: a local disk mounted inside a remote one is local.
        return tuple(sorted(mounts.items(), key=lambda mount: -len(mount[0])))


def _parse(line: str) -> tuple[str, str]:
    fields = line.split(" ")
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[_MOUNT_POINT])
    return os.path.normpath(point), fields[fields.index(_SEPARATOR) + 1]

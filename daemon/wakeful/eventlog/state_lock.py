"""The lock of a state folder: one daemon per folder, on a file system where a log is safe.

The daemon locks its state folder before anything else; a restore takes the same lock. The lock is a `flock` on the
folder itself and on the file `lock` in it. The kernel releases it when the process ends, however it ends. If the file
is deleted, the folder is still locked. The text in the file names the holder for people. An outdated text does not
prevent a new lock. Only this module makes a state folder.

A write-ahead log needs locks that all processes see, a shared index in memory, and flushes that reach a disk. Network
file systems and shared folders of virtual machines promise none of them. An overlay of local disks (the disk of a
container) gives all three for a file in its upper layer, and every written file is there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from time import monotonic, sleep

from wakeful.eventlog.contract import StateInUse, StoreFull, StoreUnsafe
from wakeful.system.private_files import keep_folder, let_folder_go, make_private, sync_folder
from wakeful.system.state_folder import ignore_in_git

LOCK = "lock"
# Seconds to wait for a lock whose process has ended. Children that the process had just forked hold copies of the lock
# until they execute their programs. On a busy machine that takes longer than a restart.
ORPHANED_SECONDS = 5.0
PAUSE_SECONDS = 0.01


class StateLock:
    """A held lock. It ends with `release` or with the process."""

    def __init__(self, state_dir: Path, folder: int, file: int) -> None:
        self._state_dir = state_dir
        self._descriptors: tuple[int, ...] = (file, folder)
        keep_folder(state_dir)

    def release(self) -> None:
        """Release the lock. Releasing it twice is harmless."""
        descriptors, self._descriptors = self._descriptors, ()
        if descriptors:
            let_folder_go(self._state_dir)
        for descriptor in descriptors:
            os.close(descriptor)


def find_holder(state_dir: Path) -> int | None:
    """Return the pid of the process that holds the lock, as the kernel lists it.

    None if no process does. Takes no lock.
    """
    try:
        inodes = {str(os.stat(path).st_ino) for path in (state_dir, state_dir / LOCK) if os.path.exists(path)}
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    # "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF"; a waiting lock has "->" after its number.
    for fields in map(str.split, locks):
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] in inodes:
            return int(fields[4])
    return None


def lock_state(state_dir: Path, started_at: str = "") -> StateLock:
    """Lock the folder for this process, or raise StateInUse with the holder. Blocking.

    `started_at` is shown to the next process that tries to lock the folder.
    """
    descriptors: list[int] = []
    try:
        _make_durable(state_dir)
        refuse_remote(state_dir)
        descriptors.append(os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        _take(descriptors[0], state_dir)
        descriptors.append(os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        _take(descriptors[1], state_dir)
        _name_holder(descriptors[1], started_at)
        ignore_in_git(str(state_dir))
    except BaseException as error:
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, OSError):
            raise _explain(state_dir, error) from error
        raise
    return StateLock(state_dir, *descriptors)


def _make_durable(state_dir: Path) -> None:
    """Make the folder, and sync it and every new folder above it.

    The folder's name must survive a power cut, as the log in it does.
    """
    existing = state_dir.absolute()
    while not existing.exists():
        existing = existing.parent
    make_private(state_dir)
    above = state_dir.absolute()
    while above != existing:
        above = above.parent
        # A folder that can be written but not read cannot be synced.
        with contextlib.suppress(PermissionError):
            sync_folder(above)


def _take(descriptor: int, state_dir: Path) -> None:
    patience = monotonic() + ORPHANED_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if _has_living_holder(state_dir) or monotonic() > patience:
                raise StateInUse(
                    f"{state_dir} is in use by {_read_holder(state_dir)}; "
                    "stop that daemon first or give this one its own --state"
                ) from error
            sleep(PAUSE_SECONDS)
        else:
            return


def _has_living_holder(state_dir: Path) -> bool:
    """Is the process that took the lock alive? The kernel does not list a lock whose process has been reaped."""
    pid = find_holder(state_dir)
    if pid is None:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The process state follows the name, which may itself contain brackets. A zombie has ended.
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def _read_holder(state_dir: Path) -> str:
    try:
        text = (state_dir / LOCK).read_bytes()[:200].decode(errors="replace").strip()
    except OSError:
        text = ""
    pid = find_holder(state_dir)
    return text or (f"pid {pid}" if pid else "another process")


def _name_holder(descriptor: int, started_at: str) -> None:
    since = f" since {started_at}" if started_at else ""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()}{since}\n".encode(), 0)


def _explain(state_dir: Path, error: OSError) -> StoreFull | StoreUnsafe:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"{state_dir} cannot be locked: {error.strerror}; nothing was changed in it: "
            "free some space on its disk and start again"
        )
    return StoreUnsafe(
        f"{state_dir} cannot be used as state folder: {error}; make it writable or choose another with --state"
    )


REMOTE = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb2",
            "smb3",
            "smbfs",
            "ncpfs",
            "afs",
            "coda",
            "ceph",
            "glusterfs",
            "lustre",
            "beegfs",
            "gpfs",
            "orangefs",
            "pvfs2",
            "davfs",
        ),
        *("9p", "drvfs", "vboxsf", "vmhgfs", "prl_fs"),
        *(
            "fuse.sshfs",
            "fuse.glusterfs",
            "fuse.ceph",
            "fuse.s3fs",
            "fuse.gcsfuse",
            "fuse.rclone",
            "fuse.davfs2",
            "fuse.vmhgfs-fuse",
        ),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def refuse_remote(folder: Path) -> None:
    """Raise StoreUnsafe if a log in this folder would not be safe."""
    file_system = find_file_system(folder)
    if file_system in REMOTE:
        raise StoreUnsafe(
            f"{folder} lies on {file_system}, where a write-ahead log is not safe; choose a local folder with --state"
        )


def find_file_system(folder: Path) -> str:
    """Return the type of the file system of a folder; "unknown" if the system does not name it."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return "unknown"
    for mount in mounts:
        fields = mount.split(" ")
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"

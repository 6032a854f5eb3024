"""Which file system a folder lies on, and whether a log may lie there.

Asked when a state folder is locked, and by `doctor`. A write-ahead log needs locks that all processes see, a shared index in memory and flushes that reach a
disk. Network file systems and shared folders of virtual machines promise none of them. An overlay of local disks (the disk of a container) keeps all three,
once a file is in its upper layer, where every file that is written lies.
"""

from __future__ import annotations

import os
from pathlib import Path

from wakeful.eventlog.contract import StoreUnsafe

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
    """Raise StoreUnsafe where a log would not be safe."""
    file_system = find_file_system(folder)
    if file_system in REMOTE:
        raise StoreUnsafe(
            f"{folder} lies on {file_system}, where a write-ahead log is not safe; choose a local folder with --state"
        )


def find_file_system(folder: Path) -> str:
    """The type of the file system a folder lies on; "unknown" where the system does not say."""
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

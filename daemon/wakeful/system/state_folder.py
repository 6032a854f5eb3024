"""Finds a project's state folder, and the address of its daemon.

The daemon makes the folder and writes the address; the command line looks for both, upwards from the working folder. A
folder that another user owns or can read is never used. Imports only light modules of the standard library, because
every command loads this one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import NamedTuple

SOCKET_FILE = "wakeful.sock"
# The name of a project's state folder. It is searched upwards, as git searches `.git`.
PROJECT_STATE = ".wakeful"
# The file with the daemon's pid and socket, if the socket is not SOCKET_FILE in the folder itself.
ADDRESS_FILE = "address"
# The number in the address file instead of a pid, if systemd listens for the daemon.
_SYSTEMD = 0
_LONGEST_ADDRESS = 4096


class Found(NamedTuple):
    """The project's state folder, if there is one, and the rejected folders of that name, each with the reason."""

    folder: str | None
    passed_over: tuple[str, ...]


class Address(NamedTuple):
    """The socket of a daemon, and the pid of the process that listens on it.

    `pid` is None if any process of this user may listen there.
    """

    socket: str
    pid: int | None = None


def find_project() -> Found:
    """Look for PROJECT_STATE here and in each folder above, up to the end of this file system."""
    passed_over: list[str] = []
    try:
        here = os.getcwd()
        device = os.stat(here).st_dev
    except OSError:
        # The working folder was removed, or may not be entered.
        return Found(None, ())
    while True:
        folder = os.path.join(here, PROJECT_STATE)
        problem = _judge(folder)
        if problem is None:
            return Found(folder, tuple(passed_over))
        if problem:
            passed_over.append(f"{folder} {problem}")
        above = os.path.dirname(here)
        # Stop at another file system, as git does: it may be a network's, or a USB stick.
        if above == here or _find_device(above) != device:
            return Found(None, tuple(passed_over))
        here = above


def _judge(folder: str) -> str | None:
    """Return why a folder is rejected. None if it can be used, empty if it does not exist."""
    try:
        # For a symbolic link, the owners of the link and of the folder both count: the owner of the link could choose
        # any folder of the other user.
        owners = {os.lstat(folder).st_uid, (found := os.stat(folder)).st_uid} - {os.geteuid()}
    except OSError:
        return ""
    if not stat.S_ISDIR(found.st_mode):
        return ""
    if owners:
        return f"belongs to user {owners.pop()}, and you are user {os.geteuid()}"
    if found.st_mode & 0o077:
        # A daemon makes its state folder with mode 0700. A folder that came with a checkout has the umask's mode, and
        # holds a stranger's log.
        return (
            f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}), and a daemon's own folder never is; "
            "if it is yours, close it: chmod 700"
        )
    return None


def _find_device(folder: str) -> int | None:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return None


def ignore_in_git(folder: str) -> None:
    """Make git ignore a state folder that lies in a checkout. An existing .gitignore is left as it is."""
    path = os.path.join(folder, ".gitignore")
    with contextlib.suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, b"*\n")
        except OSError:
            # The disk is full. The next start would leave an empty file as it is, so it is removed.
            os.unlink(path)
            raise
        finally:
            os.close(file)


def write_address(folder: str, socket: str, *, is_systemd: bool) -> None:
    """Write the address of this folder's daemon. A daemon that listens in the folder itself needs no address file."""
    path = os.path.join(folder, ADDRESS_FILE)
    if os.path.realpath(socket) == os.path.realpath(os.path.join(folder, SOCKET_FILE)):
        remove_address(folder)
        return
    fresh = f"{path}.new"
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, b"%d %s\n" % (_SYSTEMD if is_systemd else os.getpid(), os.fsencode(socket)))
    finally:
        os.close(file)
    os.rename(fresh, path)


def remove_address(folder: str) -> None:
    """Remove the address file. If that fails, clients notice that the process in it is gone."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, ADDRESS_FILE))


def read_address(folder: str) -> Address:
    """Return the address of this folder's daemon, whether or not it runs now."""
    usual = Address(os.path.join(folder, SOCKET_FILE))
    try:
        with open(os.path.join(folder, ADDRESS_FILE), "rb") as file:
            pid, _, socket = file.read(_LONGEST_ADDRESS).partition(b" ")
    except OSError:
        return usual
    if not pid.isdigit() or not socket.startswith(b"/"):
        return usual
    return Address(os.fsdecode(socket.removesuffix(b"\n")), int(pid) or None)

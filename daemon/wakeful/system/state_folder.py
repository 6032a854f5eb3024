"""A state folder as others find it: upwards from the working folder, ignored by git, with the address of its daemon.

The daemon makes the folder and writes the address; the command line looks for both. Imports nothing but the standard
library's lightest modules, since every command pays for it. A folder that another user owns, or can look into,
is never taken.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import NamedTuple

SOCKET_FILE = "wakeful.sock"
# The name by which a project's own state folder is found, as git finds `.git`.
PROJECT_STATE = ".wakeful"
# Which process listens where, if not at SOCKET_FILE in the folder itself.
ADDRESS_FILE = "address"
# Stands for the pid where systemd listens for the daemon.
_SYSTEMD = 0
_LONGEST_ADDRESS = 4096


class Found(NamedTuple):
    """The project's state folder, if there is one, and the folders of that name that were passed over,
    each with the reason."""

    folder: str | None
    passed_over: tuple[str, ...]


class Address(NamedTuple):
    """Where a daemon listens. `pid` is the listening process; None where any process of ours will do."""

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
        # As git does: another file system may be a network's, or somebody's stick.
        if above == here or _find_device(above) != device:
            return Found(None, tuple(passed_over))
        here = above


def _judge(folder: str) -> str | None:
    """Why a folder is passed over, in words; empty where there is none, None where it can be used."""
    try:
        # Of a symbolic link both owners count: a user who may change the link chooses among all folders of the other.
        owners = {os.lstat(folder).st_uid, (found := os.stat(folder)).st_uid} - {os.geteuid()}
    except OSError:
        return ""
    if not stat.S_ISDIR(found.st_mode):
        return ""
    if owners:
        return f"belongs to user {owners.pop()}, and you are user {os.geteuid()}"
    if found.st_mode & 0o077:
        # A daemon keeps its own at 0700. A checkout has the mode of the umask: its log would be somebody else's.
        return (
            f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}), which no daemon leaves it; "
            "if it is yours: chmod 700 it"
        )
    return None


def _find_device(folder: str) -> int | None:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return None


def ignore_in_git(folder: str) -> None:
    """Let git see nothing of a state folder that lies in a checkout. An existing .gitignore is left as it is."""
    path = os.path.join(folder, ".gitignore")
    with contextlib.suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, b"*\n")
        except OSError:
            # A full disk: an empty file would be left as it is by the next start.
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
    """An address that cannot be removed misleads nobody: its process is gone."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, ADDRESS_FILE))


def read_address(folder: str) -> Address:
    """Where the daemon of this folder listens, or would."""
    usual = Address(os.path.join(folder, SOCKET_FILE))
    try:
        with open(os.path.join(folder, ADDRESS_FILE), "rb") as file:
            pid, _, socket = file.read(_LONGEST_ADDRESS).partition(b" ")
    except OSError:
        return usual
    if not pid.isdigit() or not socket.startswith(b"/"):
        return usual
    return Address(os.fsdecode(socket.removesuffix(b"\n")), int(pid) or None)

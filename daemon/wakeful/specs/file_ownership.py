"""Finds out whether other users can change a file: by owning it, by its mode, or by replacing it in its folder.

Called by `folder_reading` for every spec, and by `trust` for the folders above the specs. Only owners and modes are
checked. An ACL that grants writing shows in the group's bits, because they are its mask. The words say what is wrong
and which command repairs it.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import shlex
import stat

_ROOT = 0


def find_others(path: str) -> str | None:
    """Explain why others can change this folder or file, or replace it. None if they cannot."""
    real = os.path.realpath(path)
    try:
        return judge_writers(real, os.stat(real)) or find_others_above(real)
    except OSError:
        # The path is gone or not visible to us, so it cannot be read either.
        return None


def find_others_above(path: str) -> str | None:
    """Explain why others can rename a folder above a real path, and so replace what is below. None if they cannot."""
    folder = os.path.dirname(path)
    while True:
        found = os.stat(folder)
        # In a sticky folder only the owner of an entry can rename it, and the entry's owner was checked before.
        if not found.st_mode & stat.S_ISVTX and (words := judge_writers(folder, found)) is not None:
            return words
        if found.st_mode & stat.S_ISVTX and found.st_uid not in (_ROOT, os.geteuid()):
            return _say_owner(folder, found.st_uid)
        if folder == "/":
            return None
        folder = os.path.dirname(folder)


def judge_writers(path: str, found: os.stat_result) -> str | None:
    """Explain why others can write to one file or folder, whose stat is known. None if they cannot."""
    if found.st_uid not in (_ROOT, os.geteuid()):
        return _say_owner(path, found.st_uid)
    if found.st_mode & stat.S_IWOTH:
        return f"everybody can write {path} (chmod o-w {shlex.quote(path)})"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"group {_name_group(found.st_gid)} can write {path} (chmod g-w {shlex.quote(path)})"
    return None


def _say_owner(path: str, uid: int) -> str:
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    return f"{path} belongs to {owner} (chown it to yourself)"


def _name_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@functools.lru_cache(maxsize=64)
def _is_private(gid: int) -> bool:
    """Is this the private group of an account?

    Most systems have such groups. With a umask of 002 all folders of the account are writable by its group.
    """
    if gid == _ROOT:
        return True
    try:
        account, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return account.pw_gid == gid and group.gr_name == account.pw_name and set(group.gr_mem) <= {account.pw_name}

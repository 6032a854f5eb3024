"""The other users who can change a file: another owner, a mode that lets others write,
or a folder in which they can replace it.

Asked by `load` for every spec it reads and by `trust` for the folders above them. It looks only at owners and modes: an
ACL that grants writing shows in the group's bits, as the mask does.
The words say what is wrong and which command mends it.
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
    """Why others can change what this folder or file holds, or put another in its place; None where they cannot."""
    real = os.path.realpath(path)
    try:
        return judge_writers(real, os.stat(real)) or find_others_above(real)
    except OSError:
        # Gone or not ours to see: there is nothing in it that could be read either.
        return None


def find_others_above(path: str) -> str | None:
    """The folders that lead to a real path: who can rename in one of them decides what lies below it."""
    folder = os.path.dirname(path)
    while True:
        found = os.stat(folder)
        # In a sticky folder nobody renames what is not theirs, and what is below was judged before.
        if not found.st_mode & stat.S_ISVTX and (words := judge_writers(folder, found)) is not None:
            return words
        if found.st_mode & stat.S_ISVTX and found.st_uid not in (_ROOT, os.geteuid()):
            return _say_owner(folder, found.st_uid)
        if folder == "/":
            return None
        folder = os.path.dirname(folder)


def judge_writers(path: str, found: os.stat_result) -> str | None:
    """The same for one file or folder by itself, whose stat is known."""
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
    """A group of one's own, as most systems give every account:
    with a umask of 002 all its folders are writable by it."""
    if gid == _ROOT:
        return True
    try:
        account, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return account.pw_gid == gid and group.gr_name == account.pw_name and set(group.gr_mem) <= {account.pw_name}

"""Remembers the entries of /etc that not everybody could read when first seen.

A later change of their mode opens nothing to runs.

A run of a root daemon owns the files of /etc, and no kernel can refuse it a `chmod` there without mounts. So a file or
folder that was seen closed stays closed, across restarts, for as long as it is the same one. A run can put no other in
its place; a person can, and that one is judged by its own mode. `system` asks for every entry of /etc;
the runner says where the memory is kept.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from threading import Lock

import msgspec

from wakeful.errors import OperatorError

FILE = "etc-closed.json"


class ClosedSettings:
    """There is one instance per process, and every look at /etc adds to it. Threads use it as well."""

    def __init__(self) -> None:
        self._file: str | None = None
        # By path, the number of the file. Its device is left out: the same disk may have another after a reboot.
        self._known: dict[str, int] = {}
        self._is_written = True
        self._changing = Lock()

    @property
    def known(self) -> dict[str, int]:
        return dict(self._known)

    def learn(self, known: Mapping[str, int]) -> None:
        """Add the entries that another process saw closed."""
        self._known |= known

    def keep_in(self, file: str) -> None:
        """Remember what an earlier daemon of this state folder saw, and write down what this one sees."""
        try:
            with open(file, "rb") as opened:
                self.learn(msgspec.json.decode(opened.read(), type=dict[str, int]))
        except FileNotFoundError:
            pass
        except msgspec.DecodeError as error:
            raise OperatorError(
                f"{file} cannot be understood: {error}; it says what of /etc was closed to others: "
                "remove it if all of /etc is as it should be"
            ) from error
        self._file = file

    def is_open(self, path: str, found: os.stat_result) -> bool:
        """May everybody read this file, or list and enter this folder, and was that ever so?"""
        is_known = self._known.get(path) == found.st_ino
        if _is_for_everybody(found):
            return not is_known
        if not is_known:
            with self._changing:
                self._known[path] = found.st_ino
                self._is_written = False
        return False

    def save(self) -> None:
        """Where something was added since. A disk that is full is tried again after the next look."""
        with self._changing:
            if self._is_written or self._file is None:
                return
            fresh = f"{self._file}.new"
            try:
                fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with open(fd, "wb") as file:
                    file.write(msgspec.json.encode(self._known))
                    file.flush()
                    os.fsync(fd)
                os.rename(fresh, self._file)
            except OSError:
                return
            self._is_written = True

    def list_kept_closed(self) -> tuple[str, ...]:
        """List the entries that a run or a person has since made readable for everybody.

        Blocks, because it calls lstat on each.
        """
        return tuple(sorted(path for path, number in list(self._known.items()) if _opened_since(path, number)))


def _opened_since(path: str, number: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_ino == number and _is_for_everybody(found)


def _is_for_everybody(found: os.stat_result) -> bool:
    """To be read, and a folder to be entered as well."""
    needed = 0o005 if stat.S_ISDIR(found.st_mode) else 0o004
    return found.st_mode & needed == needed


CLOSED = ClosedSettings()

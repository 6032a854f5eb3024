"""Opens places for a policy. No symbolic link leads out of a folder, and a granted folder does not open hidden places.

A run may write in its root, so it could replace an output folder by a link to `~/.ssh`. A grant by name would then open
`~/.ssh` to the next run. To avoid a race, each place is opened first, and the opened descriptor is checked.

Hidden from every run are the daemon's secrets and the private folders of other runs. Landlock cannot subtract from a
folder, so the entries next to a hidden one are granted one by one. With mounts (`shield`, bubblewrap) an empty folder
covers the hidden one instead. Without mounts, read-only entries of a writable folder are also granted one by one.
"""

from __future__ import annotations

import errno
import os
import stat

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.errors import OperatorError
from wakeful.runners.isolation.landlock import READ, READ_DIR, Ruleset
from wakeful.system.openat2 import open_at

_PLACE = os.O_PATH | os.O_CLOEXEC


class LeadsOutside(OperatorError):
    """A symbolic link in the path leads out of the folder."""


class LinkLoop(LeadsOutside):
    """A symbolic link in the path leads to itself, so the path leads to no file."""


def open_beneath(folder: str | None, path: str) -> int:
    """Return an O_PATH descriptor of `path`, resolved without leaving `folder`. None for `folder` sets no such limit.

    Raises LeadsOutside if a symbolic link leads out of `folder`.
    """
    if folder is None:
        return os.open(path, _PLACE)
    base = os.open(folder, _PLACE)
    try:
        return open_at(base, path, _PLACE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkLoop(
                f"{os.path.join(folder, path)} is a symbolic link that leads to itself; "
                "make it a file, or change its target"
            ) from error
        # EXDEV: the path leads outside. EAGAIN: it was renamed while it was resolved, several times in a row.
        if error.errno not in (errno.EXDEV, errno.EAGAIN):
            raise
        words = (
            f"{os.path.join(folder, path)} leads out of {folder} by a symbolic link; "
            "name its target in the binding, or under allow"
        )
        raise LeadsOutside(words) from error
    finally:
        os.close(base)


def make_beneath(folder: str, path: str) -> None:
    """Make the folder `path` and its missing parents, without leaving `folder`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for count in range(1, len(parts) + 1):
        above = open_beneath(folder, "/".join(parts[: count - 1]) or ".")
        try:
            os.mkdir(parts[count - 1], dir_fd=above)
        except FileExistsError:
            continue
        finally:
            os.close(above)


_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Hidden(Struct, frozen=True):
    """The hidden `places` (real paths), and the paths inside them that are the run's `own` and stay visible."""

    places: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def holds(self, real: str) -> bool:
        """Does this path lie in a hidden place?"""
        return any(contains(place, real) for place in self.places) and not any(
            contains(place, real) for place in self.own
        )

    def is_inside(self, real: str) -> bool:
        """Does this path contain a hidden place?"""
        return any(contains(real, place) for place in self.places) and not any(
            contains(place, real) for place in self.own
        )


def allow_around(ruleset: Ruleset, fd: int, rights: int, hidden: Hidden, spared: tuple[str, ...] = ()) -> None:
    """Grant rights on an opened place, except on hidden entries in it.

    - Spared entries, and the folders that contain them, can only be read.
    - The names of hidden entries can be listed.
    - An entry that is made later next to a hidden one gets no rights.
    - No new entry can be made next to a spared entry.
    """
    real = os.readlink(f"/proc/self/fd/{fd}") if hidden.places or spared else ""
    if hidden.holds(real):
        return
    if any(contains(place, real) for place in spared):
        rights &= READ
    is_around_spared = rights & ~READ and any(contains(real, place) for place in spared)
    # READ_DIR alone grants the names, which are not secret.
    if not (is_around_spared or hidden.is_inside(real)) or rights == READ_DIR:
        ruleset.allow(fd, rights)
        return
    ruleset.allow(fd, READ_DIR if hidden.is_inside(real) else rights & READ)
    for name in os.listdir(f"/proc/self/fd/{fd}"):
        try:
            entry = os.open(name, _ENTRY, dir_fd=fd)
        except OSError:
            # The entry was removed after it was listed.
            continue
        try:
            # Links are skipped: their targets are granted by a grant of their own, or not at all.
            if not stat.S_ISLNK(os.fstat(entry).st_mode):
                allow_around(ruleset, entry, rights, hidden, spared)
        finally:
            os.close(entry)

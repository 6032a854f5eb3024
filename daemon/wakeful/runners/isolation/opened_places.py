"""Opens places for a policy: no symbolic link leads out of a folder, and nothing hidden is opened with a folder that
holds it.

A run may write in its root, and so replace a folder of its next run's outputs by a link to `~/.ssh`: a place that is
granted by name would then be granted there. Nothing is checked first and opened afterwards: the opened place itself is
checked. Hidden from every run are the daemon's secrets and the private folders of other runs. `reach` refuses a spec
that names them. Here each place is looked at after it was opened, so that it does not matter which links led there.
Landlock cannot subtract from a folder, so the entries beside a hidden one are granted one by one; `shield` and
bubblewrap put an empty folder on top instead. The same is done for an entry that a run may read but not write inside a
folder it may write, where nothing can be mounted.
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
    """A link on the way leads out of the folder."""


class GoesInCircles(LeadsOutside):
    """A link on the way leads to itself, so that it leads to nothing at all."""


def open_beneath(folder: str | None, path: str) -> int:
    """An O_PATH descriptor of `path`, resolved without leaving `folder`; without a folder, as it is named."""
    if folder is None:
        return os.open(path, _PLACE)
    base = os.open(folder, _PLACE)
    try:
        return open_at(base, path, _PLACE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GoesInCircles(
                f"{os.path.join(folder, path)} is a symbolic link that leads to itself; "
                "make it a file, or lead it elsewhere"
            ) from error
        # EXDEV: it leads outside. EAGAIN: it was being renamed under our hands, more than once.
        if error.errno not in (errno.EXDEV, errno.EAGAIN):
            raise
        words = (
            f"{os.path.join(folder, path)} leads out of {folder} by a symbolic link; "
            "name where it leads in the binding, or under allow"
        )
        raise LeadsOutside(words) from error
    finally:
        os.close(base)


def make_beneath(folder: str, path: str) -> None:
    """Make a folder and those above it, as far as they are missing, without leaving `folder`."""
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
    """`places`, without links, and what in them is the run's `own`."""

    places: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def holds(self, real: str) -> bool:
        """Does it lie in what is hidden?"""
        return any(contains(place, real) for place in self.places) and not any(
            contains(place, real) for place in self.own
        )

    def is_inside(self, real: str) -> bool:
        """Does something hidden lie in it?"""
        return any(contains(real, place) for place in self.places) and not any(
            contains(place, real) for place in self.own
        )


def allow_around(ruleset: Ruleset, fd: int, rights: int, hidden: Hidden, spared: tuple[str, ...] = ()) -> None:
    """Grant rights on an opened place, except on hidden entries in it.

    Spared entries, and the folders on the way to them, can only be read.

    Names of hidden entries can be listed. An entry made later beside a hidden one gets no rights. Nothing new can be
    made beside a spared one.
    """
    real = os.readlink(f"/proc/self/fd/{fd}") if hidden.places or spared else ""
    if hidden.holds(real):
        return
    if any(contains(place, real) for place in spared):
        rights &= READ
    is_around_spared = rights & ~READ and any(contains(real, place) for place in spared)
    # The names alone tell no secret.
    if not (is_around_spared or hidden.is_inside(real)) or rights == READ_DIR:
        ruleset.allow(fd, rights)
        return
    ruleset.allow(fd, READ_DIR if hidden.is_inside(real) else rights & READ)
    for name in os.listdir(f"/proc/self/fd/{fd}"):
        try:
            entry = os.open(name, _ENTRY, dir_fd=fd)
        except OSError:
            # Gone since it was listed.
            continue
        try:
            # A link is no place: where it leads is granted for itself, or not at all.
            if not stat.S_ISLNK(os.fstat(entry).st_mode):
                allow_around(ruleset, entry, rights, hidden, spared)
        finally:
            os.close(entry)

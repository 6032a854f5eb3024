"""What no run may read although something it may read holds it: the daemon's secrets,
and the private folders of other runs.

`reach` refuses what a spec asks for by name. Here nothing is asked for: each place is looked at after it was opened, so
that it does not matter which links led there, or were swapped in. Landlock cannot subtract from a folder, so what lies
beside is granted one by one; `shield` and bubblewrap put an empty folder on top instead. The same is done for what a
run may read but not write inside a folder it may write, where nothing can be mounted.
"""

from __future__ import annotations

import os
import stat

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.runners.isolation.landlock import READ, READ_DIR, Ruleset

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

    Names of hidden entries can be listed. An entry made later beside a hidden one gets no rights.
    Nothing new can be made beside a spared one."""
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

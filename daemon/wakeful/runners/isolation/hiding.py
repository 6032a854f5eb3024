"""What no run may read although something it may read holds it: the daemon's secrets, and the private folders of other runs.

`reach` refuses what a spec asks for by name. Here nothing is asked for: each place is looked at after it was opened, so that it does not matter which
links led there, or were swapped in. Landlock cannot subtract from a folder, so what lies beside is granted one by one; `shield` and bubblewrap
put an empty folder on top instead.
"""

from __future__ import annotations

import os
import stat

from msgspec import Struct

from wakeful.core.paths import contains
from wakeful.runners.isolation.landlock import READ_DIR, Ruleset

_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Hidden(Struct, frozen=True):
    """`places`, without links, and what in them is the run's `own`."""

    places: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def holds(self, real: str) -> bool:
        """Does it lie in what is hidden?"""
        return any(contains(place, real) for place in self.places) and not any(contains(place, real) for place in self.own)

    def is_inside(self, real: str) -> bool:
        """Does something hidden lie in it?"""
        return any(contains(real, place) for place in self.places) and not any(contains(place, real) for place in self.own)


def allow_around(ruleset: Ruleset, fd: int, rights: int, hidden: Hidden) -> None:
    """Grant what was opened, but for what is hidden in it. Names can be listed; what comes later beside what is hidden is not seen."""
    real = os.readlink(f"/proc/self/fd/{fd}") if hidden.places else ""
    if hidden.holds(real):
        return
    # The names alone tell no secret.
    if not hidden.is_inside(real) or rights == READ_DIR:
        ruleset.allow(fd, rights)
        return
    ruleset.allow(fd, READ_DIR)
    for name in os.listdir(f"/proc/self/fd/{fd}"):
        try:
            entry = os.open(name, _ENTRY, dir_fd=fd)
        except OSError:
            # Gone since it was listed.
            continue
        try:
            # A link is no place: where it leads is granted for itself, or not at all.
            if not stat.S_ISLNK(os.fstat(entry).st_mode):
                allow_around(ruleset, entry, rights, hidden)
        finally:
            os.close(entry)

"""Checks in user space whether a path or an address is within a run's reach.

`trace` asks about every path and address that a traced run used, and `denials` about those in a program's messages.
The rules mirror those that `confined_spawn` and the private view enforce. If the kernel denied a path that is within
reach by these rules, then the system's own rules (owner, mode) denied it. `Judge` also finds the place that a spec
would have to open. For some places it says why no spec should: secrets, the daemon's own places, wide folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.granted_places import SECRET_PLACES
from wakeful.core.looking.patterns import contains
from wakeful.core.record.observations import Denied
from wakeful.runners.isolation.landlock import EXECUTE, MAKE_REG, READ, READ_DIR, READ_FILE, WRITE, WRITE_FILE
from wakeful.runners.isolation.program_places import find_base, find_installation
from wakeful.runners.isolation.reach import Reach, is_wide
from wakeful.runners.isolation.strace import Asked
from wakeful.runners.isolation.system_places import CLOSED, SETTINGS, SYSTEM

# Places that nearly every program asks for, and that are of no use in a spec.
_NOISE = ("/proc", "/sys", "/dev/tty", "/dev/null")
_NOISY_NAMES = ("__pycache__",)
# In a workspace, missing parts of `.git` are not reported: a worktree has its own `.git`, a copy has none, and git asks
# for files that it does not need.
_REPOSITORY = ".git"
# A file counts as temporary if it lies at most this many levels below a temporary folder.
_TEMPORARY, _SHALLOW = ("/tmp", "/var/tmp"), 2
# System places that programs are known to write: multiprocessing keeps locks there, others open terminals.
_DEVICES = ("/dev/shm", "/dev/ptmx", "/dev/pts")
# Folders of which a private view has its own version, empty at first.
_PRIVATE = ("/tmp", "/dev")
_NEEDED = {"read": READ_FILE, "run": EXECUTE, "write": WRITE_FILE}
_UNRESOLVED = "EAI_AGAIN"
_DENYING = ("EACCES", "EPERM", "EROFS", "EXDEV")
# Stands for the address if the denied call (`socket`) has none.
NETWORK = "the network"
BY_SYSTEM = "the system's own rules (owner, mode) deny it, not its isolation"
_GUARDED = "it belongs to wakeful, and no run may change it"


class Moved(Protocol):
    """A workspace: the folder in which a run works instead of its root. The run may use all of it."""

    def find_real(self, path: str) -> str | None:
        """Return the path in the root that a path in the workspace stands for. None if it lies elsewhere."""

    def was_given(self, path: str) -> bool:
        """Did this path exist in the workspace when the run began?"""


class JudgedRun(Struct, frozen=True):
    """The facts about a run that `Judge` needs.

    `has_view`: the run has a private view (strict). `is_observed`: nothing is enforced.
    """

    reach: Reach
    root: str
    has_view: bool
    is_observed: bool
    moved: Moved | None = None


class Judge:
    """Judges the accesses of one run. Blocking, because it looks at the file system."""

    def __init__(self, standards: JudgedRun) -> None:
        reach = standards.reach
        self._standards = standards
        self._network = reach.policy.network
        self._hidden = reach.policy.hidden
        self._places = [(_resolve(grant.path, grant.beneath), grant.rights) for grant in reach.policy.grants]
        self._places += [(os.path.realpath(f"/proc/self/fd/{grant.fd}"), grant.rights) for grant in reach.policy.system]
        self._private: tuple[str, ...] = ()
        if standards.has_view:
            self._places += [(place, READ) for place in SYSTEM] + [(area.folder, WRITE) for area in reach.areas]
            self._private = _PRIVATE
        self._root = os.path.realpath(standards.root)
        # A guarded place around the root does not count: a fork's root was made inside the state folder.
        self._guarded = [place for place in reach.guarded if not contains(place, self._root)]
        self._asks_for_settings = any(path.startswith(f"{SETTINGS}/") for path, _ in self._places)
        self._home = os.path.realpath(os.path.expanduser("~"))

    def judge(self, asked: Asked) -> Denied | None:
        """Return the denial to report. None if the run had the access, would have it, or it is not worth a report."""
        if asked.access == "connect":
            return self._judge_address(asked)
        if any(contains(place, asked.what) for place in _NOISE) or any(
            name in asked.what.split("/") for name in _NOISY_NAMES
        ):
            return None
        real = asked.real or os.path.realpath(asked.what)
        if (moved := self._standards.moved) is not None and (meant := moved.find_real(asked.what)) is not None:
            # Report the name that a person knows: the path in the root.
            asked = replace(asked, what=meant)
            if (there := moved.find_real(real)) is not None:
                return self._judge_moved(asked, real, os.path.realpath(there), moved)
        is_folder = asked.is_folder or os.path.isdir(real)
        is_outside = not self._is_within(asked, real, is_folder)
        if asked.error in _DENYING:
            if is_outside and not self._standards.is_observed:
                return self._describe(asked, real, is_folder)
            return None if asked.is_shared or asked.error == "EXDEV" else _say(asked, real, is_folder, BY_SYSTEM)
        # In a view, a hidden file does not exist for the run. A file to be created needs its folder to exist.
        is_hidden = (
            self._standards.has_view
            and asked.error == "ENOENT"
            and os.path.exists(os.path.dirname(real) if asked.access == "write" else real)
        )
        is_had = self._standards.is_observed and asked.error is None
        return self._describe(asked, real, is_folder) if is_outside and (is_hidden or is_had) else None

    def find_companions(self, asked: Asked, denied: Denied) -> Iterator[Denied]:
        """Yield the places that a program will need next, once it may use the denied one: the rest of its virtual
        environment, and the Python from which that was made."""
        if denied.place is None or asked.access not in ("read", "run"):
            return
        for folder in dict.fromkeys(filter(None, (find_installation(asked.what), find_installation(denied.place)))):
            for place in (folder, find_base(folder)):
                if (
                    place is not None
                    and place != denied.place
                    and not self._is_too_much(place)
                    and not self._is_granted(os.path.realpath(place), READ_DIR)
                ):
                    yield Denied(access="read", what=place, place=os.path.realpath(place), is_folder=True)

    def _judge_moved(self, asked: Asked, real: str, there: str, moved: Moved) -> Denied | None:
        """Judge an access in a workspace.

        All of the workspace is open, but it holds only bound files. A missing path that exists in the root (`there`)
        was left out, and is reported.
        """
        is_folder = asked.is_folder or os.path.isdir(there)
        if asked.error in _DENYING:
            return None if asked.is_shared or asked.error == "EXDEV" else _say(asked, there, is_folder, BY_SYSTEM)
        if asked.error != "ENOENT" or _REPOSITORY in asked.what.split("/"):
            return None
        is_left_out = os.path.lexists(there) and not moved.was_given(real)
        if asked.access == "write" and not is_left_out:
            # A file to be created needs its folder to exist.
            is_left_out = (
                os.path.isdir(os.path.dirname(there))
                and not os.path.isdir(os.path.dirname(real))
                and not moved.was_given(os.path.dirname(real))
            )
        return self._describe(asked, there, is_folder) if is_left_out else None

    def _is_within(self, asked: Asked, real: str, is_folder: bool) -> bool:
        if asked.error != "ENOENT" and any(contains(place, real) for place in self._private):
            return True
        if (asked.access == "write" and self._is_shielded(real)) or self._hidden.holds(real):
            return False
        if asked.access == "write" and not os.path.lexists(real):
            return self._is_granted(os.path.dirname(real), MAKE_REG)
        needed = READ_DIR if is_folder and asked.access == "read" else _NEEDED[asked.access]
        if contains(SETTINGS, real) and not self._asks_for_settings and not _is_for_everybody(real):
            return False
        return self._is_granted(real, needed)

    def _is_granted(self, path: str, right: int) -> bool:
        return any(rights & right and contains(place, path) for place, rights in self._places)

    def _is_shielded(self, path: str) -> bool:
        policy = self._standards.reach.policy
        return any(contains(place, path) for place in policy.shielded) and not any(
            contains(place, path) for place in policy.kept_writable
        )

    def _judge_address(self, asked: Asked) -> Denied | None:
        network = self._network
        # Without a network no name can be looked up, so a name that was not found counts as denied.
        is_denied = asked.error in _DENYING or (asked.error == _UNRESOLVED and network is False)
        if network is True or not (is_denied or self._standards.is_observed):
            return None
        if asked.what.startswith("@"):
            return (
                Denied(
                    access="connect",
                    what=asked.what,
                    words="an abstract socket (without a file); only isolation: none opens those",
                )
                if is_denied
                else None
            )
        host, _, port = asked.what.rpartition(":")
        # Without a port, the call only made a socket. If the network is open, only connections are judged.
        if not port:
            return None if network else Denied(access="connect", what=NETWORK, place="*")
        if host == "*":
            return Denied(access="connect", what=f"listening on port {port}", place="*")
        # With a list of ports UDP is open for looking up names, so port 53 is reported only if it was denied.
        if network is not False and (int(port) in network or (port == "53" and not is_denied)):
            return None
        return Denied(access="connect", what=asked.what, place=asked.what)

    def _describe(self, asked: Asked, real: str, is_folder: bool) -> Denied:
        if any(contains(place, real) for place in self._guarded) and (
            asked.access == "write" or not contains(self._root, real)
        ):
            return _say(asked, real, is_folder, _GUARDED)
        if self._is_secret(real) or self._hidden.holds(real):
            return _say(
                asked, real, is_folder, "it may hold secrets; if the run needs it, name it under allow yourself"
            )
        if asked.access != "write":
            if is_folder and self._is_too_much(real):
                return _say(asked, real, is_folder, "the folder is too wide to be opened as a whole")
            # Open the whole installation: a program that finds this module asks for the others next.
            if (whole := find_installation(real)) is not None and not self._is_too_much(whole):
                return Denied(access=asked.access, what=asked.what, place=whole, is_folder=True)
            return Denied(access=asked.access, what=asked.what, place=real, is_folder=is_folder)
        return self._describe_write(asked, real, is_folder)

    def _is_too_much(self, folder: str) -> bool:
        return is_wide(folder) or contains(folder, self._root)

    def _describe_write(self, asked: Asked, real: str, is_folder: bool) -> Denied:
        """Describe a denied write.

        A spec opens the folder of a file for writing, because otherwise the file could not be replaced. If the folder
        is too wide for that, an existing file is opened alone.
        """
        if any(
            contains(place, real) and real.count("/") <= place.count("/") + _SHALLOW for place in _TEMPORARY
        ) and not contains(self._root, real):
            return _say(asked, real, is_folder, "use $TMPDIR, the run's own temporary folder")
        if (device := next((place for place in _DEVICES if contains(place, real)), None)) is not None:
            return Denied(access="write", what=asked.what, place=device, is_folder=os.path.isdir(device))
        folder = real if is_folder else os.path.dirname(real)
        if is_wide(folder) and not contains(self._root, folder):
            words = None if os.path.isfile(real) else f"{folder} is too wide to be opened for one file"
            return Denied(
                access="write", what=asked.what, place=real if words is None else None, is_folder=is_folder, words=words
            )
        return Denied(access="write", what=asked.what, place=real, is_folder=is_folder)

    def _is_secret(self, real: str) -> bool:
        if contains(SETTINGS, real) and not _is_for_everybody(real):
            return True
        homes = (self._home, "/root", "/".join(real.split("/")[:3]))
        return any(contains(f"{home}/{place}", real) for home in homes for place in SECRET_PLACES)


def _say(asked: Asked, real: str, is_folder: bool, words: str) -> Denied:
    return Denied(
        access=asked.access,
        what=asked.what,
        is_folder=is_folder,
        words=words if asked.what == real else f"{words} (it is {real})",
    )


def _resolve(path: str, beneath: str | None) -> str:
    return os.path.realpath(path if beneath is None else os.path.join(beneath, path))


def _is_for_everybody(path: str) -> bool:
    """May everybody read this path of /etc? Judges the file and each folder above it, as the guard does."""
    while path != SETTINGS and contains(SETTINGS, path):
        try:
            found = os.stat(path, follow_symlinks=False)
        except OSError:
            return True
        if not CLOSED.is_open(path, found):
            return False
        path = os.path.dirname(path)
    return True

"""Confines an agent's shell, which has fewer rights than the agent's own process.

A shell gets a Landlock domain within the domain of the agent's process, and a seccomp filter of its own. The agent's
process has the run's token and the keys of its models, and reaches the control socket and its providers. A command that
a model wrote can do none of that. Domains only remove rights, so this module cannot grant more than the run has.
`shell` makes a domain for each command. The command's keeper (process_keeper.py) stays outside of it, so that the
command can neither end nor inspect the keeper.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from wakeful.agents.tools.bound_files import Bound, Bounds
from wakeful.errors import OperatorError
from wakeful.runners.isolation.confined_spawn import find_sockets
from wakeful.runners.isolation.landlock import DEVICE, EXECUTE, READ, READ_DIR, READ_FILE, WRITE, Ruleset, probe_abi
from wakeful.runners.isolation.opened_places import Hidden, allow_around
from wakeful.runners.isolation.seccomp import build_socket_filter, is_known_machine
from wakeful.runners.isolation.system_places import list_resolver

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc", "/proc",
    "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# The variables that are passed on: user, locale and program paths. Variables from a spec are not, because they may be
# keys.
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "GIT_CONFIG_GLOBAL",
    "WAKEFUL_SESSION",
    "WAKEFUL_RUN",
    "WAKEFUL_SCRATCH",
)
_INHERITED_PREFIXES = ("LC_", "WAKEFUL_BINDING_")


class Narrowing(Struct, frozen=True, kw_only=True):
    """All that a shell may reach. `hidden` has the run's own folder and other paths with keys."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # Folders whose entries may be listed, but not read.
    lists: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    # The network of the session: none (False), all (True), or the TCP ports that may be connected to.
    network: bool | tuple[int, ...] = False
    # The TCP ports that may be listened on.
    listens: tuple[int, ...] = ()
    # Is UDP allowed although `network` is a list of ports? A listed host may be a name, and looking it up needs UDP.
    looks_up_names: bool = False


class CommandConfinement(Struct, frozen=True):
    """The confinement that a command enters before its first instruction: a ruleset's descriptor, and a filter.

    The filter is empty if this machine's architecture is not supported.
    """

    ruleset_fd: int
    filter: bytes


def narrow(
    bounds: Bounds,
    environ: Mapping[str, str],
    *,
    network: bool | tuple[int, ...] = False,
    listens: tuple[int, ...] = (),
    looks_up_names: bool = False,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    hidden: Iterable[str] = (),
) -> Narrowing:
    """List the paths that a shell may reach: bound paths, the scratch and temporary folders, and programs.

    `reads` and `writes` are further paths.
    """
    token = environ.get("WAKEFUL_TOKEN_FILE")
    own = (os.path.dirname(token),) if token else ()
    programs = (path for path in environ.get("PATH", "").split(":") if path.startswith("/"))
    temporary = (environ["TMPDIR"],) if environ.get("TMPDIR") else ()
    resolver = list_resolver() if network else ()
    return Narrowing(
        reads=_list_once(
            _SYSTEM,
            (sys.prefix, sys.base_prefix),
            programs,
            resolver,
            reads,
            (bound.pattern.base for bound in bounds.reads),
        ),
        writes=_list_once(map(_find_output_folder, bounds.writes), temporary, writes),
        lists=_list_once(
            (bounds.root,), (os.path.dirname(bound.pattern.base) for bound in bounds.reads if bound.pattern.is_literal)
        ),
        hidden=_list_once(map(os.path.realpath, (*own, *hidden))),
        network=network,
        listens=listens,
        looks_up_names=looks_up_names,
    )


def _list_once(*groups: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain(*groups)))


def select_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }


def find_obstacle() -> str | None:
    """Return the reason why a shell cannot be confined further than the run, or None if it can."""
    if probe_abi() == 0:
        return (
            "this kernel has no Landlock: a shell could read the run's token and keys (Linux 5.13 and newer "
            "can prevent that)"
        )
    return None


@contextlib.contextmanager
def make_domain(narrowing: Narrowing) -> Iterator[CommandConfinement]:
    """Make a command's domain. Opens every path once, and skips paths that do not exist. Blocking."""
    obstacle = find_obstacle()
    if obstacle is not None:
        raise OperatorError(obstacle)
    hidden = Hidden(narrowing.hidden)
    with Ruleset(has_tcp=narrowing.network is True) as ruleset:
        for path, rights in _list_grants(narrowing):
            _allow(ruleset, path, rights, hidden)
        if not isinstance(narrowing.network, bool):
            ruleset.allow_connect(narrowing.network)
        ruleset.allow_listen(narrowing.listens)
        sockets = find_sockets(narrowing.network, narrowing.listens, looks_up_names=narrowing.looks_up_names)
        program = build_socket_filter(sockets) if is_known_machine() else b""
        yield CommandConfinement(ruleset.fd, program)


def _list_grants(narrowing: Narrowing) -> Iterator[tuple[str, int]]:
    yield from ((path, READ) for path in narrowing.reads)
    yield from ((path, WRITE) for path in narrowing.writes)
    yield from ((path, READ_DIR) for path in narrowing.lists)
    yield from ((path, DEVICE) for path in _DEVICES)


def _allow(ruleset: Ruleset, path: str, rights: int, hidden: Hidden) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # The path does not exist, or the run itself may not open it.
        return
    try:
        if rights == WRITE and hidden.is_inside(os.readlink(f"/proc/self/fd/{fd}")):
            # A command may write new files next to hidden ones, for the next command. This grant does not allow reading
            # hidden files, and Landlock prevents moving them to a readable folder.
            ruleset.allow(fd, WRITE & ~(READ_FILE | EXECUTE))
        allow_around(ruleset, fd, rights, hidden)
    finally:
        os.close(fd)


def _find_output_folder(bound: Bound) -> str:
    """Return the folder to open for writing. For a file it is the file's folder, because a write replaces the file."""
    base = bound.pattern.base
    return os.path.dirname(base) if bound.pattern.is_literal and not os.path.isdir(base) else base

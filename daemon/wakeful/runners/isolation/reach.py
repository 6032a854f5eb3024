"""Computes the policy that confines a run from the run's order: the places on this machine that the run may read and
write, by the rules of specs.md.

`Preparation` asks once per run; `PlanCache` keeps the answer for the session's next run. This module looks at the file
system (existing folders, targets of links) and makes the folders of outputs. `confined_spawn` passes the policy to the
kernel. `Reach.unenforced` lists every rule that this machine cannot enforce.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import Pattern, contains, parse_under
from wakeful.core.spec.session import Confinement
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.confined_spawn import Grant, Policy
from wakeful.runners.isolation.kernel_gaps import find_kernel_gaps
from wakeful.runners.isolation.landlock import READ, READ_DIR, READ_FILE, TCP_ABI, WRITE, probe_abi
from wakeful.runners.isolation.opened_places import Hidden, make_beneath
from wakeful.runners.isolation.path_answers import PathAnswers
from wakeful.runners.isolation.program_places import (
    Derived,
    ProgramWords,
    derive_places,
    find_named_files,
    resolve_links,
)
from wakeful.runners.isolation.repositories import find_entries, find_repository_places, find_storage
from wakeful.runners.isolation.server_programs import find_script_folder, is_npx, name_npx_cache, resolve_server
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import SETTINGS, SystemPlaces, is_of_system, list_resolver, list_settings
from wakeful.runners.isolation.written_places import WrittenPlaces, list_written
from wakeful.system.git_folders import GIT, find_top
from wakeful.system.private_files import make_plain

# Gaps on every machine, because Landlock only judges opening, making, renaming and removing.
ALWAYS_UNENFORCED = ("sockets that are files (D-Bus, Docker)", "chmod, chown and stat outside its reach")
# System folders that a private view must show unchanged.
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/dev", "/sys")
_SHARED = ("/", "/tmp", "/var", "/var/tmp", "/home", "/root", "/mnt", "/media", "/srv", "/opt", "/run")


class ReachRefused(OperatorError):
    """The spec asks for a place that no run may have, or that this machine cannot grant safely."""


class NotYet(Exception):
    """A file or folder must be made before it can be opened, and nothing is made before the run is on record."""


class Protected(Struct, frozen=True, kw_only=True):
    """Places that no run may change: the specs, the state folder, and the rest (settings, socket, folders of runs,
    unit files).

    `hidden` are places that no run may even read: the daemon's secrets, the private folders of other runs.
    `written` knows the places that runs may write.
    """

    specs: str | None = None
    state: str | None = None
    rest: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    written: WrittenPlaces | None = None


class Area(Struct, frozen=True):
    """A real folder with staged outputs. Each of `outputs` has the folder as the spec spells it, and a pattern."""

    folder: str
    outputs: tuple[tuple[str, Pattern], ...]


class Reach(Struct, frozen=True, kw_only=True):
    """The places that a run may touch.

    `opened` are the folders that were opened as a whole for one literal output. `guarded` are the daemon's own places.
    """

    policy: Policy
    unenforced: tuple[str, ...]
    opened: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    specs: str | None = None
    areas: tuple[Area, ...] = ()
    # The granted paths as the spec spells them. They may contain links.
    spelled: tuple[str, ...] = ()
    # Variables for the programs of the run, so that they do not fail on places they cannot reach.
    environment: dict[str, str] = {}
    # Undeclared places that the run's programs need (relative to root if they lie in it), and messages about refused
    # places.
    derived: tuple[str, ...] = ()
    not_derived: tuple[str, ...] = ()


@functools.cache
def find_unenforced() -> tuple[str, ...]:
    """List the restrictions that this machine cannot enforce for any run."""
    return (*ALWAYS_UNENFORCED, *(gap.words for gap in find_kernel_gaps()))


def find_network_gaps(network: bool | tuple[str, ...]) -> Iterable[str]:
    """List the parts of a `network` list that this machine cannot enforce."""
    if isinstance(network, bool):
        return
    known = Confinement(network=network)
    yield "hosts: " + (
        "only the ports in `network` are enforced"
        if probe_abi() >= TCP_ABI
        else "nothing in `network` is enforced (Linux 6.7 can enforce its ports)"
    )
    if known.looks_up_names:
        yield (
            "UDP: needed for name lookups, and the kernel cannot limit its ports (it is closed if `network` lists "
            "only addresses)"
        )
    if known.listened_ports:
        yield "listening: a socket that is bound to no port may listen on one that the kernel chooses"


def find_reach(
    order: RunOrder, environment: dict[str, str], system: SystemPlaces, protected: Protected, *, is_early: bool = False
) -> Reach:
    """Compute the reach of a run. Blocking. Raises ReachRefused, with a message for the run's record.

    `is_early`: the run is not on record yet, so nothing may be made for it. Raises NotYet if something must be.
    """
    return make_plan(order, environment, protected, is_early=is_early).conclude(system, order.folder)


def make_plan(order: RunOrder, environment: dict[str, str], protected: Protected, *, is_early: bool = False) -> Plan:
    """Collect all grants of a run. Raises ReachRefused and NotYet, as `find_reach` does."""
    plan = Plan(order, protected, is_early=is_early)
    for text in order.reads:
        pattern = parse_under(text, order.root)
        plan.read(pattern.base)
        if pattern.is_literal:
            plan.list_names(os.path.dirname(pattern.base))
    for text in order.writes:
        plan.write(parse_under(text, order.root))
    if order.workspace is not None:
        plan.grant(order.workspace.folder, WRITE)
        for place in order.workspace.borrowed:
            plan.grant(place, READ)
    for repository in order.repositories:
        for place in find_repository_places(order.root, *repository):
            plan.read(place)
    program = None if order.program is None else os.path.join(order.root, order.program)
    if program is not None:
        plan.read(program)
        plan.list_names(os.path.dirname(program))
    texts = (*order.argv, order.script or "", *(order.check or ()))
    plan.read_named(find_named_files(texts, order.root, order.cwd, plan.answers))
    plan.derive(texts, program, environment.get("PATH", ""), order.cwd)
    for argv in order.servers:
        plan.read_server(argv, environment.get("PATH", ""))
    for path in plan.allowed_reads:
        plan.grant(path, READ)
    for path in plan.allowed_writes:
        plan.open(path, path, is_alone=False)
    plan.read_storage()
    return plan


class Plan:
    """Collects the grants of a run.

    `answers` records the plan's questions to the file system. The plan is valid as long as the answers stay the same.
    """

    def __init__(self, order: RunOrder, protected: Protected, *, is_early: bool) -> None:
        self._order = order
        self._is_early = is_early
        self._written = _list_writers(order, protected.written)
        self.answers = PathAnswers(self._written)
        self._root = self._find(order.root)
        guarded, self._specs = resolve_protected(protected)
        # Resolved for each run, because the folder of secrets may be made, or replaced by a link, at any time.
        hidden = tuple(map(self._find, protected.hidden))
        self._guarded = tuple(dict.fromkeys((*guarded, *hidden)))
        self._runs = self._find(os.path.dirname(order.folder))
        self._closed = (*hidden, *((self._find(protected.state),) if protected.state is not None else ()))
        self._hidden = self._hide(hidden, order.folder)
        self._workspace = self._find(order.workspace.folder) if order.workspace is not None else None
        # A private view can leave out any place, or show it read-only.
        self._has_view = order.confinement.level == "strict"
        self._can_shield = self._has_view or can_shield()
        self._areas: dict[str, list[tuple[str, Pattern]]] = {}
        # The run's own folders. A root inside the state folder is one, too: a copy to run in, or a fork's folder.
        made = self._workspace or self._root
        roots = (made,) if any(contains(place, made) for place in self._guarded) else ()
        self._own = (*map(self._find, (order.scratch, order.temporary)), *roots)
        allow = order.confinement
        self.allowed_reads = [self._resolve(path) for path in allow.allow_read]
        self.allowed_writes = [self._resolve(path) for path in allow.allow_write]
        self._named = [self._find(path) for path in _list_named(order)]
        # (Folder that must not be left, or None; path) -> rights.
        self._rights: dict[tuple[str | None, str], int] = {}
        for path in (order.scratch, order.temporary):
            self.grant(path, WRITE)
        # Paths as the spec spells them. A view shows the links in them.
        self.spelled = [os.path.join(order.root, path) for path in (*allow.allow_read, *allow.allow_write)]
        self.shielded: dict[str, None] = {}
        self.spared: dict[str, None] = {}
        self.opened: dict[str, None] = {}
        self.unenforced: dict[str, None] = {}
        # The derived places and the messages about refused ones. Places inside root are relative to it.
        self._derived: tuple[str, ...] = ()
        self._not_derived: tuple[str, ...] = ()

    def read(self, path: str) -> None:
        real = self._follow(path, self.allowed_reads + self.allowed_writes)
        self.spelled.append(path)
        if real is not None:
            self._grant(real, READ)

    def list_names(self, folder: str) -> None:
        """Grant the names in the folder of a readable file, not the contents.

        Python finds no module in a folder that it cannot list.
        """
        real = self._find(folder)
        if not is_wide(real) and contains(self._root, real):
            self._grant(real, READ_DIR)

    def write(self, pattern: Pattern) -> None:
        """Grant writing an output. For a file, the folder around it is opened, so that the file can be replaced."""
        is_file = pattern.is_literal and not self.answers.is_folder(pattern.base)
        folder = os.path.dirname(pattern.base) if is_file else pattern.base
        self._make(folder)
        real = self._follow(folder, self.allowed_writes)
        # The run may write anywhere in its workspace, not only its outputs.
        if real is None or self._is_in_workspace(real):
            return
        self._refuse_unnamed(real, pattern.base)
        if self._has_view:
            self._stage(real, folder, pattern)
            return
        self.open(real, os.path.join(real, os.path.basename(pattern.base)) if is_file else real, is_alone=is_file)

    def _stage(self, real: str, folder: str, pattern: Pattern) -> None:
        self._refuse_guarded(real, pattern.base)
        if real == "/" or any(contains(real, place) for place in _SYSTEM):
            raise ReachRefused(
                f"{pattern.base} lies in {real}, which the system needs as it is; under isolation: "
                "strict write elsewhere"
            )
        self._areas.setdefault(real, []).append((folder, pattern))

    def open(self, folder: str, output: str, *, is_alone: bool) -> None:
        """Grant writing in a folder.

        `is_alone`: the output is one file. If its folder is too wide or unsafe to open, only the file is granted.
        """
        self._refuse_guarded(folder, output)
        self._refuse_unnamed(folder, output)
        inside = [place for place in self._guarded if contains(folder, place) and self.answers.is_there(place)]
        is_safe = not inside or self._can_shield or inside == [self._specs]
        repositories = self._find_repositories(folder)
        # Nothing can be mounted on a link.
        is_kept = not repositories or (self._can_shield and not any(map(os.path.islink, repositories)))
        if is_alone and (not is_safe or not is_kept or is_wide(folder)):
            self._grant_alone(output)
            return
        if not is_safe:
            words = (
                f"{folder} is an output folder and contains {inside[0]}, which no run may change; name narrower "
                "folders, or install bubblewrap"
            )
            raise ReachRefused(words)
        if self._can_shield:
            self.shielded.update(dict.fromkeys(inside))
        elif inside:
            self.unenforced["the specs are within its reach: a spec that changes during the run needs trust"] = None
        if is_kept:
            self.shielded.update(dict.fromkeys(repositories))
        elif self._has_view:
            raise ReachRefused(
                f"{folder} is an output folder and contains {repositories[0]}, a link that cannot be protected; "
                "name narrower folders"
            )
        else:
            self.spared.update(dict.fromkeys(repositories))
            self.unenforced[
                f"new names in {folder}: it contains {repositories[0]}, "
                "so only entries that were there when the run began can be written"
            ] = None
        if is_alone:
            self.opened[folder] = None
        self._grant(folder, WRITE)

    def _find_repositories(self, folder: str) -> list[str]:
        """Find every `.git` in a folder that is opened for writing, except those that the spec names."""
        return [
            place
            for place in find_entries(folder, self.answers)
            if not any(contains(named, place) for named in self._named)
        ]

    def _refuse_unnamed(self, folder: str, output: str) -> None:
        """Refuse a folder inside `.git` that the spec does not name: a link that a run made may lead there."""
        below = folder[len(self._root) :] if contains(self._root, folder) else folder
        if GIT in below.split("/") and not any(contains(named, folder) for named in self._named):
            raise ReachRefused(
                f"{output} leads to {folder} by a symbolic link, and {GIT} is written only if a spec names it; "
                "name that place"
            )

    def read_storage(self) -> None:
        """If the checkout's `.git` is a file that the run may read, grant the folders that it names: git needs them."""
        top = find_top(self._root)
        entry = f"{top}/{GIT}"
        if top is None or not self.answers.is_file(entry) or not self._is_read(entry):
            return
        self.answers.read(entry)
        for place in find_storage(top):
            self.read(place)

    def _is_read(self, path: str) -> bool:
        granted = ((os.path.join(beneath or "/", place), rights) for (beneath, place), rights in self._rights.items())
        return any(rights & READ_FILE and contains(place, path) for place, rights in granted)

    def _refuse_guarded(self, folder: str, output: str) -> None:
        guards = [place for place in self._guarded if contains(place, folder) and not self._is_own(folder)]
        if guards:
            raise ReachRefused(f"{output} lies in {guards[0]}, which no run may change; write elsewhere")

    def read_named(self, paths: Iterable[str]) -> None:
        """Grant reading the files that a command names.

        A file that would be refused (such as a link that leads elsewhere) is left out, and the run starts without it.
        """
        for path in paths:
            with contextlib.suppress(ReachRefused):
                self.read(path)
                self.list_names(os.path.dirname(path))

    def read_server(self, argv: tuple[str, ...], search_path: str) -> None:
        """Grant what an MCP server needs to start: its program, its script with the modules next to it,
        and the packages around it."""
        root, home = self._order.root, _find_home()
        words = resolve_server(argv, root, home)
        folder = find_script_folder(words, root)
        self.read_named(
            (*find_named_files(words, root, root, self.answers), *((folder,) if folder is not None else ()))
        )
        if is_npx(argv) and self.answers.is_folder(cache := name_npx_cache(home)):
            # Names only: the agent's process looks for the program once more.
            self.grant(cache, READ_DIR)
        self.derive(words, None, search_path, root)

    def derive(self, texts: tuple[str, ...], program: str | None, search_path: str, cwd: str) -> None:
        """Grant the undeclared places that the run's programs need."""
        granted = (
            os.path.join(beneath or "/", path) for (beneath, path), rights in self._rights.items() if rights & READ_FILE
        )
        workspace = self._order.workspace
        words = ProgramWords(
            texts=texts,
            program=program,
            root=self._order.root,
            cwd=os.path.join(self._order.root, cwd),
            search_path=search_path,
            real_root=workspace.real_root if workspace is not None else None,
            declared=(
                *granted,
                *self.allowed_reads,
                *self.allowed_writes,
                *((self._workspace,) if self._workspace is not None else ()),
            ),
            closed=self._closed,
        )
        derived, answers = derive_places(words, self._written, is_wide)
        self.answers.include(answers)
        self._derived = tuple(dict.fromkeys((*self._derived, *name_derived(derived, self._root))))
        self._not_derived = tuple(dict.fromkeys((*self._not_derived, *derived.refused)))
        self.spelled += derived.spelled
        for place in derived.places:
            if self._hidden.holds(place.path):
                continue
            inside = os.path.relpath(place.path, place.beneath) if place.beneath is not None else place.path
            self.grant(inside, READ, place.beneath)

    def conclude(self, system: SystemPlaces, folder: str) -> Reach:
        """Return the reach under Landlock. `folder` is the run's own folder, which is not part of the plan."""
        hidden, network = self._hide(self._hidden.places, folder), self._order.confinement.network
        self.unenforced.update(dict.fromkeys(find_network_gaps(network)))
        for path in list_resolver() if network else ():
            self.grant(path, READ)
        # A spec may name a file of /etc, and the run gets it. The guard knows no exceptions, so the plan then grants
        # the open settings one by one instead.
        asks_for_settings = any(contains(SETTINGS, path) for _, path in self._rights)
        settings = [Grant(path, READ) for path in list_settings()] if asks_for_settings else []
        policy = Policy(
            system=tuple(grant for grant in system.grants if grant.fd != system.settings_fd)
            if asks_for_settings
            else system.grants,
            guard=None if asks_for_settings else system.guard(),
            grants=(*self._list_grants(folder), *settings),
            network=self._order.confinement.ports,
            listens=self._order.confinement.listened_ports,
            looks_up_names=self._order.confinement.looks_up_names,
            shielded=tuple(_without_nested(self.shielded)),
            spared=tuple(self.spared),
            hidden=hidden,
        )
        return Reach(
            policy=replace(policy, kept_writable=tuple(self._list_kept(policy))) if self.shielded else policy,
            unenforced=(*find_unenforced(), *self.unenforced),
            opened=tuple(self.opened),
            guarded=self._guarded,
            environment=self._find_environment(),
            derived=self._derived,
            not_derived=self._not_derived,
        )

    def _list_grants(self, folder: str) -> Iterable[Grant]:
        yield Grant(folder, READ)
        for (beneath, path), rights in self._rights.items():
            yield Grant(path, rights, beneath)

    def _hide(self, places: tuple[str, ...], folder: str) -> Hidden:
        """Hide places, except the run's own folder and its exported trees next to it.

        The daemon makes the run's folder, so it is not a link.
        """
        real = os.path.join(self._runs, os.path.basename(folder))
        return Hidden(places, (real, f"{real}.trees"))

    def _list_kept(self, policy: Policy) -> Iterable[str]:
        """List the run's own folders that lie in shielded or hidden places."""
        above = (*policy.shielded, *policy.emptied)
        own = dict.fromkeys((*self._own, *policy.hidden.own, *self._named))
        return (place for place in own if os.path.isdir(place) and any(contains(one, place) for one in above))

    def conclude_view(self, folder: str) -> Reach:
        return Reach(
            policy=Policy(
                grants=tuple(self._list_grants(folder)),
                network=self._order.confinement.ports,
                listens=self._order.confinement.listened_ports,
                looks_up_names=self._order.confinement.looks_up_names,
                shielded=tuple(place for place in self.shielded if place not in self._guarded),
                hidden=self._hidden,
            ),
            unenforced=tuple(self.unenforced),
            guarded=self._guarded,
            specs=self._specs,
            areas=tuple(Area(folder, tuple(outputs)) for folder, outputs in self._areas.items()),
            spelled=tuple(self.spelled),
            environment=self._find_environment(),
            derived=self._derived,
            not_derived=self._not_derived,
        )

    def _find_environment(self) -> dict[str, str]:
        """Return a variable that makes git ignore the person's settings, unless the run may read them.

        git gives up if the settings exist and cannot be read (measured).
        """
        settings = f"{_find_home()}/.gitconfig"
        is_known = any(contains(place, settings) for place in (*self.allowed_reads, *self.allowed_writes))
        return {} if is_known or "GIT_CONFIG_GLOBAL" in self._order.env else {"GIT_CONFIG_GLOBAL": os.devnull}

    def _grant_alone(self, output: str) -> None:
        """Grant writing this file only. A missing file is made, because the run cannot make it in a closed folder."""
        self._refuse_early(output)
        if os.path.islink(output):
            raise ReachRefused(f"{output} is a symbolic link; name its target in the binding")
        os.close(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666))
        self._grant(output, WRITE)

    def _is_in_workspace(self, real: str) -> bool:
        return self._workspace is not None and contains(self._workspace, real)

    def _grant(self, real: str, rights: int) -> None:
        if self._is_in_workspace(real):
            return
        if real != self._root and contains(self._root, real):
            self.grant(real[len(self._root) :].lstrip("/"), rights, self._root)
        else:
            self.grant(real, rights)

    def grant(self, path: str, rights: int, beneath: str | None = None) -> None:
        """Grant rights on a path. For a path inside root use `_grant`, so that no link in it can lead out."""
        if self._hidden.holds(named := path if beneath is None else os.path.join(beneath, path)):
            raise ReachRefused(
                f"{named} belongs to the daemon, which gives a run only the secrets that its spec lists; "
                "list those that the run needs under secrets"
            )
        self._rights[beneath, path] = self._rights.get((beneath, path), 0) | rights

    def _follow(self, path: str, allowed: list[str]) -> str | None:
        """Return the real path. None if it lies outside root, and `allow` or the system opens it already.

        Raises ReachRefused if a link leads out of root otherwise, because a run may have made the link.
        """
        real = self._find(path)
        is_inside = contains(self._order.root, path) or contains(self._root, path)
        if not is_inside or contains(self._root, real):
            if real != path and not any(contains(place, real) for place in allowed):
                self._refuse_planted(path, real)
            return real
        if any(contains(place, real) for place in allowed) or is_of_system(real):
            return None
        raise ReachRefused(
            f"{path} leads to {real}, out of {self._root}, by a symbolic link; name that place in the binding, "
            "or under allow"
        )

    def _refuse_planted(self, path: str, real: str) -> None:
        """Refuse a path with a link that a run could have made, unless it leads to a place which that run can write."""
        for link in resolve_links(path)[1]:
            writing = self.answers.find_writer(link)
            if writing is not None and not contains(writing.place, real):
                words = (
                    f"{path} leads to {real} by the symbolic link {link}, which runs of {writing.session} may have "
                    "made; name that place in the binding, or under allow"
                )
                raise ReachRefused(words)

    def _make(self, folder: str) -> None:
        if self.answers.is_folder(folder):
            return
        self._refuse_early(folder)
        if contains(self._order.root, folder):
            make_beneath(self._root, os.path.relpath(folder, self._order.root))
        else:
            make_plain(folder)

    def _refuse_early(self, path: str) -> None:
        if self._is_early:
            raise NotYet(f"{path} must be made first")

    def _resolve(self, path: str) -> str:
        return self._find(os.path.join(self._order.root, path))

    def _find(self, path: str) -> str:
        self.answers.is_there(path)
        return _resolve(path)

    def _is_own(self, folder: str) -> bool:
        return any(contains(place, folder) for place in (*self._own, self._hidden.own[0]))


def _list_named(order: RunOrder) -> Iterable[str]:
    """List the places in `.git` that a spec names to be written, as it spells them. For a file, list its folder."""
    for text in order.writes:
        pattern = parse_under(text, order.root)
        folder = os.path.dirname(pattern.base)
        if pattern.is_literal and GIT in folder.split("/") and not os.path.isdir(pattern.base):
            yield folder
        elif GIT in pattern.base.split("/"):
            yield pattern.base
    for text in order.confinement.allow_write:
        if GIT in (path := os.path.normpath(os.path.join(order.root, text))).split("/"):
            yield path


def name_derived(derived: Derived, root: str | None) -> tuple[str, ...]:
    """Name the derived places: relative to root if they lie inside it, else by their absolute path.

    Nested places are left out.
    """
    places = _without_nested(place.path for place in derived.places)
    return tuple(
        os.path.relpath(place, root) if root is not None and contains(root, place) else place for place in places
    )


def _list_writers(order: RunOrder, written: WrittenPlaces | None) -> WrittenPlaces:
    """Return the places that all runs may write.

    If this run's session was not declared (a replay), its own places are added.
    """
    if written is not None and written.knows(order.session):
        return written
    own = WrittenPlaces(written)
    is_staged = order.confinement.level == "strict" or order.workspace is not None
    places = list_written(
        order.root, order.writes, (*order.confinement.allow_write, order.scratch, order.temporary), is_staged=is_staged
    )
    own.declare(order.session, order.name, places)
    return own


def _resolve(path: str) -> str:
    """Return the real path. A missing path resolves to the place it would have.

    The kernel resolves it, which takes a fifth of the time of `os.path.realpath`.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        folder, name = os.path.split(path)
        if name in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path)
        return os.path.join(_resolve(folder), name)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=8)
def resolve_protected(protected: Protected) -> tuple[tuple[str, ...], str | None]:
    """Return the real paths of all protected places, and that of the specs. Cached for the daemon's life."""
    places = tuple(
        os.path.realpath(path) for path in (protected.specs, protected.state, *protected.rest) if path is not None
    )
    return places, places[0] if protected.specs is not None else None


@functools.cache
def _find_home() -> str:
    return os.path.realpath(os.path.expanduser("~"))


def _without_nested(places: Iterable[str]) -> Iterable[str]:
    known = list(places)
    return (place for place in known if not any(other != place and contains(other, place) for other in known))


def is_wide(folder: str) -> bool:
    """Is this folder too wide to be opened for one output? True for a home, a shared folder, a folder of the system."""
    return folder in _SHARED or contains(folder, _find_home()) or is_of_system(folder)

"""The workspace of one run, if its spec says `workspace`: laid out before the run, removed after it.

`RunStarter` asks for a workspace when `run_started` is durable. The workspace is in the folder where the run's outputs
are staged, below the state folder, so it is landed, discarded and swept with them. A worktree is a checkout that
borrows the objects of the user's repository, like a fork's. Nothing is registered or written in that repository, and no
program that it configures is run. To remove a worktree, its folder is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterator
from threading import Event

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.core.spec.session import CommandRun, PromptRun, ScriptRun, SessionSpec
from wakeful.errors import OperatorError
from wakeful.run_files.present_files import PathBlocked, look_at
from wakeful.runners.contract import WorkspaceOrder
from wakeful.sources.contract import Git, RepositoryNow
from wakeful.system.private_files import make_plain, make_private
from wakeful.workspaces.copy import copy_present
from wakeful.workspaces.moved_spec import is_written, move_spec

# The name of the workspace in the folder of a run. The paths of the run's outputs are below it.
_TREE = "tree"
# A word of a command or script that may name a file, and the most words of a script that are checked.
_WORD = re.compile(r"[\w./+~@,%-]+")
_MOST_WORDS = 200
# The folders that bindings leave out by default, because tools make them.
_INSTALLED = (".venv", "node_modules")


class RunPlace(Struct, frozen=True):
    """The spec as the run sees it, and the part of its order that describes the workspace."""

    spec: SessionSpec
    order: WorkspaceOrder


class RunPlaces:
    """Makes the workspaces of runs.

    `state` is the state folder, `areas` contains the write areas of runs by their ids, `hidden` are the places that no
    run may read.
    """

    def __init__(self, state: str, areas: str, git: Git, hidden: tuple[str, ...] = ()) -> None:
        self._state = os.path.abspath(state)
        self._hidden = hidden
        self._areas = areas
        self._git = git
        self._is_closed = Event()

    def close(self) -> None:
        """Stop filling workspaces at the next file, because no run waits for them any more."""
        self._is_closed.set()

    async def make(self, spec: SessionSpec, run_id: str) -> RunPlace:
        """Make the workspace of a run.

        Raises WakefulError or OSError, whose message goes to the run's record. Partly made files are removed with the
        area.
        """
        assert spec.run is not None and spec.run.workspace is not None
        folder = f"{self._areas}/{run_id}/{_TREE}"
        await asyncio.to_thread(make_private, folder)
        repository = await self._check_out(spec, folder) if spec.run.workspace == "worktree" else None
        root = os.path.join(folder, repository.prefix) if repository is not None and repository.prefix else folder
        moved = _move(spec, root, is_worktree=repository is not None)
        try:
            await asyncio.to_thread(_fill, spec, root, self._state, self._hidden, self._is_closed.is_set)
        except PathBlocked as problem:
            raise OperatorError(
                f"its workspace could not be filled: {problem}; name its target in the binding"
            ) from problem
        return RunPlace(moved, _order(spec, folder, repository))

    async def _check_out(self, spec: SessionSpec, folder: str) -> RepositoryNow:
        repository = await self._git.find(spec.root)
        if repository is None:
            raise OperatorError(
                f"workspace: worktree needs a git repository with a commit around {spec.root}; make one, "
                "or use workspace: copy"
            )
        branches = [
            one.branch for one in spec.bindings if isinstance(one, CommitsBinding) and one.repo is None and one.branch
        ]
        await self._git.check_out(repository, folder, branches)
        return repository


def _order(spec: SessionSpec, folder: str, repository: RepositoryNow | None) -> WorkspaceOrder:
    return WorkspaceOrder(
        words="copy" if repository is None else f"worktree of {repository.commit[:12]}",
        folder=folder,
        real_root=spec.root,
        outputs=tuple(
            (binding.pattern, binding.exclude)
            for binding in move_spec(spec, spec.root).spec.files
            if is_written(binding)
        ),
        borrowed=() if repository is None else (f"{repository.common_dir}/objects",),
        commit=None if repository is None else repository.commit,
    )


def _move(spec: SessionSpec, root: str, *, is_worktree: bool) -> SessionSpec:
    moved = move_spec(spec, root)
    if moved.detached:
        raise OperatorError(
            f"{', '.join(moved.detached)} would be written outside of the workspace; write inside root, "
            "or remove workspace"
        )
    confinement = spec.confinement
    # Places that `allow` opens are used at their original paths.
    confinement = replace(
        confinement,
        allow_read=tuple(os.path.join(spec.root, path) for path in confinement.allow_read),
        allow_write=tuple(os.path.join(spec.root, path) for path in confinement.allow_write),
    )
    bindings = moved.spec.bindings
    if not is_worktree:
        # A copy is not a repository, so commits are read from the original.
        bindings = tuple(
            replace(one, repo=spec.root) if isinstance(one, CommitsBinding) and one.repo is None else one
            for one in bindings
        )
    return replace(moved.spec, confinement=confinement, bindings=bindings)


def _fill(spec: SessionSpec, root: str, state: str, hidden: tuple[str, ...], is_given_up: Callable[[], bool]) -> None:
    """Fill the workspace. Blocking."""
    _refuse_linked(spec)
    make_plain(root)
    linked = [name for name in _find_installed(spec) if _link(os.path.join(spec.root, name), os.path.join(root, name))]
    named = (name for name in _list_named(spec) if not any(contains(one, name) for one in linked))
    # The daemon is not confined, so it must not copy files that a confined run could not read.
    copy_present(spec, root, state, named, hidden if spec.confinement.is_enforced else (), is_given_up)
    for text in spec.written_patterns:
        # A written pattern needs a folder, as isolation makes one for a run without a workspace.
        make_plain(os.path.join(root, os.path.relpath(parse_under(text, spec.root).literal_prefix, spec.root)))
    for path in spec.confinement.allow_read:
        _link_allowed(os.path.normpath(os.path.join(spec.root, path)), spec.root, root)


def _refuse_linked(spec: SessionSpec) -> None:
    """Refuse a binding behind a folder that is a link.

    Nothing is copied from there, so the run would find no files.
    """
    for binding in spec.files:
        base = parse_under(binding.pattern, spec.root).base
        names = os.path.relpath(base, spec.root).split("/") if contains(spec.root, base) else []
        for count in range(1, len(names) + 1):
            folder = os.path.join(spec.root, *names[:count])
            if os.path.islink(folder) and os.path.isdir(folder):
                raise OperatorError(
                    f"{folder} is a symbolic link, which no workspace follows; "
                    f"name its target in binding '{binding.name}'"
                )


def _list_named(spec: SessionSpec) -> Iterator[str]:
    """List the files inside root that the command, script or check names.

    A run without a workspace could read them. A prompt does not count, because an agent reads only what is bound.
    """
    run = spec.run
    assert run is not None
    match run:
        case CommandRun(argv=argv):
            own: tuple[str, ...] = argv
        case ScriptRun(text=text):
            own = (text,)
        case PromptRun():
            own = ()
    texts = (*own, *(run.check or ()))
    words = list(dict.fromkeys(word for text in texts for word in _WORD.findall(text) if "." in word or "/" in word))
    for word in words[:_MOST_WORDS]:
        path = os.path.normpath(os.path.join(spec.root, run.cwd or "", word))
        if path == spec.root or not contains(spec.root, path) or not os.path.isfile(path):
            continue
        # A file behind a linked folder is left out: naming the file does not declare the folder. Only this file is
        # lost.
        with contextlib.suppress(PathBlocked):
            name = os.path.relpath(path, spec.root)
            look_at(spec.root, name)
            yield name


def _find_installed(spec: SessionSpec) -> Iterator[str]:
    """Find folders of installed programs that no binding matches.

    They are linked under their names, and a run reaches them as it would without a workspace.
    """
    bases = [parse_under(binding.pattern, spec.root).base for binding in spec.files]
    cwd = os.path.normpath(os.path.join(spec.root, (spec.run.cwd or "") if spec.run is not None else ""))
    for folder in dict.fromkeys((spec.root, cwd)):
        for path in (os.path.join(folder, name) for name in _INSTALLED):
            if contains(spec.root, path) and os.path.isdir(path) and not any(contains(path, base) for base in bases):
                yield os.path.relpath(path, spec.root)


def _link_allowed(path: str, real_root: str, root: str) -> None:
    """Link a place inside root that `allow.read` names to its original, unless the workspace has one."""
    if path != real_root and contains(real_root, path) and os.path.lexists(path):
        _link(path, os.path.join(root, os.path.relpath(path, real_root)))


def _link(path: str, link: str) -> bool:
    if os.path.lexists(link):
        return False
    make_plain(os.path.dirname(link))
    os.symlink(path, link)
    return True

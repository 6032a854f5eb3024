"""Git for workspaces (`sources/contract.py`): checkouts for forks, and merged texts.

A checkout is like the result of `git clone --shared`: a new repository that borrows the objects of the user's
repository. It is built here, because clone starts `upload-pack` in the user's repository, under that repository's
config. For a partial clone, git before 2.45 would then start a program that the config names. Only rev-parse runs in
the user's repository. The files are written by a git that sees only the config of the new repository, which has no
hooks, no filters and no remotes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wakeful.sources.contract import MergedText, RepositoryNow
from wakeful.sources.git.bound_repositories import BoundRepositories
from wakeful.sources.git.git_command import (
    GitRefusal,
    answer_git,
    check_ref_name,
    hardened_environment,
    is_object_id,
    locate,
    run_git,
)

# The most seconds for a checkout. The files of a large repository may take minutes on a slow disk.
CHECKOUT_SECONDS = 600.0
# The most conflicts that git reports by its exit code. It exits with 255 if it cannot merge.
_MOST_CONFLICTS = 127


class Checkouts:
    """Each call starts a few short processes. `bound` knows which repository belongs to which folder."""

    def __init__(self, bound: BoundRepositories | None = None) -> None:
        self._bound = bound or BoundRepositories()

    async def find(self, folder: str) -> RepositoryNow | None:
        if not _has_repository_above(folder):
            self._bound.note_absent(os.path.realpath(folder))
            return None
        place = await locate(folder)
        await self._bound.check(os.path.realpath(folder), place)
        words = [f"--git-dir={place.git_dir}", "rev-parse"]
        code, commit, _ = await answer_git([*words, "--verify", "--quiet", "HEAD^{commit}"], place.common_dir)
        if code != 0 or not is_object_id(commit.decode("ascii").strip()):
            # There is no commit yet, so there is nothing to check out.
            return None
        kind = await run_git([*words, "--show-object-format"], place.common_dir)
        head = os.fsdecode(await run_git([*words, "--symbolic-full-name", "HEAD"], place.common_dir)).strip()
        return RepositoryNow(
            git_dir=place.git_dir,
            common_dir=place.common_dir,
            prefix=place.prefix,
            commit=commit.decode("ascii").strip(),
            branch=head.removeprefix("refs/heads/") if head.startswith("refs/heads/") else None,
            object_format=kind.decode("ascii").strip(),
        )

    async def check_out(self, repository: RepositoryNow, folder: str, branches: Sequence[str]) -> None:
        refs = await _find_refs(repository, branches)
        await _make(repository, folder)
        await asyncio.to_thread(_borrow_objects, repository, folder)
        own = [f"--git-dir={folder}/.git", f"--work-tree={folder}"]
        for name, commit in refs.items():
            await run_git([*own, "update-ref", name, commit], folder)
        if repository.branch is None:
            await run_git([*own, "update-ref", "--no-deref", "HEAD", repository.commit], folder)
        # Unlike `checkout`, read-tree runs no hook and prints nothing for the user.
        await run_git([*own, "read-tree", "--reset", "-u", repository.commit], folder, seconds=CHECKOUT_SECONDS)

    async def merge_texts(self, base: bytes, ours: bytes, theirs: bytes, names: tuple[str, str, str]) -> MergedText:
        """Merge three texts. `names` are the labels of the conflict marks, in the order ours, base, theirs."""
        folder = await asyncio.to_thread(_lay_out, base, ours, theirs)
        try:
            # The ceiling makes git ignore the config of a repository around the temporary folder.
            env = hardened_environment() | {"GIT_CEILING_DIRECTORIES": os.path.dirname(folder)}
            labels = [word for name in names for word in ("-L", name)]
            code, printed, complaint = await answer_git(
                ["merge-file", "-p", *labels, "ours", "base", "theirs"], folder, env
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, folder)
        if 0 <= code <= _MOST_CONFLICTS:
            return MergedText(text=printed, conflicts=code)
        if b"binary" in complaint:
            return MergedText(text=b"", conflicts=None)
        raise GitRefusal(f"git merge-file: {complaint.decode('utf-8', 'replace').strip()}")


def _has_repository_above(folder: str) -> bool:
    """Look for a repository as git does. This distinguishes a missing repository from a refusal of git."""
    path = Path(folder)
    return any(os.path.lexists(one / ".git") for one in (path, *path.parents))


async def _find_refs(repository: RepositoryNow, branches: Sequence[str]) -> dict[str, str]:
    """Find the commit of each ref by its full name: HEAD's branch, and the branches that bindings name. Missing refs
    are left out.
    """
    refs = {} if repository.branch is None else {f"refs/heads/{repository.branch}": repository.commit}
    words = [f"--git-dir={repository.git_dir}", "rev-parse", "--verify", "--quiet"]
    for branch in branches:
        name = check_ref_name(branch)
        known, full, _ = await answer_git([*words, "--symbolic-full-name", name], repository.common_dir)
        found, commit, _ = await answer_git([*words, f"{name}^{{commit}}"], repository.common_dir)
        ref = os.fsdecode(full).strip()
        if known == 0 and found == 0 and ref.startswith("refs/"):
            refs.setdefault(ref, commit.decode("ascii").strip())
    return refs


async def _make(repository: RepositoryNow, folder: str) -> None:
    branch = repository.branch or "main"
    words = [
        "init",
        "--quiet",
        "--template=",
        f"--object-format={repository.object_format}",
        f"--initial-branch={branch}",
        folder,
    ]
    env = hardened_environment() | {"GIT_CEILING_DIRECTORIES": os.path.dirname(folder)}
    await run_git(words, folder, env=env)


def _borrow_objects(repository: RepositoryNow, folder: str) -> None:
    objects = f"{repository.common_dir}/objects"
    if "\n" in objects or objects.startswith('"'):
        raise GitRefusal(f"{objects!r} cannot be borrowed from: its name holds a line break or begins with a quote")
    info = Path(folder, ".git", "objects", "info")
    info.mkdir(parents=True, exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    # If the history of the original is shallow, so is that of the checkout.
    shallow = Path(repository.common_dir, "shallow")
    if shallow.is_file():
        shutil.copyfile(shallow, Path(folder, ".git", "shallow"))


def _lay_out(base: bytes, ours: bytes, theirs: bytes) -> str:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="wakeful-merge-"))
    for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
        Path(folder, name).write_bytes(content)
    return folder

"""The daemon reads only the repository that was bound.

It refuses a repository that a run may have put in its place, and reads one that a person put there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sources.commit_follower import Follower, GitRepo
from wakeful.sources.git.bound_repositories import BoundRepositories
from wakeful.sources.git.checkouts import Checkouts
from wakeful.sources.git.git_command import GitRefusal
from wakeful.system.git_folders import read_git_dirs

pytestmark = pytest.mark.asyncio


class Site:
    """A bound repository, and a private repository beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.private = GitRepo(folder / "private")
        self.private.commit("src/secret.txt", "secret", "a private subject")
        self.repo = GitRepo(folder / "project")
        self.repo.commit("src/a.txt", "one", "mine")
        self.top = self.repo.path
        self.file = folder / "repositories.json"
        self.trusted: list[str] = []

    def bind(self, writer: str | None, *, running: str | None = None) -> BoundRepositories:
        async def list_trusted() -> list[str]:
            return self.trusted

        def find_writer(top: str, *, was_there: bool, is_running: bool) -> str | None:
            return running if is_running else writer

        return BoundRepositories(self.file, find_writer, list_trusted)

    async def look(self, bound: BoundRepositories, root: Path | None = None) -> str:
        """Return the version, or the reason why there is none."""
        async with Follower(bound=bound) as follower:
            result = await follower.look(follower.follow(root or self.top))
            return result.version or f"refused: {result.problem}"

    @property
    def private_version(self) -> str:
        return self.private.id("HEAD:src")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def plant_pointer(site: Site) -> None:
    shutil.rmtree(site.top / ".git")
    (site.top / ".git").write_text(f"gitdir: {site.private.path}/.git\n")


def plant_link(site: Site) -> None:
    shutil.rmtree(site.top / ".git")
    (site.top / ".git").symlink_to(site.private.path / ".git")


def plant_history(site: Site) -> None:
    """Plant a `.git` folder whose `commondir` names the private repository."""
    shutil.rmtree(site.top / ".git")
    (site.top / ".git").mkdir()
    (site.top / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (site.top / ".git/commondir").write_text(f"{site.private.path}/.git\n")


def plant_inner_links(site: Site) -> None:
    shutil.rmtree(site.top / ".git")
    site.repo("init", "-q", "-b", "main")
    for name in ("objects", "refs"):
        shutil.rmtree(site.top / ".git" / name)
        (site.top / ".git" / name).symlink_to(site.private.path / ".git" / name)


def plant_single_links(site: Site) -> None:
    """Plant a repository that has one link for each of the private repository's object folders."""
    shutil.rmtree(site.top / ".git")
    site.repo("init", "-q", "-b", "main")
    for folder in (site.private.path / ".git/objects").iterdir():
        if len(folder.name) == 2:
            (site.top / ".git/objects" / folder.name).symlink_to(folder)
    (site.top / ".git/refs/heads/main").write_text(site.private.id("HEAD") + "\n")


def plant_borrowing(site: Site) -> None:
    """Plant a repository that borrows objects from the private one.

    A run that knows the id of a commit could have its content exported in this way.
    """
    shutil.rmtree(site.top / ".git")
    site.repo("init", "-q", "-b", "main")
    (site.top / ".git/objects/info").mkdir(exist_ok=True)
    (site.top / ".git/objects/info/alternates").write_text(f"{site.private.path}/.git/objects\n")
    (site.top / ".git/refs/heads/main").write_text(site.private.id("HEAD") + "\n")


def plant_false_worktree(site: Site) -> None:
    """Plant a worktree folder that points back to the checkout, and to the history of the private repository."""
    made = site.top / "out/worktree"
    made.mkdir(parents=True)
    (made / "HEAD").write_text("ref: refs/heads/main\n")
    (made / "commondir").write_text(f"{site.private.path}/.git\n")
    (made / "gitdir").write_text(f"{site.top}/.git\n")
    shutil.rmtree(site.top / ".git")
    (site.top / ".git").write_text("gitdir: out/worktree\n")


PLANTED = [
    plant_pointer,
    plant_link,
    plant_history,
    plant_inner_links,
    plant_single_links,
    plant_borrowing,
    plant_false_worktree,
]


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_repository_that_a_run_could_have_planted_is_not_read(
    site: Site, plant: Callable[[Site], None], is_restarted: bool
) -> None:
    """The attack succeeds without the defence.

    If no run could have written the planted repository, a person did, and the look reads it.
    """
    own = site.repo.id("HEAD:src")
    shut, bare = site.bind("drafts"), BoundRepositories()
    assert await site.look(shut) == own == await site.look(bare)
    plant(site)
    told = await site.look(site.bind("drafts") if is_restarted else shut)
    assert told.startswith("refused: "), told
    assert "private subject" not in told
    assert "a run of drafts could have put it there" in told and f"safe.directory {site.top}" in told
    assert await site.look(bare) == site.private_version


async def test_a_person_may_say_that_it_is_theirs(site: Site) -> None:
    shut = site.bind("drafts")
    await site.look(shut)
    plant_link(site)
    assert (await site.look(shut)).startswith("refused")
    site.trusted = [f"safe.directory={site.top}"]
    assert await site.look(shut) == site.private_version
    site.trusted = []
    assert await site.look(site.bind("drafts")) == site.private_version, "once said, it is known"


async def test_a_repository_that_is_planted_nearer_is_not_the_one_that_was_bound(site: Site) -> None:
    """The bound folder lies inside a repository, and a run may write to that folder."""
    shut = site.bind("drafts")
    await site.look(shut, site.top / "src")
    (site.top / "src/.git").write_text(f"gitdir: {site.private.path}/.git\n")
    assert (await site.look(shut, site.top / "src")).startswith("refused")


async def test_what_was_seen_to_be_absent_is_not_believed_at_first_sight(site: Site) -> None:
    shut, folder = site.bind("drafts"), site.folder / "plain"
    folder.mkdir()
    assert "not inside a git repository" in await site.look(shut, folder)
    (folder / ".git").symlink_to(site.private.path / ".git")
    assert "could have put it there" in await site.look(shut, folder)


async def test_a_pointer_that_git_reads_otherwise_is_refused(site: Site) -> None:
    """git takes the whole file, with its line breaks, as the path."""
    shut = site.bind(None)
    trick = site.folder / "x\n"
    trick.mkdir()
    (site.folder / "x").symlink_to(site.top / ".git-own")
    shutil.move(site.top / ".git", site.top / ".git-own")
    (site.top / ".git").write_text(f"gitdir: {site.folder}/x\n/../private/.git\n")
    told = await site.look(shut)
    assert told.startswith("refused"), told


async def test_a_repository_counts_when_the_run_that_could_still_change_it_has_ended(site: Site) -> None:
    shut = site.bind("drafts")
    await site.look(shut)
    shutil.rmtree(site.top / ".git")
    site.repo("init", "-q", "-b", "main")
    site.repo.commit("src/a.txt", "two", "anew")
    assert "the repository is accepted when that run has ended" in await site.look(
        site.bind("drafts", running="drafts")
    )
    assert await site.look(site.bind("drafts")) == site.repo.id("HEAD:src")


def make_anew(site: Site) -> Path:
    shutil.rmtree(site.top / ".git")
    site.repo("init", "-q", "-b", "main")
    site.repo.commit("src/a.txt", "two", "anew")
    return site.top


def clone_anew(site: Site) -> Path:
    shutil.rmtree(site.top)
    GitRepo(site.folder, is_new=False)("clone", "-q", "--no-local", str(site.private.path), str(site.top))
    return site.top


def link_worktree(site: Site) -> Path:
    shutil.rmtree(site.top)
    site.private("worktree", "add", "-q", str(site.top))
    return site.top


def make_submodule(site: Site) -> Path:
    shutil.rmtree(site.top)
    above = GitRepo(site.folder)
    above("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(site.private.path), "project")
    return site.top


@pytest.mark.parametrize("change", [make_anew, clone_anew, link_worktree, make_submodule])
async def test_what_git_vouches_for_counts_by_itself(site: Site, change: Callable[[Site], Path]) -> None:
    """This holds although a run may write in the folder around it."""
    shut = site.bind("drafts")
    await site.look(shut)
    top = change(site)
    assert await site.look(shut) == GitRepo(top, is_new=False).id("HEAD:src")


async def test_a_worktree_that_is_moved_is_followed(site: Site) -> None:
    site.private("worktree", "add", "-q", str(site.folder / "one"))
    shut = site.bind("drafts")
    assert await site.look(shut, site.folder / "one") == site.private_version
    site.private("worktree", "move", str(site.folder / "one"), str(site.folder / "two"))
    assert await site.look(shut, site.folder / "two") == site.private_version
    assert read_git_dirs(str(site.folder / "two")).doubt is None


async def test_a_git_folder_elsewhere_counts_where_it_was_bound_so(site: Site) -> None:
    """`git init --separate-git-dir` leaves no way back from the git folder to the checkout.

    It counts also after a restart of the daemon, and although a run could write there.
    """
    site.repo("init", "-q", f"--separate-git-dir={site.folder}/apart.git")
    assert await site.look(site.bind("drafts")) == site.repo.id("HEAD:src")
    site.repo.commit("src/a.txt", "two")
    assert await site.look(site.bind("drafts")) == site.repo.id("HEAD:src")


async def test_where_no_run_could_write_a_person_may_move_the_git_folder(site: Site) -> None:
    shut = site.bind(None)
    await site.look(shut)
    site.repo("init", "-q", f"--separate-git-dir={site.folder}/apart.git")
    assert await site.look(shut) == site.repo.id("HEAD:src")


async def test_no_fork_is_made_of_a_planted_repository(site: Site) -> None:
    """A workspace would otherwise hold the files of the private repository."""
    shut, bare = Checkouts(site.bind("drafts")), Checkouts()
    for checkouts in (shut, bare):
        await checkouts.find(str(site.top))
    plant_pointer(site)
    with pytest.raises(GitRefusal, match="could have put it there"):
        await shut.find(str(site.top))
    assert (await bare.find(str(site.top))).commit == site.private.id("HEAD")


async def test_what_is_known_is_kept_whole(site: Site) -> None:
    """A damaged file of known repositories does not prevent a look, and is written again."""
    site.file.write_text("{")
    assert await site.look(site.bind("drafts")) == site.repo.id("HEAD:src")
    assert os.path.getsize(site.file) > 10

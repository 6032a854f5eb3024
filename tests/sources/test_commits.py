"""Versions of commits bindings in real repositories.

Some changes move a version, some do not, and some leave it unknown.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from sources.commit_follower import Follower, GitRepo
from wait_conditions import eventually_async
from wakeful.sources.git import source as commits
from wakeful.sources.git.commit_changes import ABSENT
from wakeful.sources.git.git_command import Repository
from wakeful.sources.hints.watcher_choice import choose_hints

pytestmark = pytest.mark.asyncio


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path / "repo")
    repo.commit("src/a.py", "one", "the first")
    repo.commit("docs/a.md", "page")
    return repo


def git_version() -> tuple[int, ...]:
    return tuple(int(part) for part in subprocess.check_output(["git", "version"], text=True).split()[2].split(".")[:2])


def paths(result: object) -> dict[str, str]:
    return {change.path: change.change for change in result.changes}


async def test_a_commit_that_touches_the_path_moves_the_version(repo: GitRepo) -> None:
    """The version is the tree's id. The delta names paths and commits."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src/", branch="main")
        first = await follower.look(key)
        assert (first.version, first.problem, first.previous) == (repo.id("main:src"), None, None)
        repo.write("src/b.py", "new")
        repo.write("src/deep/c.py", "new")
        repo("add", "-A")
        repo("commit", "-q", "-m", "two files")
        commit = repo.commit("src/a.py", "two", "change a")
        await follower.hint(key)
        second = await follower.look(key)
        assert second.version == repo.id("main:src")
        assert second.previous == first.version
        assert paths(second) == {"src/a.py": "modified", "src/b.py": "added", "src/deep/c.py": "added"}
        assert second.commits[0] == f"{commit} Test Person: change a"
        assert [line.split(": ")[1] for line in second.commits] == ["change a", "two files"]


async def test_a_commit_elsewhere_and_one_that_changes_nothing_give_no_hint(repo: GitRepo) -> None:
    """Early cutoff: a commit that does not touch the path causes no look."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        elsewhere = follower.follow(repo.path, "docs", branch="main")
        await follower.look(key)
        await follower.look(elsewhere)
        repo("commit", "-q", "--allow-empty", "-m", "nothing")
        repo.commit("docs/b.md", "page")
        await follower.hint(elsewhere)
        assert key not in follower.hinted


async def test_amend_moves_the_version_only_with_the_content(repo: GitRepo) -> None:
    """A new commit message is not a new version."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        first = await follower.look(key)
        repo("commit", "-q", "--amend", "-m", "other words")
        assert (await follower.look(key)).version == first.version
        repo.write("src/a.py", "amended")
        repo("commit", "-q", "--amend", "-am", "other content")
        await follower.hint(key)
        assert (await follower.look(key)).version != first.version


async def test_a_rebase_of_twenty_commits_that_leaves_the_tree_alone_is_no_new_version(repo: GitRepo) -> None:
    """The branch moves once, at the end of the rebase, and its tree is the same."""
    repo("branch", "base")
    for number in range(20):
        repo.commit(f"src/{number}.py", "content")
    repo("switch", "-q", "base")
    repo.commit("docs/other.md", "other")
    repo("switch", "-q", "main")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        first = await follower.look(key)
        head = repo.id("main")
        repo("rebase", "-q", "base")
        assert repo.id("main") != head
        assert (await follower.look(key)).version == first.version
        repo.commit("docs/last.md", "x")
        other = follower.follow(repo.path, "docs", branch="main")
        await follower.look(other)
        assert key not in follower.hinted


async def test_reset_and_force_push_move_the_version_back(repo: GitRepo, tmp_path: Path) -> None:
    """A tree that was seen before is a version like any other.

    Its delta is known as long as the old tree exists.
    """
    repo("clone", "-q", "--bare", ".", str(tmp_path / "server.git"))
    old = repo.id("main:src")
    repo.commit("src/a.py", "two")
    repo("push", "-q", str(tmp_path / "server.git"), "main")
    async with Follower() as follower:
        local = follower.follow(repo.path, "src", branch="main")
        served = follower.follow(tmp_path, "src", repo="server.git", branch="main")
        assert (await follower.look(local)).version == (await follower.look(served)).version != old
        repo("reset", "-q", "--hard", "HEAD~1")
        repo("push", "-q", "--force", str(tmp_path / "server.git"), "main")
        await follower.hint(local)
        await follower.hint(served)
        for key in (local, served):
            result = await follower.look(key)
            assert (result.version, paths(result)) == (old, {"src/a.py": "modified"})


async def test_packed_refs_and_gc_change_nothing(repo: GitRepo) -> None:
    """The file of the ref is gone, but its value is the same."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        first = await follower.look(key)
        repo("pack-refs", "--all")
        repo("gc", "-q", "--prune=now")
        assert not (repo.path / ".git/refs/heads/main").exists()
        assert (await follower.look(key)).version == first.version
        assert follower.hinted == []
        repo.commit("src/a.py", "after gc")
        await follower.hint(key)


async def test_head_follows_the_branch_that_is_checked_out(repo: GitRepo) -> None:
    """A binding without a branch follows HEAD, whichever branch that is."""
    repo("switch", "-q", "-c", "feature")
    repo.commit("src/a.py", "feature")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src")
        assert (await follower.look(key)).version == repo.id("feature:src")
        repo("switch", "-q", "main")
        await follower.hint(key)
        assert (await follower.look(key)).version == repo.id("main:src")
        repo("switch", "-q", "--detach", "feature")
        await follower.hint(key)
        assert (await follower.look(key)).version == repo.id("feature:src")


async def test_head_is_held_while_a_rebase_is_under_way_and_looked_at_when_it_ends(repo: GitRepo) -> None:
    """The detached HEAD in the middle of a rebase is not a version."""
    repo("switch", "-q", "-c", "feature", "HEAD~1")
    repo.commit("src/a.py", "feature")
    repo("switch", "-q", "main")
    repo.commit("src/a.py", "conflict")
    async with Follower() as follower:
        key, named = follower.follow(repo.path, "src"), follower.follow(repo.path, "src", branch="main")
        await follower.look(key)
        repo("rebase", "feature", check=False)
        assert (repo.path / ".git/rebase-merge").is_dir()
        await follower.hint(key)
        held = await follower.look(key)
        assert (held.held, held.version) == ("git rebase", None)
        assert (await follower.look(named)).held is None
        repo("rebase", "--abort")
        await follower.hint(key)
        after = await follower.look(key)
        assert (after.held, after.version) == (None, repo.id("main:src"))


async def test_a_marker_that_is_left_behind_does_not_hold_for_ever(repo: GitRepo) -> None:
    """A rebase marker that a crash left behind delays the version, but not for ever."""
    (repo.path / ".git/rebase-merge").mkdir()
    async with Follower(longest_hold_seconds=0.2) as follower:
        key = follower.follow(repo.path, "src")
        assert (await follower.look(key)).held == "git rebase"
        await eventually_async(lambda: key in follower.hinted)

        async def is_free() -> bool:
            return (await follower.look(key)).version == repo.id("main:src")

        await eventually_async(is_free)


async def test_a_worktree_is_followed_by_its_own_head(repo: GitRepo, tmp_path: Path) -> None:
    """In a worktree `.git` is a file. Its refs live in the main repository, its HEAD does not."""
    repo("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = GitRepo(tmp_path / "side", is_new=False)
    async with Follower(make_hints=choose_hints("auto")) as follower:
        here, there = follower.follow(repo.path, "src"), follower.follow(side.path, "src")
        by_name = follower.follow(repo.path, "src", branch="side")
        for key in (here, there, by_name):
            await follower.look(key)
        side.commit("src/a.py", "side")
        await follower.hint(there)
        await follower.hint(by_name)
        assert (await follower.look(there)).version == repo.id("side:src")
        assert here not in follower.hinted


async def test_a_branch_that_is_first_looked_at_during_a_round_is_heard_of_when_it_moves(
    repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round asked for branches before this one was followed. It must not discard the result of the look."""
    repo("branch", "side")
    find, is_asked, go_on = Repository.find, asyncio.Event(), asyncio.Event()

    async def find_slowly(repository: Repository, names: list[str]) -> list[object]:
        found = await find(repository, names)
        if not is_asked.is_set():
            is_asked.set()
            await go_on.wait()
        return found

    async with Follower() as follower:
        await follower.look(follower.follow(repo.path, "src"))
        # The test asks for no look here, so the next question comes from a polling round.
        monkeypatch.setattr(Repository, "find", find_slowly)
        await is_asked.wait()
        key = follower.follow(repo.path, "src", branch="side")
        await follower.look(key)
        # The branch moves before the round ends, so the next round must compare with the result of the look.
        repo("checkout", "-q", "side")
        repo.commit("src/a.py", "side")
        assert key not in follower.hinted
        go_on.set()
        await follower.hint(key)


@pytest.mark.parametrize(
    "branch", ["origin/main", "refs/remotes/origin/main", "refs/tags/v1", "v1", "feature/deep/one"]
)
async def test_every_form_of_a_branch_is_understood(repo: GitRepo, branch: str) -> None:
    """A branch may be a name, a remote branch, a tag or a full ref."""
    repo("update-ref", "refs/remotes/origin/main", "main")
    repo("tag", "-a", "v1", "-m", "annotated")
    repo("branch", "feature/deep/one")
    async with Follower(make_hints=choose_hints("auto")) as follower:
        key = follower.follow(repo.path, "src", branch=branch)
        assert (await follower.look(key)).version == repo.id("main:src")


async def test_sha256_repositories_have_longer_ids_and_work_the_same(tmp_path: Path) -> None:
    """The code assumes no length of ids, neither in answers nor in tree objects."""
    repo = GitRepo(tmp_path / "repo", "--object-format=sha256")
    repo.commit("src/a.py", "one")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        first = await follower.look(key)
        assert len(first.version) == 64
        repo.commit("src/b.py", "two")
        await follower.hint(key)
        assert paths(await follower.look(key)) == {"src/b.py": "added"}


@pytest.mark.skipif(git_version() < (2, 45), reason="this git is older than 2.45: it cannot make a reftable repository")
async def test_reftable_repositories_work_the_same(tmp_path: Path) -> None:
    """The source asks git for refs, and never reads their files."""
    repo = GitRepo(tmp_path / "repo", "--ref-format=reftable")
    repo.commit("src/a.py", "one")
    async with Follower(make_hints=choose_hints("auto")) as follower:
        key = follower.follow(repo.path, "src", branch="main")
        first = await follower.look(key)
        repo.commit("src/a.py", "two")
        await follower.hint(key)
        assert (await follower.look(key)).version != first.version


async def test_a_deleted_branch_is_unknown_and_comes_back(repo: GitRepo) -> None:
    """A missing branch makes the version unknown, not absent. The problem names the branch."""
    repo("branch", "side")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="side")
        first = await follower.look(key)
        repo("branch", "-q", "-D", "side")
        await follower.hint(key)
        gone = await follower.look(key)
        assert (gone.version, gone.is_absent) == (None, False)
        assert "no branch 'side'" in gone.problem
        repo("branch", "side", "main")
        await follower.hint(key)
        assert (await follower.look(key)).version == first.version


async def test_a_path_that_a_branch_does_not_hold_is_a_version_of_its_own(repo: GitRepo) -> None:
    """A removed path and an added path each give a version, with the paths in its delta."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        await follower.look(key)
        repo("rm", "-q", "-r", "src")
        repo("commit", "-q", "-m", "no source")
        await follower.hint(key)
        gone = await follower.look(key)
        assert (gone.version, gone.is_absent, paths(gone)) == (ABSENT, True, {"src/a.py": "removed"})
        repo.commit("src/new.py", "new")
        await follower.hint(key)
        assert paths(await follower.look(key)) == {"src/new.py": "added"}


async def test_a_file_a_folder_in_its_place_and_the_whole_repository_can_be_followed(repo: GitRepo) -> None:
    """A path may be a blob and may change its kind. `.` means the whole repository."""
    async with Follower() as follower:
        file, everything = follower.follow(repo.path, "src/a.py"), follower.follow(repo.path, ".")
        assert (await follower.look(file)).version == repo.id("HEAD:src/a.py")
        assert (await follower.look(everything)).version == repo.id("HEAD^{tree}")
        repo("rm", "-q", "src/a.py")
        repo.commit("src/a.py/inner.py", "a folder now")
        await follower.hint(file)
        assert paths(await follower.look(file)) == {"src/a.py": "removed", "src/a.py/inner.py": "added"}
        assert paths(await follower.look(everything)) == {"src/a.py": "removed", "src/a.py/inner.py": "added"}


async def test_a_root_inside_the_repository_means_its_own_paths(repo: GitRepo, tmp_path: Path) -> None:
    """Paths are relative to the root, also through a symbolic link, and cannot leave the repository."""
    repo.commit("part/src/a.py", "inner")
    (tmp_path / "link").symlink_to(repo.path / "part")
    async with Follower() as follower:
        for root in (repo.path / "part", tmp_path / "link"):
            key = follower.follow(root, "src")
            assert (await follower.look(key)).version == repo.id("HEAD:part/src")
        above = follower.follow(repo.path / "part", "../src")
        assert (await follower.look(above)).version == repo.id("HEAD:src")
        outside = await follower.look(follower.follow(repo.path, "../elsewhere"))
        assert outside.version is None
        assert "inside the repository" in outside.problem


async def test_a_repository_that_is_deleted_is_unknown_and_another_in_its_place_is_looked_at(repo: GitRepo) -> None:
    """The git process of the old repository is not asked about the new one."""
    async with Follower() as follower:
        key, other = follower.follow(repo.path, "src", branch="main"), follower.follow(repo.path, "docs", branch="main")
        first = await follower.look(key)
        await follower.look(other)
        shutil.rmtree(repo.path)
        await follower.hint(key)
        assert "not inside a git repository" in (await follower.look(key)).problem
        again = GitRepo(repo.path)
        again.commit("src/a.py", "another life")
        await follower.hint(key)
        await follower.hint(other)
        second = await follower.look(key)
        assert second.version == again.id("main:src") != first.version
        # The old tree is gone with the old repository, so the delta is unknown. The version is known.
        again_first = await follower.look(key, base=first.version)
        assert (again_first.previous, again_first.changes, again_first.version) == (None, (), second.version)


async def test_a_repository_exchanged_between_two_polls_is_noticed(repo: GitRepo, tmp_path: Path) -> None:
    """The name is the same and the folder is another. The source compares the folder's identity, not its name."""
    other = GitRepo(tmp_path / "other")
    other.commit("src/a.py", "other")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        await follower.look(key)
        os.rename(repo.path, tmp_path / "away")
        os.rename(other.path, repo.path)
        await follower.hint(key)
        assert (await follower.look(key)).version == repo.id("main:src")


async def test_what_is_no_repository_and_what_has_no_commit_are_said_in_words(tmp_path: Path) -> None:
    """Each problem says what to do, and ends when the person has done it."""
    async with Follower() as follower:
        key = follower.follow(tmp_path, "src")
        assert "not inside a git repository" in (await follower.look(key)).problem
        repo = GitRepo(tmp_path)
        await follower.hint(key)
        assert "no commit yet" in (await follower.look(key)).problem
        repo.commit("src/a.py", "one")
        await follower.hint(key)
        assert (await follower.look(key)).version == repo.id("HEAD:src")


async def test_the_delta_after_a_restart_starts_from_the_version_the_core_remembers(repo: GitRepo) -> None:
    """A new source remembers nothing, but the old tree still exists."""
    old = repo.id("main:src")
    commit = repo.commit("src/b.py", "while nobody watched", "in the dark")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        result = await follower.look(key, base=old)
        assert (result.previous, paths(result)) == (old, {"src/b.py": "added"})
        assert result.commits == (f"{commit} Test Person: in the dark",)


async def test_each_commit_gives_every_commit_that_touches_the_path_in_order(repo: GitRepo) -> None:
    """Pending commits are listed oldest first, along first parents, without those that touch only other paths."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main", each_commit=True)
        first = await follower.look(key)
        base = repo("rev-list", "-1", "main", "--", "src")
        assert (first.version, first.pending) == (base, ())
        one = repo.commit("src/a.py", "1")
        repo.commit("docs/a.md", "unrelated")
        two = repo.commit("src/a.py", "one")
        repo("switch", "-q", "-c", "side", "HEAD~1")
        repo.commit("src/side.py", "side")
        repo("switch", "-q", "main")
        repo("merge", "-q", "--no-ff", "side", "-m", "merge side")
        merge = repo.id("main")
        await follower.hint(key)
        result = await follower.look(key, base=base)
        assert (result.version, result.base, result.pending) == (merge, base, (one, two, merge))
        assert not result.is_rewritten
        assert (await follower.look(key, base=merge)).pending == ()


async def test_each_commit_over_a_rewritten_history_gives_the_new_head_once(repo: GitRepo) -> None:
    """After a history was amended, reset or pruned, the new head is pending once.

    The result is marked as rewritten.
    """
    base = repo.commit("src/a.py", "to be rewritten")
    repo.write("src/a.py", "rewritten")
    repo("commit", "-q", "--amend", "-am", "rewritten")
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main", each_commit=True)
        for lost in (base, "0" * 40, "not a commit"):
            result = await follower.look(key, base=lost)
            assert (result.pending, result.is_rewritten) == ((repo.id("main"),), True)


async def test_each_commit_starts_with_nothing_where_nothing_touched_the_path(repo: GitRepo) -> None:
    """ABSENT can be the base: the first commit after it is pending."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "new", branch="main", each_commit=True)
        first = await follower.look(key)
        assert (first.version, first.is_absent) == (ABSENT, True)
        commits = [repo.commit("new/a", str(number)) for number in range(3)]
        assert (await follower.look(key, base=ABSENT)).pending == tuple(commits)


async def test_pending_commits_are_capped_at_the_oldest_thousand(repo: GitRepo) -> None:
    """Ten thousand commits pulled at once do not become one huge value."""
    base = repo.id("main")
    stream = "".join(
        f"commit refs/heads/main\ncommitter P <p@x> {1700000000 + number} +0000\ndata 1\nx\n"
        + (f"from {base}\n" if number == 0 else "")
        + f"M 100644 inline src/a.py\ndata 5\n{number:05d}\n"
        for number in range(1200)
    )
    repo("fast-import", "--quiet", text=stream)
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main", each_commit=True)
        result = await follower.look(key, base=base)
        assert len(result.pending) == 1000
        assert repo("rev-list", "--reverse", f"{base}..main").split()[:1000] == list(result.pending)


async def test_watched_folders_make_it_hint_long_before_the_poll(repo: GitRepo) -> None:
    """A hint only makes a look sooner. Here the next poll would come after minutes."""
    async with Follower(make_hints=choose_hints("auto"), poll_seconds=300.0) as follower:
        key = follower.follow(repo.path, "src", branch="main")
        await follower.look(key)
        repo.commit("src/a.py", "soon")
        await follower.hint(key)
        await follower.look(key)
        repo("pack-refs", "--all")
        repo.commit("src/a.py", "sooner")
        await follower.hint(key)


async def test_ten_thousand_targets_of_one_branch_are_one_question_per_poll(
    repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a poll does not grow with the number of sessions.

    One commit gives hints only to the targets whose path it touched.
    """
    for number in range(50):
        repo.write(f"src/part-{number}/a", "content")
    repo("add", "-A")
    repo("commit", "-q", "-m", "fifty parts")
    async with Follower() as follower:
        keys = [
            follower.follow(repo.path, f"src/part-{number % 50}", branch="main", settle_seconds=float(number))
            for number in range(10_000)
        ]
        for generation, key in enumerate(keys):
            follower.source.look(key, generation)
        await eventually_async(lambda: len(follower.looked) == len(keys))
        asked: list[list[str]] = []
        find = Repository.find

        async def find_and_tell(repository: Repository, names: list[str]) -> list[object]:
            asked.append(names)
            return await find(repository, names)

        monkeypatch.setattr(Repository, "find", find_and_tell)
        await eventually_async(lambda: sum(map(bool, asked)) >= 2, what="two rounds")
        # The three refs that `main` may mean, each asked for once.
        assert all(len(names) == 3 for names in asked if names)
        repo.commit("src/part-7/a", "one of them")
        await follower.hint(keys[7])
        assert len(follower.hinted) == 10_000 / 50 - 1


async def test_nothing_is_followed_any_more_after_forget(repo: GitRepo) -> None:
    """No process, timer or report remains."""
    async with Follower(make_hints=choose_hints("auto")) as follower:
        key = follower.follow(repo.path, "src", branch="main")
        await follower.look(key)
        follower.source.look(key, 99)
        follower.source.forget([key, "unknown"])
        await eventually_async(lambda: not follower.loop.pending, what="no timer left")
        await eventually_async(lambda: not tasks_under_way(), what="no task left")
        assert not follower.watcher.armed
        assert not any(result.generation == 99 for result in follower.looked)
        await eventually_async(lambda: not _children_named("git"), what="no git left")


def tasks_under_way() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("wakeful: ")}


def _children_named(name: str) -> list[int]:
    own = os.getpid()
    children = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        if f"({name}" in fields[0] and fields[2].split()[1] == str(own) and fields[2].split()[0] != "Z":
            children.append(int(entry.name))
    return children


async def test_a_git_process_that_is_killed_is_started_anew(repo: GitRepo) -> None:
    """At most one look has an unknown version, and the next one knows it."""
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        first = await follower.look(key)
        (process,) = _children_named("git")
        os.kill(process, signal.SIGKILL)

        async def knows() -> bool:
            return (await follower.look(key)).version == first.version

        await eventually_async(knows)


async def test_closing_in_the_middle_of_a_look_leaves_nothing_behind(repo: GitRepo) -> None:
    """The daemon may stop at any moment."""
    follower = Follower(make_hints=choose_hints("auto"))
    keys = [follower.follow(repo.path, f"src/{number}") for number in range(50)]
    for key in keys:
        follower.source.look(key, 1)
    await asyncio.sleep(0)
    await follower.source.close()
    await eventually_async(lambda: not _children_named("git"), what="no git left")


@pytest.mark.parametrize("moment", ["while the repository is searched", "while its branches are read"])
async def test_a_target_forgotten_during_its_first_look_leaves_the_repository_heard(
    repo: GitRepo, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A spec is removed during its first look.

    Another target in the same repository still gets a hint for every commit.
    """
    repo.commit("src/a", "1")
    is_searching = moment == "while the repository is searched"
    owner, name = (commits, "locate") if is_searching else (Repository, "find")
    wait_for, is_there = asyncio.Event(), asyncio.Event()
    original = getattr(owner, name)

    async def dawdle(*words: object, **options: object) -> object:
        is_there.set()
        await wait_for.wait()
        return await original(*words, **options)

    async with Follower() as follower:
        leaving = follower.follow(repo.path, "src", branch="other")
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dawdle)
            follower.source.look(leaving, 1, None)
            await is_there.wait()
            follower.source.forget([leaving])
            wait_for.set()
            await eventually_async(lambda: "wakeful: look at commits" not in tasks_under_way())
        staying = follower.follow(repo.path)
        await follower.look(staying)
        repo("branch", "other")
        repo.commit("src/a", "2")
        await follower.hint(staying)
        repo("branch", "-f", "other")
        repo.commit("src/a", "3")
        await follower.hint(staying)
        assert follower.source.defects.met == ()
        follower.source.forget([staying])
        await eventually_async(lambda: not _children_named("git"), what="no git left")


async def test_a_defect_in_one_repository_keeps_no_other_from_being_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect is recorded, and the same round compares the other repositories."""
    broken, sound = GitRepo(tmp_path / "a-broken"), GitRepo(tmp_path / "z-sound")
    for one in (broken, sound):
        one.commit("src/a", "1")
    async with Follower() as follower:
        for key in [follower.follow(one.path) for one in (broken, sound)]:
            await follower.look(key)
        find = Repository.find

        async def stumble(repository: Repository, names: list[str]) -> list[object]:
            if "a-broken" in repository.place.git_dir:
                raise KeyError("a branch")
            return await find(repository, names)

        monkeypatch.setattr(Repository, "find", stumble)
        sound.commit("src/a", "2")
        await follower.hint(key)
        assert [defect.words.partition(" in ")[0] for defect in follower.source.defects.met] == [
            "a defect of wakeful: KeyError"
        ]


async def test_a_repository_made_anew_in_the_same_place_is_seen_soon(repo: GitRepo) -> None:
    """After `rm -rf .git; git init` the source notices at once, although the next polling round is an hour away."""
    repo.commit("src/a", "1")
    async with Follower(make_hints=choose_hints("inotify"), poll_seconds=0.01, idle_poll_seconds=3600.0) as follower:
        key = follower.follow(repo.path)
        old = await follower.look(key)
        await eventually_async(lambda: 3600.0 in follower.loop.pauses, what="the next round an hour away")
        shutil.rmtree(repo.path / ".git")
        repo("init", "-q", "-b", "main")
        new = repo.commit("src/a", "other")
        tree = repo.id(f"{new}:src")

        async def is_seen() -> bool:
            found = await follower.look(key) if key in follower.hinted else None
            return found is not None and found.version == tree

        await eventually_async(is_seen)
        assert old.version != tree


async def test_commits_made_while_nobody_looked_are_all_named(repo: GitRepo) -> None:
    """After a downtime the source no longer knows the old head.

    It finds the commits since the last version by that version.
    """
    seen = repo.id("HEAD:src")
    made = [repo.commit("src/a.py", text, f"made {text}") for text in ("two", "three")]
    repo.commit("docs/a.md", "elsewhere")
    made.append(repo.commit("src/b.py", "four", "made four"))
    async with Follower() as follower:
        found = await follower.look(follower.follow(repo.path, "src"), base=seen)
        assert [line.partition(" ")[0] for line in found.commits] == made[::-1]
        assert paths(found) == {"src/a.py": "modified", "src/b.py": "added"}


async def test_commits_that_brought_a_path_are_all_named(repo: GitRepo) -> None:
    """The path was absent at the last look. The list begins with the commit that added it."""
    made = [repo.commit("new/a", text) for text in ("one", "two")]
    async with Follower() as follower:
        found = await follower.look(follower.follow(repo.path, "new"), base=ABSENT)
        assert [line.partition(" ")[0] for line in found.commits] == made[::-1]


async def test_after_a_rewrite_that_nobody_saw_no_commit_is_named(repo: GitRepo) -> None:
    """No commit of the new history has the last seen version, so the new commits are unknown.

    The changed paths are reported.
    """
    repo.commit("src/a.py", "to be amended")
    seen = repo.id("HEAD:src")
    repo.write("src/a.py", "amended")
    repo("commit", "-q", "-a", "--amend", "-m", "amended")
    async with Follower() as follower:
        found = await follower.look(follower.follow(repo.path, "src"), base=seen)
        assert found.commits == ()
        assert paths(found) == {"src/a.py": "modified"}

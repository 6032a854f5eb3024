"""The comparison of two versions of a commits binding.

Real git gives the contents on both sides, within bounds. If there is no comparison, a message says why.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sources.commit_follower import Follower, GitRepo
from wakeful.core.looking.path_reports import Bounds, Changed
from wakeful.core.record.events import ChangedPath
from wakeful.sources.git.commit_changes import ABSENT

pytestmark = pytest.mark.asyncio
BOUNDS = Bounds(paths=100, contents=10, content_bytes=2048)


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "repo")


@pytest_asyncio.fixture
async def follower() -> AsyncIterator[Follower]:
    async with Follower() as made:
        yield made


async def test_what_differs_between_two_versions_comes_with_both_sides(repo: GitRepo, follower: Follower) -> None:
    """The comparison uses only the ids of the versions. The branch, the index and the working tree have moved on."""
    repo.write("src/gone.py", "x\n")
    repo.commit("src/a.py", "one\n")
    repo("add", "-A")
    repo("commit", "-qm", "both")
    old = repo.id("HEAD:src")
    repo("rm", "-q", "src/gone.py")
    repo.write("src/deep/new.py", "fresh\n")
    repo("add", "-A")
    repo.commit("src/a.py", "two\n")
    new = repo.id("HEAD:src")
    key = follower.follow(repo.path)
    repo.commit("src/a.py", "three\n")
    found = await follower.source.compare(key, old, new, BOUNDS)
    assert found.sides == (
        Changed("src/a.py", b"one\n", b"two\n"),
        Changed("src/deep/new.py", None, b"fresh\n"),
        Changed("src/gone.py", b"x\n", None),
    )
    assert found.paths == (
        ChangedPath("src/a.py", "modified"),
        ChangedPath("src/deep/new.py", "added"),
        ChangedPath("src/gone.py", "removed"),
    )
    assert found.problem is None
    everything = await follower.source.compare(key, ABSENT, new, BOUNDS)
    assert {side.before for side in everything.sides} == {None}


async def test_what_is_no_text_to_compare_says_what_it_is(repo: GitRepo, follower: Follower) -> None:
    """Files too large, links, submodules and changed modes get a description in place of a text.

    Paths beyond the bound on contents are still listed.
    """
    repo.commit("src/tool.sh", "#!/bin/sh\n")
    old = repo.id("HEAD:src")
    os.chmod(repo.path / "src/tool.sh", 0o755)
    repo.write("src/big", "x" * 3000)
    (repo.path / "src/link").symlink_to("/etc/passwd")
    repo("add", "-A")
    repo("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},src/sub")
    repo("commit", "-qm", "odd ones")
    key = follower.follow(repo.path)
    found = await follower.source.compare(key, old, repo.id("HEAD:src"), BOUNDS)
    assert {side.path: side.after for side in found.sides} == {
        "src/big": "larger than 2 KiB", "src/link": "a link", "src/sub": "a submodule", "src/tool.sh": "is executable now",
    }  # fmt: skip
    few = await follower.source.compare(key, old, repo.id("HEAD:src"), Bounds(paths=3, contents=1, content_bytes=10))
    assert (len(few.paths), len(few.sides)) == (3, 1)


async def test_an_old_tree_that_is_gone_is_said_and_nothing_is_guessed(repo: GitRepo, follower: Follower) -> None:
    """The old tree was rewritten and pruned, so there is no diff, and a message says why.

    A binding that is not followed has no diff either.
    """
    repo.commit("src/a.py", "one\n")
    repo.commit("src/a.py", "secret\n")
    old = repo.id("HEAD:src")
    repo("reset", "-q", "--hard", "HEAD~1")
    repo.commit("src/a.py", "two\n")
    repo("reflog", "expire", "--expire=now", "--all")
    repo("gc", "-q", "--prune=now")
    key = follower.follow(repo.path)
    found = await follower.source.compare(key, old, repo.id("HEAD:src"), BOUNDS)
    assert found.sides == () and "history was rewritten" in (found.problem or "")
    assert (await follower.source.compare("nobody", old, old, BOUNDS)).problem == "the binding no longer exists"


async def test_each_commit_shows_what_that_one_did(repo: GitRepo, follower: Follower, tmp_path: Path) -> None:
    """The comparison is with the commit's first parent, not with the version seen before.

    The first commit of a history added every file.
    """
    first = repo.commit("src/a.py", "one\n")
    second = repo.commit("src/a.py", "two\n")
    repo.commit("src/a.py", "three\n")
    key = follower.follow(repo.path, each_commit=True)
    found = await follower.source.compare(key, first, second, BOUNDS)
    assert found.sides == (Changed("src/a.py", b"one\n", b"two\n"),)
    assert (await follower.source.compare(key, ABSENT, first, BOUNDS)).sides == (Changed("src/a.py", None, b"one\n"),)
    shallow = tmp_path / "shallow"
    repo("clone", "-q", "--depth=1", f"file://{repo.path}", str(shallow))
    clone = GitRepo(shallow, is_new=False)
    key = follower.follow(shallow, each_commit=True)
    found = await follower.source.compare(key, second, clone.id("HEAD"), BOUNDS)
    assert found.sides == () and found.problem == "the commit before it is not in this clone"


async def test_a_repository_that_cannot_be_read_is_a_word_and_no_fault(repo: GitRepo, follower: Follower) -> None:
    repo.commit("src/a.py", "one\n")
    old = repo.id("HEAD:src")
    repo.commit("src/a.py", "two\n")
    key = follower.follow(repo.path)
    new = repo.id("HEAD:src")
    blob = repo.id("HEAD:src/a.py")
    (repo.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert (await follower.source.compare(key, old, new, BOUNDS)).sides == (
        Changed("src/a.py", b"one\n", "not in this clone"),
    )
    (repo.path / ".git").rename(repo.path / "moved")
    assert "is not inside a git repository" in ((await follower.source.compare(key, old, new, BOUNDS)).problem or "")

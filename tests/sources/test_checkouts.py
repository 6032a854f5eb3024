"""Checkouts beside a repository work for every kind of git repository, and write into none of them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from git_repository import git
from wakeful.sources.git.checkouts import Checkouts
from wakeful.sources.git.git_command import GitRefusal

pytestmark = pytest.mark.asyncio


def make(folder: Path, *options: str) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", *options)
    (folder / "a.txt").write_text("one\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


async def check_out(folder: Path, place: Path, *branches: str) -> Path:
    place.mkdir()
    repository = await Checkouts().find(str(folder))
    assert repository is not None
    await Checkouts().check_out(repository, str(place), branches)
    return place


def assert_alike(place: Path, source: Path) -> None:
    assert git(place, "status", "--porcelain") == "" and git(place, "fsck", "--no-dangling") == ""
    assert git(place, "rev-parse", "HEAD") == git(source, "rev-parse", "HEAD")
    assert (
        (place / "a.txt").read_text() == "one\n"
        and os.access(place / "run.sh", os.X_OK)
        and os.readlink(place / "link") == "a.txt"
    )
    assert not (place / ".git/hooks").exists() and git(place, "remote") == ""


@pytest.mark.parametrize("kind", ["plain", "sha256", "detached", "worktree", "shallow", "submodule", "borrowing"])
async def test_every_kind_of_repository_is_checked_out(tmp_path: Path, kind: str) -> None:
    source = make(tmp_path / "source", *(["--object-format=sha256"] if kind == "sha256" else []))
    match kind:
        case "detached":
            git(source, "checkout", "-q", "--detach")
        case "worktree":
            git(source, "worktree", "add", "-q", str(tmp_path / "beside"))
            source = tmp_path / "beside"
        case "shallow":
            git(source, "commit", "-qm", "second", "--allow-empty")
            git(tmp_path, "clone", "-q", "--depth=1", f"file://{source}", "short")
            source = tmp_path / "short"
        case "submodule":
            make(tmp_path / "other")
            git(source, "submodule", "add", "-q", str(tmp_path / "other"), "sub")
            git(source, "commit", "-qm", "second")
        case "borrowing":
            git(tmp_path, "clone", "-q", "--shared", str(source), "second")
            source = tmp_path / "second"
    place = await check_out(source, tmp_path / "place")
    assert_alike(place, source)


async def test_branches_that_bindings_name_are_there(tmp_path: Path) -> None:
    """The branches keep their names.

    A branch that does not exist is not an error. An expression is no branch, and is refused before anything is made.
    """
    source = make(tmp_path / "source")
    git(source, "branch", "release")
    git(source, "tag", "v1")
    place = await check_out(source, tmp_path / "place", "release", "refs/tags/v1", "nowhere")
    names = git(place, "for-each-ref", "--format=%(refname)").splitlines()
    assert names == ["refs/heads/main", "refs/heads/release", "refs/tags/v1"]
    for number, expression in enumerate(("main~0", "main@{0}", "release^{commit}", "--all")):
        with pytest.raises(GitRefusal, match="is not the name of a branch"):
            await check_out(source, tmp_path / f"refused{number}", expression)
        assert list((tmp_path / f"refused{number}").iterdir()) == []


async def test_what_is_committed_in_a_checkout_stays_there(tmp_path: Path) -> None:
    """No file of the repository is added or changed.

    (git renews the mtime of objects that it finds there, which keeps them from being pruned.)
    """
    source = make(tmp_path / "source")
    place = await check_out(source, tmp_path / "place")
    before = {path: path.read_bytes() for path in (source / ".git").rglob("*") if path.is_file()}
    (place / "a.txt").write_text("two\n")
    git(place, "commit", "-qam", "of the fork")
    assert {path: path.read_bytes() for path in (source / ".git").rglob("*") if path.is_file()} == before


async def test_where_nothing_was_committed_there_is_nothing_to_check_out(tmp_path: Path) -> None:
    assert await Checkouts().find(str(tmp_path)) is None
    git(tmp_path, "init", "-q")
    assert await Checkouts().find(str(tmp_path)) is None


async def test_three_texts_become_one_or_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three results are a clean merge, a conflict, and None for a binary file.

    The config of a repository around the temporary folder has no effect.
    """
    around = make(tmp_path / "around")
    git(around, "config", "merge.conflictStyle", "diff3")
    monkeypatch.setattr(tempfile, "tempdir", str(around))
    lines = [f"{number}\n" for number in range(9)]
    base, names = "".join(lines).encode(), ("here", "before", "fork")
    merged = await Checkouts().merge_texts(
        base, base.replace(b"1\n", b"one\n"), base.replace(b"7\n", b"seven\n"), names
    )
    assert merged.conflicts == 0 and b"one\n" in merged.text and b"seven\n" in merged.text
    merged = await Checkouts().merge_texts(b"a\n", b"b\n", b"c\n", names)
    assert merged.conflicts == 1 and merged.text == b"<<<<<<< here\nb\n=======\nc\n>>>>>>> fork\n"
    assert (await Checkouts().merge_texts(b"a\n", b"b\0\n", b"c\n", names)).conflicts is None
    assert git(around, "status", "--porcelain") == "", "the temporary folders are removed"

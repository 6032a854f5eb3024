"""An export writes a tree as it was committed, byte for byte, and never writes outside its destination."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sources.commit_follower import GitRepo
from wakeful.sources.git import trees
from wakeful.sources.git.git_command import Found, GitRefusal, Repository, locate, parse_tree
from wakeful.sources.git.trees import ExportRefusal, export_tree, find_changes

pytestmark = pytest.mark.asyncio


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "repo")


@pytest_asyncio.fixture
async def repository(repo: GitRepo) -> AsyncIterator[Repository]:
    repository = Repository(await locate(str(repo.path)))
    yield repository
    await repository.close()


def make_tree(repo: GitRepo, entries: list[tuple[str, bytes, str]]) -> str:
    """Make a tree object by hand, with names that git itself would not commit."""
    content = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
    done = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        cwd=repo.path,
        input=content,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def make_blob(repo: GitRepo, content: str) -> str:
    return repo("hash-object", "-w", "--stdin", text=content)


async def test_an_export_is_what_was_committed(repo: GitRepo, repository: Repository, tmp_path: Path) -> None:
    """The export keeps contents, x bits, links and folders. No filter and no line-ending setting changes a byte."""
    repo.write("src/plain.txt", "text\r\n$Id$\n")
    repo.write("src/tool.sh", "#!/bin/sh\n")
    repo.write("src/deep/er/file", "x" * 3_000_000)
    repo.write("src/empty")
    repo.write(".gitattributes", "* text eol=crlf ident\n")
    os.chmod(repo.path / "src/tool.sh", 0o755)
    (repo.path / "src/link").symlink_to("plain.txt")
    (repo.path / "src/dangling").symlink_to("/nowhere/at/all")
    repo("-c", "core.autocrlf=false", "add", "-A")
    repo("commit", "-q", "-m", "all kinds")
    await export_tree(repository, repo.id("HEAD:src"), str(tmp_path / "out"))
    out = tmp_path / "out"
    assert (out / "plain.txt").read_bytes() == repo("cat-file", "blob", "HEAD:src/plain.txt").encode() + b"\n"
    assert (out / "deep/er/file").stat().st_size == 3_000_000
    assert os.access(out / "tool.sh", os.X_OK)
    assert not (out / "plain.txt").stat().st_mode & 0o111
    assert os.readlink(out / "link") == "plain.txt"
    assert os.readlink(out / "dangling") == "/nowhere/at/all"
    assert sorted(path.name for path in out.iterdir()) == ["dangling", "deep", "empty", "link", "plain.txt", "tool.sh"]


@pytest.mark.parametrize("name", [b"..", b".", b"", b"a/b", b"../escape", b"/etc/canary", b".git", b".GIT"])
async def test_a_name_that_is_no_file_name_is_refused(
    repo: GitRepo, repository: Repository, tmp_path: Path, name: bytes
) -> None:
    """Nothing is written outside the destination, whatever names the tree has."""
    tree = make_tree(repo, [("100644", name, make_blob(repo, "evil"))])
    with pytest.raises(ExportRefusal):
        await export_tree(repository, tree, str(tmp_path / "out"))
    assert not (tmp_path / "escape").exists()
    assert list((tmp_path / "out").iterdir()) == []


async def test_a_link_is_never_written_through(repo: GitRepo, repository: Repository, tmp_path: Path) -> None:
    """A tree that has a link and a folder of the same name is refused."""
    (tmp_path / "outside").mkdir()
    inner = make_tree(repo, [("100644", b"canary", make_blob(repo, "evil"))])
    # hash-object does not check the order: the link comes first, and the folder of the same name after it.
    tree = make_tree(repo, [("120000", b"a", make_blob(repo, str(tmp_path / "outside"))), ("40000", b"a", inner)])
    with pytest.raises((ExportRefusal, GitRefusal)):
        await export_tree(repository, tree, str(tmp_path / "out"))
    assert list((tmp_path / "outside").iterdir()) == []


async def test_a_destination_that_exists_is_refused(repo: GitRepo, repository: Repository, tmp_path: Path) -> None:
    """An export never mixes with existing files."""
    repo.commit("src/a", "one")
    with pytest.raises(FileExistsError):
        await export_tree(repository, repo.id("HEAD:src"), str(tmp_path))


async def test_a_submodule_is_an_empty_folder_and_its_commit_a_version(
    repo: GitRepo, repository: Repository, tmp_path: Path
) -> None:
    """The content of a submodule lies in another repository."""
    tree = make_tree(repo, [("160000", b"sub", "1" * 40)])
    await export_tree(repository, tree, str(tmp_path / "out"))
    assert list((tmp_path / "out/sub").iterdir()) == []


async def test_trees_that_multiply_are_given_up(
    repo: GitRepo, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten levels of ten folders are ten billion paths, with and without files in the innermost folders."""
    monkeypatch.setattr(trees, "TREES_LIMIT", 500)
    for leaf in (make_tree(repo, []), make_tree(repo, [("100644", b"f", make_blob(repo, "x"))])):
        tree = leaf
        for _ in range(10):
            tree = make_tree(repo, [("40000", f"{number}".encode(), tree) for number in range(10)])
        assert await find_changes(repository, None, Found(tree, "tree"), "") is None
        with pytest.raises(ExportRefusal, match="more folders than can be exported"):
            await export_tree(repository, tree, str(tmp_path / leaf))


async def test_a_tree_that_is_too_deep_is_given_up(repo: GitRepo, repository: Repository, tmp_path: Path) -> None:
    """Recursion has a limit."""
    tree = make_tree(repo, [("100644", b"f", make_blob(repo, "x"))])
    for _ in range(trees.DEPTH_LIMIT + 5):
        tree = make_tree(repo, [("40000", b"d", tree)])
    assert await find_changes(repository, None, Found(tree, "tree"), "") is None
    with pytest.raises(ExportRefusal):
        await export_tree(repository, tree, str(tmp_path / "out"))


async def test_more_changes_than_anybody_reads_are_unknown(
    repo: GitRepo, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version still changes. Only the list of changes is dropped."""
    monkeypatch.setattr(trees, "CHANGES_LIMIT", 5)
    blob = make_blob(repo, "x")
    few = make_tree(repo, [("100644", f"{number}".encode(), blob) for number in range(5)])
    many = make_tree(repo, [("100644", f"{number}".encode(), blob) for number in range(6)])
    assert len(await find_changes(repository, None, Found(few, "tree"), "p")) == 5
    assert await find_changes(repository, None, Found(many, "tree"), "p") is None


async def test_a_mode_alone_is_a_change(repo: GitRepo, repository: Repository) -> None:
    """`chmod +x` is committed, so it is a change."""
    blob = make_blob(repo, "x")
    plain, runnable = make_tree(repo, [("100644", b"f", blob)]), make_tree(repo, [("100755", b"f", blob)])
    (change,) = await find_changes(repository, Found(plain, "tree"), Found(runnable, "tree"), "")
    assert (change.path, change.change) == ("f", "modified")


async def test_objects_that_are_not_there_are_refused_and_the_conversation_goes_on(
    repo: GitRepo, repository: Repository
) -> None:
    """One bad request does not spoil the answer to the next."""
    repo.commit("a", "one")
    for wrong in ("0" * 40, "HEAD", "--help", "x\ny"):
        with pytest.raises(GitRefusal):
            await repository.read(wrong)
    assert await repository.read(repo.id("HEAD:a")) == b"one"
    with pytest.raises(GitRefusal):
        await repository.find(["HEAD:a", "x\ny"])
    assert (await repository.find(["HEAD:a"]))[0].kind == "blob"


async def test_a_reader_that_leaves_early_does_not_spoil_the_next_answer(repo: GitRepo, repository: Repository) -> None:
    """The rest of a half-read object is not taken for another object."""
    repo.commit("big", "x" * 5_000_000)
    stream = repository.stream(repo.id("HEAD:big"))
    assert await anext(stream)
    await stream.aclose()
    assert len(await repository.read(repo.id("HEAD:big"))) == 5_000_000


@pytest.mark.parametrize("content", [b"100644", b"100644 name", b"999999 x\0" + b"1" * 20, b"100644 f\0short"])
async def test_a_broken_tree_is_an_error_and_never_an_endless_loop(content: bytes) -> None:
    """git verifies the ids of objects, not that a tree is well formed."""
    with pytest.raises(GitRefusal):
        parse_tree(content, 20)

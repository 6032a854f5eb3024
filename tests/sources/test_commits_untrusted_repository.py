"""A repository is untrusted input.

No program that it configures is run, nothing is written into it, and every bad name is refused.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sources.commit_follower import Follower, GitRepo
from wakeful.sources.git import git_command as git
from wakeful.sources.git.commit_changes import Question, Viewed, look_at_each_commit, look_at_tree
from wakeful.sources.git.git_command import GitRefusal, Repository, check_path, check_ref_name, locate

pytestmark = pytest.mark.asyncio


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A program that leaves the file `sang` beside itself when it is run."""
    program = tmp_path / "canary"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/sang\ncat\n')
    program.chmod(0o755)
    return program


def plant(repo: GitRepo, canary: Path) -> None:
    """Put the canary into every place from which git is known to start programs."""
    hooks = repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in (
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "post-commit",
        "pre-auto-gc",
        "fsmonitor-watchman",
    ):
        (hooks / hook).symlink_to(canary)
    (repo.path / ".git/included").write_text(
        f"[core]\n\tfsmonitor = {canary}\n\tsshCommand = {canary}\n[alias]\n\tcat-file = !{canary}\n"
    )
    settings = {
        "include.path": str(repo.path / ".git/included"),
        "core.fsmonitor": str(canary),
        "core.hooksPath": str(hooks),
        "core.pager": str(canary),
        "core.editor": str(canary),
        "core.sshCommand": str(canary),
        "core.gitProxy": str(canary),
        "core.askPass": str(canary),
        "core.alternateRefsCommand": str(canary),
        "credential.helper": f"!{canary}",
        "pager.rev-list": str(canary),
        "pager.cat-file": str(canary),
        "alias.cat-file": f"!{canary}",
        "alias.rev-list": f"!{canary}",
        "alias.rev-parse": f"!{canary}",
        "diff.external": str(canary),
        "diff.evil.textconv": str(canary),
        "diff.evil.command": str(canary),
        "filter.evil.clean": str(canary),
        "filter.evil.smudge": str(canary),
        "filter.evil.process": str(canary),
        "merge.evil.driver": str(canary),
        "gpg.program": str(canary),
        "gpg.ssh.program": str(canary),
        "log.showSignature": "true",
        "uploadpack.packObjectsHook": str(canary),
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "protocol.ssh.allow": "always",
        "protocol.file.allow": "always",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{canary} %S",
        "remote.origin.uploadpack": str(canary),
        "remote.origin.vcs": "ext",
    }
    with (repo.path / ".git/config").open("a") as config:
        for name, value in settings.items():
            section, _, key = name.rpartition(".")
            head, _, sub = section.partition(".")
            config.write(f'[{head}{f" {chr(34)}{sub}{chr(34)}" if sub else ""}]\n\t{key} = "{value}"\n')
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/attributes").write_text("* filter=evil diff=evil merge=evil\n")


async def test_the_canary_can_sing(tmp_path: Path, canary: Path) -> None:
    """The attack is real: an ordinary `git status` runs the canary."""
    repo = GitRepo(tmp_path / "repo")
    repo.commit("src/a.py", "one")
    plant(repo, canary)
    subprocess.run(["git", "status"], cwd=repo.path, capture_output=True, check=False)
    assert (tmp_path / "sang").exists()


@pytest.mark.parametrize("url", ["ext::{canary} %S", "ssh://host/x", "file:///nowhere", "git://127.0.0.1:1/x"])
async def test_nothing_that_a_repository_configures_is_ever_run(tmp_path: Path, canary: Path, url: str) -> None:
    """Looks, deltas, lists of commits, an export and a lazily fetched object do not run the canary."""
    repo = GitRepo(tmp_path / "repo")
    old = repo.commit("src/a.py", "one")
    base = repo.id("main:src")
    repo.commit("src/b.py", "two")
    (repo.path / ".gitattributes").write_text("* filter=evil diff=evil\n")
    repo("add", "-A")
    repo("commit", "-q", "-m", "attributes")
    signed = repo("cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    repo("update-ref", "refs/heads/main", repo("hash-object", "-t", "commit", "-w", "--stdin", text=signed + "\n"))
    plant(repo, canary)
    with (repo.path / ".git/config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = "{url.format(canary=canary)}"\n')
        if not url.startswith("ext"):
            config.write("\tvcs =\n")
    async with Follower() as follower:
        level = follower.follow(repo.path, "src", branch="main")
        each = follower.follow(repo.path, "src", branch="main", each_commit=True)
        result = await follower.look(level, base=base)
        assert [change.path for change in result.changes] == ["src/b.py"]
        assert len((await follower.look(each, base=old)).pending) == 1
        await follower.source.export(level, result.version, str(tmp_path / "export"))
        assert (tmp_path / "export/b.py").read_text() == "two"
    # git would fetch the missing object of this partial clone through the configured transport.
    shutil.rmtree(repo.path / ".git/objects" / base[:2])
    async with Follower() as follower:
        missing = await follower.look(follower.follow(repo.path, "src", branch="main"), base=base)
        assert missing.changes == ()
    assert not (tmp_path / "sang").exists()


async def test_a_bare_repository_hidden_in_a_checkout_is_not_discovered(tmp_path: Path, canary: Path) -> None:
    """Only a spec that names this repository may use it."""
    inner = GitRepo(tmp_path / "work")
    inner.commit("src/a.py", "one")
    subprocess.run(["git", "clone", "-q", "--bare", inner.path, tmp_path / "nested/evil"], check=True)
    (tmp_path / "nested/evil/sub").mkdir()
    with pytest.raises(GitRefusal):
        await locate(str(tmp_path / "nested/evil/sub"))
    assert (await locate(str(tmp_path / "nested/evil"), is_explicit=True)).git_dir == str(tmp_path / "nested/evil")


async def test_a_repository_of_another_owner_is_refused_until_the_person_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner is a problem with a message.

    The person's own `safe.directory` setting lifts it.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository to somebody else")
    repo = GitRepo(tmp_path / "repo")
    repo.commit("src/a.py", "one")
    tree = repo.id("main:src")
    for path in (repo.path, *repo.path.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    async with Follower() as follower:
        key = follower.follow(repo.path, "src", branch="main")
        refused = await follower.look(key)
        assert refused.version is None
        assert "belongs to another user" in refused.problem
        (tmp_path / "gitconfig").write_text(f"[safe]\n\tdirectory = {repo.path}\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
        assert (await follower.look(key)).version == tree


async def test_an_environment_that_points_elsewhere_is_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that starts the daemon exports GIT_DIR. It must not redirect the daemon's looks."""
    repo, other = GitRepo(tmp_path / "repo"), GitRepo(tmp_path / "other")
    repo.commit("src/a.py", "one")
    other.commit("src/a.py", "other")
    tree = repo.id("main:src")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.path / ".git/objects"))
    async with Follower() as follower:
        assert (await follower.look(follower.follow(repo.path, "src", branch="main"))).version == tree


async def test_nothing_is_written_into_the_repository(tmp_path: Path) -> None:
    """Polls and looks create, rename or remove no file below `.git`, and open none for writing."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    repo = GitRepo(tmp_path / "repo")
    old = repo.commit("src/a.py", "one")
    repo.commit("src/b.py", "two")
    program = f"""
import asyncio
from wakeful.core.looking.targets import CommitsTarget
from wakeful.sources.git.source import CommitSource
from wakeful.sources.hints.watcher_choice import choose_hints
async def main():
    told = asyncio.Queue()
    source = CommitSource(told.put_nowait, asyncio.get_running_loop(), choose_hints("auto"), poll_seconds=0.01, idle_poll_seconds=0.01)
    for each in (False, True):
        source.follow([CommitsTarget(key=str(each), root={str(repo.path)!r}, path="src", each_commit=each)])
        source.look(str(each), 1, {old!r} if each else {repo.id(old + ":src")!r})
        print((await told.get()).result)
    await asyncio.sleep(0.3)
    await source.close()
asyncio.run(main())
"""
    trace = tmp_path / "trace"
    calls = "openat,open,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat,symlink,symlinkat,chmod,fchmodat,utimensat,truncate"
    done = subprocess.run(
        [strace, "-f", "-qq", "-o", trace, "-e", f"trace={calls}", shutil.which("python3", path=_interpreter_folder()), "-c", program],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in done.stderr.lower():
        pytest.skip(f"strace does not work here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "LookResult" in done.stdout
    inside = [line for line in trace.read_text(errors="replace").splitlines() if "/.git" in line or ".lock" in line]
    assert any("HEAD" in line for line in trace.read_text(errors="replace").splitlines())
    writing = [
        line
        for line in inside
        if "open" not in line or any(flag in line for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"))
    ]
    assert [line for line in writing if "ENOENT" not in line and "exited" not in line] == []


def _interpreter_folder() -> str:
    return str(Path(sys.executable).parent)


@pytest.mark.parametrize(
    "branch",
    [
        "--upload-pack=x",
        "-x",
        "main~1",
        "main^{tree}",
        "main:src",
        "a b",
        "a\nb",
        "main@{1}",
        "a..b",
        "",
        "/a",
        "a/",
        "a.lock",
        ".a",
    ],
)
async def test_a_branch_that_is_an_option_or_an_expression_is_refused(tmp_path: Path, branch: str) -> None:
    """The name is refused although such a ref exists."""
    repo = GitRepo(tmp_path)
    repo.commit("src/a.py", "one")
    (tmp_path / ".git/refs/heads/-x").write_text(repo.id("main") + "\n")
    with pytest.raises(GitRefusal):
        check_ref_name(branch)
    async with Follower() as follower:
        result = await follower.look(follower.follow(tmp_path, "src", branch=branch))
        assert result.version is None
        assert "is not the name of a branch" in result.problem


@pytest.mark.parametrize("path", ["-src", "a\nb", "../../etc", "a\0b"])
async def test_a_path_that_cannot_be_one_is_refused(tmp_path: Path, path: str) -> None:
    """The path never reaches git."""
    GitRepo(tmp_path).commit("src/a.py", "one")
    with pytest.raises(GitRefusal):
        check_path(path)
    async with Follower() as follower:
        result = await follower.look(follower.follow(tmp_path, path))
        assert result.version is None
        assert result.problem


async def test_unusual_names_are_paths_like_any_other(tmp_path: Path) -> None:
    """The names have spaces, glob characters, quotes and bytes that are not UTF-8."""
    repo = GitRepo(tmp_path)
    repo.commit("my src/[a]*?.py", "one")
    async with Follower() as follower:
        key = follower.follow(tmp_path, "my src")
        each = follower.follow(tmp_path, "my src/[a]*?.py", each_commit=True)
        assert (await follower.look(key)).version == repo.id("HEAD:my src")
        assert (await follower.look(each)).version == repo.id("HEAD")
        with open(os.fsencode(tmp_path) + b"/my src/\xff\xfe", "wb"):
            pass
        repo("add", "-A")
        repo("commit", "-q", "-m", "\x1b]0;title\x07 \u202e subject")
        result = await follower.look(key)
        assert [change.path for change in result.changes] == ["my src/\\xff\\xfe"]
        assert "\x1b" not in result.commits[0]
        assert "\u202e" not in result.commits[0]


async def test_a_git_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config that includes a FIFO makes every git command hang."""
    repo = GitRepo(tmp_path / "repo")
    repo.commit("src/a.py", "one")
    os.mkfifo(tmp_path / "fifo")
    with (repo.path / ".git/config").open("a") as config:
        config.write(f"[include]\n\tpath = {tmp_path / 'fifo'}\n")
    monkeypatch.setattr(git, "ANSWER_SECONDS", 0.3)
    async with Follower() as follower:
        result = await follower.look(follower.follow(repo.path, "src", branch="main"))
        assert "did not answer within 0.3 s" in result.problem


async def test_a_partial_clone_that_lacks_the_tree_is_unknown_and_not_deleted(tmp_path: Path) -> None:
    """A tree that the commit names and the clone lacks is unknown, not absent."""
    repo = GitRepo(tmp_path)
    commit = repo.commit("src/a.py", "one")
    tree = repo.id("main:src")
    (tmp_path / ".git/objects" / tree[:2] / tree[2:]).unlink()
    repository = Repository(await locate(str(tmp_path)))
    question = Question("k", 1, None, commit, "src", "src")
    with pytest.raises(GitRefusal, match="not in this clone"):
        await look_at_tree(repository, question, None, Viewed())
    assert (await look_at_each_commit(repository, question._replace(path="other"))).is_absent
    await repository.close()

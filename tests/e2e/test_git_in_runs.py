"""git works inside runs, also in a linked worktree or a submodule, where `.git` is a file.

A pointer to a repository that does not point back opens nothing.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from e2e.box import Box
from git_repository import git
from wakeful.core.deciding.run_end import LONGEST_LAST_LOOK_SECONDS
from wakeful.runners.isolation import bubblewrap
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = pytest.mark.skipif(probe_abi() == 0, reason="this kernel cannot confine anything")
LEVELS = ["standard", "strict"]
# The binding decides what is opened to the run: the commits, or the files around them.
BINDINGS = {"commits": "{commits: .}", "commits of a part": "{commits: part/}", "files": "{file: '**/*.md'}"}


def make_repository(folder: Path, subject: str) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README.md").write_text("one\n")
    (folder / "part").mkdir()
    (folder / "part/page.md").write_text("page\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", subject)
    return folder


def make_worktree(box: Box) -> Path:
    make_repository(box.folder / "elsewhere/main", "in the repository")
    git(box.folder / "elsewhere/main", "worktree", "add", "-q", str(box.folder / "checkout"))
    return box.folder / "checkout"


def make_submodule(box: Box) -> Path:
    library = make_repository(box.folder / "library", "in the repository")
    above = make_repository(box.folder / "above", "around it")
    git(above, "submodule", "--quiet", "add", str(library), "checkout")
    return above / "checkout"


def make_moved_worktree(box: Box) -> Path:
    made = make_worktree(box)
    git(box.folder / "elsewhere/main", "worktree", "move", str(made), str(box.folder / "moved"))
    return box.folder / "moved"


def ask_git(box: Box, root: Path, binding: str, level: str) -> str:
    if level == "strict" and bubblewrap.find_obstacle() is not None:
        pytest.skip(f"nothing can be isolated strictly here: {bubblewrap.find_obstacle()}")
    script = "git log --format=%s > out/log.txt; git show HEAD:README.md >> out/log.txt"
    (box.folder / "wakeful.yaml").write_text("")
    box.spec(
        "asks",
        f"""
        root: {root}
        isolation: {level}
        bindings:
          code: {BINDINGS[binding]}
          log: {{file: out/log.txt, access: write}}
        first: run
        run: {{script: {json.dumps(script)}, retries: 0}}
        """,
    )
    box.start()
    row = box.wait_at_rest("asks", runs=1)
    return (
        (root / "out/log.txt").read_text() if row["last_run"]["outcome"] == "succeeded" else box.words("output", "asks")
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("make", [make_worktree, make_submodule, make_moved_worktree])
def test_git_works_where_the_git_entry_is_a_file(box: Box, make, binding: str, level: str) -> None:
    assert ask_git(box, make(box), binding, level) == "in the repository\none\n"


@pytest.mark.parametrize("level", LEVELS)
def test_a_pointer_to_a_repository_that_does_not_point_back_opens_nothing(box: Box, level: str) -> None:
    """A run may have written the pointer. Here the run asks git; other tests check the looks of a `commits` binding."""
    private = make_repository(box.folder / "private", "not for runs")
    root = box.folder / "checkout"
    root.mkdir()
    (root / "README.md").write_text("mine\n")
    (root / ".git").write_text(f"gitdir: {private}/.git\n")
    told = ask_git(box, root, "files", level)
    assert "not for runs" not in told
    assert "denied" in told or "not a git repository" in told


def test_a_run_that_may_commit_ends_when_its_repository_was_looked_at(box: Box) -> None:
    """The last look of such a run is at commits.

    A run once ended only when the daemon gave up on that look, half a minute later.
    """
    make_repository(box.folder / "project", "in the repository")
    places = json.dumps([str(box.folder / "project/.git")])
    bindings = "{code: {commits: .}, page: {file: out/page.txt, access: write}}"
    box.spec(
        "docs",
        f"objective: End.\nroot: {box.folder / 'project'}\nbindings: {bindings}\nallow: {{write: {places}}}\nrun: {{script: 'echo one > out/page.txt'}}\n",
    )
    box.start()
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    started, finished = (datetime.fromisoformat(row["last_run"][name]) for name in ("started_at", "finished_at"))
    assert (finished - started).total_seconds() < LONGEST_LAST_LOOK_SECONDS

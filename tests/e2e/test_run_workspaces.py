"""`run.workspace` with a real daemon: a run works in a copy or a checkout of its own.

Other sessions see nothing of it until it has succeeded. What both kinds share with strict runs (landing, conflicts,
kills) is in test_staged_outputs.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import Box
from wait_conditions import eventually
from wakeful.runners.isolation.bubblewrap import find_obstacle

SPEC = """
objective: Make a report.
{more}
bindings:
  order: {{file: data/order.txt}}
  out:   {{file: "out/**", access: write}}
run:
  script: |
    {script}
  retries: 0
  workspace: {kind}
"""
OBSTACLE = find_obstacle()
STRICT = pytest.param(
    "strict",
    marks=pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}"),
)
HELD = "touch $WAKEFUL_SCRATCH/begun; while [ ! -e $WAKEFUL_SCRATCH/go ]; do sleep 0.05; done"


class Bench(Box):
    """A box whose runs reach only what they declare.

    Its project may be a repository with committed, changed and new files.
    """

    def reach(self) -> str:
        return ""

    def git(self, *words: str, folder: str = ".") -> str:
        argv = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(self.folder / folder), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def commit(self, **files: str) -> str:
        if not (self.folder / ".git").exists():
            self.git("init", "-q", "-b", "main")
        for path, text in files.items():
            self.write(path, text)
            self.git("add", path)
        self.git("commit", "-qm", "one")
        return self.git("rev-parse", "HEAD").strip()

    def declare(self, kind: str, script: str, more: str = "") -> None:
        self.spec("maker", SPEC.format(kind=kind, script=script.replace("\n", "\n    "), more=more))

    def finished(self) -> dict[str, Any]:
        return [record["payload"] for record in self.log("maker") if record["kind"] == "run_finished"][-1]

    def settle(self, runs: int = 1) -> dict[str, Any]:
        return self.wait_at_rest("maker", runs=runs)

    def hold(self) -> Path:
        """Wait until the run is under way and waits. Return the path of the file that lets it go on."""
        [begun] = eventually(lambda: list((self.state / "scratch").glob("*/begun")))
        return begun.with_name("go")

    def is_swept(self) -> bool:
        return not list((self.state / "staged").iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_copy_holds_what_is_bound_and_its_results_land_after_success(bench: Bench) -> None:
    """Nothing else of root is there.

    Paths, variables and the folder it runs in lead into the copy, and the record names the kind.
    """
    bench.write("data/order.txt", "7")
    bench.write("out/old.txt", "old")
    bench.write("private.txt", "not bound")
    bench.write("tool.sh", "echo from-tool")
    script = f"""\
ls -A > out/listed
sh tool.sh > out/tool
cat {bench.folder}/data/order.txt "$WAKEFUL_BINDING_ORDER" data/order.txt > out/read
pwd > out/where
rm out/old.txt
echo 8 > data/order.txt"""
    bench.declare("copy", script)
    bench.start()
    bench.settle()
    finished = bench.finished()
    assert (finished["outcome"], finished["assumed"], finished["workspace"]) == ("succeeded", False, "copy"), bench.ask(
        "output", "maker"
    )
    assert bench.lines("out/listed") == ["data", "out", "tool.sh"]
    assert (bench.read("out/tool"), bench.read("out/read")) == ("from-tool\n", "777")
    assert bench.read("out/where").startswith(f"{bench.state}/staged/")
    assert not (bench.folder / "out/old.txt").exists()
    # Changes of its inputs stay behind, and the record names them.
    assert bench.read("data/order.txt") == "7" and finished["undeclared"] == ["data/order.txt"]
    eventually(bench.is_swept)
    shown = " ".join(bench.ask("show", "maker").split())
    assert "standard; in a workspace of its own (copy)" in shown
    assert json.loads(bench.ask("show", "maker", "--json"))["confinement"]["workspace"] == "copy"


def test_a_worktree_is_the_commit_with_what_is_bound_as_it_is_now(bench: Bench) -> None:
    """Committed files are there, and bound ones as they are on disk.

    git works in it, and the user's repository is not touched.
    """
    bench.write(".gitignore", "state/\nsessions.d/\nruntime/\nwakeful.yaml\nw.sock\ndaemon.out\nhome/\n")
    commit = bench.commit(
        **{
            ".gitignore": bench.read(".gitignore"),
            "lib/rules.txt": "rules",
            "data/order.txt": "committed",
            "out/gone.txt": "x",
        }
    )
    bench.write("data/order.txt", "edited")
    bench.write("lib/rules.txt", "edited too, and not bound")
    (bench.folder / "out/gone.txt").unlink()
    bench.write("out/extra.txt", "new")
    before = _list_tree(bench.folder / ".git")
    script = """\
cat data/order.txt lib/* > out/read
ls out > out/listed
git rev-parse HEAD > out/head
git log --oneline | wc -l > out/count
git status --porcelain > out/status
git -c user.name=B -c user.email=b@example.org commit -qam own
git bundle create -q out/own.bundle HEAD~1..HEAD
touch elsewhere.txt"""
    bench.declare("worktree", script)
    bench.start()
    bench.settle()
    finished = bench.finished()
    assert finished["outcome"] == "succeeded", bench.ask("output", "maker")
    assert (bench.read("out/read"), bench.read("out/head").strip(), bench.read("out/count").strip()) == (
        "editedrules",
        commit,
        "1",
    )
    assert bench.lines("out/listed") == ["extra.txt", "listed", "read"]
    assert " M data/order.txt" in bench.lines("out/status")
    assert finished["workspace"] == f"worktree of {commit[:12]}"
    [said, *rest] = finished["undeclared"]
    assert said.startswith("commits up to ") and rest == ["elsewhere.txt"]
    assert _list_tree(bench.folder / ".git") == before
    assert bench.read("lib/rules.txt") == "edited too, and not bound"
    eventually(bench.is_swept)
    # Its commits can be handed over as an output.
    bench.git("fetch", "-q", str(bench.folder / "out/own.bundle"), "HEAD")
    assert bench.git("log", "--format=%s %P", "-1", "FETCH_HEAD").strip() == f"own {commit}"
    assert f"in a workspace of its own (worktree of {commit[:12]})" in bench.words("why", "maker#1")


def _list_tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the mtime and size of every file.

    A lock that came and went shows in the mtime of its folder. A run's own `git commit` may renew the mtimes of
    objects, so these are left out.
    """
    found = {str(path): path.lstat() for path in (folder, *sorted(folder.rglob("*")))}
    return {
        path: (0 if "/objects/" in path and not os.path.isdir(path) else one.st_mtime_ns, one.st_size)
        for path, one in found.items()
    }


@pytest.mark.long
def test_a_root_inside_of_a_repository_keeps_its_place_in_the_worktree(bench: Bench) -> None:
    """The run begins in the same folder of the checkout. The files above it are there as well."""
    bench.commit(**{"top.txt": "top", "app/data/order.txt": "1"})
    bench.declare(
        "worktree", "cat ../top.txt data/order.txt > out/read\ncat ../top.txt > ../changed.txt", more="root: app"
    )
    bench.start()
    bench.settle()
    assert bench.finished()["outcome"] == "succeeded", bench.ask("output", "maker")
    assert bench.read("app/out/read") == "top1" and bench.finished()["undeclared"] == ["../changed.txt"]
    assert not (bench.folder / "changed.txt").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["copy", "worktree"])
def test_nobody_sees_anything_while_it_runs(bench: Bench, kind: str) -> None:
    """Half-written outputs wake no reader. The workspace is never watched, even if root is read by `**`."""
    bench.commit(README="x")
    bench.write("data/order.txt", "1")
    bench.declare(kind, f"echo half > out/a.txt\n{HELD}\necho whole > out/a.txt")
    bench.spec(
        "reader",
        'objective: x\nbindings: {all: {file: "**/*.txt"}, l: {file: seen/ledger, access: write}}\nrun: {script: cat out/a.txt >> seen/ledger, retries: 0}\n',
    )
    bench.start()
    go = bench.hold()
    assert not (bench.folder / "out/a.txt").exists()
    assert bench.row("reader")["runs"] == 0
    go.touch()
    bench.settle()
    bench.wait_at_rest("reader", runs=1)
    assert bench.lines("seen/ledger") == ["whole"]


@pytest.mark.long
def test_a_run_that_takes_too_long_lands_nothing(bench: Bench) -> None:
    """A run that timed out has failed: its outputs go with its workspace."""
    bench.write("data/order.txt", "1")
    bench.declare("copy", "echo half > out/a.txt\nsleep 60")
    text = (bench.specs / "maker.yaml").read_text()
    (bench.specs / "maker.yaml").write_text(text + "  timeout: 1s\n")
    bench.start()
    bench.settle()
    assert bench.finished()["outcome"] == "failed" and not (bench.folder / "out/a.txt").exists()
    eventually(bench.is_swept)


@pytest.mark.long
def test_without_a_repository_a_worktree_fails_with_words(bench: Bench) -> None:
    """The message says what the worktree needs, and what else there is."""
    bench.write("data/order.txt", "1")
    bench.declare("worktree", "true")
    bench.start()
    bench.settle()
    assert "workspace: copy" in bench.finished()["reason"] and bench.finished()["outcome"] == "failed"
    assert "needs a git repository" in bench.ask("check")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["copy", "worktree"])
def test_outputs_keep_their_rights_when_they_are_replaced(bench: Bench, kind: str) -> None:
    """Landing opens no file to others that only its owner may read."""
    bench.commit(**{"data/order.txt": "1", "out/secret.txt": "old", "out/run.sh": "old"})
    (bench.folder / "out/secret.txt").chmod(0o600)
    (bench.folder / "out/run.sh").chmod(0o700)
    bench.declare(kind, "echo new > out/secret.txt\necho new > out/run.sh")
    bench.start()
    bench.settle()
    modes = {name: (bench.folder / "out" / name).stat().st_mode & 0o777 for name in ("secret.txt", "run.sh")}
    assert modes == {"secret.txt": 0o600, "run.sh": 0o700} and bench.read("out/secret.txt") == "new\n"


@pytest.mark.long
@pytest.mark.parametrize("level", ["standard", STRICT, "none"])
def test_what_is_allowed_or_installed_inside_root_is_found_under_its_name(bench: Bench, level: str) -> None:
    """It is read where it is, without a copy, at every level of isolation."""
    bench.write("wakeful.yaml", "allow_unisolated: true\n")
    bench.write("data/order.txt", "1")
    bench.write("lib/rules.txt", "rules")
    subprocess.run(["python3", "-m", "venv", "--without-pip", str(bench.folder / ".venv")], check=True)
    bench.declare(
        "copy",
        "cat lib/rules.txt > out/read\n.venv/bin/python -c 'import sys; print(sys.prefix)' > out/prefix",
        more=f"allow: {{read: [lib]}}\nisolation: {level}",
    )
    bench.start()
    bench.settle()
    assert bench.finished()["outcome"] == "succeeded", bench.ask("output", "maker")
    assert bench.read("out/read") == "rules" and bench.read("out/prefix").strip().endswith("/tree/.venv")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["copy", "worktree"])
def test_a_fork_of_it_lands_in_the_workspace_of_the_fork(bench: Bench, kind: str) -> None:
    """They land in the fork's root, in the state folder. The parent's outputs stay as they are until a merge."""
    bench.commit(**{"data/order.txt": "1"})
    bench.declare(kind, "echo $WAKEFUL_SESSION > out/who")
    bench.start()
    bench.settle()
    bench.ask("fork", "maker", "--as", "trial", "--workspace")
    bench.ask("activate", "trial", "--wait")
    workspace = Path(json.loads(bench.ask("show", "trial", "--json"))["workspace"])
    assert ((workspace / "out/who").read_text(), bench.read("out/who")) == ("trial\n", "maker\n"), bench.ask(
        "show", "trial"
    )
    bench.ask("merge", "maker", "trial")
    assert bench.read("out/who") == "trial\n"


@pytest.mark.long
@pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}")
def test_a_strict_run_may_have_a_workspace_too(bench: Bench) -> None:
    """The run has a view of its own, with the workspace in the place of root."""
    bench.commit(**{"data/order.txt": "1", "lib/rules.txt": "rules"})
    bench.declare(
        "worktree",
        "cat lib/rules.txt data/order.txt > out/read\ngit log --oneline | wc -l > out/count\nls $HOME > out/home || true",
        more="isolation: strict",
    )
    bench.start()
    bench.settle()
    finished = bench.finished()
    assert finished["outcome"] == "succeeded", bench.ask("output", "maker")
    assert (finished["isolation"]["level"], bench.read("out/read"), bench.read("out/count").strip()) == (
        "strict",
        "rules1",
        "1",
    )


@pytest.mark.long
def test_a_stop_while_the_workspace_is_being_made_starts_nothing(bench: Bench) -> None:
    """To fill a workspace takes a while. After a cancel meanwhile, the run has never begun."""
    bench.write("data/order.txt", "1")
    for number in range(3000):
        bench.write(f"out/{number % 50}/{number}", "x" * 200)
    bench.declare("copy", "echo ran > $WAKEFUL_SCRATCH/ran")
    bench.start(is_ready=False)
    eventually(lambda: list((bench.state / "staged").glob("*/tree")))
    bench.ask("cancel", "maker")
    bench.settle()
    assert bench.finished()["outcome"] == "cancelled" and not list((bench.state / "scratch").glob("*/ran"))
    eventually(bench.is_swept)


@pytest.mark.long
def test_a_daemon_that_is_stopped_while_a_workspace_is_being_made_begins_nothing_and_the_next_one_does(
    bench: Bench,
) -> None:
    """The run is recorded as interrupted, its half of a workspace is removed, and it is owed again."""
    bench.write("data/order.txt", "1")
    bench.write("wakeful.yaml", "stop_grace: 0s\n")
    for number in range(3000):
        bench.write(f"out/{number % 50}/{number}", "x" * 200)
    bench.declare("copy", "echo ran >> $WAKEFUL_SCRATCH/ran")
    bench.start(is_ready=False)
    eventually(lambda: list((bench.state / "staged").glob("*/tree")))
    assert bench.stop() == 0 and not list((bench.state / "scratch").glob("*/ran"))
    bench.start()
    row = eventually(
        lambda: (row := bench.row("maker"))["last_run"] and row["last_run"]["outcome"] == "succeeded" and row
    )
    assert row["runs"] == 2 and [path.read_text() for path in (bench.state / "scratch").glob("*/ran")] == ["ran\n"]
    eventually(bench.is_swept)


@pytest.mark.long
def test_too_much_is_refused_with_figures(bench: Bench) -> None:
    """A sparse file of three gigabytes is not copied for every run."""
    bench.write("data/order.txt", "1")
    with (bench.write("out/huge", "")).open("wb") as file:
        file.truncate(3 << 30)
    bench.declare("copy", "true")
    bench.start()
    bench.wait_at_rest("maker", runs=1)
    assert "more than 50000 files or 2147483648 bytes" in bench.finished()["reason"]
    eventually(bench.is_swept)

"""Staged outputs with a real daemon: `isolation: strict`, `workspace: copy` and `workspace: worktree`.

They land all together after success, or not at all, whatever is killed (rule 27).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import Box
from wait_conditions import eventually
from wakeful.runners.isolation.bubblewrap import find_obstacle

OBSTACLE = find_obstacle()
# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long
STRICT = pytest.param(
    "strict",
    marks=pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}"),
)
# For each way, the lines of the spec about its isolation and about its run.
WAYS = {"strict": ("isolation: strict", ""), "copy": ("", "workspace: copy"), "worktree": ("", "workspace: worktree")}

SESSION = """
objective: Make a report.
{isolation}
bindings:
  order:  {{file: order.txt}}
  report: {{file: out/report.txt, access: write}}
  pages:  {{file: "site/**/*.html", access: write}}
run:
  script: |
    {script}
  retries: 0
  grace: 1s
  {workspace}
"""


class StagedBox(Box):
    """A box whose runs reach what they declare, and nothing else."""

    def __init__(self, folder: Path, way: str) -> None:
        super().__init__(folder)
        self.way = way
        if way == "worktree":
            self.commit()

    def reach(self) -> str:
        return ""

    def commit(self) -> None:
        """Make a repository with one file that no binding means, and without the files of the bindings."""
        self.write("README", "committed")
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(self.folder)]
        for words in (["init", "-q"], ["add", "README"], ["commit", "-qm", "one"]):
            subprocess.run([*git, *words], check=True)

    def fill(self, text: str, **values: str) -> str:
        isolation, workspace = WAYS[self.way]
        return text.format(isolation=isolation, workspace=workspace, **values)

    def declare(self, script: str, name: str = "maker") -> None:
        self.spec(name, self.fill(SESSION, script=script.replace("\n", "\n    ")))

    def settle(self, name: str = "maker", *, runs: int) -> dict[str, Any]:
        return self.wait_at_rest(name, runs=runs)

    def finished(self, name: str = "maker") -> dict[str, Any]:
        return [record["payload"] for record in self.log(name) if record["kind"] == "run_finished"][-1]

    def kinds(self, name: str = "maker") -> list[str]:
        return [record["kind"] for record in self.log(name)]


@pytest.fixture(params=[STRICT, "copy", "worktree"])
def staged(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StagedBox]:
    box = StagedBox(tmp_path, request.param)
    yield box
    box.close()


def test_outputs_land_after_success_and_the_record_says_how(staged: StagedBox) -> None:
    """Files are new, changed and removed.

    The log has staged, landed and finished, and the written versions are not assumed.
    """
    staged.write("order.txt", "1")
    staged.write("out/report.txt", "old")
    staged.write("site/gone.html", "gone")
    staged.write("site/deep/same.html", "same")
    staged.declare(
        "cat out/report.txt > site/was.html\necho new > out/report.txt\nrm site/gone.html\ncat site/deep/same.html"
    )
    staged.start()
    staged.settle(runs=1)
    assert (staged.read("out/report.txt"), staged.read("site/was.html")) == ("new\n", "old")
    assert not (staged.folder / "site/gone.html").exists() and staged.read("site/deep/same.html") == "same"
    kinds = staged.kinds()
    assert [kind for kind in kinds if kind in ("run_started", "outputs_staged", "outputs_landed", "run_finished")] == [
        "run_started", "outputs_staged", "outputs_landed", "run_finished",
    ]  # fmt: skip
    finished = staged.finished()
    assert (
        finished["outcome"] == "succeeded"
        and finished["assumed"] is False
        and finished["isolation"]["level"] == ("strict" if staged.way == "strict" else "standard")
    )
    assert set(finished["written"]) == {"report", "pages"}
    eventually(lambda: not list((staged.state / "staged").iterdir()))


def test_a_failed_run_lands_nothing(staged: StagedBox) -> None:
    """The outputs stay as they were: half of the work does not land."""
    staged.write("order.txt", "1")
    staged.write("out/report.txt", "old")
    staged.declare("echo half > out/report.txt\nexit 3")
    staged.start()
    staged.settle(runs=1)
    assert staged.read("out/report.txt") == "old"
    assert "outputs_staged" not in staged.kinds() and staged.finished()["assumed"] is False
    eventually(lambda: not list((staged.state / "staged").iterdir()))


@pytest.mark.parametrize("verb", ["cancel", "interrupt"])
def test_a_stopped_run_lands_nothing(staged: StagedBox, verb: str) -> None:
    """This holds for a run that ends in good order when it is told to, too."""
    staged.write("order.txt", "1")
    staged.declare(
        "trap 'exit 0' INT TERM\necho half > out/report.txt\ntouch $WAKEFUL_SCRATCH/begun\nwhile true; do sleep 0.05; done"
    )
    staged.start()
    eventually(lambda: list((staged.state / "scratch").glob("*/begun")))
    staged.ask(verb, "maker")
    staged.settle(runs=1)
    # The program had its grace. bubblewrap waits for it, and was not signalled.
    assert staged.finished()["exit_code"] == 0
    assert not (staged.folder / "out/report.txt").exists() and "outputs_staged" not in staged.kinds()


def test_what_a_person_changed_meanwhile_stays_and_so_does_the_runs_own(staged: StagedBox) -> None:
    """A conflict keeps both files and is told with the run. `show` says where the run's own one is."""
    staged.write("order.txt", "1")
    staged.write("out/report.txt", "old")
    staged.declare(
        "echo ours > out/report.txt\necho page > site/a.html\ntouch $WAKEFUL_SCRATCH/begun\nwhile [ ! -e $WAKEFUL_SCRATCH/go ]; do sleep 0.05; done"
    )
    staged.start()
    [begun] = eventually(lambda: list((staged.state / "scratch").glob("*/begun")))
    staged.save("out/report.txt", "theirs")
    begun.with_name("go").touch()
    staged.settle(runs=1)
    assert (staged.read("out/report.txt"), staged.read("site/a.html")) == ("theirs", "page\n")
    finished = staged.finished()
    assert finished["outcome"] == "succeeded" and finished["reason"].startswith("conflict: out/report.txt")
    [landed] = [record["payload"] for record in staged.log("maker") if record["kind"] == "outputs_landed"]
    [kept] = landed["kept"]
    assert kept["path"] == "out/report.txt" and Path(kept["kept"]).read_text() == "ours\n"
    assert kept["kept"] in staged.ask("show", "maker").replace("\n", "").replace(" ", "")
    # The session has seen the file as it was at the start of the run, so the other's change is shown as drift.
    assert "report" not in finished["written"] and "pages" in finished["written"]


FAULT = """
import os, signal
from wakeful.core.deciding import run_end
from wakeful.runners.outputs import landing

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

whole, put, end = landing.put_in_place, landing.put_output, run_end.finish_run
count = 0

def put_some(*arguments):
    global count
    count += 1
    if count > {most}:
        die()
    return put(*arguments)

def land_and_die(*arguments):
    whole(*arguments)
    die()

def end_unless_landed(core, decision, session, ended):
    if session.run.landed is not None:
        die()
    end(core, decision, session, ended)

match "{step}":
    case "staged":
        landing.put_in_place = die
    case "landing":
        landing.put_output = put_some
    case "in place":
        landing.put_in_place = land_and_die
    case "landed":
        run_end.finish_run = end_unless_landed
"""


@pytest.mark.parametrize(
    ("step", "most"), [("staged", 0), ("landing", 1), ("landing", 2), ("in place", 0), ("landed", 0)]
)
def test_a_landing_that_was_cut_short_is_finished_by_the_next_daemon(staged: StagedBox, step: str, most: int) -> None:
    """kill -9 after any step: everything lands once, the run has succeeded, and nothing runs a second time."""
    staged.write("order.txt", "1")
    staged.write("out/report.txt", "old")
    staged.write("site/gone.html", "gone")
    staged.declare(
        "echo run >> $WAKEFUL_SCRATCH/runs\necho new > out/report.txt\necho page > site/a.html\nrm site/gone.html"
    )
    staged.write("faults/sitecustomize.py", FAULT.format(step=step, most=most))
    staged.start(is_ready=False, env={"PYTHONPATH": str(staged.folder / "faults")})
    assert staged.daemon is not None and staged.daemon.wait(60) == -9, "the fault did not fire"
    staged.daemon = None
    landed = [
        staged.read("out/report.txt") == "new\n",
        staged.read("site/a.html") == "page\n",
        not (staged.folder / "site/gone.html").exists(),
    ]
    assert sum(landed) == (most if step == "landing" else 0 if step == "staged" else 3)
    staged.start()
    staged.settle(runs=1)
    assert (staged.read("out/report.txt"), staged.read("site/a.html")) == ("new\n", "page\n")
    assert not (staged.folder / "site/gone.html").exists()
    finished = staged.finished()
    assert (finished["outcome"], finished["exit_code"], finished["assumed"]) == ("succeeded", 0, False)
    assert set(finished["written"]) == {"report", "pages"}
    kinds = staged.kinds()
    assert kinds.count("run_started") == kinds.count("outputs_staged") == kinds.count("outputs_landed") == 1
    [ledger] = (staged.state / "scratch").glob("*/runs")
    assert ledger.read_text() == "run\n"
    eventually(lambda: not list((staged.state / "staged").iterdir()))


def test_what_a_killed_daemon_left_of_an_unfinished_run_is_swept(staged: StagedBox) -> None:
    """The run was lost: its area is removed, and it is tried again."""
    staged.write("order.txt", "1")
    staged.declare(
        "echo new > out/report.txt\ntouch $WAKEFUL_SCRATCH/begun\nwhile [ ! -e $WAKEFUL_SCRATCH/go ]; do sleep 0.05; done"
    )
    staged.start()
    [begun] = eventually(lambda: list((staged.state / "scratch").glob("*/begun")))
    staged.kill()
    assert list((staged.state / "staged").iterdir()) and not (staged.folder / "out/report.txt").exists()
    begun.with_name("go").touch()
    staged.start()
    staged.settle(runs=2)
    assert staged.read("out/report.txt") == "new\n"
    eventually(lambda: not list((staged.state / "staged").iterdir()))


def test_a_reader_wakes_by_what_landed_and_sees_all_of_it(staged: StagedBox) -> None:
    """Two outputs of one run are there together when the next session starts."""
    staged.write("order.txt", "1")
    staged.declare("cp order.txt out/report.txt\ncp order.txt site/a.html")
    staged.spec(
        "reader",
        """
        objective: Read both.
        bindings:
          report: {file: out/report.txt}
          page:   {file: site/a.html}
          ledger: {file: seen/ledger.txt, access: write}
        run: {script: "cat out/report.txt site/a.html >> seen/ledger.txt; echo >> seen/ledger.txt", retries: 0}
        """,
    )
    staged.start()
    staged.settle("reader", runs=1)
    staged.save("order.txt", "2")
    staged.settle("reader", runs=2)
    assert staged.lines("seen/ledger.txt") == ["11", "22"]


@pytest.mark.parametrize("staged", ["strict"], indirect=True)
def test_without_bubblewrap_a_strict_session_sleeps_and_says_what_mends_it(staged: StagedBox) -> None:
    """Isolation is never weakened in silence: even an activation does not start the run."""
    staged.write("order.txt", "1")
    staged.declare("echo new > out/report.txt")
    empty = staged.folder / "bin"
    empty.mkdir()
    staged.start(env={"PATH": str(empty)})
    row = staged.row("maker")
    assert row["state"] == "sleeping" and "sudo apt install bubblewrap" in row["reason"]
    staged.ask("activate", "maker")
    assert staged.row("maker")["runs"] == 0


def test_other_files_in_a_folder_of_outputs_are_reported_and_do_not_land(staged: StagedBox) -> None:
    """Files that were not declared stay behind, and the record names them."""
    staged.write("order.txt", "1")
    staged.declare("echo new > out/report.txt\necho more > out/more.txt")
    staged.start()
    staged.settle(runs=1)
    assert not (staged.folder / "out/more.txt").exists()
    assert staged.finished()["undeclared"] == ["out/more.txt"]


def test_what_lands_is_no_undeclared_change_of_a_run_beside_it(staged: StagedBox) -> None:
    """Its outputs land in a folder that another session's run watches at that moment."""
    staged.write("order.txt", "1")
    staged.declare("echo new > out/report.txt")
    waits = "until [ -e out/report.txt ]; do sleep 0.05; done; echo 1 > out/beside.txt"
    bindings = "bindings: {o: {file: order.txt}, b: {file: out/beside.txt, access: write}}"
    staged.spec(
        "beside", f"objective: Wait for the report.\nisolation: standard\n{bindings}\nrun: {{script: '{waits}'}}\n"
    )
    staged.start()
    staged.settle(runs=1)
    staged.settle("beside", runs=1)
    assert (staged.finished("beside")["outcome"], staged.finished("beside")["undeclared"]) == ("succeeded", [])


BOTH = """
objective: Keep a list in order.
{isolation}
bindings:
  list: {{file: list.txt, access: both}}
run:
  script: |
    {script}
  retries: 0
  {workspace}
"""


def test_what_is_read_and_written_wakes_by_the_hands_of_others_alone(staged: StagedBox) -> None:
    """`access: both`: a run's own version is no news to its session (rule 7)."""
    staged.write("list.txt", "b\na\n")
    staged.spec("keeper", staged.fill(BOTH, script="sort -o list.txt list.txt"))
    staged.start()
    staged.settle("keeper", runs=1)
    assert staged.read("list.txt") == "a\nb\n"
    staged.save("list.txt", "c\na\nb\n")
    staged.settle("keeper", runs=2)
    assert staged.read("list.txt") == "a\nb\nc\n"
    # Nothing more follows, even if a new daemon looks at the file for the first time.
    staged.stop()
    staged.start()
    assert staged.settle("keeper", runs=2)["runs"] == 2


def test_an_edit_during_the_run_wakes_it_again_as_a_conflict(staged: StagedBox) -> None:
    """The other's file stands, the run's own is kept, and the next run starts from the other's."""
    staged.write("list.txt", "b\na\n")
    staged.spec(
        "keeper",
        staged.fill(
            BOTH,
            script="sort -o list.txt list.txt\n    touch $WAKEFUL_SCRATCH/begun\n    while [ ! -e $WAKEFUL_SCRATCH/go ]; do sleep 0.05; done",
        ),
    )
    staged.start()
    [begun] = eventually(lambda: list((staged.state / "scratch").glob("*/begun")))
    staged.save("list.txt", "z\nb\na\n")
    begun.with_name("go").touch()
    staged.settle("keeper", runs=2)
    assert staged.read("list.txt") == "a\nb\nz\n"
    started = [record["payload"] for record in staged.log("keeper") if record["kind"] == "run_started"]
    assert [cause["reason"] for cause in started[1]["causes"]] == ["conflict"]
    [landed, _] = [record["payload"] for record in staged.log("keeper") if record["kind"] == "outputs_landed"]
    assert Path(landed["kept"][0]["kept"]).read_text() == "a\nb\n"

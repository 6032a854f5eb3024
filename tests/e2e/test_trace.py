"""`wakeful trace` and `isolation: observe` with a real daemon: its lines, pasted into the spec, make the run work."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import SETTINGS, WAKEFUL, Box
from wait_conditions import eventually
from wakeful.cli.client import Client
from wakeful.runners.isolation.bubblewrap import find_obstacle as find_strict_obstacle
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.trace import find_obstacle

OBSTACLE = find_obstacle() if probe_abi() else "this kernel has no Landlock"
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be traced here: {OBSTACLE}")
STRICT = find_strict_obstacle()

SESSION = """
objective: Make a report.
isolation: {level}
bindings:
  figures: {{file: figures.txt}}
  report:  {{file: out/report.txt, access: write}}
run:
  command: [sh, make.sh]
  retries: 0
"""
# The program reads a part beside it and a file elsewhere, and writes a log. None of them is declared.
MAKE = """
set -eu
. ./parts/head
cat figures.txt > out/report.txt
cat '{elsewhere}/shared name' >> out/report.txt
echo made >> logs/made
"""


class TraceBox(Box):
    """A box whose runs reach what they declare, and nothing else.

    The folder elsewhere is no temporary folder of a run.
    """

    def reach(self) -> str:
        return ""

    def plant(self, level: str = "standard") -> Path:
        elsewhere = self.folder.parent / f"{self.folder.name}-elsewhere"
        elsewhere.mkdir()
        (elsewhere / "shared name").write_text("shared\n")
        self.write("figures.txt", "1\n")
        self.write("parts/head", "PART=1\n")
        self.write("logs/made", "")
        self.write("make.sh", MAKE.format(elsewhere=elsewhere))
        self.spec("report", SESSION.format(level=level))
        return elsewhere

    def trace(self, *options: str) -> tuple[int, dict[str, Any]]:
        done = self.run("trace", "report", "--json", *options)
        assert done.returncode in (0, 1) and done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def paste(self, lines: list[str]) -> None:
        """Paste the lines as a person does: bindings to the other bindings, the rest below."""
        text = (self.specs / "report.yaml").read_text()
        blocks = "\n".join(lines).replace("bindings:\n", "") if lines[0] == "bindings:" else "\n" + "\n".join(lines)
        own, _, rest = blocks.partition("\nallow:")
        with_bindings = text.replace("bindings:\n", f"bindings:\n{own}\n") if lines[0] == "bindings:" else text + own
        self.save("sessions.d/report.yaml", with_bindings + (f"allow:{rest}\n" if rest else ""))

    def shown(self) -> dict[str, Any]:
        return Client(str(self.socket)).get("/sessions/report")

    def finished(self) -> dict[str, Any]:
        return [record["payload"] for record in self.log("report") if record["kind"] == "run_finished"][-1]


@pytest.fixture
def tracing(tmp_path: Path) -> Iterator[TraceBox]:
    box = TraceBox(tmp_path)
    yield box
    box.close()


def test_a_denied_run_says_what_to_paste_and_so_does_a_trace(tracing: TraceBox) -> None:
    """The run is traced and the lines are pasted, again and again until it works.

    Each trace gets as far as the run came. The log names the person who asked.
    """
    tracing.plant()
    tracing.start()
    tracing.wait_for("report", state="sleeping")
    # The program itself printed what it was denied.
    assert (
        f"denied reading {tracing.folder}/parts/head; to allow it: bindings: {{head: {{file: parts/head}}}}"
        in tracing.words("show", "report")
    )
    for denied in ("parts/head", "shared name", "logs/made"):
        code, report = tracing.trace()
        assert (code, report["outcome"], report["observed"]) == (1, "failed", False)
        assert [Path(one["what"]).name for one in report["denied"]] == [Path(denied).name]
        tracing.paste(report["lines"])
        assert tracing.run("check").returncode == 0, tracing.run("check").stdout
        # A new allowance does not wake a session. A new binding does.
        if report["paste"]["allow"] is None:
            tracing.wait_at_rest("report", runs=report["run"] + 1)
        else:
            eventually(lambda: any("shared name" in path for path in tracing.shown()["confinement"]["allow"]["read"]))
    assert tracing.finished()["outcome"] == "succeeded" and tracing.read("logs/made") == "made\n"
    code, report = tracing.trace()
    assert (code, report["denied"], report["lines"]) == (0, [], [])
    assert "nothing was denied" in tracing.run("trace", "report", "--run", str(report["run"])).stdout
    records = [record for record in tracing.log("report") if record["kind"] == "activation_requested"]
    assert len(records) == 4 and all(record["author"].startswith("person:") for record in records)


@pytest.mark.long
def test_observed_one_trace_says_it_all(tracing: TraceBox) -> None:
    """If the operator allows it, the run goes to its end.

    The pasted lines are enough when nothing is observed any more.
    """
    elsewhere = tracing.plant()
    tracing.start()
    tracing.wait_for("report", state="sleeping")
    refused = tracing.run("trace", "report", "--observe")
    assert refused.returncode == 1 and "allow_unisolated: true" in refused.stderr
    tracing.write(SETTINGS, "allow_unisolated: true\n")
    eventually(lambda: Client(str(tracing.socket)).get("/doctor")["isolation"]["allow_unisolated"])
    code, report = tracing.trace("--observe")
    assert (code, report["observed"]) == (0, True)
    root = tracing.folder
    assert {(one["access"], one["what"]) for one in report["denied"]} == {
        ("read", f"{root}/parts/head"), ("read", f"{elsewhere}/shared name"), ("write", f"{root}/logs/made"),
    }  # fmt: skip
    tracing.write(SETTINGS, "")
    runs = tracing.row("report")["runs"]
    tracing.paste(report["lines"])
    tracing.wait_at_rest("report", runs=runs + 1)
    assert tracing.finished()["outcome"] == "succeeded" and tracing.finished()["isolation"]["level"] == "standard"


@pytest.mark.long
@pytest.mark.skipif(STRICT is not None, reason=f"nothing can be isolated strictly here: {STRICT}")
def test_a_strict_run_is_traced_in_its_view(tracing: TraceBox) -> None:
    """The trace names what the run does not see. What it staged before it failed does not land."""
    tracing.plant(level="strict")
    tracing.start()
    tracing.wait_for("report", state="sleeping")
    _, report = tracing.trace()
    assert [one["what"] for one in report["denied"]] == [f"{tracing.folder}/parts/head"]
    assert report["lines"] == ["bindings:", "  head: {file: parts/head}"] and not tracing.read("out/report.txt")


@pytest.mark.parametrize(
    "level",
    [
        "standard",
        pytest.param(
            "strict",
            marks=[pytest.mark.long, pytest.mark.skipif(STRICT is not None, reason=f"no strict runs here: {STRICT}")],
        ),
    ],
)
def test_in_a_workspace_a_trace_names_what_was_left_out_of_it_by_its_real_place(tracing: TraceBox, level: str) -> None:
    """Nothing denies such a file: it is not there.

    The run is traced and the lines are pasted until it works. No record has a path of the workspace.
    """
    elsewhere = tracing.plant(level=level)
    text = (tracing.specs / "report.yaml").read_text()
    tracing.save("sessions.d/report.yaml", f"{text}  workspace: copy\n")
    tracing.start()
    tracing.wait_for("report", state="sleeping")
    root = tracing.folder
    for access, denied in (
        ("read", f"{root}/parts/head"),
        ("read", f"{elsewhere}/shared name"),
        ("write", f"{root}/logs/made"),
    ):
        code, report = tracing.trace()
        assert (code, [(one["access"], one["what"], one["place"]) for one in report["denied"]]) == (
            1,
            [(access, denied, denied)],
        )
        assert "staged" not in json.dumps(report) and "staged" not in json.dumps(tracing.finished()["trace"])
        tracing.paste(report["lines"])
        if report["paste"]["allow"] is None:
            tracing.wait_at_rest("report", runs=report["run"] + 1)
        else:
            eventually(lambda: any("shared name" in path for path in tracing.shown()["confinement"]["allow"]["read"]))
    assert tracing.finished()["outcome"] == "succeeded", tracing.run("output", "report").stdout
    assert (tracing.read("out/report.txt"), tracing.read("logs/made")) == ("1\nshared\n", "made\n")
    code, report = tracing.trace()
    assert (code, report["denied"]) == (0, [])


@pytest.mark.long
def test_what_observes_in_a_workspace_names_real_places(tracing: TraceBox) -> None:
    """It names what `standard` would deny, and what was left out of the workspace. Files of its own are not named."""
    elsewhere = tracing.plant(level="observe")
    tracing.write(SETTINGS, "allow_unisolated: true\n")
    tracing.write(
        "make.sh",
        f"cat '{elsewhere}/shared name' parts/head; rm figures.txt; cat figures.txt; echo x > beside; cat beside > out/report.txt",
    )
    text = (tracing.specs / "report.yaml").read_text()
    tracing.save("sessions.d/report.yaml", f"{text}  workspace: copy\n")
    tracing.start()
    tracing.wait_at_rest("report", runs=1)
    finished = tracing.finished()
    assert finished["outcome"] == "succeeded" and finished["trace"]["is_observed"]
    assert {(one["access"], one["what"]) for one in finished["trace"]["denied"]} == {
        ("read", f"{elsewhere}/shared name"),
        ("read", f"{tracing.folder}/parts/head"),
    }
    assert (
        tracing.read("figures.txt") == "1\n"
        and tracing.read("out/report.txt") == "x\n"
        and not (tracing.folder / "beside").exists()
    )


@pytest.mark.long
def test_what_observes_denies_nothing_and_records_each_time(tracing: TraceBox) -> None:
    """It needs the operator's leave. The list shows it as not isolated, and its record has what it asked for."""
    tracing.plant(level="observe")
    tracing.start()
    tracing.wait_for("report", state="sleeping")
    assert "isolation: observe is not allowed here" in tracing.row("report")["reason"]
    tracing.write(SETTINGS, "allow_unisolated: true\n")
    tracing.wait_at_rest("report", runs=1)
    finished = tracing.finished()
    assert (finished["outcome"], finished["isolation"]) == (
        "succeeded",
        {"level": "observe", "unenforced": ["everything"]},
    )
    assert finished["trace"]["is_observed"] and len(finished["trace"]["denied"]) == 3
    assert "not isolated" in tracing.run("list").stdout and "observe" in tracing.run("show", "report").stdout
    assert "3 things" in " ".join(tracing.run("show", "report").stdout.split())
    _, report = tracing.trace("--run", "1")
    assert len(report["denied"]) == 3 and tracing.row("report")["runs"] == 1, "nothing ran"
    assert "would deny:" in tracing.run("trace", "report", "--run", "1").stdout


@pytest.mark.long
def test_a_place_that_is_not_there_is_made_first(tracing: TraceBox) -> None:
    """A path that does not exist is not opened.

    The trace gives the command that makes it, and then the session works.
    """
    elsewhere = tracing.plant()
    tracing.write("make.sh", f"mkdir -p '{elsewhere}/a cache/deep'; date > '{elsewhere}/a cache/deep/it'\n")
    tracing.start()
    tracing.wait_for("report", state="sleeping")
    _, report = tracing.trace()
    assert report["absent"] == [f"{elsewhere}/a cache"]
    told = tracing.run("trace", "report", "--run", str(report["run"])).stdout
    command = next(line for line in told.splitlines() if line.startswith("mkdir -p "))
    subprocess.run(["sh", "-c", command], check=True)
    tracing.paste(report["lines"])
    eventually(lambda: tracing.shown()["confinement"]["allow"]["write"])
    assert tracing.trace()[0] == 0


def test_without_strace_nothing_is_run_for_nothing(tracing: TraceBox) -> None:
    """The error names the missing program and what installs it."""
    tracing.plant()
    tools = tracing.folder / "tools"
    tools.mkdir()
    for name in ("sh", "cat"):
        (tools / name).symlink_to(f"/bin/{name}")
    tracing.start(env={"PATH": f"{Path(WAKEFUL).parent}:{tools}"})
    tracing.wait_for("report", state="sleeping")
    done = tracing.run("trace", "report")
    assert done.returncode == 1 and "sudo apt install strace" in done.stderr
    assert tracing.row("report")["runs"] == 1
    assert tracing.run("trace", "report", "--run", "1").returncode == 1, "it was not traced"

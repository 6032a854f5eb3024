"""A recorded run is run again in a copy, on what it found then.

The result is the same, or a diff. No real file is touched.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually
from wakeful.runners.isolation.bubblewrap import find_obstacle

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

PROGRAM = """\
import sys, pathlib
words = [word for path in sorted(pathlib.Path("notes").glob("*.md")) for word in path.read_text().split()]
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path(sys.argv[1]).write_text("".join(f"{word}\\n" for word in words))
print(len(words), "words")
"""


@pytest.fixture
def words(box: Box) -> Box:
    """A session with two runs on two contents. The second content is there now."""
    box.write("notes/a.md", "one\n")
    box.write("list.py", PROGRAM)
    box.spec(
        "words",
        f"""
        objective: List the words.
        bindings: {{notes: {{file: "notes/*.md", settle: 10ms}}, list: {{file: "out/**", access: write}}}}
        run: {{command: [python3, "{box.folder}/list.py", "{box.folder}/out/list.txt"], retries: 0}}
        """,
    )
    box.start()
    box.wait_at_rest("words", runs=1)
    box.write("notes/a.md", "two three\n")
    box.wait_at_rest("words", runs=2)
    return box


def replays_left(box: Box) -> list[str]:
    folder = box.state / "replays"
    return os.listdir(folder) if folder.is_dir() else []


def test_a_run_is_the_same_again_on_what_it_found_then(words: Box) -> None:
    """Inputs, outputs and program have changed since. The replay records nothing and leaves nothing behind."""
    words.write("list.py", "raise SystemExit(3)\n")
    words.wait_for("words", state="sleeping", runs=3)
    records, listed = len(words.log("words")), words.read("out/list.txt")
    for run in ("1", "2"):
        done = words.run("replay", "words", run)
        assert done.returncode == 0 and "same" in done.stdout and "1 of 1 file alike" in done.stdout, done
    report = words.json("replay", "words", "1")
    assert report["same"] and report["missing"] == [] and [file["path"] for file in report["files"]] == ["out/list.txt"]
    assert report["output"]["verdict"] == "same"
    assert len(words.log("words")) == records and words.read("out/list.txt") == listed == "two\nthree\n"
    eventually(lambda: replays_left(words) == [])


@pytest.mark.parametrize("isolation", ["standard", "strict"])
def test_a_run_whose_output_did_not_exist_misses_nothing(box: Box, isolation: str) -> None:
    if isolation == "strict" and (obstacle := find_obstacle()) is not None:
        pytest.skip(f"nothing can be isolated strictly here: {obstacle}")
    box.write("data.txt", "1\n")
    box.write("out/neighbour.txt", "here before\n")
    box.spec(
        "sum",
        f"""
        isolation: {isolation}
        bindings: {{data: {{file: data.txt}}, sum: {{file: out/sum.txt, access: write}}}}
        run: {{script: "cat data.txt > out/sum.txt"}}
        """,
    )
    box.start()
    box.wait_at_rest("sum", runs=1)
    done = box.run("replay", "sum", "1")
    assert (done.returncode, "missing" in done.stdout) == (0, False), done


def test_a_changed_program_is_tried_on_what_was_recorded(words: Box) -> None:
    """A file that only the new command names is taken as it is today.

    A difference is a diff and exit code 1. The copy can be kept.
    """
    words.write("new.py", PROGRAM.replace("{word}", "{word.upper()}"))
    done = words.run("replay", "words", "1", "--command", "python3 new.py out/list.txt", "--keep", "copy")
    assert done.returncode == 1 and "-one" in done.stdout and "+ONE" in done.stdout
    # Today's outputs and inputs are not brought along, even if the command names them.
    assert [line for line in done.stdout.splitlines() if line.startswith("today's")] == ["today's  new.py"]
    assert words.read("copy/out/list.txt") == "ONE\n" and words.read("copy/notes/a.md") == "one\n"
    assert words.read("out/list.txt") == "two\nthree\n"
    refused = words.run("replay", "words", "1", "--keep", "copy")
    assert refused.returncode == 1 and "exists already" in refused.stderr


def test_what_only_one_of_both_wrote_is_told(words: Box) -> None:
    words.write("other.py", "import pathlib; pathlib.Path('out/other.bin').write_bytes(bytes(10))\n")
    (words.folder / "out").mkdir(exist_ok=True)
    report = json.loads(words.run("replay", "words", "1", "--command", "python3 other.py", "--json").stdout)
    assert {file["path"]: file["verdict"] for file in report["files"]} == {
        "out/list.txt": "missing",
        "out/other.bin": "added",
    }
    assert not report["same"] and not (words.folder / "out/other.bin").exists()
    # A line with shell syntax is run by a shell.
    report = json.loads(
        words.run("replay", "words", "1", "--command", "cat notes/*.md | wc -l > out/count.txt", "--json").stdout
    )
    assert {file["path"]: file["verdict"] for file in report["files"]} == {
        "out/list.txt": "missing",
        "out/count.txt": "added",
    }, report


def test_what_was_not_kept_is_said_first_and_fails_unless_told_otherwise(box: Box) -> None:
    (box.folder / "data").mkdir()
    (box.folder / "data/big").write_bytes(os.urandom(9 << 20))
    box.write("data/small", "s")
    box.spec(
        "count",
        """
        objective: Count.
        bindings: {data: {file: "data/*"}, out: {file: out.txt, access: write}}
        run: {script: "cat data/small > out.txt\\n"}
        """,
    )
    box.start()
    box.wait_at_rest("count", runs=1)
    done = box.run("replay", "count", "1")
    assert (
        done.returncode == 1
        and done.stdout.startswith("missing  data/big: not kept: too large")
        and "same" in done.stdout
    )
    assert box.run("replay", "count", "1", "--partial").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("words", "9"), 1, "has no run 9; its runs are 1 to 2"),
        (("nobody", "1"), 1, "nobody"),
        (("words", "0"), 2, "0"),
        (("words", "1", "--command", "'"), 2, "--command"),
        (("words", "1", "--command", " "), 2, "has no words"),
    ],
)
def test_what_cannot_be_replayed_is_said(words: Box, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = words.run("replay", *arguments)
    assert done.returncode == code and said in done.stderr, done


def test_a_program_that_cannot_be_started_is_different_in_words(words: Box) -> None:
    done = words.run("replay", "words", "1", "--command", "no-such-program")
    assert done.returncode == 1 and "no-such-program" in done.stdout


def test_a_session_that_writes_outside_its_root_is_not_replayed(box: Box, tmp_path: Path) -> None:
    """The replay would overwrite what is there now."""
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    root = box.folder / "root"
    (root / "in").mkdir(parents=True)
    (root / "in/a").write_text("a")
    box.spec(
        "far",
        f"""
        root: {root}
        objective: Write far away.
        bindings: {{a: {{file: in/a}}, out: {{file: "{outside}/out", access: write}}}}
        run: {{script: "cp in/a '{outside}/out'\\n"}}
        """,
    )
    box.start()
    box.wait_at_rest("far", runs=1)
    (outside / "out").write_text("by a person")
    done = box.run("replay", "far", "1")
    assert (
        done.returncode == 1 and "outside of its root" in done.stderr and (outside / "out").read_text() == "by a person"
    )


def test_who_stops_listening_ends_the_replay(words: Box) -> None:
    """After Ctrl-C at the command no process of its tree is alive, and the copy is gone."""
    command = "sh -c 'sleep 1000 & echo $! > $WAKEFUL_SCRATCH/alive; wait'"

    def find_pid() -> str:
        # The pid is in the copy's own scratch folder, because a replay writes nowhere else.
        return "".join(path.read_text().strip() for path in words.state.glob("replays/*/scratch/*/alive"))

    replay = subprocess.Popen(
        [WAKEFUL, "replay", "words", "1", "--command", command], env=words.environment(), cwd=words.folder
    )
    pid = int(eventually(find_pid))
    replay.send_signal(signal.SIGINT)
    replay.wait(60)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    eventually(lambda: replays_left(words) == [])

"""The heartbeat example writes one line for each beat, compares it with the last beat, and limits its journal."""

import json
import re
from pathlib import Path

import pytest

from examples.example_folder import Tree

PROGRAM = "examples/heartbeat/beat.py"
JOURNAL = "examples/heartbeat/out/journal.md"
OUTPUTS = "examples/hr/out"


def test_a_first_beat_says_what_is_there(tree: Tree) -> None:
    """The line has the time, the free space and the outputs. It compares with no earlier beat."""
    assert re.fullmatch(
        r"- \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ · \d+\.\d GB free · no outputs yet · first beat\n", tree.succeed(PROGRAM)
    )


def test_a_beat_tells_what_changed_since_the_last(tree: Tree, tmp_path: Path) -> None:
    """A beat names new, changed and removed outputs. If nothing changed, it says so."""
    scratch = str(tmp_path)
    tree.write(f"{OUTPUTS}/payroll.csv", "a")
    tree.write(f"{OUTPUTS}/old.md", "a")
    tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch)
    assert tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch).endswith("nothing changed\n")
    tree.write(f"{OUTPUTS}/payroll.csv", "longer")
    tree.write(f"{OUTPUTS}/filing/beijing.md", "a")
    (tree.root / OUTPUTS / "old.md").unlink()
    line = tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch)
    assert line.endswith(" · new: filing/beijing.md; changed: payroll.csv; gone: old.md\n")
    assert "2 outputs, newest" in line
    assert len(tree.read(JOURNAL).splitlines()) == 2 + 3


def test_the_journal_keeps_its_newest_lines_only(tree: Tree) -> None:
    """The journal keeps 200 lines and a heading, however many beats there were."""
    tree.write(JOURNAL, "# Heartbeat\n\n" + "".join(f"- beat {number}\n" for number in range(500)))
    line = tree.succeed(PROGRAM)
    lines = tree.read(JOURNAL).splitlines()
    assert lines[:3] == ["# Heartbeat", "", "- beat 301"]
    assert (len(lines), lines[-1]) == (2 + 200, line.rstrip("\n"))


@pytest.mark.parametrize("damage", ["{", "[]", json.dumps({"free": 1})])
def test_an_unreadable_last_beat_is_told_and_replaced(tree: Tree, tmp_path: Path, damage: str) -> None:
    """The program reports an unreadable state, and only one comparison is lost."""
    (tmp_path / "beat.json").write_text(damage)
    told = tree.succeed(PROGRAM, WAKEFUL_SCRATCH=str(tmp_path))
    assert "the last beat is unreadable" in told
    assert "nothing changed" in tree.succeed(PROGRAM, WAKEFUL_SCRATCH=str(tmp_path))


def test_a_journal_that_cannot_be_written_is_told(tree: Tree) -> None:
    """A folder in place of the journal gives an error with its name, not a traceback."""
    (tree.root / JOURNAL).mkdir(parents=True)
    ended = tree.run(PROGRAM)
    assert ended.code == 1
    assert ended.stderr.startswith(JOURNAL)
    assert "Traceback" not in ended.stderr

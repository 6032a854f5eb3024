"""`rewind --files` there and back: a rewind's writes are the session's own, and a later rewind takes them back.

Readers see one step (rule 44).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.box import Box
from wait_conditions import eventually

FILES = 60
WRITER = f"""
    objective: Write many files.
    bindings: {{{{input: {{{{file: in.txt, settle: 10ms}}}}, out: {{{{file: "out/*.txt", access: write}}}}}}}}
    run: {{{{command: [sh, -c, 'mkdir -p out; n=$(cat in.txt); i=0; while [ $i -lt {FILES} ]; do echo $n > out/$i.txt; i=$((i+1)); done; rm -f out/only-*.txt; echo $n > out/only-$n.txt']}}}}
""".replace("{{", "{").replace("}}", "}")
READER = """
    objective: Tell which versions there are.
    bindings: {all: {file: "out/*.txt", settle: 10ms}}
    run: {command: [sh, -c, 'cat out/*.txt | sort -u | tr "\\n" " " >> seen; echo >> seen'], retries: 0}
"""


@pytest.fixture
def written(box: Box) -> Box:
    """A writer with three versions of all files and a checkpoint after each, and a reader that saw each version."""
    box.spec("writer", WRITER)
    box.spec("reader", READER)
    box.write("in.txt", "1\n")
    box.start()
    for number in (1, 2, 3):
        if number > 1:
            box.write("in.txt", f"{number}\n")
        box.wait_at_rest("writer", runs=number)
        box.wait_at_rest("reader", runs=number)
        box.ask("save", "writer", "--as", f"v{number}")
    assert box.lines("seen") == ["1 ", "2 ", "3 "]
    return box


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in (folder / "out").iterdir()}


def expected(number: int) -> dict[str, str]:
    return {f"{one}.txt": str(number) for one in range(FILES)} | {f"only-{number}.txt": str(number)}


def test_a_rewind_of_files_is_taken_back_by_a_rewind(written: Box) -> None:
    """It goes back, forward, further back and forward again.

    Each time the files are those of that moment, and none counts as changed by others.
    """
    box = written
    for turn, number in enumerate((1, 3, 2, 1, 2, 3), 1):
        answer = box.json("rewind", "writer", f"v{number}", "--files")
        assert {file["ending"] for file in answer["files"]} <= {"restored", "removed", "same"}, answer
        assert content(box.folder) == expected(number)
        box.wait_at_rest("reader", runs=3 + turn)
        # The rewind is one step: the reader ran once for each version, and saw no mixture of two.
        seen = box.lines("seen")
        assert seen[3:] == [f"{one} " for one in (1, 3, 2, 1, 2, 3)[:turn]]
    assert (box.row("writer")["runs"], box.row("reader")["runs"]) == (3, 9)


@pytest.mark.long
def test_what_others_changed_after_a_rewind_stays_theirs_and_the_rest_goes_forward(written: Box) -> None:
    """This holds across a restart and in a preview, too."""
    box = written
    box.ask("rewind", "writer", "v1", "--files")
    box.kill()
    box.start()
    box.write("out/7.txt", "theirs\n")
    preview = box.json("rewind", "writer", "v3", "--files", "--dry-run")["preview"]["files"]["steps"]
    assert {step["path"] for step in preview if step["action"] == "refuse"} == {"out/7.txt"}
    assert all("rewind" in step["reason"] for step in preview if step["action"] == "refuse")
    done = box.run("rewind", "writer", "v3", "--files")
    assert done.returncode == 1
    assert content(box.folder) == expected(3) | {"7.txt": "theirs"}


def hear_everything(box: Box) -> None:
    """Wait until the daemon has taken in every report of earlier writes.

    The kernel delivers them in their order, and a touch comes last.
    """

    def looked_at() -> str:
        return next(one["looked_at"] for one in box.json("show", "writer")["bindings"] if one["name"] == "out")

    before = looked_at()
    os.utime(box.folder / "out" / "0.txt")
    eventually(lambda: looked_at() > before)


def test_a_run_after_a_rewind_is_undone_with_it(written: Box) -> None:
    """Whatever happened in between, a position means the files of that moment."""
    box = written
    box.ask("rewind", "writer", "v1", "--files")
    # A run that begins before all reports are in is not sure what it found, and says so.
    hear_everything(box)
    box.write("in.txt", "4\n")
    box.wait_at_rest("writer", runs=4)
    assert content(box.folder) == expected(4)
    box.ask("rewind", "writer", "v2", "--files")
    assert content(box.folder) == expected(2)
    box.ask("rewind", "writer", "v3", "--files")
    assert content(box.folder) == expected(3)

"""The filters of `wakeful follow`, applied by the daemon.

They are session, tag, kind, author, failures, and a start in the past.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually

SPEC = """
objective: Fail where the input is bad.
tags: [{tag}]
bindings: {{input: {{file: in.txt, settle: 10ms}}}}
run: {{command: [sh, -c, 'grep -q {word} in.txt'], retries: 0}}
"""


@contextmanager
def following(box: Box, *arguments: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines that `follow --json` prints, as they come."""
    process = subprocess.Popen(
        [WAKEFUL, "follow", "--json", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=box.environment(),
        cwd=box.folder,
    )
    lines: list[dict[str, Any]] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(json.loads(line))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        process.kill()
        process.wait()
        reader.join()


@pytest.fixture
def two(box: Box) -> Box:
    """Two sessions: `hr/good` has succeeded once, `hr/bad` has failed once."""
    box.write("in.txt", "good\n")
    box.spec("hr/good", SPEC.format(tag="money", word="good"))
    box.spec("hr/bad", SPEC.format(tag="mail", word="other"))
    box.start()
    box.wait_at_rest("hr/good", runs=1)
    box.wait_for("hr/bad", state="sleeping")
    return box


def test_failures_alone_from_the_past_and_then_as_they_come(two: Box) -> None:
    """With --failed and --since, earlier failures come first. Successes never come."""
    with following(two, "--failed", "--since", "1h") as lines:
        eventually(lambda: len(lines) >= 2)
        two.write("in.txt", "good again\n")
        two.wait_at_rest("hr/bad", runs=2)
        eventually(lambda: len(lines) >= 4)
    assert [(one["session"], one["kind"]) for one in lines] == [
        ("hr/bad", "run_finished"),
        ("hr/bad", "session_slept"),
    ] * 2
    assert [one["payload"]["outcome"] for one in lines[::2]] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--tag", "money"), {"hr/good"}),
        (("hr/b*",), {"hr/bad"}),
        (("hr/good", "*d"), {"hr/good", "hr/bad"}),
        (("hr/good",), {"hr/good"}),
    ],
)
def test_sessions_are_chosen_by_name_pattern_and_tag(two: Box, arguments: tuple[str, ...], expected: set[str]) -> None:
    with following(two, *arguments, "--kind", "run_started", "--since", "1h") as lines:
        eventually(lambda: {one["session"] for one in lines} == expected)
        two.write("in.txt", "good, too\n")
        two.wait_at_rest("hr/good", runs=2)
        two.wait_at_rest("hr/bad", runs=2)
        eventually(lambda: len(lines) == 2 * len(expected))
    assert {one["session"] for one in lines} == expected and {one["kind"] for one in lines} == {"run_started"}


def test_an_author_and_a_pattern_that_means_a_session_which_comes_later(two: Box) -> None:
    """A pattern also matches sessions that are declared later."""
    two.ask("note", "hr/good", "not this")
    (noted,) = two.log("hr/good", "--kind", "note_added")
    with following(two, "late*", "--author", noted["author"], "--since", "1h") as lines:
        two.spec("later", SPEC.format(tag="x", word="good"))
        two.wait_at_rest("later", runs=1)
        two.ask("note", "later", "hello")
        eventually(lambda: lines)
    assert [(one["session"], one["payload"]["text"]) for one in lines] == [("later", "hello")]


def test_a_slip_of_the_pen_is_told(two: Box) -> None:
    """An unknown kind, an unknown session and a text that is no time are refused with a message."""
    for arguments, words in (
        (("--kind", "run_finishd"), "did you mean 'run_finished'"),
        (("hr/goood",), "hr/goood"),
        (("--since", "yesterday-ish"), "yesterday-ish"),
    ):
        done = two.run("follow", *arguments)
        assert done.returncode == 1 and words in done.stderr


def test_list_narrows_on_the_daemons_side(two: Box) -> None:
    """--failed, --state and --asks narrow the list, here as JSON."""
    assert [row["name"] for row in two.json("list", "--failed")] == ["hr/bad"]
    assert [row["name"] for row in two.json("list", "--state", "suspended")] == ["hr/good"]
    assert two.json("list", "--asks") == []

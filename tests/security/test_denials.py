"""A denial is shown in `why`, `output`, `show` and the daemon's own output.

Each of them names the denied place and the line that allows it. The daemon is an ordinary user's.
"""

from __future__ import annotations

import pytest

from ordinary_user import OrdinaryBox
from wait_conditions import eventually
from wakeful.runners.isolation.trace import find_obstacle

TRACING = find_obstacle()
# Files that a command names are granted. The script builds the name at run time, so that this file is not.
READS = """
objective: Read what is not declared.
bindings: {in: {file: in.txt}}
run: {script: "folder=kept; cat $folder/x", retries: 0}
"""
PORT = """
objective: Fetch something.
bindings: {in: {file: in.txt}}
run: {script: "curl -sS http://127.0.0.1:8181/", retries: 0}
"""
SILENT = """
objective: Fail, and say nothing.
bindings: {in: {file: in.txt}}
run: {script: "folder=kept; cat $folder/x 2> /dev/null", retries: 0}
"""


def fail(box: OrdinaryBox, name: str, text: str) -> None:
    box.write("in.txt", "1")
    box.write("kept/x", "kept")
    box.spec(name, text)
    box.start()
    box.wait_at_rest(name, runs=1)
    assert box.row(name)["last_run"]["outcome"] == "failed"


def assert_told_everywhere(box: OrdinaryBox, name: str, *words: str) -> None:
    asked = {
        "why": box.words("why", name),
        "why of the run": box.words("why", f"{name}#1"),
        "show": box.words("show", name),
        "output": " ".join(box.run("output", name).stderr.split()),
        "the daemon's line": eventually(
            lambda: next(
                (line for line in box.output.read_text().splitlines() if f"{name}: run 1 failed" in line), None
            )
        ),
    }
    missing = {(place, word) for place, said in asked.items() for word in words if word not in said}
    assert not missing, asked
    assert box.json("output", name)["hint"] == box.json("why", name)["hint"]


def test_a_denied_file_is_told_where_people_look(ordinary_box: OrdinaryBox) -> None:
    fail(ordinary_box, "reader", READS)
    assert_told_everywhere(
        ordinary_box,
        "reader",
        f"it was denied reading {ordinary_box.folder}/kept/x"[3:],
        "bindings: {x: {file: kept/x}}",
    )
    # The program's output is unchanged: the hint is printed on standard error.
    assert "to allow it" not in ordinary_box.run("output", "reader").stdout


def test_the_line_that_is_told_is_enough(ordinary_box: OrdinaryBox) -> None:
    """With the hint's line pasted into the spec, the same program succeeds."""
    fail(ordinary_box, "reader", READS)
    ordinary_box.spec("reader", READS.replace("bindings: {", "bindings: {x: {file: kept/x}, "))
    ordinary_box.wait_at_rest("reader", runs=2)
    assert ordinary_box.row("reader")["last_run"]["outcome"] == "succeeded", ordinary_box.run("output", "reader")
    assert "denied" not in ordinary_box.words("why", "reader") and ordinary_box.run("output", "reader").stderr == ""


def test_a_denied_port_is_told_where_people_look(ordinary_box: OrdinaryBox) -> None:
    fail(ordinary_box, "fetcher", PORT)
    assert_told_everywhere(
        ordinary_box, "fetcher", "denied connecting to 127.0.0.1:8181", 'network: ["127.0.0.1:8181"]'
    )


def test_a_failure_that_says_nothing_leads_to_a_trace(ordinary_box: OrdinaryBox) -> None:
    fail(ordinary_box, "silent", SILENT)
    assert_told_everywhere(ordinary_box, "silent", "solation is on", "`wakeful trace silent`")


@pytest.mark.skipif(TRACING is not None, reason=f"NOT TESTED, nothing can be traced here: {TRACING}")
def test_what_the_last_trace_found_is_told_of_later_failures(ordinary_box: OrdinaryBox) -> None:
    """The program prints nothing, but a person traced one of its runs."""
    fail(ordinary_box, "silent", SILENT)
    assert ordinary_box.run("trace", "silent").returncode == 1
    ordinary_box.ask("activate", "silent")
    ordinary_box.wait_at_rest("silent", runs=3)
    for said in (ordinary_box.words("why", "silent"), " ".join(ordinary_box.run("output", "silent").stderr.split())):
        assert (
            "un 2, which was traced, was denied" in said
            and f"{ordinary_box.folder}/kept/x" in said
            and "`wakeful trace silent --run 2`" in said
        )

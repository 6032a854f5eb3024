"""`wakeful timeline` and `wakeful graph` on a real daemon, in their text form and as JSON."""

from __future__ import annotations

import json

from e2e.box import Box


def build(box: Box) -> None:
    box.write("data/a.csv", "1\n")
    box.spec(
        "sums",
        """
        bindings: {tables: {file: "data/*.csv"}, sum: {file: out/sum.txt, access: write}}
        run: {script: "mkdir -p out; cat data/*.csv > out/sum.txt"}
        """,
    )
    box.spec(
        "report",
        "bindings: {sum: {file: out/sum.txt, missing: wait}, hint: {file: hint.txt, wake: false}}\nrun: {script: exit 3, retries: 0}\n",
    )
    box.start()
    box.wait_at_rest("sums", runs=1)
    box.wait_at_rest("report", runs=1)


def test_the_timeline_tells_runs_with_their_ends_and_causes(box: Box) -> None:
    build(box)
    lines = box.ask("timeline").splitlines()
    assert lines[0].split() == ["WHEN", "SESSION", "RUN", "TOOK", "ENDED", "WHY"]
    assert [line.split()[2] for line in lines[1:3]] == ["sums", "report"]
    assert "succeeded" in lines[1] and "failed" in lines[2] and "3" in lines[2]
    assert all(len(line) <= 80 for line in lines)
    assert [run["session"] for run in json.loads(box.ask("timeline", "report", "--json"))["runs"]] == ["report"]
    assert "no run since" in box.ask("timeline", "--since", "2001-01-01T00:00:00Z", "--until", "2001-01-02T00:00:00Z")


def test_the_graph_tells_what_a_session_reads_and_writes_and_whom_it_wakes(box: Box) -> None:
    build(box)
    assert box.ask("graph").splitlines() == [
        "report",
        "  reads   hint.txt (does not wake)",
        "          out/sum.txt",
        "sums",
        "  reads   data/*.csv",
        "  writes  out/sum.txt",
        "  wakes   report",
    ]
    # A path of the current folder that only a pattern matches.
    near = box.ask("graph", "data/a.csv", "--depth", "1")
    assert near.splitlines() == ["sums", "  reads   data/*.csv"]
    refused = box.run("graph", "nothing-such")
    assert refused.returncode == 1 and "nothing in the graph is called 'nothing-such'" in refused.stderr

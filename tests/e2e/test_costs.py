"""The costs of real runs: the kernel counts them, the daemon sums them, `costs` prints them."""

from __future__ import annotations

import csv

from e2e.box import Box


def test_costs_of_real_runs_are_told(box: Box) -> None:
    """The sums have the CPU time and the bytes of output, and stay the same after kill -9.

    They come as a table that fits, as CSV and as JSON.
    """
    box.write("in.txt", "1\n")
    program = "sum(n * n for n in range(2_000_000)); print('x' * 999)"
    box.spec(
        "busy",
        f'agent: hr\nbindings: {{input: {{file: in.txt, settle: 10ms}}}}\nrun: {{command: [python3, -c, "{program}"]}}\n',
    )
    box.spec("idle", "bindings: {input: {file: in.txt, settle: 10ms}}\nrun: {command: ['false'], retries: 0}\n")
    box.spec("agents/hr", "prompt: Count.\n")
    box.start()
    box.wait_at_rest("busy", runs=1)
    box.wait_for("idle", state="sleeping")
    found = {row["session"]: row for row in box.json("costs")["rows"]}
    assert (
        found["busy"]["cpu_seconds"] > 0.02 and found["busy"]["output_bytes"] == 1000 and found["busy"]["failed"] == 0
    )
    assert found["idle"]["failed"] == found["idle"]["runs"] == 1
    text = box.ask("costs", "--by", "session,agent,cause,day")
    assert (
        all(len(line) <= 80 for line in text.splitlines())
        and "first" in text
        and text.splitlines()[-1].startswith("total")
    )
    rows = list(csv.DictReader(box.ask("costs", "--by", "agent", "--csv").splitlines()))
    assert {row["agent"]: row["runs"] for row in rows} == {"hr": "1", "": "1"}
    box.kill()
    box.start()
    assert {row["session"]: row for row in box.json("costs")["rows"]} == found
    assert box.ask("costs", "--since", "2999-01-01T00:00:00Z") == "no run has ended since then\n"
    assert box.run("costs", "--csv", "--json").returncode == 2 and box.run("costs", "--by", "x").returncode == 1


def test_figures_of_an_archived_session_outlive_a_restart(box: Box) -> None:
    """The figures come from the archive. If its file is gone, the runs are counted without figures."""
    box.write("in.txt", "1\n")
    box.spec(
        "busy",
        "bindings: {input: {file: in.txt, settle: 10ms}}\nrun: {command: [python3, -c, 'sum(n * n for n in range(2_000_000))']}\n",
    )
    box.start()
    box.wait_at_rest("busy", runs=1)
    box.ask("terminate", "busy")
    before = box.json("costs", "--by", "session,cause")["rows"]
    assert before[0]["cpu_seconds"] > 0.02
    box.ask("archive", "busy")
    assert box.json("costs", "--by", "session,cause")["rows"] == before
    box.kill()
    box.start()
    assert box.json("costs", "--by", "session,cause")["rows"] == before
    box.stop()
    for bundle in (box.state / "archive").glob("*.bundle"):
        bundle.unlink()
    box.start()
    (row,) = box.json("costs")["rows"]
    assert (row["runs"], row["cpu_seconds"]) == (1, 0)

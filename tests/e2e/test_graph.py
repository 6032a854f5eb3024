"""The recompute graph on real files: topological order, no glitches, early cutoff, refusals that spell out the path."""

from __future__ import annotations

import json
from typing import Any

from e2e.box import Box
from wait_conditions import eventually


def diamond(box: Box) -> None:
    box.write("a.txt", "1\n")
    for name, reads, writes, script in (
        ("top", "a.txt", "b.txt", "cp a.txt b.txt"),
        ("left", "b.txt", "l.txt", "sed s/^/l/ b.txt > l.txt"),
        ("right", "b.txt", "r.txt", "sed s/^/r/ b.txt > r.txt"),
    ):
        box.spec(
            name,
            f"""
            objective: Part of a diamond.
            bindings:
              input: {{file: {reads}, settle: 10ms}}
              result: {{file: {writes}, access: write}}
            run: {{script: "{script}\\n"}}
            """,
        )
    box.spec(
        "bottom",
        """
        objective: Join both sides; both must be of one wave.
        bindings: {left: {file: l.txt, settle: 10ms}, right: {file: r.txt, settle: 10ms}}
        run: {command: [sh, -c, 'paste -d, l.txt r.txt >> ledger']}
        """,
    )


def test_a_diamond_runs_each_session_once_per_change(box: Box) -> None:
    """The session at the bottom never sees one new side with one old side. It runs once for each change of the top."""
    diamond(box)
    box.start()
    box.wait_at_rest("bottom", runs=1)
    for number in range(2, 6):
        box.write("a.txt", f"{number}\n")
        box.wait_at_rest("bottom", runs=number)
    assert box.lines("ledger") == [f"l{number},r{number}" for number in range(1, 6)]
    assert [box.row(name)["runs"] for name in ("top", "left", "right", "bottom")] == [5, 5, 5, 5]


def test_unchanged_output_stops_the_wave(box: Box) -> None:
    """Early cutoff: a run that writes the same bytes wakes no reader."""
    box.write("in.txt", "3\n1\n2\n")
    box.spec(
        "sorted",
        """
        objective: Sort.
        bindings: {input: {file: in.txt, settle: 10ms}, result: {file: sorted.txt, access: write}}
        run: {command: [sh, -c, 'sort in.txt > sorted.txt']}
        """,
    )
    box.spec(
        "reader",
        "objective: Read.\nbindings: {input: {file: sorted.txt}}\nrun: {command: [sh, -c, 'cat sorted.txt >> ledger']}\n",
    )
    box.start()
    box.wait_at_rest("reader", runs=1)
    box.write("in.txt", "1\n2\n3\n")
    box.wait_at_rest("sorted", runs=2)
    box.wait_at_rest("reader")
    assert box.row("reader")["runs"] == 1


def test_a_failed_upstream_holds_its_reader_with_words(box: Box) -> None:
    """The reader waits as `queued: upstream top failed` until the upstream succeeds."""
    box.write("in.txt", "bad\n")
    box.write("also.txt", "1\n")
    box.spec(
        "top",
        """
        objective: Fail on bad input.
        bindings: {input: {file: in.txt, settle: 10ms}, result: {file: mid.txt, access: write}}
        run: {command: [sh, -c, 'grep -v bad in.txt > mid.txt'], retries: 0}
        """,
    )
    box.spec(
        "reader",
        """
        objective: Read both.
        bindings: {mid: {file: mid.txt}, also: {file: also.txt, settle: 10ms}}
        run: {command: [sh, -c, 'cat mid.txt >> ledger']}
        """,
    )
    box.start()
    box.wait_for("top", state="sleeping")
    assert box.row("top")["reason"].startswith("failed")
    box.wait_for("reader", queued="upstream top failed")
    box.write("in.txt", "good\n")
    box.wait_at_rest("reader", runs=1)
    assert box.lines("ledger") == ["good"]


def test_cycles_and_double_writers_are_refused_with_the_path(box: Box) -> None:
    """The session with the later name is refused, with the whole path spelled out. The other session goes on."""
    box.write("a.txt", "1\n")
    box.spec(
        "one",
        "objective: A.\nbindings: {i: {file: a.txt}, o: {file: b.txt, access: write}}\nrun: {command: [cp, a.txt, b.txt]}\n",
    )
    box.spec(
        "two",
        "objective: B.\nbindings: {i: {file: b.txt}, o: {file: a.txt, access: write}}\nrun: {command: [cp, b.txt, a.txt]}\n",
    )
    box.spec(
        "zwei",
        "objective: C.\nbindings: {i: {file: c.txt}, o: {file: b.txt, access: write}}\nrun: {command: [cp, c.txt, b.txt]}\n",
    )
    checked = box.run("check")
    assert checked.returncode == 1
    said = checked.stdout + checked.stderr
    assert "one -> two -> one" in said or "two -> one -> two" in said
    assert "both write" in said and "b.txt" in said
    box.start()
    box.wait_at_rest("one", runs=1)
    assert {row["name"] for row in box.json("list")} == {"one"}


def test_a_loop_behind_our_back_is_slowed_down(box: Box) -> None:
    """Two sessions that feed each other undeclared are paced.

    If the writes of one fall into the runs of the other, it sleeps. `doctor` names it.
    """
    box.write("a.txt", "0\n")
    for name, mine, other in (("ping", "a.txt", "b.txt"), ("pong", "b.txt", "a.txt")):
        box.spec(
            name,
            f"""
            objective: Loop.
            bindings: {{input: {{file: {mine}, settle: 0ms}}}}
            run: {{command: [sh, -c, 'date +%N > {other}; echo {name} >> ledger']}}
            """,
        )
    box.weaken("pace_from_the_twentieth_start")
    box.start()
    held = eventually(lambda: next((row for row in box.rows() if is_held(row)), None), what="a session that is held")
    if held["state"] == "suspended":
        assert held["owed"] == ["input"] and "next start in" in held["queued"]
    else:
        assert held["reason"].startswith("loop: its input")
    checks = json.loads(box.run("doctor", "--json").stdout)
    guarded = [check for check in checks if check["name"] == "loop guard"]
    assert guarded and all(check["verdict"] in ("warn", "bad") for check in guarded)
    told = box.words("why", held["name"])
    assert "makes it calmer" in told or "`access: write`, or exclude them" in told
    assert all(box.lines("ledger").count(name) <= 30 for name in ("ping", "pong"))


def is_held(row: dict[str, Any]) -> bool:
    return row["state"] == "sleeping" or (row["queued"] or "").startswith("paced")


def test_changes_faster_than_a_command_may_start_lose_nothing(box: Box) -> None:
    """A session that exceeds its starts a minute (here 20) is paced, and goes on by itself.

    Its last output is of the newest version, and few records are made.
    """
    box.write("in.txt", "0\n")
    box.spec(
        "copy",
        """
        objective: Copy.
        bindings: {input: {file: in.txt, settle: 0ms}, output: {file: out/out.txt, access: write}}
        run: {command: [cp, in.txt, out/out.txt]}
        """,
    )
    box.weaken("pace_from_the_twentieth_start")
    box.start()
    written = 0

    def is_paced() -> bool:
        nonlocal written
        written += 1
        box.write("in.txt", f"{written:06d}\n")
        # The first look may still be under way.
        return (box.row("copy")["queued"] or "").startswith("paced")

    eventually(is_paced)
    for number in range(written, written + 20):
        box.write("in.txt", f"{number:06d}\n")
    box.write("in.txt", "the last\n")
    eventually(lambda: box.read("out/out.txt") == "the last\n")
    row = box.wait_at_rest("copy")
    assert row["state"] == "suspended" and row["reason"] is None
    kinds = box.kinds("copy")
    assert kinds.count("wake_extended") <= kinds.count("run_started")


def test_a_session_that_feeds_itself_sleeps_and_names_the_input(box: Box) -> None:
    """A run that writes its own undeclared input is held on evidence, after five runs. `resume` lets it go on."""
    box.write("data/in.txt", "0\n")
    box.spec(
        "eater",
        """
        objective: Count.
        bindings: {rates: {file: data/in.txt, settle: 0ms}}
        run: {command: [sh, -c, 'date +%N >> data/in.txt']}
        """,
    )
    box.start()
    row = box.wait_for("eater", state="sleeping")
    assert row["reason"] == "loop: its input rates changed during each of its last 5 runs, and never between them"
    assert row["runs"] == 5 and row["owed"] == ["rates"]
    checks = json.loads(box.run("doctor", "--json").stdout)
    assert [(check["verdict"], check["mend"]) for check in checks if check["name"] == "loop guard"] == [
        ("bad", "wakeful resume eater")
    ]
    assert "`access: write`" in box.words("why", "eater")
    box.ask("resume", "eater")
    eventually(lambda: box.row("eater")["runs"] > 5)


def test_a_failure_wakes_the_session_that_minds_it(box: Box) -> None:
    """`on: failed`: the session wakes after the last retry.

    Its cause says which run failed and why; show, why and plan name the binding.
    """
    box.write("in.txt", "good\n")
    box.spec(
        "payroll",
        """
        objective: Fail where the input is bad.
        bindings: {input: {file: in.txt, settle: 10ms}, result: {file: out.txt, access: write}}
        run: {command: [sh, -c, 'cp in.txt out.txt; grep -q good in.txt'], retries: 0}
        """,
    )
    box.spec(
        "tell",
        """
        objective: Tell of failures.
        bindings: {payroll: {session: payroll, on: failed}, result: {file: out.txt, wake: false}}
        run:
          script: |
            python3 -c 'import json, os; print(json.load(open(os.environ["WAKEFUL_CAUSES"]))["causes"][0]["reason"])' >> told
        """,
    )
    box.spec(
        "tidy",
        """
        objective: Follow every end.
        bindings: {payroll: {session: payroll, on: finished}}
        run: {command: [sh, -c, 'echo end >> ends']}
        """,
    )
    box.start()
    box.wait_at_rest("tidy", runs=1)
    assert box.row("tell")["runs"] == 0
    box.write("in.txt", "bad!\n")
    box.wait_at_rest("tell", runs=1)
    box.wait_at_rest("tidy", runs=2)
    assert box.lines("told") == ["run 2 failed: exit code 1"]
    assert box.row("payroll")["state"] == "sleeping"
    assert box.json("show", "payroll")["wakes_on_failure"] == ["tell"]
    assert "payroll, when it has failed" in box.words("show", "tell")
    assert "payroll" in box.words("why", "tell")
    assert "if it fails, tell wakes" in box.words("plan", "in.txt")
    box.write("in.txt", "good again\n")
    box.wait_at_rest("tidy", runs=3)
    assert box.row("tell")["runs"] == 1

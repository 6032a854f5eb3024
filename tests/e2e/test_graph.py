"""The recompute graph on real files: topological, glitch-free, early cutoff, refusals with the path spelled out."""

from __future__ import annotations

from e2e.box import Box
from waiting import eventually


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
    """Bottom never sees one new side with one old side, and runs once for each change of the top."""
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
    box.spec("reader", "objective: Read.\nbindings: {input: {file: sorted.txt}}\nrun: {command: [sh, -c, 'cat sorted.txt >> ledger']}\n")
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
    """The later name is refused with the whole way spelled out; the others go on."""
    box.write("a.txt", "1\n")
    box.spec("one", "objective: A.\nbindings: {i: {file: a.txt}, o: {file: b.txt, access: write}}\nrun: {command: [cp, a.txt, b.txt]}\n")
    box.spec("two", "objective: B.\nbindings: {i: {file: b.txt}, o: {file: a.txt, access: write}}\nrun: {command: [cp, b.txt, a.txt]}\n")
    box.spec("zwei", "objective: C.\nbindings: {i: {file: c.txt}, o: {file: b.txt, access: write}}\nrun: {command: [cp, c.txt, b.txt]}\n")
    checked = box.run("check")
    assert checked.returncode == 1
    said = checked.stdout + checked.stderr
    assert "one -> two -> one" in said or "two -> one -> two" in said
    assert "both write" in said and "b.txt" in said
    box.start()
    box.wait_at_rest("one", runs=1)
    assert {row["name"] for row in box.json("list")} == {"one"}


def test_a_loop_behind_our_back_goes_to_sleep(box: Box) -> None:
    """Two sessions that feed each other undeclared are stopped by the guard, with words, and lose nothing."""
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
    box.start()
    # Which of the two starts its twelfth time first is chance: its sleep is the end of the other's wakes as well.
    slept = eventually(lambda: [row for row in box.json("list") if row["state"] == "sleeping"])
    assert all(row["reason"].startswith("loop") and row["owed"] for row in slept)
    assert all(box.lines("ledger").count(name) <= 13 for name in ("ping", "pong"))

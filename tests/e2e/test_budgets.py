"""Budgets, questions and the brake on a running daemon, through the command line alone."""

from __future__ import annotations

import subprocess

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually

COUNTED = """
    objective: Count.
    bindings: {{input: {{file: in.txt, settle: 10ms}}}}
    budget: {budget}
    run: {{command: [sh, -c, 'echo x >> ledger'], retries: 0}}
"""


def reason(box: Box, name: str) -> str | None:
    return box.row(name)["reason"]


def test_a_spent_budget_puts_a_session_to_sleep_with_its_reason_across_a_restart(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("work", COUNTED.format(budget="{day: {runs: 1}}"))
    box.start()
    box.wait_at_rest("work", runs=1)
    box.write("in.txt", "2\n")
    eventually(lambda: reason(box, "work") == "budget of the day: 1 of 1 runs spent")
    box.kill()
    box.start()
    eventually(lambda: reason(box, "work") == "budget of the day: 1 of 1 runs spent")
    assert box.lines("ledger") == ["x"]
    assert "1 of 1 runs" in box.run("show", "work").stdout
    shown = box.json("show", "work")
    assert shown["budget"]["day"]["runs"] == {"limit": 1, "spent": 1}
    assert shown["hold"]["kind"] == "budget" and shown["hold"]["until"].endswith("Z")
    # A larger budget counts as soon as it is written, and the owed run starts.
    box.spec("work", COUNTED.format(budget="{day: {runs: 2}}"))
    box.wait_at_rest("work", runs=2)


def test_who_activates_is_told_what_keeps_the_run_from_starting(box: Box) -> None:
    """With --wait, the command ends with the reason and exit code 1.

    The period may last a month, and the question may never be answered.
    """
    box.write("in.txt", "1\n")
    box.spec("work", COUNTED.format(budget="{month: {runs: 1}}"))
    box.spec("asks", "objective: Ask.\napprove: before_run\nfirst: adopt\nrun: {command: ['true']}\n")
    box.spec("keyless", "objective: Need.\nfirst: adopt\nsecrets: [MISSING]\nrun: {command: ['true']}\n")
    box.start()
    box.wait_at_rest("work", runs=1)
    for name, words in (
        ("work", "held: budget of the month: 1 of 1 runs spent; that lasts until 20"),
        ("asks", "held: may it run?"),
        ("keyless", "MISSING"),
    ):
        for _ in range(2):
            told = box.run("activate", name)
            assert told.returncode == 0 and "activated but held: " in told.stdout and words in told.stdout, told
            waited = box.run("activate", name, "--wait")
            assert waited.returncode == 1 and words in waited.stderr, waited
    assert box.lines("ledger") == ["x"]


def test_who_waits_for_a_run_is_told_when_something_comes_in_its_way(box: Box) -> None:
    """A run that was under way when the activation came spends the budget."""
    box.write("in.txt", "1\n")
    box.spec(
        "work",
        "objective: Count.\nbudget: {month: {runs: 1}}\nfirst: run\nrun: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.02; done'], retries: 0}\n",
    )
    box.start()
    box.wait_for("work", state="running")
    waiting = subprocess.Popen(
        [WAKEFUL, "activate", "work", "--wait"],
        cwd=box.folder,
        env=box.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: "activation_requested" in box.kinds("work"))
    box.write("go", "")
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 1 and "budget of the month" in out


@pytest.mark.parametrize(
    ("budget", "script", "words"),
    [
        ("{run: {wall: 300ms}}", "sleep 60", "stopped: it used more than the 0.3 s left in its budget"),
        (
            "{run: {cpu: 300ms}}",
            "(while :; do :; done) & wait",
            "stopped: it used more than the 0.3 s of CPU left in its budget",
        ),
        (
            "{day: {written: 4MB}}",
            "dd if=/dev/zero of=big bs=1M count=64 oflag=dsync 2>&1; sleep 60",
            "bytes written left in its budget",
        ),
    ],
    ids=["time", "CPU, of a child", "writes"],
)
def test_a_run_that_spends_more_than_it_may_is_stopped_and_says_so(
    box: Box, budget: str, script: str, words: str
) -> None:
    box.spec(
        "work",
        f"objective: Spend.\nbudget: {budget}\nfirst: run\nrun:\n  script: |\n    {script}\n  retries: 0\n  grace: 1s\n",
    )
    box.start()
    eventually(lambda: [one for one in box.log("work") if one["kind"] == "run_finished"])
    (finished,) = [one for one in box.log("work") if one["kind"] == "run_finished"]
    assert finished["payload"]["outcome"] == "failed"
    assert words in finished["payload"]["reason"]


def test_a_session_that_asks_first_waits_for_a_person_and_never_for_itself(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec(
        "work",
        """
        objective: Ask first.
        approve: before_run
        bindings: {input: {file: in.txt, settle: 10ms}}
        run: {command: [sh, -c, 'echo x >> ledger; wakeful answer "$WAKEFUL_SESSION" yes >> said 2>&1 || true'], retries: 0}
        """,
    )
    box.start()
    eventually(lambda: "may it run?" in (reason(box, "work") or ""))
    assert box.lines("ledger") == []
    assert box.run("answer", "work", "perhaps").returncode == 1
    assert box.run("answer", "work", "yes").returncode == 0
    box.wait_at_rest("work", runs=1)
    assert "and nothing else" in "".join(box.lines("said"))
    answered = [one for one in box.log("work") if one["kind"] == "question_answered"]
    assert len(answered) == 1 and answered[0]["author"].startswith("person:")
    box.write("in.txt", "2\n")
    eventually(lambda: "may it run?" in (reason(box, "work") or ""))
    assert box.run("answer", "work", "no").returncode == 0
    eventually(lambda: box.row("work")["state"] == "suspended")
    assert box.lines("ledger") == ["x"]


def test_the_big_red_switch_stops_everything_and_lets_it_go_on(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec(
        "quick",
        "objective: Quick.\nbindings: {i: {file: in.txt, settle: 10ms}}\nrun: {command: [sh, -c, 'echo x >> quick.ledger']}\n",
    )
    box.spec(
        "slow",
        """
        objective: Slow.
        bindings: {i: {file: in.txt, settle: 10ms}}
        run: {command: [sh, -c, 'echo $$ >> slow.ledger; [ -e go ] || sleep 60'], retries: 0, grace: 1s}
        """,
    )
    box.start()
    box.wait_at_rest("quick", runs=1)
    eventually(lambda: box.lines("slow.ledger"))
    assert box.run("sleep").returncode == 2
    assert box.run("sleep", "quick", "--all").returncode == 2
    said = box.run("sleep", "--all", "--reason", "the printer burns")
    assert said.returncode == 0 and "the brake is on for 2 sessions" in said.stdout
    eventually(lambda: box.row("slow")["state"] == "sleeping")
    assert {reason(box, name) for name in ("quick", "slow")} == {"the printer burns"}
    box.write("in.txt", "2\n")
    box.write("go", "")
    box.kill()
    box.start()
    assert box.run("activate", "quick").returncode == 0
    eventually(lambda: box.row("quick")["owed"])
    assert box.lines("quick.ledger") == ["x"]
    assert box.run("resume", "--all").returncode == 0
    box.wait_at_rest("quick", runs=2)
    eventually(lambda: len(box.lines("slow.ledger")) == 2)


@pytest.mark.long
def test_a_budget_is_kept_on_a_machine_without_a_zone_database(box: Box) -> None:
    """A log written with a zone database is folded without one. Runs go on, and `doctor` names the missing zone."""
    box.write("in.txt", "1\n")
    box.spec("work", COUNTED.format(budget="{day: {runs: 3}}") + "    timezone: Asia/Shanghai\n")
    box.spec("plain", COUNTED.format(budget="{day: {runs: 3}}"))
    box.start()
    for name in ("work", "plain"):
        box.wait_at_rest(name, runs=1)
    without = {"PYTHONTZPATH": ""}
    for runs in (2, 3):
        box.kill()
        box.start(env=without)
        # One write for both sessions: a second write during the other's run would give it one run more (rule 17).
        box.write("in.txt", f"{runs}\n")
        for name in ("work", "plain"):
            box.wait_at_rest(name, runs=runs)
    assert "the time zone Asia/Shanghai is not in this machine's zone database" in " ".join(
        box.run("doctor").stdout.split()
    )
    box.write("in.txt", "4\n")
    eventually(lambda: reason(box, "plain") == "budget of the day: 3 of 3 runs spent")
    box.stop()
    box.start()
    assert box.json("show", "work")["budget"]["day"]["runs"]["limit"] == 3

"""Approvals: the question shows the change, the log records who answered and why, and the first answer counts."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

from e2e.box import WAKEFUL, Box
from wait_conditions import PATIENCE_SECONDS, eventually

SPEC = """
    approve: before_run
    bindings: {rates: {file: rates.txt, settle: 10ms}}
    run: {script: "cat rates.txt >> ledger\\n"}
    """


def wait_asking(box: Box, name: str) -> None:
    eventually(lambda: "may it run?" in (box.row(name)["reason"] or ""))


def say(box: Box, *arguments: str, token: Path) -> subprocess.Popen[str]:
    """Start a command in a process of its own, so that several run at once."""
    environment = box.environment() | {"WAKEFUL_TOKEN_FILE": str(token)}
    return subprocess.Popen(
        [WAKEFUL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=box.folder,
        env=environment,
    )


def approve_first(box: Box) -> None:
    box.write("rates.txt", "one\ntwo\nthree\n")
    box.spec("payroll", SPEC)
    box.start()
    wait_asking(box, "payroll")
    box.ask("answer", "payroll", "yes", "--because", "first look")
    box.wait_at_rest("payroll", runs=1)


def test_a_question_shows_what_changed(box: Box) -> None:
    """The question has the diff since the last success, in words and as JSON, before anybody answers."""
    approve_first(box)
    box.save("rates.txt", "one\n2\nthree\n")
    wait_asking(box, "payroll")
    shown = box.ask("answer", "payroll")
    assert "-two" in shown and "+2" in shown and "wakeful answer payroll yes" in shown
    found = box.json("answer", "payroll")
    assert found["asks"] == "run" and [one["binding"] for one in found["changes"]] == ["rates"]
    assert found["changes"][0]["diffs"][0]["path"] == "rates.txt"
    assert found["last_answer"]["text"] == "yes" and found["last_answer"]["rationale"] == "first look"
    # Nothing ran before the answer.
    assert box.lines("ledger") == ["one", "two", "three"]


def test_a_refusal_is_told_with_name_and_reason(box: Box) -> None:
    """`why`, the log and `answer` say who refused, and why. The change does not run later by itself."""
    approve_first(box)
    box.save("rates.txt", "wrong\n")
    wait_asking(box, "payroll")
    box.ask("answer", "payroll", "no", "--why", "the rates are last year's")
    box.wait_at_rest("payroll", runs=1)
    me = getpass.getuser()
    assert (
        f"Its last run was refused by {me}" in (why := " ".join(box.ask("why", "payroll").split()))
        and "last year's" in why
    )
    record = next(one for one in reversed(box.log("payroll")) if one["kind"] == "wake_withdrawn")
    assert record["author"] == f"person:{me}" and record["payload"]["rationale"] == "the rates are last year's"
    late = box.run("answer", "payroll", "yes")
    assert late.returncode == 1 and f"{me} said no" in late.stderr and "last year's" in late.stderr
    assert box.lines("ledger") == ["one", "two", "three"]
    # The next change asks again, and `why` no longer names the refusal.
    box.save("rates.txt", "right\n")
    wait_asking(box, "payroll")
    box.ask("answer", "payroll", "yes")
    box.wait_at_rest("payroll", runs=2)
    assert "refused" not in box.ask("why", "payroll") and box.lines("ledger")[-1] == "right"


def test_of_two_answers_at_once_the_first_counts(box: Box) -> None:
    """The daemon takes exactly one answer and tells the other caller who was first.

    The first answer decides about the run.
    """
    approve_first(box)
    tokens = {}
    for name in ("ana", "ben"):
        box.ask("people", "add", name, "--role", "contributor")
        tokens[name] = box.write(f"{name}.token", box.ask("token", "new", "--person", name))
        tokens[name].chmod(0o600)
    for number in range(5):
        box.save("rates.txt", f"round {number}\n")
        wait_asking(box, "payroll")
        words = {"ana": "yes", "ben": "no"}
        done = {name: say(box, "answer", "payroll", words[name], token=tokens[name]) for name in words}
        errors = {name: one.communicate(timeout=PATIENCE_SECONDS)[1] for name, one in done.items()}
        assert sorted(one.returncode for one in done.values()) == [0, 1], errors
        first = next(name for name, one in done.items() if one.returncode == 0)
        second = next(name for name in done if name != first)
        assert f"{first} said {words[first]}" in errors[second]
        eventually(lambda: box.row("payroll")["state"] == "suspended")
        assert (f"round {number}" in box.lines("ledger")) == (first == "ana")

"""`new B --from A` takes over the spec, the facts and the hand-off of another session."""

from __future__ import annotations

from e2e.box import Box
from wait_conditions import eventually

PAYROLL = """
    objective: Pay everybody.
    bindings:
      rates: {file: rates.csv}
      result: {file: out.csv, access: write}
    run: {command: [sh, -c, 'echo "$WAKEFUL_SESSION" >> ledger.txt; touch out.csv']}
"""


def test_a_session_begins_from_another_with_its_facts_and_hand_off(box: Box) -> None:
    """It sleeps until it is activated, and writes no file of the other session. Then each session goes its own way."""
    box.spec("payroll", PAYROLL)
    box.write("rates.csv", "1")
    box.start()
    box.wait_at_rest("payroll", runs=1)
    box.ask("remember", "payroll", "office", "Berlin")
    box.ask("note", "payroll", "Half of it is done.")
    told = box.words("new", "audit", "--from", "payroll")
    assert "wakeful activate audit" in told
    # As a fork it has no place to work in. Its spec, which was just written, gives it one.
    eventually(lambda: "activate" in (box.row("audit")["reason"] or ""), what="a session that waits to be let go")
    assert box.wait_for("audit", state="sleeping", runs=0)
    shown = box.json("show", "audit")
    assert [(fact["key"], fact["value"]) for fact in shown["facts"]] == [("office", "Berlin")]
    assert shown["handoff"] == "Half of it is done." and shown["origin"]["name"] == "payroll"
    assert "  # result: {file: out.csv, access: write}" in (box.specs / "audit.yaml").read_text()
    box.ask("activate", "audit")
    box.wait_at_rest("audit", runs=1)
    box.ask("remember", "audit", "office", "Paris")
    assert box.ask("recall", "payroll", "office").strip() == "Berlin"
    box.stop()
    box.start()
    assert box.ask("recall", "audit", "office").strip() == "Paris" and box.row("audit")["state"] == "suspended"


def test_without_a_daemon_only_the_spec_is_taken_and_it_says_so(box: Box) -> None:
    """The command says what it could not take over."""
    box.spec("payroll", PAYROLL)
    assert "begins without the facts of payroll" in box.words("new", "audit", "--from", "payroll")
    assert box.run("check").returncode == 0
    for words, told in (
        (("new", "audit", "--from", "payroll"), "exists already"),
        (("new", "b", "--from", "nobody"), "there is no"),
        (("new", "b", "--from", "../payroll"), "cannot be a name"),
        (("new", "b", "--from", "payroll", "--every", "5m"), "edit the file afterwards"),
    ):
        done = box.run(*words)
        assert done.returncode != 0 and told in " ".join(done.stderr.split()), done.stderr


def test_a_session_of_a_template_says_that_it_has_no_file(box: Box) -> None:
    """The command copies the text of a file, and such a session has none."""
    box.spec("ticket@", "for_each: tickets/*.md\nobjective: x\n")
    done = box.run("new", "b", "--from", "ticket@17")
    assert done.returncode == 1 and "comes from ticket@.yaml" in " ".join(done.stderr.split())

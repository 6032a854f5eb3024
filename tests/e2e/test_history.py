"""The calls on history, on a real daemon and its log: checkpoints, rewind, fork, merge, resolve, compress."""

from __future__ import annotations

import pytest

from e2e.box import Box

COUNTING = """
    objective: Count the lines.
    bindings: {input: {file: in.txt, settle: 10ms}}
    run: {command: [sh, -c, 'wc -l < in.txt >> ledger'], retries: 0}
"""
TALK = "objective: Hold a conversation.\n"


def start_counting(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("count", COUNTING)
    box.start()
    box.wait_at_rest("count", runs=1)


def facts(box: Box, name: str) -> dict[str, str]:
    return {fact["key"]: fact["value"] for fact in box.json("facts", name)}


def test_a_checkpoint_is_a_place_to_come_back_to(box: Box) -> None:
    """`rewind` to a checkpoint brings back the facts of then.

    It deletes nothing and starts no run, also after kill -9.
    """
    start_counting(box)
    box.ask("remember", "count", "month", "March")
    box.ask("save", "count", "--as", "march", "--note", "before the audit")
    box.ask("remember", "count", "month", "April")
    length = len(box.log("count"))
    assert "would go on from seq" in box.words("rewind", "count", "march", "--dry-run")
    assert len(box.log("count")) == length
    box.ask("rewind", "count", "march")
    assert facts(box, "count") == {"month": "March"}
    assert len(box.log("count")) == length + 1 and box.row("count")["runs"] == 1
    box.kill()
    box.start()
    assert facts(box, "count") == {"month": "March"}
    assert box.row("count")["runs"] == 1
    shown = box.words("show", "count")
    assert "march seq" in shown and "before the audit" in shown
    # A rewind can return to the abandoned branch like to any other position.
    box.ask("rewind", "count", str(length))
    assert facts(box, "count") == {"month": "April"}


def test_a_fork_goes_its_own_way_and_comes_back(box: Box) -> None:
    """Fork, activate, learn, merge, resolve. The log has the author of each step."""
    start_counting(box)
    box.ask("remember", "count", "rate", "8")
    box.ask("fork", "count", "--as", "trial")
    assert box.row("trial")["state"] == "sleeping" and "forked from count" in box.row("trial")["reason"]
    assert box.run("activate", "trial", "--wait").returncode == 0
    box.ask("remember", "trial", "rate", "9")
    box.ask("remember", "trial", "holiday", "yes")
    box.ask("send", "trial", "is the rate right?", "--no-wake")
    box.ask("remember", "count", "rate", "10")
    assert "trial" in box.words("show", "count")
    assert "open 1 conflict" in box.words("merge", "count", "trial", "--dry-run")
    assert "1 to resolve" in box.words("merge", "count", "trial")
    shown = box.json("show", "count")
    assert [(one["key"], one["base"], one["ours"], one["theirs"]) for one in shown["conflicts"]] == [
        ("rate", "8", "10", "9")
    ]
    assert "is the rate right?" in shown["handoff"]
    assert shown["forks"][0]["name"] == "trial" and shown["forks"][0]["merged"]
    assert box.run("resolve", "count", "rate", "--theirs").returncode == 2
    box.ask("resolve", "count", "rate", "--theirs", "--because", "it was measured")
    assert facts(box, "count") == {"rate": "9", "holiday": "yes"}
    assert box.json("show", "count")["conflicts"] == []
    box.kill()
    box.start()
    assert facts(box, "count") == {"rate": "9", "holiday": "yes"}
    assert box.row("trial")["runs"] == 1
    steps = (
        "session_forked",
        "activation_requested",
        "fact_set",
        "message_added",
        "session_merged",
        "conflict_resolved",
    )
    taken = [record for name in ("count", "trial") for record in box.log(name) if record["kind"] in steps]
    assert {record["kind"] for record in taken} == set(steps) and len(taken) == 9
    (author,) = {record["author"] for record in taken}
    assert author.startswith("person:")


def test_a_fork_of_a_running_session_starts_at_its_last_safe_point(box: Box) -> None:
    """The fork does not have the run."""
    box.write("in.txt", "1\n")
    box.spec(
        "slow", "objective: Be slow.\nbindings: {i: {file: in.txt}}\nrun: {command: [sleep, '60'], grace: 100ms}\n"
    )
    box.start()
    box.wait_for("slow", state="running")
    box.ask("fork", "slow", "--as", "other")
    started = next(record["seq"] for record in box.log("slow") if record["kind"] == "run_started")
    assert box.json("show", "other")["origin"]["seq"] == started - 1
    assert box.row("other")["state"] == "sleeping"
    box.ask("cancel", "slow")


@pytest.mark.long
def test_old_conversation_gives_way_to_a_summary_and_comes_back(box: Box) -> None:
    """Facts and log stay, and the summary has the objective verbatim. A second compression finds nothing to do."""
    box.spec("talk", TALK)
    box.start()
    for number in range(30):
        box.ask("send", "talk", f"message {number}: is data/{number}.csv right? " + "x" * 200)
    box.ask("remember", "talk", "month", "March")
    before = box.json("show", "talk")
    box.ask("compress", "talk", "--keep", "5")
    after = box.json("show", "talk")
    assert before["conversation"]["messages"] == 30 and after["conversation"]["messages"] == 5
    summary = after["conversation"]["summary"]
    assert "Objective: Hold a conversation." in summary and "data/24.csv" in summary and "25 messages" in summary
    assert len(summary) < 7_000 and facts(box, "talk") == {"month": "March"}
    assert box.run("compress", "talk", "--keep", "5").returncode == 1
    assert len([record for record in box.log("talk") if record["kind"] == "message_added"]) == 30
    box.ask("rewind", "talk", str(before["seq"]))
    assert box.json("show", "talk")["conversation"] == before["conversation"]


def test_calls_on_history_are_safe_to_repeat(box: Box) -> None:
    """A call with the same key is carried out once, whether or not it would be possible again."""
    box.spec("talk", TALK)
    box.start()
    for number in range(6):
        box.ask("send", "talk", f"message {number} " + "x" * 300)
    seq = box.json("show", "talk")["seq"]
    for verb in (
        ("save", "talk", "--as", "here"),
        ("compress", "talk", "--keep", "1"),
        ("rewind", "talk", str(seq)),
        ("fork", "talk", "--as", "other"),
    ):
        first = box.ask(*verb, "--key", f"once-{verb[0]}")
        length = len(box.log("talk"))
        again = box.ask(*verb, "--key", f"once-{verb[0]}")
        assert "done already" in again and len(box.log("talk")) == length, (verb, first, again)


def test_what_cannot_be_done_is_refused_with_words(box: Box) -> None:
    """Refused calls leave no record."""
    start_counting(box)
    length = len(box.log("count"))
    for arguments, words in (
        (("rewind", "count", "999"), "there is no 999"),
        (("rewind", "count", "nowhere"), "has no checkpoint 'nowhere'"),
        (("rewind", "count", "1999-01-01T00:00:00Z"), "it has no record at"),
        (("save", "count", "--as", "12"), "cannot name a checkpoint"),
        (("fork", "count", "--as", "../etc"), "name"),
        (("fork", "count", "--as", "count"), "name of another session"),
        (("merge", "count", "count"), "is no fork"),
        (("resolve", "count", "rate", "--ours", "--because", "x"), "no single open conflict"),
        (("compress", "count"), "nothing to compress"),
        (("rewind", "nobody", "1"), "no session is called"),
    ):
        done = box.run(*arguments)
        assert done.returncode == 1 and words in " ".join(done.stderr.split()), (arguments, done.stderr)
    assert len(box.log("count")) == length

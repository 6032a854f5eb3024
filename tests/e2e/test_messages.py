"""Messages, notes and facts, from people and from inside a run: each is durable, and counts once."""

from __future__ import annotations

import json

from e2e.box import WAKEFUL, Box
from wait_conditions import PATIENCE_SECONDS, eventually


def test_a_message_wakes_a_sleeping_mailbox_once(box: Box) -> None:
    """The log has the message and its author. One run deals with it, and the next with all that came meanwhile."""
    box.spec(
        "talk",
        """
        objective: Listen.
        run: {command: [sh, -c, 'cp "$WAKEFUL_CAUSES" causes.json; echo x >> ledger; while [ ! -e go ]; do sleep 0.01; done']}
        """,
    )
    box.start()
    assert box.row("talk")["runs"] == 0
    box.ask("send", "talk", "hello\x1b[31m there")
    eventually(lambda: box.lines("ledger") == ["x"])
    (message,) = [record for record in box.log("talk") if record["kind"] == "message_added"]
    assert message["payload"]["text"] == "hello\x1b[31m there" and message["author"].startswith("person:")
    assert "\x1b" not in box.ask("log", "talk")
    later = [f"message {number}" for number in range(3)]
    for text in later:
        box.ask("send", "talk", text)
    box.write("go", "")
    row = box.wait_at_rest("talk", runs=2)
    assert [cause["kind"] for cause in row["last_run"]["causes"]] == ["message"]
    assert [one["text"] for one in json.loads(box.read("causes.json"))["messages"]] == later
    assert row["runs"] == len(box.lines("ledger")) == 2


def test_a_run_finds_the_text_of_its_messages(box: Box) -> None:
    """Each message has its sender and time, as data and cut to a limit.

    Messages that an earlier run got are left out. A message that did not wake is there. A replay has the run's own.
    """
    box.spec(
        "talk",
        """
        objective: Listen.
        bindings: {causes: {file: causes.json, access: write}}
        run: {command: [sh, -c, 'cp "$WAKEFUL_CAUSES" causes.json']}
        """,
    )
    box.start()
    box.ask("send", "talk", 'rates "rose"\x1b[31m\n')
    box.wait_at_rest("talk", runs=1)
    told = json.loads(box.read("causes.json"))
    ((message,), author) = told["messages"], told["messages"][0]["sender"]
    assert (message["position"], message["text"], message["cut"], told["messages_left_out"]) == (
        1,
        'rates "rose"\x1b[31m\n',
        False,
        0,
    )
    assert author.startswith("person:") and message["at"].endswith("Z")
    for text in ("long " * 20_000, "last"):
        box.ask("send", "talk", "--no-wake", text)
    box.ask("activate", "talk", "--wait")
    told = json.loads(box.read("causes.json"))
    assert [(one["position"], len(one["text"]), one["cut"]) for one in told["messages"]] == [
        (2, 65_536, True),
        (3, 4, False),
    ]
    assert [cause["kind"] for cause in told["causes"]] == ["activation"]
    box.ask("activate", "talk", "--wait")
    assert json.loads(box.read("causes.json"))["messages"] == []
    for run in ("1", "2"):
        replayed = box.json("replay", "talk", run)
        assert [(file["path"], file["verdict"]) for file in replayed["files"]] == [("causes.json", "same")], replayed


def test_a_message_that_does_not_wake_waits(box: Box) -> None:
    """`--no-wake` leaves the message for the next run."""
    box.spec("talk", "objective: Listen.\nrun: {command: [sh, -c, 'echo x >> ledger']}\n")
    box.start()
    box.ask("send", "talk", "--no-wake", "later")
    assert box.row("talk")["owed"] == []
    box.ask("activate", "talk", "--wait")
    assert box.row("talk")["runs"] == 1


def test_inside_a_run_the_verbs_need_no_arguments(box: Box) -> None:
    """remember, recall, note, send and history work with the run's own token, for its own session only."""
    box.write("in.txt", "1\n")
    box.spec("peer", "objective: Receive.\nrun: {command: [sh, -c, 'echo got >> peer.ledger']}\n")
    box.spec(
        "work",
        """
        objective: Use the socket.
        bindings: {input: {file: in.txt}}
        run:
          script: |
            wakeful remember rate 0.19
            wakeful recall rate > recalled
            wakeful note "done: rates; next: nothing"
            wakeful send peer "rates are in"
            wakeful history > history
            wakeful activate peer && echo allowed > allowed || true
        """,
    )
    box.start()
    row = box.wait_at_rest("work", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "work")
    assert box.read("recalled").strip() == "0.19"
    assert "run_started" in box.read("history") or "run 1 started" in box.read("history")
    assert not (box.folder / "allowed").exists()
    box.wait_at_rest("peer", runs=1)
    facts = box.json("facts", "work")
    assert [(fact["key"], fact["value"]) for fact in facts] == [("rate", "0.19")]
    assert "done: rates" in box.ask("show", "work")
    (sent,) = [record for record in box.log("work") if record["kind"] == "message_sent"]
    (got,) = [record for record in box.log("peer") if record["kind"] == "message_added"]
    assert sent["author"] == got["author"] == "run:work#1"


def test_messages_survive_kill_9(box: Box) -> None:
    """Acknowledged means on disk: every message that was answered is there after a kill."""
    box.spec("talk", "objective: Listen.\nenabled: false\nrun: {command: ['true']}\n")
    box.start()
    for number in range(10):
        box.ask("send", "talk", f"message {number}")
    box.kill()
    box.start()
    texts = [record["payload"]["text"] for record in box.log("talk") if record["kind"] == "message_added"]
    assert texts == [f"message {number}" for number in range(10)]


def test_output_is_kept_and_followed(box: Box) -> None:
    """`output` shows what the last run printed, up to a limit. `output --follow` prints it while the run goes on."""
    box.write("in.txt", "1\n")
    box.spec(
        "work",
        """
        objective: Speak.
        bindings: {i: {file: in.txt}}
        run:
          script: |
            echo to out; echo to err >&2
            while [ ! -e go ]; do sleep 0.01; done
            head -c 5000000 /dev/zero | tr -c x x
            echo; echo the end
        """,
    )
    box.start()
    box.wait_for("work", state="running")
    followed = box.folder / "followed"
    with followed.open("wb") as out:
        following = box.launch([WAKEFUL, "output", "work", "--follow"], out, box.environment())
    eventually(lambda: "to out" in followed.read_text() and "to err" in followed.read_text())
    assert following.poll() is None and box.row("work")["state"] == "running"
    box.write("go", "")
    assert following.wait(PATIENCE_SECONDS) == 0
    assert followed.read_text().endswith("x\nthe end\n")
    box.wait_at_rest("work", runs=1)
    said = box.ask("output", "work")
    assert "to out" in said and "to err" in said and said.endswith("x\nthe end\n")
    finished = next(record for record in box.log("work") if record["kind"] == "run_finished")
    assert finished["payload"]["output"]["total_bytes"] > 5_000_000
    assert finished["payload"]["output"]["kept_bytes"] <= 2 * 1024 * 1024
    eventually(lambda: box.row("work")["state"] == "suspended")

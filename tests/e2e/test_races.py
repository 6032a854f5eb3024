"""Calls that meet each other, the end of a process, a start or a crash.

The daemon and the processes are real. tests/core/test_calls.py has what each call does at rest, queued, running,
retrying and asleep. This module has the moments in between, and many clients at once. A race has more than one right
end: a test names them all, and what must hold in each.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.box import Box
from process_state import is_alive
from wait_conditions import eventually
from wakeful.cli.client import Client
from wakeful.client.refusals import DaemonRefused

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

WAITING = """
    objective: Wait to be let go.
    bindings: {input: {file: in.txt, settle: 10ms}}
    run: {command: [sh, -c, 'echo x >> ledger; touch started; while [ ! -e go ]; do sleep 0.01; done'], retries: 0, grace: 500ms}
"""
# The run ends by itself at about the moment when a call stops it.
BRIEF = """
    objective: End soon.
    run: {command: [sh, -c, 'touch started; sleep 0.1'], retries: 0, grace: 1s}
"""
# A process tree that does not want to end: it ignores signals, leaves its session, and forks twice.
STUBBORN = """
    objective: Refuse to die.
    bindings: {input: {file: in.txt}}
    run: {command: [python3, tree.py], retries: 0, grace: 300ms}
"""
TREE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def leave(kind):
    if os.fork() == 0:
        if kind != "child":
            os.setsid()
        if kind == "daemon" and os.fork():
            os._exit(0)
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(300)
        os._exit(0)
for kind in ("child", "setsid", "daemon"):
    leave(kind)
with open("pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(300)
"""


def start(box: Box, name: str, spec: str) -> Client:
    box.write("in.txt", "1\n")
    box.write("tree.py", TREE)
    box.spec(name, spec)
    box.start()
    return Client(str(box.socket))


def start_running(box: Box) -> Client:
    client = start(box, "work", WAITING)
    eventually(lambda: (box.folder / "started").exists())
    return client


def find(box: Box, name: str, *kinds: str) -> list[dict[str, Any]]:
    return [record for record in box.log(name) if record["kind"] in kinds]


def judge_runs(box: Box, name: str) -> list[str]:
    """Check that every run ended once, before the next one began. Return the outcomes."""
    turns = [record["kind"] for record in find(box, name, "run_started", "run_finished")]
    assert turns == ["run_started", "run_finished"] * (len(turns) // 2)
    return [record["payload"]["outcome"] for record in find(box, name, "run_finished")]


def try_call(client: Client, verb: str, name: str) -> str:
    """Return the answer of a call. A refusal begins with `refused`."""
    try:
        return client.call(verb, name=name)["words"]
    except DaemonRefused as failure:
        return f"refused: {failure}"


def wait_tree(box: Box) -> list[int]:
    """Wait for all four processes of the stubborn tree. Return their pids."""
    eventually(lambda: len(box.lines("pids")) == 4)
    return [int(line) for line in box.lines("pids")]


def at_rest(client: Client, name: str) -> bool:
    row = next(row for row in client.get("/sessions") if row["name"] == name)
    return row["state"] != "running" and row["queued"] is None and not row["owed"]


# -- a stop meets something else ---------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "interrupt", "suspend"])
def test_a_stop_that_meets_the_end_of_the_process_has_one_outcome(box: Box, verb: str) -> None:
    """After a refused stop, the run has succeeded.

    After an accepted one, it has the outcome asked for, or its own, never both.
    """
    client = start(box, "work", BRIEF)
    started = box.folder / "started"
    answers = []
    for milliseconds in (0, 40, 80, 90, 95, 100, 105, 110, 120):
        started.unlink(missing_ok=True)
        client.call("activate", name="work")
        eventually(started.exists)
        # The offset is the race: the process ends 100 ms after it said that it started.
        time.sleep(milliseconds / 1000)
        answers.append(try_call(client, verb, "work"))
        eventually(lambda: at_rest(client, "work"))
    outcomes = judge_runs(box, "work")
    stops = {record["payload"]["run"] for record in find(box, "work", "run_stop_requested")}
    asked = {"cancel": "cancelled", "interrupt": "interrupted", "suspend": "succeeded"}[verb]
    for run, (answer, outcome) in enumerate(zip(answers, outcomes, strict=True), start=1):
        is_late = run not in stops
        assert is_late == (answer.startswith("refused") or "already" in answer), answer
        assert outcome == "succeeded" if is_late else outcome in (asked, "succeeded"), (run, answer, outcome)
    assert len(stops) >= 2, "some of these came in time"


def test_interrupting_twice_is_interrupting_once(box: Box) -> None:
    client = start_running(box)
    answers: list[str] = []
    both = [threading.Thread(target=lambda: answers.append(try_call(client, "interrupt", "work"))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    eventually(lambda: at_rest(client, "work"))
    assert len(find(box, "work", "run_stop_requested")) == 1
    assert judge_runs(box, "work") == ["interrupted"]
    assert "interrupting" in answers and len(answers) == 2


def test_terminate_during_a_start_leaves_no_process_and_no_open_run(box: Box) -> None:
    """However early the call comes: the run that was started ends first, then the session is closed (rule 24)."""
    client = start(box, "work", WAITING.replace("touch started;", "echo $$ >> pids;"))
    for milliseconds in (0, 1, 2, 5, 10, 20, 50):
        client.call("open", name="work", again=True)
        starter = threading.Thread(target=try_call, args=(client, "activate", "work"))
        starter.start()
        time.sleep(milliseconds / 1000)
        try_call(client, "terminate", "work")
        starter.join(60)
        # An activation that came after the end is refused. This call stops one that came before it.
        try_call(client, "terminate", "work")
        eventually(
            lambda: next(row for row in client.get("/sessions") if row["name"] == "work")["state"] == "terminated"
        )
    judge_runs(box, "work")
    kinds = [record["kind"] for record in find(box, "work", "run_finished", "session_terminated", "session_reopened")]
    assert kinds[-1] == "session_terminated" and kinds.count("session_terminated") == 7
    assert not [pid for pid in map(int, box.lines("pids")) if is_alive(pid)]


def test_terminate_after_cancel_is_the_stronger_word(box: Box) -> None:
    """Rule 23: the log has both calls, the run ends once, and the session is closed after it."""
    start(box, "work", STUBBORN)
    client = Client(str(box.socket))
    wait_tree(box)
    assert client.call("cancel", name="work")["words"] == "cancelling"
    assert client.call("terminate", name="work")["words"].startswith("terminates")
    assert "already" in client.call("cancel", name="work")["words"]
    box.wait_for("work", state="terminated")
    assert [record["payload"]["why"] for record in find(box, "work", "run_stop_requested")] == ["cancel", "terminate"]
    kinds = box.kinds("work")
    assert kinds[-2:] == ["run_finished", "session_terminated"] and len(judge_runs(box, "work")) == 1


def test_an_activation_during_a_stop_gives_one_run_after_it(box: Box) -> None:
    client = start(box, "work", STUBBORN)
    wait_tree(box)
    client.call("cancel", name="work")
    assert "once more" in client.call("activate", name="work")["words"]
    assert "once more" in client.call("activate", name="work")["words"]
    eventually(lambda: len(box.lines("pids")) == 8)
    client.call("cancel", name="work")
    eventually(lambda: at_rest(client, "work"))
    assert judge_runs(box, "work") == ["cancelled", "cancelled"]


# -- a tree that does not want to end ----------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "interrupt", "terminate"])
def test_nothing_of_a_stopped_tree_is_alive_after_its_grace(box: Box, verb: str) -> None:
    """The tree ignores signals, leaves its session and forks twice. That does not help it."""
    client = start(box, "work", STUBBORN)
    pids = wait_tree(box)
    client.call(verb, name="work")
    eventually(lambda: not any(map(is_alive, pids)))
    eventually(lambda: at_rest(client, "work"))
    assert judge_runs(box, "work") == ["interrupted" if verb == "interrupt" else "cancelled"]


@pytest.mark.parametrize("verb", ["cancel", "interrupt", "terminate"])
def test_a_stop_that_was_recorded_is_carried_out_by_the_next_daemon(box: Box, verb: str) -> None:
    """kill -9 after run_stop_requested: the run ends with the outcome asked for, and does not run again (rule 23)."""
    client = start(box, "work", STUBBORN.replace("300ms", "60s"))
    pids = wait_tree(box)
    client.call(verb, name="work")
    box.kill()
    assert any(map(is_alive, pids)), "the fault came before the end of its grace"
    box.start()
    eventually(lambda: not any(map(is_alive, pids)))
    eventually(lambda: at_rest(client, "work"))
    assert judge_runs(box, "work") == ["interrupted" if verb == "interrupt" else "cancelled"]
    assert box.row("work")["state"] == ("terminated" if verb == "terminate" else "suspended")
    assert len(box.lines("pids")) == 4


# -- many clients at once ----------------------------------------------------------------------

WRITERS = 8
CALLS_EACH = 25


def start_writers(box: Box, what: str, count: int) -> list[subprocess.Popen[bytes]]:
    words = [sys.executable, str(Path(__file__).with_name("concurrent_clients.py")), what, str(box.socket)]
    return [subprocess.Popen([*words, str(who), str(CALLS_EACH)]) for who in range(count)]


def join_all(writers: list[subprocess.Popen[bytes]]) -> None:
    try:
        assert [writer.wait(60) for writer in writers] == [0] * len(writers)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def test_appends_of_many_clients_are_ordered_and_none_is_lost_or_twice(box: Box) -> None:
    """Eight processes write at once and repeat some calls.

    The log has no gaps, it keeps each writer's order, and its chain verifies.
    """
    box.spec("talk", "objective: Listen.\nenabled: false\nrun: {command: ['true']}\n")
    box.start()
    join_all(start_writers(box, "write_much", WRITERS))
    rows = box.log("talk")
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    wanted = {who: [f"{who}:{number}" for number in range(CALLS_EACH)] for who in range(WRITERS)}
    for kind in ("message_added", "note_added"):
        texts = [row["payload"]["text"] for row in rows if row["kind"] == kind]
        assert {who: [text for text in texts if text.startswith(f"{who}:")] for who in wanted} == wanted
        assert len(texts) == WRITERS * CALLS_EACH
    positions = [row["payload"]["position"] for row in rows if row["kind"] == "message_added"]
    assert positions == list(range(1, WRITERS * CALLS_EACH + 1))
    for who in wanted:
        values = [
            row["payload"]["value"]
            for row in rows
            if row["kind"] == "fact_set" and row["payload"]["key"] == f"fact-{who}"
        ]
        assert values == [str(number) for number in range(CALLS_EACH)]
    assert box.run("verify").returncode == 0


def test_what_a_call_records_stands_together_however_many_call(box: Box) -> None:
    """No other record comes between a message and its wake, or between a run's end and what follows it."""
    box.spec("talk", "objective: Listen.\nrun: {command: ['true']}\n")
    box.start()
    join_all(start_writers(box, "write_much", 4))
    box.wait_at_rest("talk")
    kinds = box.kinds("talk")
    for before, after in zip(kinds, kinds[1:], strict=False):
        assert after != "wake_requested" or before in ("message_added", "run_finished"), (before, after)
        assert after != "run_started" or before == "wake_requested", (before, after)
        assert after != "session_suspended" or before == "run_finished", (before, after)
    judge_runs(box, "talk")


def count_records(box: Box) -> int:
    return sum(1 for _ in Client(str(box.socket)).stream_lines("/sessions/talk/log"))


def test_messages_are_sent_once_and_in_order_across_kill_9(box: Box) -> None:
    """The senders repeat what was not answered, with the same keys.

    Every message is in the log once, in its sender's order.
    """
    box.spec("talk", "objective: Listen.\nenabled: false\nrun: {command: ['true']}\n")
    box.start()
    senders = start_writers(box, "send_until_heard", 4)
    kills = 0
    for wanted in (10, 40, 70):
        eventually(lambda wanted=wanted: count_records(box) >= wanted)
        if any(sender.poll() is None for sender in senders):
            box.kill()
            kills += 1
            box.start()
    join_all(senders)
    assert kills >= 1, "the daemon was killed while they were sending"
    texts = [row["payload"]["text"] for row in find(box, "talk", "message_added")]
    assert {who: [text for text in texts if text.startswith(f"{who}:")] for who in range(4)} == {
        who: [f"{who}:{number}" for number in range(CALLS_EACH)] for who in range(4)
    }
    assert len(texts) == 4 * CALLS_EACH and box.run("verify").returncode == 0

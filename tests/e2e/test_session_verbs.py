"""The calls on a running daemon: each is one verb, is recorded with its author, and is safe to repeat."""

from __future__ import annotations

import signal
import time

from e2e.box import Box
from process_state import is_alive
from wait_conditions import PATIENCE_SECONDS, eventually

WAITING = """
    objective: Wait to be let go.
    bindings: {input: {file: in.txt, settle: 10ms}}
    run: {command: [sh, -c, 'echo x >> ledger; touch started; while [ ! -e go ]; do sleep 0.01; done'], retries: 0, grace: 1s}
"""
# Three processes: the command, a child, and a grandchild with a kernel session of its own. They ignore the signals that
# `{ignored}` names.
FAMILY = """
    objective: Wait with a family.
    bindings: {{input: {{file: in.txt, settle: 10ms}}}}
    run:
      script: |
        trap '' HUP {ignored}
        (setsid sleep 300 & echo $! >> pids)
        sleep 300 & echo $! >> pids
        echo $$ >> pids
        while [ ! -e go ]; do sleep 0.01; done
      retries: 0
      grace: 300ms
"""


def start_family(box: Box, ignored: str = "") -> list[int]:
    """Start the daemon and the run of three processes, and return their pids."""
    box.write("in.txt", "1\n")
    box.spec("work", FAMILY.format(ignored=ignored))
    box.start()
    eventually(lambda: len(box.lines("pids")) == 3)
    pids = [int(line) for line in box.lines("pids")]
    assert all(map(is_alive, pids))
    return pids


def start_waiting(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("work", WAITING)
    box.start()
    eventually(lambda: (box.folder / "started").exists())


def outcomes(box: Box) -> list[str]:
    return [record["payload"]["outcome"] for record in box.log("work") if record["kind"] == "run_finished"]


def test_activate_runs_whatever_is_owed(box: Box) -> None:
    """With --wait, the exit code tells the outcome. The log has the author of the call."""
    box.write("in.txt", "1\n")
    box.spec(
        "ok", "objective: Run.\nbindings: {i: {file: in.txt}}\nrun: {command: [sh, -c, 'test ! -e fail'], retries: 0}\n"
    )
    box.start()
    box.wait_at_rest("ok", runs=1)
    assert box.run("activate", "ok", "--wait", "--note", "please").returncode == 0
    box.write("fail", "")
    assert box.run("activate", "ok", "--wait").returncode == 1
    asked = [record for record in box.log("ok") if record["kind"] == "activation_requested"]
    assert len(asked) == 2 and asked[0]["author"].startswith("person:") and asked[0]["payload"]["note"] == "please"


def test_cancel_ends_the_whole_tree_and_counts_as_seen(box: Box) -> None:
    """The outcome is `cancelled`. The same change does not run again; a newer one does."""
    pids = start_family(box)
    box.ask("cancel", "work")
    row = box.wait_at_rest("work", runs=1)
    assert row["last_run"]["outcome"] == "cancelled" and row["state"] == "suspended"
    assert not any(map(is_alive, pids))
    box.write("go", "")
    box.write("in.txt", "2\n")
    box.wait_at_rest("work", runs=2)
    assert outcomes(box) == ["cancelled", "succeeded"]


def test_interrupt_parks_and_says_by_whom(box: Box) -> None:
    """The change is parked: it starts no run by itself, and `activate` continues the interrupted run."""
    start_waiting(box)
    box.ask("interrupt", "work")
    row = box.wait_at_rest("work")
    assert row["last_run"]["outcome"] == "interrupted"
    finished = next(record for record in box.log("work") if record["kind"] == "run_finished")
    assert finished["payload"]["by"].startswith("person:")
    box.write("go", "")
    box.ask("activate", "work", "--wait")
    assert outcomes(box) == ["interrupted", "succeeded"]
    assert [r["payload"]["resumed_from"] for r in box.log("work") if r["kind"] == "run_started"] == [None, 1]


def test_sleep_holds_and_resume_lifts(box: Box) -> None:
    """The daemon remembers changes while the session sleeps. `resume` runs only what is owed."""
    box.write("go", "")
    start_waiting(box)
    box.wait_at_rest("work", runs=1)
    box.ask("sleep", "work", "--for", "1h")
    row = box.row("work")
    assert row["state"] == "sleeping" and "snoozed" in row["reason"]
    box.write("in.txt", "2\n")
    eventually(lambda: box.row("work")["owed"] == ["input"])
    assert box.row("work")["runs"] == 1
    box.ask("resume", "work")
    box.wait_at_rest("work", runs=2)
    box.ask("resume", "work")


def test_a_short_sleep_ends_by_itself(box: Box) -> None:
    """With `--for`, the session wakes when the time is over."""
    box.write("go", "")
    start_waiting(box)
    box.wait_at_rest("work", runs=1)
    box.ask("sleep", "work", "--for", "500ms")
    box.write("in.txt", "2\n")
    box.wait_at_rest("work", runs=2)


def test_suspend_lets_the_command_end_and_starts_nothing_more(box: Box) -> None:
    """A command's only safe point is its end (rule 24)."""
    start_waiting(box)
    box.ask("suspend", "work")
    assert box.row("work")["state"] == "running"
    box.write("go", "")
    row = box.wait_at_rest("work")
    assert row["last_run"]["outcome"] == "succeeded"


def test_terminate_closes_for_good_and_open_again_reopens(box: Box) -> None:
    """The log stays readable. Only `open --again` brings the session back."""
    start_waiting(box)
    box.ask("terminate", "work")
    box.wait_for("work", state="terminated")
    assert box.run("activate", "work").returncode == 1
    assert box.run("send", "work", "hello").returncode == 1
    kinds = box.kinds("work")
    assert kinds.index("run_finished") < kinds.index("session_terminated")
    box.stop()
    box.start()
    assert box.row("work")["state"] == "terminated"
    box.write("go", "")
    box.ask("open", "work", "--again")
    box.ask("activate", "work", "--wait")
    assert box.row("work")["state"] == "suspended"


def test_what_became_of_its_file_while_it_was_closed_is_known_when_it_opens_again(box: Box) -> None:
    """If the file is gone, the session is undeclared.

    If it is broken, the last good spec goes on and the problem stays visible.
    """
    box.write("in.txt", "1\n")
    for name in ("gone", "broken"):
        box.spec(name, "objective: Note it.\nbindings: {i: {file: in.txt, settle: 10ms}}\nrun: {command: ['true']}\n")
    box.start()
    for name in ("gone", "broken"):
        box.wait_at_rest(name, runs=1)
        box.ask("terminate", name)
    (box.specs / "gone.yaml").unlink()
    box.spec("broken", "nonsense: 1\n")
    box.stop()
    box.start()
    for name in ("gone", "broken"):
        box.ask("open", name, "--again")
    assert "undeclared" in box.row("gone")["reason"] and box.kinds("gone")[-1] == "spec_removed"
    box.write("in.txt", "2\n")
    box.wait_at_rest("broken", runs=2)
    assert "nonsense" in box.words("show", "broken")


def test_unknown_names_are_refused_with_words(box: Box) -> None:
    """The exit code is 1, and the message names the session."""
    box.start()
    for arguments in (("activate", "nobody"), ("show", "nobody"), ("send", "nobody", "x"), ("log", "nobody")):
        done = box.run(*arguments)
        assert done.returncode == 1 and "nobody" in done.stderr, arguments


def test_a_child_that_ignores_signals_is_gone_after_its_grace(box: Box) -> None:
    """The run ends as cancelled, although its processes ignore all signals but SIGKILL. None of them is left.

    The command has the whole grace to end by itself.
    """
    pids = start_family(box, ignored="TERM INT")
    asked = time.monotonic()
    box.ask("cancel", "work")
    eventually(lambda: not is_alive(pids[-1]))
    assert time.monotonic() - asked >= 0.3
    row = box.wait_at_rest("work", runs=1)
    assert row["last_run"]["outcome"] == "cancelled"
    assert not any(map(is_alive, pids))


def test_a_timeout_fails_with_words(box: Box) -> None:
    """The reason says `timed out`, and the session sleeps as failed."""
    box.write("in.txt", "1\n")
    box.spec(
        "work",
        "objective: Hang.\nbindings: {i: {file: in.txt}}\nrun: {command: [sleep, '300'], timeout: 200ms, grace: 200ms, retries: 0}\n",
    )
    box.start()
    row = box.wait_for("work", state="sleeping")
    assert "timed out" in row["reason"]


def test_retries_back_off_then_sleep_as_failed(box: Box) -> None:
    """After one retry on the same versions, a second later, the cause is parked, until a newer version comes."""
    box.write("in.txt", "1\n")
    box.spec(
        "work",
        "objective: Fail.\nbindings: {i: {file: in.txt, settle: 10ms}}\nrun: {command: [sh, -c, 'date +%s.%N >> ledger; grep -q good in.txt'], retries: 1}\n",
    )
    box.start()
    row = box.wait_for("work", state="sleeping", runs=2)
    started = [record["payload"] for record in box.log("work") if record["kind"] == "run_started"]
    assert [run["attempt"] for run in started] == [0, 1] and started[0]["versions"] == started[1]["versions"]
    first, retry = map(float, box.lines("ledger"))
    assert retry - first >= 1
    assert row["reason"].startswith("failed") and row["owed"] == []
    box.write("in.txt", "good\n")
    row = box.wait_at_rest("work", runs=3)
    assert row["state"] == "suspended" and row["last_run"]["outcome"] == "succeeded"


def test_sigint_twice_stops_without_waiting_for_runs(box: Box) -> None:
    """After the first signal the run goes on for stop_grace. On the second signal the daemon interrupts it at once."""
    box.write("wakeful.yaml", f"concurrency: 1\nstop_grace: {int(PATIENCE_SECONDS)}s\n")
    box.spec("talk", "objective: Listen.\nrun: {command: ['true']}\n")
    pids = start_family(box)
    assert box.daemon is not None
    box.ask("send", "talk", "anybody there?")
    daemon, asked = box.daemon, time.monotonic()
    daemon.send_signal(signal.SIGINT)
    box.wait_for("talk", queued="the daemon is stopping")
    assert "run_stop_requested" not in box.kinds("work") and all(map(is_alive, pids))
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(PATIENCE_SECONDS) == 0
    assert time.monotonic() - asked < PATIENCE_SECONDS / 2
    assert not any(map(is_alive, pids))
    box.start()
    assert outcomes(box)[0] == "interrupted"


def test_what_a_run_uses_is_seen_while_it_runs(box: Box) -> None:
    """`show` has the CPU time of the run, so that a person sees whether the run works or waits."""
    box.write("in.txt", "1\n")
    box.write("burn.py", "while True: pass\n")
    box.spec("burn", "objective: Burn.\nbindings: {i: {file: in.txt}}\nrun: {command: [python3, burn.py]}\n")
    box.start()
    box.wait_for("burn", state="running")
    # The run has used nothing before it has a process.
    eventually(lambda: (box.json("show", "burn")["run"]["usage"] or {}).get("cpu_seconds", 0) > 0.05)
    box.ask("cancel", "burn")
    assert box.wait_at_rest("burn")["last_run"]["outcome"] == "cancelled"
    assert box.json("show", "burn")["run"] is None


def test_the_reason_of_a_termination_during_a_run_is_on_record(box: Box) -> None:
    """The reason comes with the request, and is kept until the run has ended. The session is closed for that reason."""
    start_waiting(box)
    box.ask("terminate", "work", "--reason", "the year is closed")
    box.wait_for("work", state="terminated")
    last = box.log("work")[-1]
    assert (last["kind"], last["payload"]["reason"]) == ("session_terminated", "the year is closed")

"""kill -9 at any moment: no accepted change is lost, no run goes unrecorded, no process is left behind."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import psutil
import pytest

from e2e.box import Box
from process_state import is_alive
from wait_conditions import eventually

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]

LEDGER_SPEC = """
    objective: Write down what was seen.
    bindings:
      # A pattern: a file by its name is closed to a run once another one was renamed over it.
      input: {{file: in{number}.tx?, settle: 5ms}}
    run:
      # One line, whichever save it is of: `cat` may read on behind the end of another one.
      command: [sh, -c, 'v=$(head -n 1 in{number}.txt); sleep 0.0{number}; echo "$WAKEFUL_RUN $v" >> ledger{number}']
"""


def processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get("WAKEFUL_SOCKET", "").startswith(str(folder))
                and "WAKEFUL_RUN" in process.environ()
            ):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kills_lose_no_change(box: Box, seed: int) -> None:
    """After edits under random kill -9, every session's last successful run saw the last content.

    The log has no gap.
    """
    dice = random.Random(seed)
    numbers = range(1, 5)
    for number in numbers:
        box.write(f"in{number}.txt", "0\n")
        box.spec(f"s{number}", LEDGER_SPEC.format(number=number))
    box.start()
    latest = dict.fromkeys(numbers, "0")
    for kill in range(6):
        for edit in range(dice.randint(1, 8)):
            number = dice.choice(list(numbers))
            latest[number] = f"{kill}.{edit}"
            (box.save if dice.random() < 0.5 else box.write)(f"in{number}.txt", latest[number] + "\n")
            # Spread the kill over settle, look, commit, spawn and end. This is a busy wait, because the exact moment
            # matters.
            for _ in range(dice.randint(0, 40_000)):
                pass
        box.kill()
        box.start(is_ready=dice.random() < 0.7)
    box.wait_ready()
    for number in numbers:
        eventually(lambda name=f"s{number}": is_past_crashing(box, name))
        row = box.wait_at_rest(f"s{number}")
        assert row["last_run"]["outcome"] == "succeeded", row
        assert box.lines(f"ledger{number}")[-1].split()[1] == latest[number]
        check_history(box, f"s{number}", box.lines(f"ledger{number}"))
    assert box.ask("verify")
    eventually(lambda: not processes_of(box.folder))


def is_past_crashing(box: Box, name: str) -> bool:
    """Return whether the session is at rest or was resumed here.

    After three lost runs it is held as crashing (rule 22), perhaps only when the last orphan has ended. A person then
    resumes it.
    """
    row = box.row(name)
    if (row["reason"] or "").startswith("crashing"):
        box.ask("resume", name)
        return True
    return row["state"] == "suspended" and not row["owed"] and row["queued"] is None


def check_history(box: Box, name: str, ledger: list[str]) -> None:
    """Check that the log accounts for every line of the ledger, and that every successful run left a line."""
    records = box.log(name)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    started = [r["payload"]["run_id"] for r in records if r["kind"] == "run_started"]
    finished = {r["payload"]["run"]: r["payload"]["outcome"] for r in records if r["kind"] == "run_finished"}
    written = [line.split()[0] for line in ledger]
    assert len(started) == len(set(started)) and len(written) == len(set(written)), "a run ran twice"
    assert set(written) <= set(started), "a run ran that the log does not know"
    succeeded = {f"{run_id}" for run_id in started if finished.get(int(run_id.rsplit(".", 1)[1])) == "succeeded"}
    assert succeeded <= set(written)
    assert set(finished.values()) <= {"succeeded", "lost"}, [
        r["payload"] for r in records if r["kind"] == "run_finished"
    ]


def test_a_killed_daemon_s_runs_are_ended_and_recorded_lost(box: Box) -> None:
    """The next daemon finds the orphans by their mark and ends them. The wake is still open and runs again."""
    box.write("in.txt", "1\n")
    box.spec(
        "long",
        """
        objective: Outlive the daemon.
        bindings: {input: {file: in.txt}}
        run: {command: [sh, -c, 'echo "$WAKEFUL_RUN" >> ledger; [ -e go ] || (setsid sleep 300 & sleep 300)']}
        """,
    )
    box.start()
    eventually(lambda: len(box.lines("ledger")) == 1)
    orphans = eventually(lambda: processes_of(box.folder))
    box.kill()
    assert any(process.is_running() for process in orphans)
    box.write("go", "")
    box.start()
    row = box.wait_at_rest("long", runs=2)
    assert row["last_run"]["outcome"] == "succeeded"
    assert not any(process.is_running() and is_alive(process.pid) for process in orphans)
    outcomes = [r["payload"]["outcome"] for r in box.log("long") if r["kind"] == "run_finished"]
    assert outcomes == ["lost", "succeeded"]


def test_three_lost_runs_put_the_session_to_sleep(box: Box) -> None:
    """A session whose daemon dies each time is held as crashing, and not tried for ever (rule 22)."""
    box.write("in.txt", "1\n")
    box.spec(
        "fatal",
        "objective: Crash.\nbindings: {input: {file: in.txt}}\nrun: {command: [sh, -c, 'echo x >> ledger; sleep 300']}\n",
    )
    box.start()
    for started in range(1, 4):
        eventually(lambda started=started: len(box.lines("ledger")) == started)
        box.kill()
        box.start()
    row = box.wait_for("fatal", state="sleeping")
    assert row["reason"].startswith("crashing") and row["runs"] == 3 and row["owed"] == ["first"]


def test_a_second_daemon_on_the_same_state_refuses(box: Box) -> None:
    """The second daemon names the pid of the first and changes nothing."""
    box.start()
    assert box.daemon is not None
    second = box.run("daemon", "--specs", str(box.specs), "--state", str(box.state), "--socket", str(box.socket) + "2")
    assert second.returncode == 1
    assert str(box.daemon.pid) in second.stderr
    assert box.json("list") == []


def test_sigterm_interrupts_late_runs_which_are_owed_again(box: Box) -> None:
    """A stop waits for stop_grace, then interrupts the runs that remain. The next daemon runs them again."""
    box.write("in.txt", "1\n")
    box.write("wakeful.yaml", "stop_grace: 200ms\n")
    box.spec(
        "long",
        "objective: Take long.\nbindings: {input: {file: in.txt}}\nrun: {command: [sh, -c, 'echo x >> ledger; [ -e go ] || sleep 300']}\n",
    )
    box.start()
    eventually(lambda: box.lines("ledger"))
    assert box.stop() == 0
    box.write("go", "")
    box.start()
    row = box.wait_at_rest("long", runs=2)
    assert row["last_run"]["outcome"] == "succeeded"
    first = next(r for r in box.log("long") if r["kind"] == "run_finished")
    assert first["payload"]["outcome"] == "interrupted" and not first["payload"]["is_final"]
    assert not processes_of(box.folder)


def test_state_is_private(box: Box) -> None:
    """The state folder and the socket are closed to other users."""
    box.start()
    assert (box.state.stat().st_mode & 0o777) == 0o700
    assert (box.socket.stat().st_mode & 0o777) == 0o600
    with box.held_still():
        for folder, _, files in os.walk(box.state):
            for name in files:
                assert not (Path(folder) / name).lstat().st_mode & 0o077, f"{folder}/{name} can be read by others"


def test_a_store_set_back_is_refused_with_what_to_do(box: Box) -> None:
    """An older copy of the log is behind what was acknowledged. The daemon refuses to start and says what helps."""
    box.spec("talk", "objective: Listen.\nrun: {command: ['true']}\n")
    box.start()
    assert box.stop() == 0
    older = (box.state / "log" / "events.db").read_bytes()
    box.start()
    box.ask("send", "talk", "one more")
    box.wait_at_rest("talk", runs=1)
    assert box.stop() == 0
    (box.state / "log" / "events.db").write_bytes(older)
    refused = box.once()
    assert refused.returncode == 1
    assert (
        str(box.state) in refused.stderr and "wakeful restore" in refused.stderr and "wakeful doctor" in refused.stderr
    )


def test_what_a_killed_daemon_left_of_its_runs_is_removed_by_the_next(box: Box) -> None:
    """Tokens and causes of dead runs do not pile up in memory. A clean stop leaves no file."""
    box.write("in.txt", "1\n")
    box.spec(
        "wait",
        "objective: Wait.\nbindings: {i: {file: in.txt}}\nrun: {command: [sh, -c, 'while ! test -f go; do sleep 0.02; done']}\n",
    )
    box.start()
    (folder,) = eventually(lambda: list(box.runtime.glob("wakeful-runs-*/*")))
    box.kill()
    assert (folder / "token").exists()
    box.write("go", "")
    box.start()
    assert not folder.exists()
    box.wait_at_rest("wait", runs=2)
    assert box.stop() == 0
    assert list(box.runtime.iterdir()) == []


@pytest.mark.faults
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: NO START WAS KILLED")
def test_a_first_start_killed_at_any_file_operation_is_followed_by_one_that_works(box: Box) -> None:
    """Kill the daemon at a later and later call that changes a file, until a start ends without a kill."""
    box.write("in1.txt", "0\n")
    box.spec("s1", LEDGER_SPEC.format(number=1))
    killed = 0
    for k in (number**2 for number in range(1, 60)):
        calls = "mkdir,rename,unlink,pwrite64,fsync,fdatasync,ftruncate"
        box.wrap = (
            "strace",
            "-qq",
            "-o",
            str(box.folder / "trace"),
            "-e",
            f"trace={calls}",
            "-e",
            f"inject={calls}:signal=KILL:when={k}",
        )
        ended = box.once()
        box.wrap = ()
        if ended.returncode == 0:
            break
        killed += 1
        again = box.once()
        assert again.returncode == 0, f"after a kill at call {k}: {again.stderr}"
        box.ask("verify", "--state", str(box.state))
        shutil.rmtree(box.state)
    assert killed > 5, "no kill came before the end of the start"

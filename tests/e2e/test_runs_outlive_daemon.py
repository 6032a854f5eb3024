"""Runs that outlive their daemon.

It is killed with -9 under a supervisor that keeps descriptors, and the next daemon goes on with them. The supervisor is
a process of its own (supervisor.py) that does what systemd does. Tests with systemd itself are in tests/systemd.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from e2e.box import Box
from process_state import is_alive
from wait_conditions import eventually
from wakeful.cli.client import Client
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.trace import find_obstacle as find_tracing_obstacle
from wakeful.runners.process.procfs import can_tell_ends

SUPERVISOR = Path(__file__).with_name("supervisor.py")

pytestmark = pytest.mark.skipif(
    not can_tell_ends(), reason="RUNS END WITH THEIR DAEMON HERE, outliving it not tested: Linux 6.15 is needed"
)

# A run that writes its pid, and goes on when the file `go` exists.
SPEC = """
    objective: Work on, whatever becomes of the daemon.
    bindings:
      i: {file: in.txt, settle: 10ms}
      o: {file: out.txt, access: write}
    run:
      script: |
        echo $$ > pid.new && mv pid.new pid
        echo before
        while [ ! -e go ]; do sleep 0.02; done
        echo after
        wakeful remember answer 42 > said 2>&1
        cp in.txt out.txt
        exit $(cat code 2> /dev/null || echo 0)
"""

STRICT = """
    objective: Work on, in a view of the machine of its own.
    isolation: strict
    allow: {read: [gate], write: []}
    bindings:
      i: {file: in.txt, settle: 10ms}
      o: {file: "made/*.txt", access: write}
    run:
      script: |
        cp in.txt made/first.txt
        while [ ! -e gate/go ]; do sleep 0.02; done
        cat made/first.txt made/old.txt > made/second.txt
        rm made/old.txt
      check: [sh, -c, "test -e made/first.txt && test -e made/second.txt && test ! -e made/old.txt && echo checked"]
"""

WORKSPACE = """
    objective: Work in a place of its own.
    allow: {read: [], write: []}
    bindings:
      i: {file: in.txt, settle: 10ms}
      o: {file: out.txt, access: write}
    run:
      script: |
        echo half > out.txt
        echo $$ > $WAKEFUL_SCRATCH/pid
        while [ ! -e $WAKEFUL_SCRATCH/go ]; do sleep 0.02; done
        cp in.txt out.txt
      workspace: copy
"""

# Messages as the daemon sends them: keep this process, forget that run.
FORGE = r"""
import os, socket
channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
channel.connect("notify")
socket.send_fds(channel, [b"FDSTORE=1\nFDNAME=run-x.1"], [os.pidfd_open(os.getpid())])
channel.send(b"FDSTOREREMOVE=1\nFDNAME=run-" + os.environb[b"WAKEFUL_RUN"])
"""

# Asks for the list of sessions as a person's command does, and writes down each status. It ignores SIGTERM.
ASK = """
import os, signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(os.environ["WAKEFUL_SOCKET"])
            channel.send(b"GET /sessions HTTP/1.1\\r\\nHost: w\\r\\nConnection: close\\r\\n\\r\\n")
            status = channel.recv(100).split()[1:2]
    except OSError:
        status = []
    if status:
        with open("answers", "ab") as ledger:
            ledger.write(status[0] + b"\\n")
    time.sleep(0.01)
"""


@pytest.fixture
def kept(box: Box) -> Box:
    """A box whose daemon is started and restarted by a supervisor that keeps its descriptors."""
    box.wrap = (sys.executable, str(SUPERVISOR), str(box.folder))
    box.write("in.txt", "1\n")
    return box


def kill_daemon(box: Box) -> None:
    """Kill the daemon with -9, and wait until the next one is ready."""
    box.said = box.output.stat().st_size
    os.kill(int(box.read("main")), signal.SIGKILL)
    box.wait_ready()


def begin(box: Box, spec: str = SPEC, **env: str) -> int:
    """Start the daemon, and wait until the run is under way and the supervisor keeps all of it.

    Return the run's pid.
    """
    box.spec("work", spec)
    box.start(env=env)
    eventually(lambda: box.read("pid") and is_kept(box))
    return int(box.read("pid"))


def is_kept(box: Box) -> bool:
    """Return whether the supervisor keeps the run and the list of what it found. A thread makes that list meanwhile."""
    return all(f"{prefix}-" in box.read("stored") for prefix in ("run", "list"))


def test_a_run_outlives_a_killed_daemon_and_ends_under_the_next_as_if_nothing_had_happened(kept: Box) -> None:
    """It stays the same process and run, with one output, a valid token and its exit code.

    The log records that it went on.
    """
    pid = begin(kept)
    kill_daemon(kept)
    assert is_alive(pid) and kept.row("work")["state"] == "running"
    kept.write("go", "")
    row = kept.wait_at_rest("work", runs=1)
    assert (row["runs"], row["last_run"]["outcome"]) == (1, "succeeded")
    assert kept.ask("output", "work") == "before\nafter\n"
    assert kept.read("out.txt") == "1\n" and kept.ask("recall", "work", "answer").strip().endswith("42"), kept.read(
        "said"
    )
    kinds = kept.kinds("work")
    assert [kind for kind in kinds if kind.startswith("run_")] == ["run_started", "run_readopted", "run_finished"]
    assert "run 1 goes on" in kept.words("log", "work")
    assert eventually(lambda: kept.read("stored") == "") is True
    [finished] = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert finished["files"] is not None and finished["written"].keys() == {"o"}
    assert "It outlived the daemon that started it." in kept.words("why", "work")
    assert "run 1 outlived the daemon that started it" in kept.words("show", "work")


@pytest.mark.long
def test_a_run_that_fails_after_its_daemon_did_is_told_with_its_exit_code(kept: Box) -> None:
    """The daemon is killed twice. The daemon that is there at the end learns how the run ended."""
    kept.write("code", "7\n")
    begin(kept, SPEC + "      retries: 0\n")
    kill_daemon(kept)
    kill_daemon(kept)
    kept.write("go", "")
    kept.wait_for("work", state="sleeping")
    [finished] = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert (finished["outcome"], finished["exit_code"]) == ("failed", 7)
    assert "It outlived 2 daemons." in kept.words("why", "work")


@pytest.mark.long
def test_a_run_that_ends_while_no_daemon_is_there_loses_nothing(kept: Box) -> None:
    """The run writes far more than a pipe holds, before and after.

    The count is right, head and tail are kept, and the wake is not served twice.
    """
    flood = "head -c 3000000 /dev/zero | tr '\\0' x"
    begin(
        kept,
        SPEC.replace("echo before", f"{flood}; echo; echo before").replace("echo after", f"{flood}; echo; echo after"),
    )
    # A chunk that is being read at the moment of a kill is lost. Here the daemon has read all there is.
    eventually(lambda: kept.ask("output", "work").endswith("x\nbefore\n"))
    os.kill(int(kept.read("main")), signal.SIGSTOP)
    kept.write("go", "")
    kill_daemon(kept)
    row = kept.wait_at_rest("work", runs=1)
    assert (row["runs"], row["last_run"]["outcome"]) == (1, "succeeded")
    [finished] = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert finished["output"]["total_bytes"] == 2 * 3_000_001 + len("before\nafter\n")
    assert kept.ask("output", "work").endswith("x\nafter\n")


@pytest.mark.long
def test_a_run_that_was_killed_while_no_daemon_was_there_is_run_again(kept: Box) -> None:
    """A manager with another KillMode kills the daemon and its runs together. Such a run has not failed."""
    pid = begin(kept)
    main = int(kept.read("main"))
    os.kill(main, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    kept.write("go", "")
    kill_daemon(kept)
    row = kept.wait_at_rest("work", runs=2)
    assert row["last_run"]["outcome"] == "succeeded"
    outcomes = [record["payload"]["outcome"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert outcomes == ["lost", "succeeded"]


@pytest.mark.long
def test_time_goes_on_without_a_daemon(kept: Box) -> None:
    """The timeout counts from the start of the run, whichever daemon ends it."""
    begin(kept, SPEC + "      timeout: 4s\n      grace: 1s\n      retries: 0\n")
    kill_daemon(kept)
    kept.wait_for("work", state="sleeping")
    [finished] = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert finished["outcome"] == "failed" and "4s" in finished["reason"]
    assert 3.9 < finished["usage"]["wall_seconds"] < 7


@pytest.mark.long
@pytest.mark.parametrize("call, outcome", [("interrupt", "interrupted"), ("cancel", "cancelled")])
def test_a_run_of_an_earlier_daemon_can_be_stopped(kept: Box, call: str, outcome: str) -> None:
    """The whole tree ends, with the process that left it by setsid."""
    begin(
        kept,
        SPEC.replace(
            "echo before",
            "setsid sh -c 'echo $$ > stray.new; mv stray.new stray; exec sleep 600' &\n        echo before",
        ),
    )
    stray = int(eventually(lambda: kept.read("stray")))
    kill_daemon(kept)
    assert is_alive(stray)
    kept.ask(call, "work")
    row = kept.wait_at_rest("work", runs=1)
    assert row["last_run"]["outcome"] == outcome
    assert not is_alive(int(kept.read("pid"))) and not is_alive(stray)


@pytest.mark.long
def test_the_check_of_a_run_follows_it_under_the_next_daemon(kept: Box) -> None:
    """The check is confined as ever. Its output follows that of the command, and its result is the run's."""
    begin(kept, SPEC + "      check: [sh, -c, 'echo checked; cat out.txt; exit 3']\n      retries: 0\n")
    kill_daemon(kept)
    kept.write("go", "")
    kept.wait_for("work", state="sleeping")
    [finished] = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert finished["outcome"] == "failed" and "check" in finished["reason"]
    assert kept.ask("output", "work").endswith("checked\n1\n")
    assert finished["isolation"]["level"] != "none" or "everything" in finished["isolation"]["unenforced"]


@pytest.mark.long
def test_a_check_under_way_outlives_its_daemon_too(kept: Box) -> None:
    """The command does not run again for it, and there is one output."""
    begin(
        kept,
        SPEC
        + "      check: [sh, -c, 'echo checking > checking; while [ ! -e went ]; do sleep 0.02; done; echo checked']\n",
    )
    kept.write("go", "")
    eventually(lambda: kept.read("checking"))
    eventually(lambda: kept.ask("output", "work").count("--- check"))
    kill_daemon(kept)
    kept.write("went", "")
    row = kept.wait_at_rest("work", runs=1)
    assert (row["runs"], row["last_run"]["outcome"]) == (1, "succeeded")
    assert kept.ask("output", "work").endswith("\nchecked\n") and kept.ask("output", "work").startswith(
        "before\nafter\n--- check"
    )


@pytest.mark.long
def test_a_strict_run_lands_its_outputs_under_the_next_daemon(kept: Box) -> None:
    """What it writes before and after the daemon's death lands together, and not before its end.

    Until then it reads its own copies of the outputs, as they were when it started or as it wrote them.
    """
    if (obstacle := find_obstacle()) is not None:
        pytest.skip(f"STRICT RUNS NOT TESTED: {obstacle}")
    kept.write("made/old.txt", "old\n")
    kept.write("gate/.keep", "")
    kept.write("in.txt", "1\n")
    kept.spec("work", STRICT)
    kept.start()
    eventually(lambda: is_kept(kept))
    folder = kept.state / "staged"
    eventually(lambda: list(folder.glob("*/0/first.txt")))
    kill_daemon(kept)
    assert not (kept.folder / "made/first.txt").exists()
    kept.write("gate/go", "")
    row = kept.wait_at_rest("work", runs=1)
    assert (row["runs"], row["last_run"]["outcome"]) == (1, "succeeded"), kept.words("output", "work")
    assert (kept.read("made/first.txt"), kept.read("made/second.txt"), kept.read("made/old.txt")) == (
        "1\n",
        "1\nold\n",
        "",
    )
    [finished] = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert finished["isolation"]["level"] == "strict" and finished["assumed"] is False and finished["files"] is not None
    assert kept.kinds("work").count("outputs_landed") == 1 and not list(folder.glob("*"))
    assert kept.ask("output", "work").endswith("checked\n")


@pytest.mark.long
def test_a_secret_that_was_replaced_while_its_run_lived_is_redacted_by_the_next_daemon(
    kept: Box, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The run still prints the old value. No output, no log and no file of the state folder has it."""
    config = tmp_path_factory.mktemp("config")
    (config / "wakeful").mkdir()
    (config / "wakeful/secrets").mkdir(0o700)
    secret = config / "wakeful/secrets/key"
    secret.touch(0o600)
    secret.write_text("the-old-value-0815\n")
    spec = SPEC.replace("echo after", "cat $WAKEFUL_SECRET_KEY; echo; echo after") + "    secrets: [key]\n"
    begin(kept, spec, XDG_CONFIG_HOME=str(config))
    kill_daemon(kept)
    secret.write_text("another-value-4711\n")
    kill_daemon(kept)
    kept.write("go", "")
    kept.wait_at_rest("work", runs=1)
    said = kept.ask("output", "work")
    assert said.startswith("before\n") and said.endswith("after\n") and "0815" not in said and "key" in said
    assert kept.stop() == 0
    found = [path for path in kept.state.rglob("*") if path.is_file() and b"the-old-value-0815" in path.read_bytes()]
    assert found == []


@pytest.mark.long
def test_what_a_run_sends_to_the_supervisor_is_not_taken_for_the_daemons(kept: Box) -> None:
    """The run knows where the supervisor listens.

    It tells it to keep another process and to forget the run. The supervisor does neither.
    """
    kept.write("forge.py", FORGE)
    begin(kept, SPEC.replace("echo before", f"{sys.executable} forge.py && touch forged; echo before"))
    eventually(lambda: (kept.folder / "forged").exists())
    kill_daemon(kept)
    assert [name for name in kept.lines("stored") if name.startswith("run-")] == [
        f"run-{kept.log('work')[0]['payload']['id']}.1"
    ]
    kept.write("go", "")
    assert kept.wait_at_rest("work", runs=1)["last_run"]["outcome"] == "succeeded"


@pytest.mark.long
def test_a_run_that_a_killed_daemon_left_cannot_pass_for_a_person(box: Box) -> None:
    """No supervisor keeps the run, so the next daemon ends it.

    Until it is dead it asks without its token, and is refused as any run is.
    """
    box.write("ask.py", ASK)
    box.write("in.txt", "1\n")
    box.spec(
        "work", f"objective: Ask.\nbindings: {{i: {{file: in.txt}}}}\nrun: {{command: [{sys.executable}, ask.py]}}\n"
    )
    box.start()
    eventually(lambda: box.lines("answers"))
    box.kill()
    before = len(box.lines("answers"))
    box.start()
    eventually(lambda: len(box.lines("answers")) > before)
    box.wait_for("work", runs=2)
    assert set(box.lines("answers")) == {"403"}


@pytest.mark.long
def test_an_input_that_was_touched_while_no_daemon_was_there_wakes_once_more(kept: Box) -> None:
    """The input is changed and changed back, so that its version is the same.

    The run may have read what was there in between (rule 17).
    """
    begin(kept)
    os.kill(int(kept.read("main")), signal.SIGSTOP)
    kept.write("in.txt", "2\n")
    kept.write("in.txt", "1\n")
    kill_daemon(kept)
    kept.write("go", "")
    row = kept.wait_at_rest("work", runs=2)
    assert row["runs"] == 2
    [cause] = row["last_run"]["causes"]
    assert cause["reason"] == "touched during run"


@pytest.mark.long
def test_a_run_in_a_workspace_ends_with_its_daemon_and_is_run_again(kept: Box) -> None:
    """Only its daemon knows what the run found there.

    It is recorded as lost, its half of the work lands nowhere, and the next run does all of it.
    """
    kept.spec("work", WORKSPACE)
    kept.start()
    scratch = kept.state / "scratch"
    [pid] = eventually(lambda: [int(text) for path in scratch.glob("*/pid") if (text := path.read_text())])
    kill_daemon(kept)
    eventually(lambda: not is_alive(pid))
    assert eventually(lambda: kept.kinds("work").count("run_started") == 2) and "run_readopted" not in kept.kinds(
        "work"
    )
    assert kept.read("out.txt") == ""
    (next(scratch.glob("*/pid")).parent / "go").touch()
    row = kept.wait_at_rest("work", runs=2)
    ends = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert [end["outcome"] for end in ends] == ["lost", "succeeded"] and row["runs"] == 2, kept.words("output", "work")
    assert kept.read("out.txt") == "1\n" and not list((kept.state / "staged").iterdir())


@pytest.mark.long
def test_a_traced_run_ends_with_its_daemon(kept: Box) -> None:
    """The tracer speaks to its daemon.

    The run and the tracer end, the run is recorded as lost, and the next one is not traced.
    """
    if (obstacle := find_tracing_obstacle()) is not None:
        pytest.skip(f"TRACED RUNS NOT TESTED: {obstacle}")
    kept.spec("work", SPEC)
    kept.write("go", "")
    kept.start()
    kept.wait_at_rest("work", runs=1)
    for name in ("go", "pid"):
        (kept.folder / name).unlink()
    Client(str(kept.socket)).call("trace", name="work")
    pid = int(eventually(lambda: kept.read("pid")))
    kill_daemon(kept)
    eventually(lambda: not is_alive(pid))
    kept.write("go", "")
    kept.wait_at_rest("work")
    ends = [record["payload"] for record in kept.log("work") if record["kind"] == "run_finished"]
    assert (
        ends[1]["outcome"] == "lost"
        and "run_readopted" not in kept.kinds("work")
        and all(end["trace"] is None for end in ends)
    )

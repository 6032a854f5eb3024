"""Verbs that act: calls by a person and by a run, exit codes, and a daemon that is absent or of another version."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from api.small_daemon import RunningDaemon
from cli.conftest import PAYROLL, Command, run_wakeful
from wait_conditions import eventually
from wakeful.core.calls.call_types import ResumeAll, SleepAll


def test_the_life_of_a_session_by_its_verbs(rested: RunningDaemon, wakeful: Command) -> None:
    """Each verb prints what it did."""
    assert wakeful("sleep", "payroll", "--for", "2h", "--reason", "holidays").stdout == "payroll: sleeps\n"
    assert json.loads(wakeful("list", "--json").stdout)[1]["reason"] == "holidays"
    assert wakeful("resume", "payroll").stdout == "payroll: resumed\n"
    assert wakeful("activate", "payroll", "--note", "now").stdout == "payroll: activated\n"
    assert "interrupting" in wakeful("interrupt", "payroll").stdout
    assert "cancelling" in wakeful("cancel", "payroll").stdout
    rested.do(lambda d: d.finish("payroll"))
    assert wakeful("rename", "payroll", "wages").stdout == "wages: renamed to wages\n"
    assert wakeful("terminate", "hr/filing", "--reason", "moved").stdout == "hr/filing: terminated\n"
    assert wakeful("open", "hr/filing", "--again").returncode == 0


def test_sleep_takes_a_length_or_a_time_and_not_both(rested: RunningDaemon, wakeful: Command) -> None:
    """A time needs a zone. A duration has the form that specs.md describes."""
    assert wakeful("sleep", "payroll", "--until", "2999-01-01T00:00:00Z").returncode == 0
    assert wakeful("sleep", "payroll", "--until", "2999-01-01T00:00:00").returncode == 1
    assert wakeful("sleep", "payroll", "--until", "1999-01-01T00:00:00Z").returncode == 1
    assert wakeful("sleep", "payroll", "--for", "2 fortnights").returncode == 2
    assert wakeful("sleep", "payroll", "--for", "2h", "--until", "2999-01-01T00:00:00Z").returncode == 2


@pytest.mark.parametrize(("exit_code", "expected"), [(0, 0), (3, 1)])
def test_activate_wait_ends_with_the_run_and_tells_how(rested: RunningDaemon, exit_code: int, expected: int) -> None:
    """`--wait` is for scripts: its exit code tells the run's outcome."""
    words = [sys.executable, "-m", "wakeful", "activate", "payroll", "--wait", "--json", "--socket", str(rested.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as waiter:
        eventually(lambda: rested.small.core.state.by_name("payroll").run is not None)
        rested.do(lambda d: d.finish("payroll", exit_code=exit_code))
        out, _ = waiter.communicate(timeout=60)
    assert waiter.returncode == expected
    assert json.loads(out)["outcome"] == ("succeeded" if exit_code == 0 else "failed")


def test_facts_and_messages_outside_a_run_take_the_name_first(rested: RunningDaemon, wakeful: Command) -> None:
    """Outside a run, the first argument of `remember`, `recall`, `facts`, `note` and `send` is the session's name."""
    assert wakeful("remember", "payroll", "currency", "CNY", "--because", "the CFO said so").returncode == 0
    assert wakeful("recall", "payroll", "currency").stdout == "CNY\n"
    assert "the CFO said so" in wakeful("facts", "payroll").stdout
    assert json.loads(wakeful("recall", "payroll", "--json").stdout)[0]["value"] == "CNY"
    assert wakeful("note", "payroll", "done").stdout == "payroll: left a hand-off\n"
    assert "1 message, 4 bytes" in wakeful("show", "payroll").stdout
    assert "mailbox" in wakeful("send", "payroll", "hello", "--key", "once").stdout
    assert wakeful("send", "payroll", "hello", "--key", "once").returncode == 0
    assert rested.small.core.state.by_name("payroll").mailbox.position == 1
    missing = wakeful("recall", "payroll", "nothing")
    assert missing.returncode == 1 and "no fact" in missing.stderr
    assert wakeful("note", "payroll").returncode == 2


def test_inside_a_run_no_name_is_needed_and_the_token_speaks(
    daemon: RunningDaemon, wakeful: Command, tmp_path: Path
) -> None:
    """specs.md promises that `note`, `send`, `remember`, `recall`, `facts` and `history` need no name in a run."""
    daemon.do(lambda d: d.declare(PAYROLL))
    token = tmp_path / "token"
    token.write_text(daemon.small.give_token("payroll"))
    run = {"WAKEFUL_SESSION": "payroll", "WAKEFUL_TOKEN_FILE": str(token)}
    assert wakeful("note", "row 7", **run).returncode == 0
    assert wakeful("remember", "currency", "CNY", **run).returncode == 0
    assert wakeful("recall", "currency", **run).stdout == "CNY\n"
    assert "currency = CNY" in wakeful("facts", **run).stdout
    assert wakeful("send", "payroll", "to myself", **run).returncode == 0
    records = [json.loads(line) for line in wakeful("history", "--json", **run).stdout.splitlines()]
    assert {r["author"] for r in records if r["kind"] in ("note_added", "fact_set")} == {"run:payroll#1"}
    token.write_text("wrong")
    refused = wakeful("note", "row 8", **run)
    assert refused.returncode == 1 and "token" in refused.stderr
    gone = wakeful("note", "row 8", WAKEFUL_SESSION="payroll", WAKEFUL_TOKEN_FILE=str(tmp_path / "nowhere"))
    assert gone.returncode == 1 and "token" in gone.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list",), 3),
        (("activate", "payroll"), 3),
        (("follow",), 3),
        (("nonsense",), 2),
        (("list", "--nonsense"), 2),
        (("show",), 2),
        (("log", "x", "--from", "zero"), 2),
        (("daemon", "--http", "nowhere"), 2),
        (("--help",), 0),
        (("--version",), 0),
        (("activate", "--help"), 0),
    ],
)
def test_exit_codes(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    """0 is done, 1 refused or failed, 2 a usage error, 3 no daemon.
    An error is one line on stderr that begins with `wakeful:`."""
    done = run_wakeful(*words, WAKEFUL_SOCKET=str(tmp_path / "none.sock"))
    assert done.returncode == code, done.stderr
    if code:
        assert done.stderr.startswith("wakeful: ") and done.stdout == "" and "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    if code == 3:
        assert "wakeful daemon" in done.stderr


def test_a_refused_call_is_exit_1(rested: RunningDaemon, wakeful: Command) -> None:
    """A refused call is neither a usage error nor a missing daemon."""
    done = wakeful("cancel", "payroll")
    assert done.returncode == 1 and "nothing to cancel" in done.stderr


def test_a_socket_that_is_not_wakefuls_or_too_long_gets_words(tmp_path: Path) -> None:
    """Whatever `--socket` names, the error is a line, not a traceback."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path, tmp_path / ("x" * 200)):
        done = run_wakeful("list", "--socket", str(path))
        assert done.returncode == 3 and "Traceback" not in done.stderr and done.stderr.startswith("wakeful: ")


def test_another_version_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The answer is printed all the same. The note goes to stderr."""
    with RunningDaemon(tmp_path, version="99.0") as daemon:
        done = run_wakeful("list", "--json", "--socket", str(daemon.socket))
    assert done.returncode == 0 and json.loads(done.stdout) == []
    assert "99.0" in done.stderr and "restart" in done.stderr


def test_the_usual_places_are_searched(rested: RunningDaemon, tmp_path: Path) -> None:
    """Without a flag, the command looks in XDG_RUNTIME_DIR, then in .wakeful of the current checkout."""
    assert run_wakeful("list", XDG_RUNTIME_DIR=str(rested.socket.parent)).returncode == 0
    (tmp_path / ".wakeful").symlink_to(rested.socket.parent)
    assert run_wakeful("list", cwd=tmp_path).returncode == 0


def test_who_waits_for_a_run_that_everything_holds_back_is_told_so(rested: RunningDaemon) -> None:
    """While a brake holds the run, stderr names the command that releases it.
    The end of the run is printed on stdout."""
    rested.do(lambda d: d.call(SleepAll(), author="x", key=None, run=None))
    words = [sys.executable, "-m", "wakeful", "activate", "payroll", "--wait", "--socket", str(rested.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None and waiting.stdout is not None
        assert "it runs when `wakeful resume --all`" in waiting.stderr.readline()
        rested.do(lambda d: d.call(ResumeAll(), author="x", key=None, run=None))
        rested.do(lambda d: d.finish("payroll"))
        assert waiting.stdout.readline().startswith("payroll: run 2 succeeded") and waiting.wait(60) == 0

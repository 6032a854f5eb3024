"""Calls on several sessions: a template or a pattern, an answer for each session, and a question before many are
closed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from api.small_daemon import RunningDaemon, declare, reads
from cli.conftest import Command
from wait_conditions import eventually
from wakeful.core.record.observations import SpecsRead

TICKETS = tuple(declare(f"ticket@{number}", reads("a", f"{number}.md")) for number in (1, 2, 3))


@pytest.fixture
def tickets(daemon: RunningDaemon) -> RunningDaemon:
    """Declare three sessions of one template and one of another name. Each has run once."""
    daemon.do(lambda d: d.declare(*TICKETS, declare("payroll", reads("a", "p.md"))))
    for name in ("ticket@1", "ticket@2", "ticket@3", "payroll"):
        daemon.do(lambda d, name=name: d.finish(name))
    return daemon


def list_terminated(daemon: RunningDaemon) -> list[str]:
    return [one.name for one in daemon.small.core.state if one.is_terminated]


@pytest.mark.parametrize("wanted", ["ticket@", "ticket@*", "t?cket@[123]"])
def test_each_session_is_answered_with_its_own_line(tickets: RunningDaemon, wakeful: Command, wanted: str) -> None:
    """No other session is changed."""
    done = wakeful("sleep", wanted, "--for", "2h", "--reason", "holidays")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"ticket@{number}: sleeps" for number in (1, 2, 3)]
    assert [row["name"] for row in json.loads(wakeful("list", "--state", "sleeping", "--json").stdout)] == [
        "ticket@1",
        "ticket@2",
        "ticket@3",
    ]
    assert wakeful("resume", wanted).stdout.splitlines() == [f"ticket@{number}: resumed" for number in (1, 2, 3)]


def test_a_refusal_of_one_does_not_keep_the_others_waiting(tickets: RunningDaemon, wakeful: Command) -> None:
    """The refusal is on stderr, and the exit code is 1."""
    wakeful("activate", "ticket@2")
    done = wakeful("interrupt", "ticket@*")
    assert done.returncode == 1 and done.stdout == "ticket@2: interrupting\n"
    assert [line.split(";")[0] for line in done.stderr.splitlines()] == [
        f"wakeful: ticket@{number} is not running" for number in (1, 3)
    ]


def test_json_of_several_is_one_array_whatever_it_matches(tickets: RunningDaemon, wakeful: Command) -> None:
    """A refusal has the key `error` in the array. A plain name gives one object."""
    wakeful("activate", "ticket@2")
    done = wakeful("cancel", "ticket@", "--json")
    answers = json.loads(done.stdout)
    assert done.returncode == 1 and [answer["name"] for answer in answers] == ["ticket@1", "ticket@2", "ticket@3"]
    assert ["error" in answer for answer in answers] == [True, False, True]
    assert [answer["name"] for answer in json.loads(wakeful("activate", "pay*", "--json").stdout)] == ["payroll"]
    assert json.loads(wakeful("suspend", "payroll", "--json").stdout)["name"] == "payroll"


def test_a_key_is_carried_out_once_for_each_session(tickets: RunningDaemon, wakeful: Command) -> None:
    """The repeated call is answered, for each session, with what the first call did."""
    assert wakeful("activate", "ticket@2", "--key", "now").stdout == "ticket@2: activated\n"
    assert wakeful("activate", "ticket@", "--key", "now").returncode == 0
    assert [tickets.small.core.state.by_name(f"ticket@{number}").activation.position for number in (1, 2, 3)] == [
        1,
        1,
        1,
    ]


def test_a_pattern_that_matches_nothing_is_an_error_with_suggestions(tickets: RunningDaemon, wakeful: Command) -> None:
    """Similar names are suggested, also templates. Terminated sessions are reported separately."""
    for verb in ("activate", "sleep", "resume", "suspend", "interrupt", "cancel", "terminate"):
        done = wakeful(verb, "tikcet@*")
        assert (
            done.returncode == 1
            and done.stdout == ""
            and "no session matches tikcet@*; did you mean ticket@" in done.stderr
        ), verb
    assert "`wakeful list` shows those there are" in wakeful("activate", "xyz*").stderr
    wakeful("terminate", "payroll")
    done = wakeful("activate", "pay*")
    assert done.returncode == 1 and "terminated or undeclared; `wakeful list --all` shows" in done.stderr


def test_activate_wait_of_several_ends_with_the_last_of_them(tickets: RunningDaemon, wakeful: Command) -> None:
    """All sessions run at the same time. One failed run makes the exit code 1."""
    words = [sys.executable, "-m", "wakeful", "activate", "ticket@", "--wait", "--socket", str(tickets.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as waiter:
        for number, code in ((3, 0), (1, 1), (2, 0)):
            eventually(lambda number=number: tickets.small.core.state.by_name(f"ticket@{number}").run is not None)
            tickets.do(lambda d, number=number, code=code: d.finish(f"ticket@{number}", exit_code=code))
        out, _ = waiter.communicate(timeout=60)
    assert waiter.returncode == 1
    assert [" ".join(line.split()[:4]) for line in out.splitlines()] == [
        "ticket@1: run 2 failed",
        "ticket@2: run 2 succeeded",
        "ticket@3: run 2 succeeded",
    ]


def test_many_are_terminated_only_with_yes_where_nobody_can_be_asked(tickets: RunningDaemon, wakeful: Command) -> None:
    """Undeclared sessions are included, because people terminate templates whose files are gone."""
    done = wakeful("terminate", "ticket@*")
    assert (
        done.returncode == 1
        and "ticket@* matches 3 sessions: ticket@1, ticket@2, ticket@3; none was terminated: repeat with --yes"
        in done.stderr
    )
    assert list_terminated(tickets) == []
    tickets.do(lambda d: d.observe(SpecsRead(removed=("ticket@3",))))
    assert wakeful("sleep", "ticket@").stdout.splitlines() == ["ticket@1: sleeps", "ticket@2: sleeps"]
    done = wakeful("terminate", "ticket@", "--yes", "--reason", "closed")
    assert done.returncode == 0 and done.stdout.splitlines() == [f"ticket@{number}: terminated" for number in (1, 2, 3)]
    assert wakeful("terminate", "pay*").stdout == "payroll: terminated\n"


@pytest.mark.parametrize(
    ("answer", "code", "closed"), [(b"n\n", 1, []), (b"y\n", 0, ["ticket@1", "ticket@2", "ticket@3"])]
)
def test_a_person_is_asked_before_many_are_terminated(
    tickets: RunningDaemon, answer: bytes, code: int, closed: list[str]
) -> None:
    """The question lists the names, so that the person notices a wrong one."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    words = [sys.executable, "-m", "wakeful", "terminate", "ticket@", "--socket", str(tickets.socket)]
    done = subprocess.run(words, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    os.close(theirs)
    os.close(ours)
    assert (
        done.returncode == code
        and "ticket@ matches 3 sessions: ticket@1, ticket@2, ticket@3" in done.stderr
        and "terminate them all?" in done.stderr
    )
    assert list_terminated(tickets) == closed

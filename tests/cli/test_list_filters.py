"""Sessions that `list` leaves out, and the next slot, end of a snooze and end of a pace in `list` and `why`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from api.small_daemon import RunningDaemon, declare, reads
from cli.conftest import Command
from wakeful.cli.text import show_local_times
from wakeful.core.record.observations import SpecsRead
from wakeful.core.spec.bindings import CronBinding, EveryBinding

# Two hours ahead of UTC, all year.
ZONE = "XYZ-2"
KEYS = ["name", "id", "state", "reason", "agent", "priority", "queued", "owed", "runs", "last_run"]


def say_in_zone(daemon: RunningDaemon, *words: str) -> str:
    """Run a command in a process of its own, which reads its time zone at its start.
    Return its words without line breaks."""
    command = [sys.executable, "-m", "wakeful", *words, "--socket", str(daemon.socket)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TZ": ZONE}, timeout=60, check=True
    )
    return " ".join(done.stdout.split())


def lines(wakeful: Command, *words: str) -> list[str]:
    return wakeful(*words).stdout.splitlines()


@pytest.fixture
def gone(daemon: RunningDaemon, wakeful: Command) -> RunningDaemon:
    """Make three sessions: `open` is at rest, `closed` is terminated, `away@1` is undeclared."""
    daemon.do(lambda d: d.declare(*(declare(name, reads("a", f"{name}.md")) for name in ("open", "closed", "away@1"))))
    for name in ("open", "closed", "away@1"):
        daemon.do(lambda d, name=name: d.finish(name))
    daemon.do(lambda d: d.observe(SpecsRead(removed=("away@1",))))
    wakeful("terminate", "closed")
    return daemon


def test_sessions_that_are_over_leave_the_list_and_are_counted_below_it(gone: RunningDaemon, wakeful: Command) -> None:
    """`--all`, `--state` and their own names show them.
    For a template of only such sessions, the error names `list --all`."""
    _, first, footer = lines(wakeful, "list")
    assert first.startswith("open ") and footer == "2 more are terminated or undeclared: wakeful list --all"
    assert [line.split()[0] for line in lines(wakeful, "list", "--all")[1:]] == ["away@1", "closed", "open"]
    assert [line.split()[:2] for line in lines(wakeful, "list", "--state", "terminated")[1:]] == [
        ["closed", "terminated"]
    ]
    assert [line.split()[:2] for line in lines(wakeful, "list", "--state", "undeclared")[1:]] == [
        ["away@1", "sleeping"]
    ]
    assert [line.split()[0] for line in lines(wakeful, "list", "closed", "away@1")[1:]] == ["away@1", "closed"]
    none = wakeful("list", "away@")
    assert (
        none.returncode == 1
        and "1 session matches that, terminated or undeclared; `wakeful list --all` shows" in none.stderr
    )
    assert wakeful("list", "--state", "running").stdout == "no session is running\n"
    assert wakeful("list", "--state", "gone").returncode == 2


def test_json_of_list_has_all_sessions_so_that_scripts_lose_none(gone: RunningDaemon, wakeful: Command) -> None:
    """The JSON has all sessions. `--state` narrows it."""
    rows = json.loads(wakeful("list", "--json").stdout)
    assert [row["name"] for row in rows] == ["away@1", "closed", "open"] and all(list(row) == KEYS for row in rows)
    assert [row["name"] for row in json.loads(wakeful("list", "--json", "--state", "undeclared").stdout)] == ["away@1"]


def test_a_list_in_which_all_are_over_says_so(gone: RunningDaemon, wakeful: Command) -> None:
    """An empty table would look like a first start."""
    wakeful("terminate", "open")
    assert wakeful("list").stdout == "no session is open; 3 sessions are terminated or undeclared: wakeful list --all\n"


def test_an_undeclared_session_that_still_runs_stays(daemon: RunningDaemon, wakeful: Command) -> None:
    """Its run continues under its spec, and a person may want to stop it."""
    daemon.do(lambda d: d.declare(declare("late", reads("a", "a.md"))))
    daemon.do(lambda d: d.observe(SpecsRead(removed=("late",))))
    assert lines(wakeful, "list")[1].split()[:2] == ["late", "running"]
    daemon.do(lambda d: d.finish("late"))
    assert wakeful("list").stdout.startswith("no session is open; 1 session is terminated or undeclared")


def test_failed_and_asking_sessions_can_be_listed_alone(daemon: RunningDaemon, wakeful: Command) -> None:
    """`--failed` selects by the last run, `--asks` by an open question."""
    asking = declare("asks", reads("a", "q.md"), is_approved_first=True)
    daemon.do(lambda d: d.declare(declare("fails", reads("a", "f.md")), declare("works", reads("a", "w.md")), asking))
    daemon.do(lambda d: d.finish("fails", exit_code=1))
    daemon.do(lambda d: d.finish("works"))
    assert [line.split()[0] for line in lines(wakeful, "list", "--failed")[1:]] == ["fails"]
    assert [row["name"] for row in json.loads(wakeful("list", "--asks", "--json").stdout)] == ["asks"]
    assert wakeful("list", "--asks", "--failed").stdout == "no session is failed and asking\n"


# -- what comes next -----------------------------------------------------------------------------


def test_the_next_slot_stands_in_list_and_why(daemon: RunningDaemon, wakeful: Command) -> None:
    """`list` and `why` show the earliest slot of several clocks, and none while a hold keeps slots from waking it."""
    nightly = CronBinding(name="nightly", expression="0 0 1 1 *", timezone="UTC")
    daemon.do(lambda d: d.declare(declare("clocked", nightly, EveryBinding(name="tick", period_seconds=7200.0))))
    found = json.loads(wakeful("why", "clocked", "--json").stdout)
    assert found["next_slot"]["binding"] == "tick" and found["next_try"] is None
    due = datetime.fromisoformat(found["next_slot"]["at"])
    assert timedelta(0) < due - datetime.now(UTC) <= timedelta(hours=2)
    local = (due + timedelta(hours=2)).strftime("%Y-%m-%d %H:%M:%S+0200")
    assert f"Its next slot is at {local} (tick)." in say_in_zone(daemon, "why", "clocked")
    assert re.search(r"  next in \d", lines(wakeful, "list")[1])
    wakeful("sleep", "clocked")
    assert json.loads(wakeful("why", "clocked", "--json").stdout)["next_slot"] is None
    assert "next in" not in wakeful("list").stdout


def test_the_end_of_a_snooze_stands_in_list_and_why(rested: RunningDaemon, wakeful: Command) -> None:
    """The time comes before the reason, which a narrow screen cuts."""
    wakeful(
        "sleep",
        "payroll",
        "--until",
        "2999-01-01T00:00:00Z",
        "--reason",
        "a reason that is far too long for the rest of a line",
    )
    row = next(line for line in wakeful("list", COLUMNS="80").stdout.splitlines() if line.startswith("payroll"))
    assert re.search(r"  goes on in \d+ d: a ", row) and len(row) <= 80
    assert "It goes on by itself at 2999-01-01 02:00:00+0200." in say_in_zone(rested, "why", "payroll")


def test_the_end_of_a_pace_stands_in_list_and_why(daemon: RunningDaemon, wakeful: Command) -> None:
    """`list` shows the time before the reason. The key `queued` of the JSON keeps its form."""
    daemon.do(lambda d: d.declare(declare("paced", reads("a", "a.md"), pace_seconds=3600.0)))
    daemon.do(lambda d: d.finish("paced"))
    daemon.do(lambda d: d.change("a.md", "b" * 32))
    row = wakeful("list", COLUMNS="80").stdout.splitlines()[1]
    assert re.search(r"  queued: in \d+ (min|h) \(pace", row) and len(row) <= 80
    assert json.loads(wakeful("list", "--json").stdout)[0]["queued"].startswith(
        "pace: at most one run every 3600s; next start in "
    )
    assert "Its next try is at " in " ".join(wakeful("why", "paced").stdout.split())


# -- local time ----------------------------------------------------------------------------------


def test_why_tells_moments_as_the_person_s_clock_shows_them(rested: RunningDaemon) -> None:
    """`why` prints local times, as `log` does. JSON stays in UTC."""
    found = json.loads(say_in_zone(rested, "why", "payroll", "--json"))
    finished = datetime.fromisoformat(found["last_run"]["finished_at"])
    words = say_in_zone(rested, "why", "payroll")
    assert (finished + timedelta(hours=2)).strftime("at %Y-%m-%d %H:%M:%S+0200;") in words and not re.search(
        r"\d\dZ\b", words
    )
    assert finished.strftime("at %Y-%m-%dT%H:%M:%SZ") in " ".join(found["words"])


@pytest.mark.parametrize(
    ("text", "is_moment"),
    [
        ("ended at 2026-01-31T06:00:00Z.", True),
        ("ended at 2026-01-31T06:00:00Z; and", True),
        ("(2026-01-31T06:00:00.123456Z)", True),
        ("backup/2026-01-31T06:00:00Z modified", False),
        ("2026-01-31T06:00:00Z.tar modified", False),
        ("2026-01-31T06:00:00Z/a.csv modified", False),
    ],
)
def test_only_moments_are_turned_to_local_time_never_names(text: str, is_moment: bool) -> None:
    """A path with a changed time in it could not be typed again."""
    assert (show_local_times(text) != text) is is_moment


# -- tokens --------------------------------------------------------------------------------------


def test_a_token_without_an_end_says_that_it_ends_when_it_is_revoked(rested: RunningDaemon, wakeful: Command) -> None:
    """The former word made it look as if the token had been revoked."""
    wakeful("token", "new", "--scope", "read")
    wakeful("token", "new", "--scope", "send", "--for", "30d")
    head, *rows = lines(wakeful, "token", "list")
    assert head.split() == ["ID", "PERSON", "SCOPES", "SESSION", "MADE", "ENDS", "NOTE"]
    assert sorted(re.search(r"when revoked|in \d+ d", row)[0] for row in rows) == ["in 30 d", "when revoked"]  # type: ignore[index]

"""Five verbs on sessions that are queued, running, retrying and asleep: one daemon, twenty sessions.

This is the table of tests/core/test_calls.py with real processes. Every run leaves a child that ignores signals and has
left its process group. After every call, none of these processes is alive.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from e2e.box import Box
from process_state import is_alive
from wait_conditions import eventually
from wakeful.cli.client import Client

VERBS = ("interrupt", "cancel", "suspend", "sleep", "terminate")
# The situation with the longest pause comes last.
SITUATIONS = ("queued", "running", "sleeping", "retrying")
# The input says what the run does.
TREE = """
trap '' INT TERM HUP
setsid sh -c 'trap "" INT TERM HUP; while :; do sleep 0.2; done' &
printf '%s\\n' $$ $! >> pids-$1
case $(cat in-$1) in
    wait) while [ ! -e go-$1 ]; do sleep 0.02; done ;;
    fail) exit 1 ;;
esac
"""
SPEC = """
    objective: Do what the input says.
    bindings: {{input: {{file: in-{name}, settle: 10ms}}}}
    pace: {pace}
    run: {{command: [sh, tree.sh, {name}], retries: 20, grace: 200ms}}
"""
# For each call: the start of its answer, the kinds of records it leads to, and the state that follows.
PARKED = ["wake_withdrawn"]
TABLE: dict[str, dict[str, tuple[str, list[str], str]]] = {
    "queued": {
        "interrupt": ("interrupted: ", PARKED, "suspended"),
        "cancel": ("cancelled: ", PARKED, "suspended"),
        "suspend": ("suspended: ", PARKED, "suspended"),
        "sleep": ("sleeps", ["session_slept"], "sleeping"),
        "terminate": ("terminated", ["session_terminated"], "terminated"),
    },
    "running": {
        "interrupt": ("interrupting", ["run_stop_requested", "run_finished", "session_suspended"], "suspended"),
        "cancel": ("cancelling", ["run_stop_requested", "run_finished", "session_suspended"], "suspended"),
        "suspend": ("suspends when", ["run_stop_requested", "run_finished", "session_suspended"], "suspended"),
        "sleep": ("sleeps when", ["session_slept", "run_finished"], "sleeping"),
        "terminate": ("terminates when", ["run_stop_requested", "run_finished", "session_terminated"], "terminated"),
    },
    "retrying": {
        "interrupt": ("interrupted: ", PARKED, "suspended"),
        "cancel": ("cancelled: ", PARKED, "suspended"),
        "suspend": ("suspended: ", PARKED, "suspended"),
        "sleep": ("sleeps", ["session_slept"], "sleeping"),
        "terminate": ("terminated", ["session_terminated"], "terminated"),
    },
    # The call gives up the wake. The reason why the session sleeps stays.
    "sleeping": {
        "interrupt": ("interrupted: ", PARKED, "sleeping"),
        "cancel": ("cancelled: ", PARKED, "sleeping"),
        "suspend": ("suspended: ", PARKED, "sleeping"),
        "sleep": ("sleeps", ["session_slept"], "sleeping"),
        "terminate": ("terminated", ["session_terminated"], "terminated"),
    },
}
# The longest time between a look at a session and the call to it.
LONGEST_STALL_SECONDS = 5.0
# How a run under way ends. `suspend` and `sleep` let it finish, because a command's only safe point is its end.
OUTCOMES = {
    "interrupt": "interrupted",
    "cancel": "cancelled",
    "suspend": "succeeded",
    "sleep": "succeeded",
    "terminate": "cancelled",
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Start twenty sessions. Each has had one good run and has a newer version to deal with."""
    box = Box(tmp_path_factory.mktemp("calls"))
    box.write("wakeful.yaml", "concurrency: 20\n")
    box.write("tree.sh", TREE)
    names = [f"{situation}-{verb}" for situation in SITUATIONS for verb in VERBS]
    for name in names:
        box.write(f"in-{name}", "end")
        box.spec(name, SPEC.format(name=name, pace="1h" if name.startswith("queued") else "0s"))
    try:
        box.start()
        for name in names:
            box.wait_at_rest(name, runs=1)
        for name in names:
            situation = name.partition("-")[0]
            if situation == "sleeping":
                Client(str(box.socket)).call("sleep", name=name)
            box.write(f"in-{name}", {"running": "wait", "retrying": "fail"}.get(situation, "again"))
        yield box
    finally:
        for name in names:
            (box.folder / f"go-{name}").touch()
        box.close()


def is_in(row: dict[str, Any], situation: str) -> bool:
    match situation:
        case "queued":
            return (row["queued"] or "").startswith("pace")
        case "running":
            return row["state"] == "running" and row["runs"] == 2
        case "retrying":
            return find_pause_left(row) > LONGEST_STALL_SECONDS
        case _:
            return row["state"] == "sleeping" and row["queued"] is not None


def find_pause_left(row: dict[str, Any]) -> float:
    """Return the seconds until the next retry. Each pause is twice as long as the one before."""
    pause = re.match(r"backing off: .* after (\d+)s", row["reason"] or "")
    if pause is None:
        return 0.0
    return datetime.fromisoformat(row["last_run"]["finished_at"]).timestamp() + int(pause[1]) - time.time()


def find_end(client: Client, name: str, kinds: list[str]) -> list[dict[str, Any]] | None:
    """Return the newest records if they have these kinds, else None."""
    records = [json.loads(line) for line in client.stream_lines(f"/sessions/{name}/log")][-len(kinds) :]
    return records if [record["kind"] for record in records] == kinds else None


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_call_leaves_the_state_the_records_and_no_process_it_should(box: Box, situation: str, verb: str) -> None:
    name, client = f"{situation}-{verb}", Client(str(box.socket))
    answer, kinds, state = TABLE[situation][verb]
    eventually(lambda: is_in(box.row(name), situation))
    assert client.call(verb, name=name)["words"].startswith(answer)
    if situation == "running" and OUTCOMES[verb] == "succeeded":
        assert box.row(name)["state"] == "running", "it goes on to its end"
        box.write(f"go-{name}", "")
    row = box.wait_for(name, state=state)
    # The row shows what was decided. The log shows what is on disk by now.
    records = eventually(lambda: find_end(client, name, kinds), what=f"{name} recorded {kinds}")
    assert records[0]["author"].startswith("person:")
    if situation == "running":
        assert row["last_run"]["outcome"] == OUTCOMES[verb]
    if verb != "sleep":
        assert (row["owed"], row["queued"]) == ([], None), "what it was woken by is dealt with"
    pids = [int(line) for line in box.lines(f"pids-{name}")]
    assert len(pids) >= 2 * row["runs"]
    eventually(lambda: not any(map(is_alive, pids)))

"""`wakeful health`, `/health` and `/metrics` of a real daemon: each problem is named with what to do, and counted."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from api.conftest import Speaker
from e2e.box import Box
from e2e.test_http_port import make_token, open_port
from ordinary_user import OrdinaryBox
from ordinary_user import ordinary_box as ordinary_box
from ordinary_user import ordinary_user as ordinary_user
from wait_conditions import eventually
from wakeful.cli.client import Client

FAILS = """
objective: Fail where the input is bad.
bindings: {input: {file: in.txt, settle: 10ms}, result: {file: out.txt, access: write}}
run: {command: [sh, -c, 'cp in.txt out.txt; grep -q good in.txt'], retries: 0}
"""


def read_health(box: Box) -> dict[str, Any]:
    done = box.run("health", "--json")
    health = json.loads(done.stdout)
    assert done.returncode == (0 if health["healthy"] else 1)
    return health


def find(box: Box, what: str) -> dict[str, Any]:
    """Wait for a finding of this kind and return it."""

    def found() -> dict[str, Any] | None:
        return next((one for one in read_health(box)["findings"] if one["what"] == what), None)

    return eventually(found, what=f"a finding {what}")


def read_metrics(box: Box, read: Any = read_plain) -> dict[tuple[str, ...], float]:
    """Return every sample, keyed by its name and the values of its labels."""
    text = Client(str(box.socket)).get_bytes("/metrics").decode()
    return {(sample.name, *sample.labels.values()): sample.value for family in read(text) for sample in family.samples}


def test_a_daemon_at_rest_is_healthy(box: Box) -> None:
    """`health` exits with 0 and prints one line, or the same as JSON.

    The route `/health` agrees. Without a daemon the exit code is 3.
    """
    box.write("in.txt", "good\n")
    box.spec("payroll", FAILS)
    assert box.run("health").returncode == 3
    box.start()
    box.wait_at_rest("payroll", runs=1)
    said = box.words("health")
    assert said.startswith("healthy: 1 session; log at ") and said.endswith(" free")
    health = read_health(box)
    assert health["healthy"] and health["findings"] == [] and health["sessions"]["suspended"] == 1
    assert health["log"]["anchor"] == health["log"]["position"] > 0
    assert Client(str(box.socket)).get("/health")["healthy"] is True


def test_a_failed_session_is_told_with_what_to_do_until_it_succeeds(box: Box) -> None:
    """The finding names the session and the command that explains it. It is gone after the next success."""
    box.write("in.txt", "good\n")
    box.spec("payroll", FAILS)
    box.start()
    box.wait_at_rest("payroll", runs=1)
    box.write("in.txt", "bad!\n")
    failed = find(box, "failed")
    assert failed["session"] == "payroll" and failed["level"] == "wrong" and failed["since"] is not None
    assert failed["words"] == "payroll failed: exit code 1" and failed["mend"] == "wakeful why payroll"
    done = box.run("health")
    assert done.returncode == 1 and done.stdout.startswith("needs attention: 1 session, 1 failed; ")
    assert "payroll failed: exit code 1, since " in done.stdout and "wakeful why payroll" in done.stdout
    box.write("in.txt", "good again\n")
    eventually(lambda: read_health(box)["healthy"])


def test_what_waits_for_a_person_is_told(box: Box) -> None:
    """The findings are a question, a refused spec, a missing secret and a brake."""
    box.write("in.txt", "good\n")
    box.spec(
        "careful", "objective: Ask.\nbindings: {in: {file: in.txt}}\napprove: before_run\nrun: {command: ['true']}\n"
    )
    box.spec("wrong", "objective: Nothing.\nrun: {comand: ['true']}\n")
    box.spec("keyed", "objective: Keyed.\nsecrets: [MISSING_KEY]\nrun: {command: ['true']}\n")
    box.start()
    assert find(box, "asks")["mend"] == "wakeful answer careful"
    assert "comand" in find(box, "spec")["words"]
    assert "MISSING_KEY" in find(box, "sleeps")["words"]
    assert read_health(box)["sessions"]["asking"] == 1
    box.ask("sleep", "--all")
    assert find(box, "held")["mend"] == "wakeful resume --all"


def test_places_budgets_and_verification_are_told(ordinary_box: OrdinaryBox) -> None:
    """A folder that cannot be read is named, until it can be read. A budget that is nearly spent is a note.

    The part about the log says when it was last verified.
    """
    box = ordinary_box
    box.write("in.txt", "good\n")
    box.spec(
        "spender",
        "objective: Spend.\nbindings: {in: {file: in.txt, settle: 10ms}}\nbudget: {day: {runs: 5}}\n"
        "run: {command: ['true']}\n",
    )
    box.spec("reader", "objective: Read.\nbindings: {rows: {file: 'locked/*.csv'}}\nrun: {command: ['true']}\n")
    locked = box.folder / "locked"
    locked.mkdir(mode=0)
    box.start()
    unseen = find(box, "binding")
    assert unseen["level"] == "wrong" and unseen["mend"] == "wakeful show reader"
    assert unseen["words"] == f"reader cannot see rows: {locked}: Permission denied"
    for text, runs in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        box.write("in.txt", f"{text}\n")
        box.wait_at_rest("spender", runs=runs)
    spent = find(box, "budget")
    assert spent["level"] == "note" and "of 5 runs of the day are spent" in spent["words"]
    locked.chmod(0o755)
    eventually(lambda: read_health(box)["healthy"])
    assert read_health(box)["log"]["verified"] is None
    box.ask("verify")
    verified = read_health(box)["log"]["verified"]
    assert verified["findings"] == 0 and verified["records"] > 5


@pytest.mark.parametrize("read", [read_plain, read_open])
def test_prometheus_reads_the_numbers(box: Box, read: Any) -> None:
    """Both formats have runs by outcome, durations, wakes by cause, states, the log, its disk, requests and the process."""
    box.write("in.txt", "good\n")
    box.write("wakeful.yaml", "metrics: {sessions: [payroll]}\n")
    box.spec("payroll", FAILS)
    box.spec("other", FAILS.replace("out.txt", "other.txt"))
    box.start()
    box.wait_at_rest("payroll", runs=1)
    box.wait_at_rest("other", runs=1)
    box.write("in.txt", "bad!\n")
    find(box, "failed")
    eventually(lambda: read_health(box)["sessions"]["failed"] == 2)
    wanted = {"Accept": "application/openmetrics-text"} if read is read_open else {}
    answer = Speaker(box.socket).ask("GET", "/metrics", **wanted)
    kind = "application/openmetrics-text" if read is read_open else "text/plain; version=0.0.4"
    assert answer.headers["content-type"].startswith(kind)
    families = {family.name: family for family in read(answer.body.decode())}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found["wakeful_runs_total", "succeeded", "true"] == 2 and found["wakeful_runs_total", "failed", "true"] == 2
    assert found["wakeful_run_duration_seconds_count", "command"] == 4
    assert found["wakeful_wakes_total", "file"] == 2 and found["wakeful_wakes_total", "first"] == 2
    assert found["wakeful_wake_start_seconds_count",] == 4 and found["wakeful_log_flush_seconds_count",] >= 6
    assert found["wakeful_sessions", "sleeping"] == 2 and found["wakeful_sessions_failed",] == 2
    assert found["wakeful_log_position",] == found["wakeful_log_anchor_position",]
    disk = os.statvfs(box.state)
    assert found["wakeful_disk_size_bytes",] == disk.f_blocks * disk.f_frsize
    assert 0 < found["wakeful_disk_free_bytes",] <= found["wakeful_disk_size_bytes",]
    assert found["wakeful_healthy",] == 0 and found["wakeful_findings", "wrong"] == 2
    assert found["wakeful_http_requests_total", "GET", "/health", "200"] >= 2
    assert found["wakeful_session_runs_total", "payroll", "failed"] == 1
    assert not any("other" in labels for _, *labels in found), "a session is a label only where the settings name it"
    assert found["process_open_fds",] > 3 and found["process_resident_memory_bytes",] > 1e7
    assert all(family.documentation and family.type != "unknown" for family in families.values())


def test_over_tcp_a_probe_learns_only_whether_all_is_well(box: Box) -> None:
    """Without a token a probe learns only healthy or not, with 200 or 503.

    A token that reads gets everything. Numbers always need a token.
    """
    box.write("in.txt", "bad!\n")
    box.spec("payroll", FAILS)
    tcp = open_port(box)
    find(box, "failed")
    probed = tcp.get("/health")
    assert (probed.status, probed.json) == (503, {"healthy": False})
    token = make_token(box, "read")
    told = tcp.get("/health", token)
    assert told.status == 503 and told.json["findings"][0]["session"] == "payroll"
    assert tcp.get("/health", "wk_wrong").status == 401
    assert tcp.get("/metrics").status == 401
    numbers = tcp.get("/metrics", token)
    assert numbers.status == 200
    refused = {
        sample.labels["reason"]: sample.value
        for family in read_plain(numbers.body.decode())
        for sample in family.samples
        if sample.name == "wakeful_refusals_total"
    }
    assert refused["token"] == 2 and refused["host"] == 0
    noted = next(one for one in read_health(box)["findings"] if one["what"] == "gate")
    assert noted["level"] == "note" and "2 for their token" in noted["words"]


def test_a_notification_that_reaches_nobody_is_told_and_counted(box: Box) -> None:
    """The finding has the name of the notifier, when the message was made, and the command that tries the notifier."""
    box.write("wakeful.yaml", "notify:\n  ops: {command: ['false']}\n")
    box.write("in.txt", "bad!\n")
    box.spec("payroll", FAILS)
    box.start()
    untold = find(box, "notify")
    assert untold["level"] == "wrong" and untold["mend"] == "wakeful notify test ops"
    assert untold["words"] == "a message of notifier ops is not delivered after 1 attempt: false ended with 1"
    (failed,) = (record["at"] for record in box.log("payroll") if record["kind"] == "run_finished")
    assert failed < untold["since"] < read_health(box)["at"]
    numbers = read_metrics(box)
    assert numbers["wakeful_notifications_total", "ops", "delivered"] == 0
    assert numbers["wakeful_notifications_waiting", "ops"] == 1
    assert numbers["wakeful_webhook_deliveries_total", "taken"] == 0

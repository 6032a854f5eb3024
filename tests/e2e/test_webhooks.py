"""Webhooks: real deliveries over the socket of a real daemon, signed as their senders sign."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually

SECRET = "It's a Secret to Everybody"
TRIAGE = """
    objective: Look at new issues.
    bindings:
      hub: {webhook: github, secret: gh, only: {event: [issues, push]}}
    run:
      script: |
        echo run >> ledger
        for file in "$WAKEFUL_BINDING_HUB"/*; do test -e "$file" && cat "$file" >> payloads && echo >> payloads; done
        cp "$WAKEFUL_CAUSES" causes.json
"""


class Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def knock(box: Box, address: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    connection = Connection(str(box.socket))
    try:
        connection.request("POST", f"/webhook/{address}", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()
    finally:
        connection.close()


def sign(body: bytes, delivery: str, event: str = "issues", secret: str = SECRET) -> dict[str, str]:
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": event,
        "Content-Type": "application/json",
    }


class HookBox(Box):
    """A box whose daemon has secrets of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Outside the folder that runs may reach here, as a person's own settings are.
        self.config = folder.with_name(f"{folder.name}-config")

    def environment(self) -> dict[str, str]:
        return super().environment() | {"XDG_CONFIG_HOME": str(self.config)}

    def set_secret(self, name: str, value: str) -> None:
        done = subprocess.run(
            [WAKEFUL, "secret", "set", name],
            input=value.encode(),
            env=self.environment(),
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def box(tmp_path: Path) -> Iterator[HookBox]:
    made = HookBox(tmp_path)
    yield made
    made.close()


def make_triage(box: HookBox, spec: str = TRIAGE) -> None:
    box.spec("triage", spec)
    box.set_secret("gh", SECRET)
    box.start()
    box.wait_at_rest("triage")


def test_a_signed_delivery_wakes_its_session_with_its_payload(box: HookBox) -> None:
    """It is answered with its position and recorded as an occurrence. Its payload is a file of the run."""
    make_triage(box)
    assert box.row("triage")["runs"] == 0
    body = b'{"action": "opened", "issue": {"title": "it breaks"}}'
    status, answer = knock(box, "triage/hub", body, sign(body, "d-1"))
    assert (status, answer["position"], answer["is_repeated"]) == (202, 1, False)
    row = box.wait_at_rest("triage", runs=1)
    assert [cause["kind"] for cause in row["last_run"]["causes"]] == ["webhook"]
    assert box.read("payloads").encode() == body + b"\n"
    (told,) = json.loads(box.read("causes.json"))["deliveries"]
    assert (told["binding"], told["delivery"], told["event"], told["file"]) == ("hub", "d-1", "issues", "00000001.json")
    (record,) = [record for record in box.log("triage") if record["kind"] == "delivery_received"]
    assert record["author"] == "webhook:github" and record["payload"]["size_bytes"] == len(body)


def read_rows(box: HookBox) -> dict[str, dict[str, Any]]:
    return {f"{row['session']}/{row['binding']}": row for row in box.json("webhook", "list")["webhooks"]}


def test_whoever_has_not_signed_leaves_no_record(box: HookBox) -> None:
    """The cases are a wrong secret, a changed body, no signature, an unknown address and a large body.

    Each is refused with a reason and counted, and none is logged.
    """
    make_triage(box, TRIAGE.replace("secret: gh,", "secret: gh, max_size: 1KB,"))
    before = len(box.log("triage"))
    body = b'{"action": "opened"}'
    refusals = [
        (body, sign(body, "d-1", secret="another"), 401, "does not match"),
        (body + b" ", sign(body, "d-1"), 401, "does not match"),
        (body, {"X-GitHub-Delivery": "d-1", "X-GitHub-Event": "issues"}, 401, "x-hub-signature-256 is missing"),
        (b"x" * 1001, sign(b"x" * 1001, "d-1"), 413, "at most 1000 bytes"),
    ]
    for sent, headers, expected, words in refusals:
        status, answer = knock(box, "triage/hub", sent, headers)
        assert (status, words in answer["detail"]) == (expected, True), answer
    for address in ("triage/other", "other/hub", "triage", "", "triage/message"):
        status, answer = knock(box, address, body, sign(body, "d-1"))
        assert (status, "no webhook has this address" in answer["detail"]) == (404, True)
    assert len(box.log("triage")) == before and box.row("triage")["runs"] == 0
    row = read_rows(box)["triage/hub"]
    assert (row["refused"], row["accepted"], row["duplicates"]) == (4, 0, 0)
    assert "at most 1000 bytes" in row["last_refusal"]["reason"]
    assert box.json("webhook", "list")["unknown_addresses"] == 5
    assert "hub has refused 4 since the daemon started" in box.words("why", "triage")
    # The same delivery is taken with a signature: a refusal uses nothing up.
    assert knock(box, "triage/hub", body, sign(body, "d-1"))[0] == 202


def test_a_delivery_that_comes_again_is_known_also_after_a_restart(box: HookBox) -> None:
    """It is answered with its first position and starts no run."""
    make_triage(box)
    body = b'{"action": "opened"}'
    assert knock(box, "triage/hub", body, sign(body, "d-1"))[1]["position"] == 1
    box.wait_at_rest("triage", runs=1)
    for _ in range(2):
        status, answer = knock(box, "triage/hub", body, sign(body, "d-1"))
        assert (status, answer["position"], answer["is_repeated"]) == (202, 1, True)
    assert read_rows(box)["triage/hub"]["duplicates"] == 2
    box.stop()
    box.start()
    box.wait_at_rest("triage", runs=1)
    assert knock(box, "triage/hub", body, sign(body, "d-1"))[1]["is_repeated"] is True
    # A new id is another delivery, whatever its content.
    assert knock(box, "triage/hub", body, sign(body, "d-2"))[1]["position"] == 2
    box.wait_at_rest("triage", runs=2)
    assert box.kinds("triage").count("delivery_received") == 2


def test_a_filter_stops_deliveries_and_leaves_a_mark_of_each(box: HookBox) -> None:
    """They are accepted, counted and recorded with the reason. They keep no payload and start no run."""
    make_triage(box)
    body = b'{"zen": "Keep it logically awesome."}'
    status, answer = knock(box, "triage/hub", body, sign(body, "d-1", event="ping"))
    assert (status, answer["is_filtered"], answer["position"]) == (202, True, None)
    assert "event is ping, and only issues or push counts" in answer["words"]
    (record,) = [record for record in box.log("triage") if record["kind"] == "delivery_received"]
    assert record["payload"]["is_filtered"] and record["payload"].get("payload") is None
    row = read_rows(box)["triage/hub"]
    assert (row["filtered"], row["accepted"], box.row("triage")["runs"]) == (1, 0, 0)
    assert "filtered: event is ping" in box.words("log", "triage")


def test_deliveries_to_a_sleeping_session_wait_for_one_run(box: HookBox) -> None:
    """The run gets all of them, the oldest first. `why` and `plan` mention them meanwhile."""
    make_triage(box)
    box.ask("sleep", "triage", "--for", "1h")
    bodies = [json.dumps({"number": number}).encode() for number in range(7)]
    for number, body in enumerate(bodies):
        assert knock(box, "triage/hub", body, sign(body, f"d-{number}"))[1]["position"] == number + 1
    assert "7 deliveries wait at hub: issues d-0" in box.words("why", "triage")
    assert "hub: 7 waiting" in box.words("plan")
    assert read_rows(box)["triage/hub"]["waiting"] == 7
    box.ask("resume", "triage")
    row = box.wait_at_rest("triage", runs=1)
    assert box.lines("payloads") == [body.decode() for body in bodies]
    assert [one["delivery"] for one in json.loads(box.read("causes.json"))["deliveries"]] == [
        f"d-{n}" for n in range(7)
    ]
    assert (row["last_run"]["causes"][0]["old"], row["last_run"]["causes"][0]["new"]) == (None, "7")
    assert "deliveries 1 to 7" in box.words("why", "triage")


def test_a_kill_between_acceptance_and_run_loses_and_doubles_nothing(box: HookBox) -> None:
    """A delivery that was answered with 202 is run once, even if the daemon is killed right then, again and again."""
    box.spec("triage", TRIAGE.replace("echo run >> ledger", "sleep 0.05; echo run >> ledger"))
    box.set_secret("gh", SECRET)
    accepted: list[str] = []
    for round_ in range(6):
        box.start()
        if round_ % 2:
            # A run that is lost three times in a row is not tried again by itself (rule 22).
            box.wait_at_rest("triage")
        for number in range(3):
            body = json.dumps({"id": f"{round_}-{number}"}).encode()
            assert knock(box, "triage/hub", body, sign(body, f"d-{round_}-{number}"))[0] == 202
            accepted.append(f"{round_}-{number}")
        box.kill()
    box.start()
    box.wait_at_rest("triage")
    eventually(lambda: set(accepted) <= {json.loads(line)["id"] for line in box.lines("payloads")})
    # Each delivery is in exactly one run that ended for good. A run that was cut short by a kill is tried again.
    done: list[int] = []
    seen = 0
    for record in box.log("triage"):
        if record["kind"] == "run_started":
            until = int(record["payload"]["versions"]["webhook hub"])
        if record["kind"] == "run_finished" and record["payload"]["is_final"]:
            done += range(seen + 1, until + 1)
            seen = until
    assert done == list(range(1, len(accepted) + 1))
    # A sender that heard no answer sends again. The delivery is known.
    body = json.dumps({"id": "0-0"}).encode()
    assert knock(box, "triage/hub", body, sign(body, "d-0-0"))[1]["is_repeated"] is True


@pytest.mark.long
def test_a_thousand_deliveries_at_once_are_all_taken_once(box: HookBox) -> None:
    """Each delivery is answered, recorded once and reaches a run. There are fewer runs than deliveries."""
    make_triage(box)
    bodies = [json.dumps({"number": number}).encode() for number in range(1000)]
    statuses: list[int] = []

    def send(numbers: range) -> None:
        for number in numbers:
            statuses.append(knock(box, "triage/hub", bodies[number], sign(bodies[number], f"d-{number}"))[0])

    senders = [threading.Thread(target=send, args=(range(first, 1000, 20),)) for first in range(20)]
    began = time.monotonic()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    print(f"1,000 deliveries in {time.monotonic() - began:.1f} s")
    assert statuses == [202] * 1000
    eventually(lambda: len(box.lines("payloads")) >= 1000)
    box.wait_at_rest("triage")
    assert sorted(json.loads(line)["number"] for line in box.lines("payloads")) == list(range(1000))
    assert box.kinds("triage").count("delivery_received") == 1000
    assert box.row("triage")["runs"] < 500


def test_a_delivery_by_hand_goes_the_whole_way(box: HookBox) -> None:
    """It is signed with the daemon's secret, filtered and recorded with its author, and it starts a run."""
    make_triage(box)
    box.write("issue.json", '{"action": "opened"}')
    assert "event is ping" in box.words("webhook", "test", "triage", "issue.json")
    answer = box.json("webhook", "test", "triage", "issue.json", "--event", "issues", "--id", "mine")
    assert (answer["position"], answer["is_repeated"], answer["delivery"]) == (1, False, "mine")
    box.wait_at_rest("triage", runs=1)
    assert box.lines("payloads") == ['{"action": "opened"}']
    again = box.words("webhook", "test", "triage", "issue.json", "--event", "issues", "--id", "mine")
    assert "it came before" in again
    records = [record for record in box.log("triage") if record["kind"] == "delivery_received"]
    assert len(records) == 2 and all(record["author"].startswith("person:") for record in records)
    refused = box.run("webhook", "test", "triage", "issue.json", "--binding", "other")
    assert refused.returncode != 0 and "--binding hub" in refused.stderr
    listed = box.words("webhook", "list")
    assert "/webhook/triage/hub" in listed and "github" in listed


def test_a_webhook_without_its_secret_says_so_and_asks_to_try_again(box: HookBox) -> None:
    """The sender may retry, and people see the problem in `show` and in the list.

    Once the secret is set, the webhook works.
    """
    box.spec("triage", TRIAGE)
    box.start()
    body = b'{"action": "opened"}'
    status, answer = knock(box, "triage/hub", body, sign(body, "d-1"))
    assert (status, "wakeful secret set gh" in answer["detail"]) == (503, True)
    assert "wakeful secret set gh" in box.words("webhook", "list")
    assert "it refuses all deliveries" in box.words("show", "triage")
    box.set_secret("gh", SECRET)
    assert knock(box, "triage/hub", body, sign(body, "d-1"))[0] == 202
    box.wait_at_rest("triage", runs=1)


def test_a_secret_in_a_payload_is_kept_nowhere(box: HookBox) -> None:
    """Neither the log nor a blob nor the run's file has it."""
    box.set_secret("other", "a-very-private-value-4711")
    make_triage(box)
    body = b'{"token": "a-very-private-value-4711"}'
    assert knock(box, "triage/hub", body, sign(body, "d-1"))[0] == 202
    box.wait_at_rest("triage", runs=1)
    assert "4711" not in box.read("payloads") and "[secret other]" in box.read("payloads")
    box.stop()
    for path in box.state.rglob("*"):
        if path.is_file():
            assert b"a-very-private-value-4711" not in path.read_bytes(), path


def test_slack_is_answered_its_challenge_and_sends_forms(box: HookBox) -> None:
    """The challenge is no delivery. A slash command comes as a form and is read as JSON."""
    box.spec(
        "ops/chat",
        """
        objective: Answer.
        bindings: {slack: {webhook: slack, secret: gh, only: {event: /deploy}}}
        run: {command: [sh, -c, 'cat "$WAKEFUL_BINDING_SLACK"/* > payload']}
        """,
    )
    box.set_secret("gh", SECRET)
    box.start()

    def send(body: bytes, kind: str, now: float) -> tuple[int, Any]:
        at = str(int(now))
        signature = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={signature}", "Content-Type": kind}
        # The name of a session in a folder is sent as it is, and escaped.
        return knock(box, "ops%2Fchat/slack" if kind == "application/json" else "ops/chat/slack", body, headers)

    challenge = b'{"type": "url_verification", "challenge": "3eZbrw1a", "token": "x"}'
    assert send(challenge, "application/json", time.time()) == (200, "3eZbrw1a")
    form = b"command=%2Fdeploy&text=now&trigger_id=1.2"
    status, answer = send(form, "application/x-www-form-urlencoded", time.time() - 400)
    assert (status, "too old" in answer["detail"]) == (401, True)
    status, answer = send(form, "application/x-www-form-urlencoded", time.time())
    assert (status, answer["event"], answer["position"]) == (202, "/deploy", 1)
    box.wait_at_rest("ops/chat", runs=1)
    assert json.loads(box.read("payload")) == {"command": "/deploy", "text": "now", "trigger_id": "1.2"}
    assert "/webhook/ops/chat/slack" in box.ask("webhook", "list")


def test_a_webhook_must_have_a_secret_or_say_plainly_that_it_has_none(box: HookBox) -> None:
    """`check` refuses the first and warns of the second. The second takes deliveries without a signature."""
    box.spec("open", "objective: X.\nbindings: {hook: {webhook: standard}}\nrun: {command: ['true']}\n")
    refused = box.run("check")
    assert refused.returncode != 0 and "has no secret" in refused.stdout and "secret: none" in refused.stdout
    box.spec("open", "objective: X.\nbindings: {hook: {webhook: standard, secret: none}}\nrun: {command: ['true']}\n")
    assert "deliveries to webhook 'hook' are not signed" in box.words("check")
    box.start()
    assert knock(box, "open/hook", b"hello", {})[0] == 202
    assert knock(box, "open/hook", b"hello", {})[1]["is_repeated"] is True
    box.wait_at_rest("open", runs=1)


def test_payloads_are_words_of_strangers_unless_the_spec_says_otherwise(box: HookBox) -> None:
    """Together with secrets and a way out, untrusted payloads are refused. `trust: trusted` accepts the sender."""
    text = "objective: X.\nnetwork: true\nsecrets: [key]\nbindings: {{hook: {{webhook: github, secret: gh{more}}}}}\nrun: {{command: ['true']}}\n"
    box.spec("risky", text.format(more=""))
    refused = box.run("check")
    assert refused.returncode != 0 and "untrusted input (hook)" in refused.stdout
    box.spec("risky", text.format(more=", trust: trusted"))
    box.ask("check")


def test_new_writes_a_webhook_that_checks(box: HookBox) -> None:
    """The new spec has the name of the secret, which is needed."""
    refused = box.run("new", "triage", "--webhook", "github", "--command", "true", "--specs", str(box.specs))
    assert refused.returncode != 0 and "--secret NAME" in refused.stderr
    box.ask("new", "triage", "--webhook", "github", "--secret", "gh", "--command", "true", "--specs", str(box.specs))
    assert "github: {webhook: github, secret: gh}" in (box.specs / "triage.yaml").read_text()
    box.ask("check")


def test_senders_reach_the_tcp_port_without_a_token_and_pages_of_others_do_not(box: HookBox) -> None:
    """They come directly, or through a proxy whose name is in the settings.

    A wrong Host, an Origin and other routes are refused.
    """
    box.write("wakeful.yaml", "http: {listen: 127.0.0.1:0, hosts: [hooks.example.org]}\n")
    make_triage(box)
    url = urlsplit(read_rows(box)["triage/hub"]["url"])
    assert url.path == "/webhook/triage/hub" and url.hostname == "127.0.0.1" and url.port

    def send(number: int, path: str = url.path, **more: str) -> tuple[int, Any]:
        form = urlencode({"payload": json.dumps({"number": number})}).encode()
        headers = sign(form, f"d-{number}") | {"Content-Type": "application/x-www-form-urlencoded"} | more
        connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=60)
        try:
            connection.request("POST", path, form, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    assert send(1)[1]["position"] == 1
    assert send(2, Host="hooks.example.org")[1]["position"] == 2
    refused = [
        send(3, Host="evil.example.org")[0],
        send(3, Origin="https://evil.example.org")[0],
        send(3, **{"X-Hub-Signature-256": f"sha256={'0' * 64}"})[0],
        send(3, path="/webhooks/test")[0],
        send(3, path="/webhook/triage/other")[0],
    ]
    assert refused[2] == 401 and refused[4] == 404 and all(400 <= status < 500 for status in refused)
    box.wait_at_rest("triage")
    eventually(lambda: len(box.lines("payloads")) == 2)
    assert [json.loads(line)["number"] for line in box.lines("payloads")] == [1, 2]
    assert box.kinds("triage").count("delivery_received") == 2


def test_a_payload_can_be_replayed_and_erased(box: HookBox) -> None:
    """A replay finds the file of the payload again. An erased payload is gone for good."""
    box.write("in.txt", "1")
    make_triage(
        box,
        """
        objective: Look at new issues.
        first: adopt
        bindings: {hub: {webhook: github, secret: gh}, text: {file: in.txt, wake: false}, out: {file: out.txt, access: write}}
        run: {command: [sh, -c, 'cat in.txt "$WAKEFUL_BINDING_HUB"/* > out.txt']}
        """,
    )
    body = b'{"title": "it breaks"}'
    assert knock(box, "triage/hub", body, sign(body, "d-1"))[0] == 202
    box.wait_at_rest("triage", runs=1)
    assert box.read("out.txt") == "1" + body.decode()
    assert json.loads(box.run("replay", "triage", "1", "--json").stdout)["same"] is True
    (record,) = [record for record in box.log("triage") if record["kind"] == "delivery_received"]
    address = record["payload"]["payload"].removeprefix("blake2b-")
    blob = box.state / "blobs" / address[:2] / address[2:]
    assert blob.read_bytes() == body
    box.ask("erase", "triage", str(record["seq"]))
    assert not blob.exists()

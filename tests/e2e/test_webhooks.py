"""Webhooks from outside: real deliveries over the socket of a real daemon, signed as their senders sign."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import WAKEFUL, Box

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
        # Outside of what runs may reach here, as anybody's own is.
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
    """It is answered with its position, recorded as an occurrence, and its payload is a file of the run."""
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

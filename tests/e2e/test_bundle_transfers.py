"""Bundles as bodies of requests: a session goes from one daemon to another without a file of either."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from api.conftest import SocketConnection
from e2e.box import Box

SPEC = (
    "objective: keep\nbindings: {input: {file: in.csv}}\nrun: {command: [sh, -c, 'cat in.csv; echo out > out.txt']}\n"
)
PART = b"no bundle at all" * 65_536
PARTS = 128


def ask(box: Box, method: str, target: str, body: Any = None) -> http.client.HTTPResponse:
    connection = SocketConnection(box.socket)
    connection.request(method, target, body, {"Content-Type": "application/octet-stream"})
    return connection.getresponse()


def transfers(box: Box) -> list[str]:
    folder = Path(box.state) / "transfers"
    return os.listdir(folder) if folder.exists() else []


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Box]:
    """A second daemon."""
    other = Box(tmp_path / "there")
    try:
        other.start()
        yield other
    finally:
        other.close()


def test_a_session_is_sent_and_taken_as_a_body(box: Box, there: Box) -> None:
    """The copy has the same records under a new name, and needs trust before it runs. The transfer leaves no file."""
    box.write("in.csv", "1")
    box.spec("payroll", SPEC)
    box.start()
    box.wait_at_rest("payroll", runs=1)
    answer = ask(box, "GET", "/sessions/payroll/bundle")
    bundle = answer.read()
    assert answer.status == 200 and int(answer.headers["content-length"]) == len(bundle)
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''payroll.bundle"
    assert int(answer.headers["wakeful-records"]) == box.json("show", "payroll")["seq"]
    taken = ask(there, "POST", "/bundle/import?new=trial", bundle)
    *_, last = [json.loads(line) for line in taken.read().splitlines()]
    assert last["name"] == "trial" and "path" not in last
    assert last["records"] == int(answer.headers["wakeful-records"])
    assert "needs trust" in last["needs_trust"]
    assert there.json("show", "trial")["origin"]["name"] == "payroll"
    assert transfers(box) == transfers(there) == []


def test_a_large_body_costs_no_memory_and_a_wrong_one_leaves_nothing(box: Box) -> None:
    """A body of 128 MiB that is no bundle is refused in the last line of the answer. Its file is removed."""
    box.spec("payroll", "objective: rest\n")
    box.start()
    process = psutil.Process(find_pid(box))
    before = process.memory_info().rss
    answer = ask(box, "POST", "/bundle/import", iter([PART] * PARTS))
    peak = process.memory_info().rss
    *_, last = [json.loads(line) for line in answer.read().splitlines()]
    assert last["type"] == "urn:wakeful:bad-request" or last["type"] == "urn:wakeful:unavailable", last
    assert len(PART) * PARTS == 128 * 2**20 and peak - before < 48 * 2**20
    assert transfers(box) == []
    empty = ask(box, "POST", "/bundle/import", b"")
    assert empty.status == 400 and "curl" in json.loads(empty.read())["detail"]
    wrong = ask(box, "POST", "/bundle/import?nwe=x", b"x")
    assert wrong.status == 400 and "did you mean 'new'?" in json.loads(wrong.read())["detail"]


def find_pid(box: Box) -> int:
    pid: int = json.loads(ask(box, "GET", "/version").read())["pid"]
    return pid

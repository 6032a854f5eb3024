"""A client that sends invalid messages gets errors in words, and the server continues."""

from __future__ import annotations

import json
import subprocess

from api.conftest import Speaker
from e2e.box import WAKEFUL, Box
from mcp_server.clients import declare
from wait_conditions import PATIENCE_SECONDS

HELLO = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
NONSENSE = (
    b"not json",
    b"[]",
    b'"words"',
    b"{}",
    b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"x": "' + b"y" * 2_000_000 + b'"}}',
)


def test_nonsense_is_answered_and_the_next_request_as_well(box: Box) -> None:
    declare(box)
    box.start()
    calls = (
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 8, "method": "no/such", "params": {}},
        {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": 3}},
        {"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": {"name": "wakeful_list", "arguments": {}}},
    )
    sent = b"\n".join((*NONSENSE, *(json.dumps(call).encode() for call in calls))) + b"\n"
    with subprocess.Popen(
        [WAKEFUL, "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=box.environment(),
        cwd=box.folder,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(sent)
        server.stdin.flush()
        answers = {}
        while 10 not in answers:
            line = server.stdout.readline()
            assert line, "it ended"
            answer = json.loads(line)
            answers[answer.get("id")] = answer
        server.stdin.close()
        assert server.wait(PATIENCE_SECONDS) == 0
    assert answers[7]["result"]["serverInfo"]["name"] == "wakeful"
    assert answers[8]["error"]["code"] == -32601 and answers[9]["error"]["code"] == -32602
    assert answers[10]["result"]["structuredContent"]["items"][0]["name"] == "pay"


def test_nonsense_over_http_is_never_an_error_of_ours(box: Box) -> None:
    declare(box)
    box.start()
    speaker = Speaker(box.socket)
    for body in NONSENSE:
        answer = speaker.ask("POST", "/mcp", body, Accept="*/*", Content_Type="application/json")
        # A message without a valid id counts as a notification, which gets no answer.
        assert answer.status == 202 or 400 <= answer.status < 500, (body[:50], answer.status, answer.body[:300])
    assert speaker.ask("GET", "/version").status == 200

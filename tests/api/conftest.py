"""Fixtures that start a small daemon on a real socket, and HTTP clients made of the standard library."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from api.openapi_checker import check_described
from api.small_daemon import RunningDaemon
from wait_conditions import PATIENCE_SECONDS


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path) as running:
        yield running


class SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("wakeful", timeout=PATIENCE_SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(str(self.path))


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def error(self) -> str:
        """Return the detail text of an error answer. Asserts that the answer is a problem document of RFC 9457."""
        found = self.json
        assert self.headers["content-type"] == "application/problem+json"
        assert set(found) == {"type", "title", "status", "detail"} and found["status"] == self.status
        assert found["type"].startswith("urn:wakeful:") and found["title"]
        return found["detail"]


class Speaker:
    """An HTTP client for the control socket.
    It does not use our own client, because these tests check the wire format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, method: str, target: str, body: Any = None, token: str | None = None, **headers: str) -> Reply:
        connection = SocketConnection(self.path)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        connection.request(method, target, data, named)
        answer = connection.getresponse()
        reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        check_described(method, target, reply.status, reply.headers, reply.body)
        return reply

    def get(self, target: str, token: str | None = None) -> Reply:
        return self.ask("GET", target, token=token)

    def call(self, verb: str, token: str | None = None, **body: Any) -> Reply:
        return self.ask("POST", f"/call/{verb}", body, token=token)

    def stream(self, target: str) -> tuple[SocketConnection, http.client.HTTPResponse]:
        connection = SocketConnection(self.path)
        connection.request("GET", target)
        return connection, connection.getresponse()


class TcpSpeaker:
    """An HTTP client over TCP. It sends `Host` and exactly the given headers. A value of None leaves a header out."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = url.partition("://")[2]

    def ask(self, method: str, target: str, body: Any = None, **headers: str | None) -> Reply:
        name, _, port = self.host.rpartition(":")
        connection = http.client.HTTPConnection(name.strip("[]"), int(port), timeout=PATIENCE_SECONDS)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Host": self.host, **({} if data is None else {"Content-Type": "application/json"})}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for key, value in given.items():
            if value is not None:
                connection.putheader(key, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        reply = Reply(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        connection.close()
        return reply

    def get(self, target: str, token: str | None = None, **headers: str | None) -> Reply:
        return self.ask("GET", target, Authorization=token and f"Bearer {token}", **headers)

    def post(self, target: str, body: Any, token: str | None = None, **headers: str | None) -> Reply:
        return self.ask("POST", target, body, Authorization=token and f"Bearer {token}", **headers)


@pytest.fixture
def speaker(daemon: RunningDaemon) -> Speaker:
    return Speaker(daemon.socket)


def segment(name: str) -> str:
    return quote(name, safe="")

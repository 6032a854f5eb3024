"""Services: real servers on loopback that answer, refuse, hang up, or accept and never send anything."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reserved_port import held_port
from wait_conditions import eventually_async
from wakeful.core.looking.targets import ServiceTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.core.spec.agent import McpServer
from wakeful.sources.checks.services import ServiceSource, check_bound_server, check_service
from wakeful.system.http_request import ServiceDown

pytestmark = pytest.mark.asyncio

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handler):
    """Serve on a port of loopback, and yield the port."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answering(status: str) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    return handle


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def speak_something_else(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    await reader.read()
    writer.close()


@pytest.mark.parametrize(
    "status", ["200 OK", "204 No Content", "301 Moved", "401 Unauthorized", "404 Not Found", "405 Not Allowed"]
)
async def test_any_answer_of_http_below_500_is_up(status: str) -> None:
    """A server that answers with a refusal works."""
    async with serving(answering(status)) as port:
        await check_service(f"http://127.0.0.1:{port}/health?deep=1", 60.0)


async def test_an_answer_of_500_or_more_is_down() -> None:
    """The message has the status."""
    async with serving(answering("503 Unavailable")) as port:
        with pytest.raises(ServiceDown, match="answered 503"):
            await check_service(f"http://127.0.0.1:{port}", 60.0)


async def test_a_server_that_accepts_and_never_answers_is_down_for_http_and_up_for_tcp() -> None:
    """The timeout ends the look and not the server."""
    async with serving(say_nothing) as port:
        begun = time.monotonic()
        with pytest.raises(ServiceDown, match="no answer within 0.2 s"):
            await check_service(f"http://127.0.0.1:{port}", 0.2)
        assert time.monotonic() - begun < 60.0
        await check_service(f"tcp://127.0.0.1:{port}", 60.0)


@pytest.mark.parametrize(
    ("handle", "words"), [(hang_up, "without an HTTP answer"), (speak_something_else, "does not speak HTTP")]
)
async def test_what_does_not_speak_http_is_down(handle: Handler, words: str) -> None:
    """An open port is not a web server."""
    async with serving(handle) as port:
        with pytest.raises(ServiceDown, match=f"{words}|reset"):
            await check_service(f"http://127.0.0.1:{port}", 60.0)


async def test_https_on_a_plain_port_is_down() -> None:
    """A broken handshake is a message."""
    async with serving(speak_something_else) as port:
        with pytest.raises(ServiceDown, match="https://127"):
            await check_service(f"https://127.0.0.1:{port}", 60.0)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:{port}", "http://127.0.0.1:{port}/", "unix:{path}/none"])
async def test_where_nothing_listens_is_down(url: str, tmp_path: Path) -> None:
    """The connection is refused at once, and the message has the system's words."""
    with held_port() as held, pytest.raises(ServiceDown, match="refused|Connect call failed|No such file"):
        await check_service(url.format(port=held.getsockname()[1], path=tmp_path), 60.0)


async def test_a_unix_socket_is_up_while_somebody_listens(tmp_path: Path) -> None:
    """A socket file without a listening server is down."""
    path = tmp_path / "s"
    server = await asyncio.start_unix_server(say_nothing, path)
    await check_service(f"unix:{path}", 60.0)
    server.close()
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    with pytest.raises(ServiceDown):
        await check_service(f"unix:{path}", 60.0)


@pytest.mark.parametrize(
    "url",
    [
        "tcp://localhost",
        "ftp://localhost:21",
        "tcp://:80",
        "tcp://h:99999",
        "nonsense",
        "",
        "http://a..b:1/",
        "http://[::1",
    ],
)
async def test_an_address_that_is_none_is_down_and_never_an_error(url: str) -> None:
    """A bad address gives a message."""
    with pytest.raises(ServiceDown):
        await check_service(url, 2.0)


async def test_the_source_reports_up_and_down_and_hints_itself() -> None:
    """Down is a version with a problem, up is one without.

    The source hints each service again by itself.
    """
    looked: list[LookResult] = []
    hinted: list[str] = []

    def take(observation: TargetsHinted | TargetLooked) -> None:
        if isinstance(observation, TargetLooked):
            looked.append(observation.result)
        else:
            hinted.extend(observation.targets)

    source = ServiceSource(take, asyncio.get_running_loop())
    with held_port() as held:
        port = held.getsockname()[1]
        target = ServiceTarget(key="s", url=f"tcp://127.0.0.1:{port}", check_every_seconds=0.05, timeout_seconds=60.0)
        source.follow([target])
        source.look("s", 1)
        await eventually_async(lambda: looked)
        assert (looked[0].version, looked[0].generation) == ("down", 1)
        assert str(port) in looked[0].problem
        await eventually_async(lambda: len(hinted) >= 2)
        held.listen()
        source.look("s", 2)
        await eventually_async(lambda: len(looked) == 2)
        assert (looked[1].version, looked[1].problem) == ("up", None)
    source.look("s", 3)
    source.forget(["s"])
    source.look("s", 4)
    await source.close()
    assert len(looked) == 2


def speaking_mcp(
    asked: list[bytes],
    answer: bytes = b'event: message\r\ndata: {"jsonrpc": "2.0", "id": 1, "result": {}}\r\n\r\n',
    status: str = "200 OK",
) -> Handler:
    """Answer the first request of the protocol, and record all requests."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {status}\r\nMcp-Session-Id: s1\r\n\r\n".encode() + answer)
        await writer.drain()
        writer.close()

    return handle


async def test_an_mcp_server_at_an_address_is_up_when_it_answers_the_first_request() -> None:
    """The check sends no key, and ends the protocol session that it began."""
    asked: list[bytes] = []
    async with serving(speaking_mcp(asked)) as port:
        await check_bound_server(
            "mcp:x", McpServer(name="x", url=f"http://127.0.0.1:{port}/mcp", key="token"), "/", 60.0
        )
    assert asked[0].startswith(b"POST /mcp ") and b"uthorization" not in asked[0]
    assert asked[1].startswith(b"DELETE /mcp ") and b"mcp-session-id: s1" in asked[1]


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [(b"<html>", "200 OK", "does not speak MCP"), (b"", "404 Not Found", "answered 404"), (b"", "502 Bad", "answered 502"), (b"", "401 Unauthorized", None)],
)  # fmt: skip
async def test_what_is_no_mcp_server_is_down(answer: bytes, status: str, words: str | None) -> None:
    """A server that asks for a key is up."""
    async with serving(speaking_mcp([], answer, status)) as port:
        server = McpServer(name="x", url=f"http://127.0.0.1:{port}/mcp")
        if words is None:
            await check_bound_server("mcp:x", server, "/", 60.0)
            return
        with pytest.raises(ServiceDown, match=words):
            await check_bound_server("mcp:x", server, "/", 60.0)


async def test_an_mcp_program_is_up_when_it_is_there_and_is_never_started(tmp_path: Path) -> None:
    """The program is in PATH, or below root.

    A check would run it with rights that no run has, so it never starts it.
    """
    program = tmp_path / "serve"
    for argv, words in (
        (("sh", "-c", "x"), None),
        (("no-such-program",), "not in PATH"),
        (("./serve",), "is not there"),
    ):
        server = McpServer(name="x", argv=argv)
        if words is None:
            await check_bound_server("mcp:x", server, str(tmp_path), 60.0)
            continue
        with pytest.raises(ServiceDown, match=words):
            await check_bound_server("mcp:x", server, str(tmp_path), 60.0)
    program.write_text("#!/bin/sh\ntouch started\n")
    with pytest.raises(ServiceDown, match="cannot be executed"):
        await check_bound_server("mcp:x", McpServer(name="x", argv=("./serve",)), str(tmp_path), 60.0)
    program.chmod(0o755)
    await check_bound_server("mcp:x", McpServer(name="x", argv=("./serve",)), str(tmp_path), 60.0)
    assert not (tmp_path / "started").exists()

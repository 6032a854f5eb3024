"""The link to the daemon: every answer belongs to its call, and no effect is repeated or wrongly taken for done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from wait_conditions import eventually_async
from wakeful.client import async_client as daemon
from wakeful.client.async_client import DaemonClient
from wakeful.client.refusals import DaemonAway, DaemonRefused, EffectUnknown
from wakeful.errors import CallerError, OperatorError

HEAD = b"HTTP/1.1 200 OK\r\nwakeful-version: 1\r\n"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    made.spec("desk", "objective: Keep facts.\nrun: {command: ['true']}\n")
    yield made
    made.close()


Serve = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def scripted(path: Path, answer: Serve) -> AsyncIterator[list[bytes]]:
    """A stub daemon that answers as a test says, and keeps its requests."""
    asked: list[bytes] = []
    ends: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                asked.append(head + await reader.readexactly(length))
                await answer(asked[-1], writer)
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield asked
    finally:
        server.close()
        for writer in ends:
            writer.close()


async def say(writer: asyncio.StreamWriter, body: bytes, head: bytes = HEAD) -> None:
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


@pytest.mark.asyncio
async def test_it_calls_looks_and_is_refused_in_the_daemon_s_words(box: Box) -> None:
    """Answers of a real daemon come back as values. A refusal keeps its status and its words."""
    box.start()
    async with DaemonClient(str(box.socket)) as link:
        assert (await link.look("/version"))["state"] == str(box.state)
        first = await link.call("remember", {"name": "desk", "key": "rate", "value": "0.19", "rationale": None}, "once")
        again = await link.call("remember", {"name": "desk", "key": "rate", "value": "0.19"}, "once")
        assert (first["words"], again["words"]) == (
            "remembered rate",
            "done already: record 4, fact_set by person:root",
        )
        (fact,) = await link.look("/sessions/desk/facts")
        assert fact["value"] == "0.19"
        lines = await link.look("/sessions/desk/log", {"from": 1, "last": None})
        assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
        assert len(await link.look("/sessions/desk/log", {"last": 2, "words": "true"})) == 2
        with pytest.raises(DaemonRefused, match="there is no call 'nope'") as refused:
            await link.call("nope", {"name": "desk"})
        assert refused.value.status == 400
        with pytest.raises(DaemonRefused, match="no session") as missing:
            await link.look("/sessions/none/facts")
        assert missing.value.status == 404


@pytest.mark.asyncio
async def test_many_calls_at_once_each_get_their_own_answer(box: Box) -> None:
    """Concurrent calls do not mix up their answers. A cancelled call does not take the answer of another."""
    box.start()
    async with DaemonClient(str(box.socket)) as link:
        given_up = [asyncio.ensure_future(link.look("/sessions/desk/log", {"last": 5})) for _ in range(5)]
        await asyncio.sleep(0)
        calls = [
            link.call("remember", {"name": "desk", "key": f"k{number}", "value": "v"}, f"key {number}")
            for number in range(40)
        ]
        gathered = asyncio.gather(*calls)
        for look in given_up:
            look.cancel()
        answers = await gathered
        assert [answer["words"] for answer in answers] == [f"remembered k{number}" for number in range(40)]
        assert (await link.look("/version"))["version"]


@pytest.mark.asyncio
async def test_a_daemon_that_restarts_is_waited_for(box: Box) -> None:
    """The daemon is killed between two calls. The link finds it again, and the daemon kept the earlier facts."""
    box.start()
    async with DaemonClient(str(box.socket)) as link:
        await link.call("remember", {"name": "desk", "key": "a", "value": "1"})
        box.kill()
        waiting = asyncio.ensure_future(link.call("remember", {"name": "desk", "key": "b", "value": "2"}))
        await asyncio.to_thread(box.start)
        assert (await waiting)["words"] == "remembered b"
        assert [fact["key"] for fact in await link.look("/sessions/desk/facts")] == ["a", "b"]


@pytest.mark.asyncio
async def test_what_has_no_key_is_never_asked_twice(tmp_path: Path) -> None:
    """The daemon closes the connection after it read the request. The caller learns that the effect is unknown."""

    async def leave(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with scripted(tmp_path / "s", leave) as asked, DaemonClient(str(tmp_path / "s")) as link:
        with pytest.raises(EffectUnknown, match="it is not known whether the call was carried out"):
            await link.call("note", {"text": "x"})
        assert len(asked) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200",
        HEAD + b"content-length: 20\r\n\r\n{",
        HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
)
async def test_what_has_a_key_is_asked_again_until_it_is_answered(tmp_path: Path, cut: bytes) -> None:
    """A truncated answer counts as none. The link repeats the same request and returns the first whole answer."""
    pieces = [cut]

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        if pieces:
            writer.write(pieces.pop())
            writer.close()
        else:
            await say(writer, b'{"words":"done"}')

    async with scripted(tmp_path / "s", answer) as asked, DaemonClient(str(tmp_path / "s"), "token") as link:
        assert await link.call("note", {"text": "x"}, "once") == {"words": "done"}
        assert asked[0] == asked[1] and b"Idempotency-Key: once\r\n" in asked[0] and b"Bearer token\r\n" in asked[0]


@pytest.mark.asyncio
async def test_lines_are_sent_as_they_come_and_all_of_them_again_to_a_daemon_that_has_come_back(tmp_path: Path) -> None:
    """If the daemon leaves in the middle of a post, the link sends all lines again at the end, in the same order."""
    received = bytearray()

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"first" not in received:
            received.extend(await reader.read(1 << 16))
        writer.close()

    gone = await asyncio.start_unix_server(leave, tmp_path / "s")
    async with DaemonClient(str(tmp_path / "s"), "token") as link:
        post = link.post_lines("/work/steps")
        await post.send({"line": "first"})
        await eventually_async(lambda: b"first" in received)
        gone.close()
        (tmp_path / "s").unlink()
        await post.send({"line": "second"})
        async with scripted(tmp_path / "s", lambda _, writer: say(writer, b'{"end":null}')) as asked:
            assert await post.end({"line": "third"}) == {"end": None}
        (whole,) = asked
        assert (
            whole.endswith(b'\r\n\r\n{"line":"first"}\n{"line":"second"}\n{"line":"third"}\n')
            and b"Bearer token\r\n" in whole
        )


@pytest.mark.asyncio
async def test_one_connection_serves_many_calls_until_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link keeps a connection open between calls.

    It opens a new one after a long rest, or after the daemon closed the old one.
    """
    seen: set[int] = set()
    head = HEAD

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        seen.add(id(writer))
        await say(writer, b"{}", head)

    async with scripted(tmp_path / "s", answer), DaemonClient(str(tmp_path / "s")) as link:
        for _ in range(5):
            await link.post("/x", {})
        assert len(seen) == 1
        monkeypatch.setattr(daemon, "IDLE_SECONDS", 0.0)
        await link.post("/x", {})
        assert len(seen) == 2
        monkeypatch.setattr(daemon, "IDLE_SECONDS", 60.0)
        head = HEAD + b"connection: close\r\n"
        await link.post("/x", {})
        await link.post("/x", {})
        assert len(seen) == 3


@pytest.mark.asyncio
async def test_patience_ends(tmp_path: Path) -> None:
    """A daemon that is not there, or does not answer, is reported within the time limit."""

    async def hang(_: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    link = DaemonClient(str(tmp_path / "none"), patience_seconds=0.2)
    with pytest.raises(DaemonAway, match="no daemon answers"):
        await link.look("/version")
    async with scripted(tmp_path / "s", hang) as asked, DaemonClient(str(tmp_path / "s"), patience_seconds=1.0) as slow:
        with pytest.raises(EffectUnknown, match="within 1 s"):
            await slow.look("/version")
        assert len(asked) == 1


@pytest.mark.asyncio
async def test_what_is_not_wakeful_is_not_believed(tmp_path: Path) -> None:
    """An answer without the daemon's header is refused. Garbage with that header gives a message and no traceback."""
    bodies = [(b"HTTP/1.1 200 OK\r\n", b"{}"), (HEAD.replace(b"200", b"502"), b"<html>")]

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        head, body = bodies.pop(0)
        await say(writer, body, head)

    async with scripted(tmp_path / "s", answer), DaemonClient(str(tmp_path / "s")) as link:
        with pytest.raises(DaemonAway, match="is not wakeful"):
            await link.look("/version")
        with pytest.raises(DaemonRefused, match="answered 502: <html>"):
            await link.look("/version")


@pytest.mark.asyncio
async def test_a_key_cannot_smuggle_a_header(tmp_path: Path) -> None:
    """A line break in a key is refused before anything is sent."""
    async with DaemonClient(str(tmp_path / "none")) as link:
        with pytest.raises(CallerError, match="one line"):
            await link.call("note", {"text": "x"}, "a\r\nAuthorization: Bearer other")


def test_outside_of_a_run_it_says_what_is_missing(tmp_path: Path) -> None:
    """Without the run's variables or its token file there is no link, and the error names what is missing."""
    with pytest.raises(OperatorError, match="WAKEFUL_SOCKET is not set"):
        DaemonClient.from_environment({})
    with pytest.raises(OperatorError, match="cannot read the run's token"):
        DaemonClient.from_environment({"WAKEFUL_SOCKET": "s", "WAKEFUL_TOKEN_FILE": str(tmp_path / "token")})

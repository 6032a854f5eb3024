"""Slow and hostile clients of a daemon: `slow_clients.py SOCKET`.

Some connections send nothing. Others send heads and bodies byte by byte, bodies of 100 MB, or JSON nested 200,000 deep,
or close their half of the connection before they read. The program runs until standard input ends, and prints the
daemon's answers as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter

SILENT, DRIPPING, LARGE, DEEP, HALF_CLOSED = 100, 100, 5, 20, 50
HEAD = b"POST /call/note HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
NESTED = b'{"name": "talk", "text": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
LARGE_BYTES = 100_000_000


class Crowd:
    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.answers: dict[str, Counter[str]] = {
            kind: Counter() for kind in ("silent", "dripping", "large", "deep", "half_closed")
        }

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.socket)

    async def note_answer(self, kind: str, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            line = await reader.readline()
            self.answers[kind][line.split(b" ")[1].decode() if line else "closed"] += 1

    async def stay_silent(self) -> None:
        reader, _ = await self.connect()
        await self.note_answer("silent", reader)

    async def drip(self, begin: bytes) -> None:
        reader, writer = await self.connect()
        writer.write(begin)
        ending = asyncio.create_task(self.note_answer("dripping", reader))
        while not ending.done():
            writer.write(b"x")
            await asyncio.wait([ending], timeout=1.0)

    async def send_large(self) -> None:
        reader, writer = await self.connect()
        writer.write(HEAD % LARGE_BYTES)
        ending = asyncio.create_task(self.note_answer("large", reader))
        with contextlib.suppress(ConnectionError):
            for _ in range(LARGE_BYTES // 100_000):
                writer.write(b"x" * 100_000)
                await writer.drain()
        await ending

    async def send(self, kind: str, request: bytes) -> None:
        reader, writer = await self.connect()
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
            if kind == "half_closed":
                writer.write_eof()
        await self.note_answer(kind, reader)

    async def attack(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SILENT):
                group.create_task(self.stay_silent())
            for number in range(DRIPPING):
                group.create_task(self.drip(b"GET /version HTTP/1.1\r\nX: " if number % 2 else HEAD % 10_000))
            for _ in range(LARGE):
                group.create_task(self.send_large())
            for _ in range(DEEP):
                group.create_task(self.send("deep", HEAD % len(NESTED) + NESTED))
            for _ in range(HALF_CLOSED):
                group.create_task(self.send("half_closed", b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"))


async def main() -> None:
    crowd = Crowd(sys.argv[1])
    attacking = asyncio.create_task(crowd.attack())
    print("under way", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    attacking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attacking
    print(json.dumps(crowd.answers))


asyncio.run(main())

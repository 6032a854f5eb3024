"""Server-sent events: how one is written, and the answer that sends them for as long as somebody reads.

Every stream of the API uses this. A comment is sent in every silence, so that both ends notice a dead connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

EVENTS = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": alive\n\n"
# A proxy must pass events on as they come, and nobody must keep them.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_PART_BYTES = 64 * 1024
# To send takes a tenth of a millisecond.
SENT_AT_ONCE = 4


def wants_events(request: Request) -> bool:
    return EVENTS in request.headers.get("accept", "")


def write_event(event: str, data: bytes, event_id: str | None = None) -> bytes:
    """`data` is JSON in one line."""
    head = f"event: {event}\n" if event_id is None else f"id: {event_id}\nevent: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


class SendTurns:
    """Lets a few streams send in one round of the loop.

    A hundred streams have something to send at the same moment. A saved file, or a call, waits for a few of them, not
    for all."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(SENT_AT_ONCE)

    async def take(self) -> None:
        async with self._free:
            await asyncio.sleep(0)


def answer_events(events: AsyncIterator[bytes], request: Request) -> Response:
    turns: SendTurns = request.app.state.turns
    return StreamingResponse(_keep_alive(events, turns), media_type=EVENTS, headers=HEADERS)


async def _keep_alive(events: AsyncIterator[bytes], turns: SendTurns) -> AsyncIterator[bytes]:
    """The events in parts that a slow reader can take, and comments in the silence between them."""
    async with aclosing(cast("Any", events)):
        coming: asyncio.Future[bytes] | None = None
        try:
            while True:
                coming = asyncio.ensure_future(cast("Any", anext(events))) if coming is None else coming
                done, _ = await asyncio.wait((coming,), timeout=KEEP_ALIVE_SECONDS)
                if not done:
                    yield KEEP_ALIVE
                    continue
                text = coming.result()
                coming = None
                await turns.take()
                for start in range(0, len(text), _PART_BYTES):
                    yield text[start : start + _PART_BYTES]
                del text
        except StopAsyncIteration:
            return
        finally:
            if coming is not None:
                coming.cancel()
                # Its generator cannot be closed while it runs.
                await asyncio.wait((coming,))

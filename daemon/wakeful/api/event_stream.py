"""Server-sent events: their encoding, and the HTTP answer that sends them until the client disconnects.

Every stream of the API uses this. A comment is sent after `KEEP_ALIVE_SECONDS` without an event, so that both ends
notice a dead connection.
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
# A proxy must pass events on without buffering, and no cache may keep them.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_PART_BYTES = 64 * 1024
# The most streams that send in one turn of the loop. Each send takes a tenth of a millisecond.
SENT_AT_ONCE = 4


def wants_events(request: Request) -> bool:
    return EVENTS in request.headers.get("accept", "")


def write_event(event: str, data: bytes, event_id: str | None = None) -> bytes:
    """Encode one event. `data` is JSON in one line."""
    head = f"event: {event}\n" if event_id is None else f"id: {event_id}\nevent: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


class SendTurns:
    """Lets at most `SENT_AT_ONCE` streams send in one turn of the loop.

    After one record, a hundred streams may have something to send. With this limit, a saved file or a call waits only
    for a few of them."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(SENT_AT_ONCE)

    async def take(self) -> None:
        async with self._free:
            await asyncio.sleep(0)


def answer_events(events: AsyncIterator[bytes], request: Request) -> Response:
    turns: SendTurns = request.app.state.turns
    return StreamingResponse(_keep_alive(events, turns), media_type=EVENTS, headers=HEADERS)


async def _keep_alive(events: AsyncIterator[bytes], turns: SendTurns) -> AsyncIterator[bytes]:
    """Yield the events in parts of at most `_PART_BYTES`, for slow readers, and a comment during each silence."""
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
                # `aclosing` cannot close the generator while it still runs.
                await asyncio.wait((coming,))

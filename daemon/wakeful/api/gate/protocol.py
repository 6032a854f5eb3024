"""HTTP/1.1 on one connection: uvicorn's protocol with the peer it was judged to be,
and time limits for whoever keeps us waiting.

A connection is bounded while it waits for a head or a body, and while its reader takes nothing. A request that is under
way is not: `follow` and `activate --wait` may last for days. Answers that no route gives,
because no request was read, are written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from wakeful.api.problems import MEDIA_TYPE, PROBLEMS, encode_problem

# How long the head of a request may take, from the connection's first moment or the end of the answer before.
HEAD_SECONDS = 10.0
# How long its body may take. A call has at most a megabyte, and comes from this machine.
BODY_SECONDS = 60.0
# How long a reader may take nothing of an answer: a person who pages through a long one takes minutes over a page.
STALLED_SECONDS = 600.0
# An agent sends the lines of its steps as it works, for as long as its run lasts; a bundle may be large.
UNHURRIED = ("/work/steps", "/bundle/import")
VERSION_HEADER = "Wakeful-Version"
# The position of the log at which an answer was true.
POSITION_HEADER = "Wakeful-Position"
Awaited = Literal["head", "body"]


class PeerProtocol(H11Protocol):
    """Tells the app, as `peer` of the request's state, who is at the other end,
    and `over` when the connection ended."""

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, peer: object, version: str, over: Callable[[], None]
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={"peer": peer})
        self._version = version
        self._over = over
        self._awaited: Awaited | None = None
        self._hurry: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": transport.get_extra_info("socket")}
        # `pause_writing` then follows whenever the reader left something, however little.
        # Of TLS a limit counts as passed when it is reached: with 0 it would pause while nothing is left.
        is_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=1 if is_tls else 0, low=0)
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._hurry, self._stall):
            if timer is not None:
                timer.cancel()
        self._over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_request()

    def _watch_request(self) -> None:
        """Start the clock when we begin to wait for a head or a body;
        single bytes that keep coming do not turn it back."""
        awaited = self._find_awaited()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None
        if awaited is not None:
            self._hurry = self.loop.call_later(HEAD_SECONDS if awaited == "head" else BODY_SECONDS, self._give_up)

    def _find_awaited(self) -> Awaited | None:
        if self.transport.is_closing():
            return None
        if self.conn.their_state is h11.IDLE:
            return "head"
        is_answered = self.cycle is not None and self.cycle.response_complete
        if self.conn.their_state is h11.SEND_BODY and (is_answered or self.scope["path"] not in UNHURRIED):
            return "body"
        return None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        is_begun = self._awaited == "body" or bool(self.conn.trailing_data[0])
        is_answered = self.cycle is not None and self.cycle.response_started and self._awaited == "body"
        if is_begun and not is_answered:
            seconds = HEAD_SECONDS if self._awaited == "head" else BODY_SECONDS
            self.transport.write(
                write_answer(
                    "too-slow",
                    f"the {self._awaited} of the request was not complete after {seconds:g} s; call again",
                    self._version,
                )
            )
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """The library's answer to what is no HTTP, in the form of all others."""
        self.transport.write(write_answer("bad-request", msg, self._version))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(STALLED_SECONDS, self._look_for_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _look_for_reader(self) -> None:
        """A slow reader is let go on, one that took nothing is cut off: the connection ends,
        and what it was sent until then can be read."""
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread_bytes:
            self._unread_bytes = unread
            self._stall = self.loop.call_later(STALLED_SECONDS, self._look_for_reader)
        else:
            self.transport.abort()


def write_answer(problem: str, words: str, version: str) -> bytes:
    """An error in words, as the routes write it."""
    body, status = encode_problem(problem, words), PROBLEMS[problem].status
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"{VERSION_HEADER}: {version}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "Retry-After: 1", "Connection: close", "", "")).encode() + body

"""HTTP/1.1 on one connection: uvicorn's protocol, extended by the identity of the peer and by time limits.

There are time limits for sending a head, for sending a body, and for reading nothing of an answer. A request under way
has no limit: `follow` and `activate --wait` may last for days. This module also writes the answers to requests that
were not read completely, and so never reached a route.
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

# The most seconds for the head of a request, from the start of the connection or the end of the previous answer.
HEAD_SECONDS = 10.0
# The most seconds for the body. A call has at most a megabyte, and comes from this machine.
BODY_SECONDS = 60.0
# The most seconds in which a client reads nothing of an answer. A person with a pager may spend minutes on one page.
STALLED_SECONDS = 600.0
# The paths whose body has no time limit. An agent sends its steps as long as its run lasts, and a bundle may be large.
UNHURRIED = ("/work/steps", "/bundle/import")
VERSION_HEADER = "Wakeful-Version"
# The log position that an answer reflects.
POSITION_HEADER = "Wakeful-Position"
Awaited = Literal["head", "body"]


class PeerProtocol(H11Protocol):
    """Passes the peer to the app as `peer` of the request's state, and calls `over` when the connection has ended."""

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

    # uvicorn narrows the type of the argument in the same way.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": transport.get_extra_info("socket")}
        # With these limits, `pause_writing` is called as soon as a single byte waits for the reader.
        # TLS pauses when the limit is reached, not when it is exceeded, so a limit of 0 would pause an empty buffer.
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
        """Start the timer when the wait for a head or a body begins. Further bytes of the same part do not restart it,
        so a client that sends one byte at a time is disconnected, too."""
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
        """Answer input that is not HTTP, in the form of our other errors. Overrides the library's own answer."""
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
        """End the connection if the client has read nothing since the last check. If it reads slowly, go on waiting.
        The client can still read the data that was already sent."""
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread_bytes:
            self._unread_bytes = unread
            self._stall = self.loop.call_later(STALLED_SECONDS, self._look_for_reader)
        else:
            self.transport.abort()


def write_answer(problem: str, words: str, version: str) -> bytes:
    """Write a complete HTTP answer with the same problem body as the routes. `words` is the message."""
    body, status = encode_problem(problem, words), PROBLEMS[problem].status
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"{VERSION_HEADER}: {version}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "Retry-After: 1", "Connection: close", "", "")).encode() + body

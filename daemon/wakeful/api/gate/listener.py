"""Accepts connections: judges each peer once, gives it a place or a refusal in words,
and goes on when descriptors run out.

`ControlSocket` starts and closes it. Written beside asyncio's own server because that one accepts without asking, and
answers a lack of descriptors with one traceback for each place in its queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from wakeful.api.gate.protocol import PeerProtocol, write_answer

# So many wait in the kernel's queue for us to accept them.
BACKLOG = 512
# Then others on the loop have their turn.
ACCEPTED_AT_ONCE = 32
# How long nothing is accepted after descriptors or memory ran out.
BACK_OFF_SECONDS = 0.2
# A refused client has so long to send its request and read why; closed at once, it could not finish sending.
PARTING_SECONDS = 1.0
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# The time limit of a TLS handshake.
HANDSHAKE_SECONDS = 10.0
PeerT = TypeVar("PeerT")
PlacedT_contra = TypeVar("PlacedT_contra", contravariant=True)


class PlaceCounts(Protocol[PlacedT_contra]):
    """The places for connections: see connections.py."""

    most_parting: int

    @property
    def total(self) -> int: ...
    def admit(self, peer: PlacedT_contra, /) -> str | None: ...
    def release(self, peer: PlacedT_contra, /) -> None: ...


class Listener(Generic[PeerT]):
    """Owns the listening socket from now on. `judge` says who is at the other end of a connection; `greet` makes the
    protocol of a connection that has a place."""

    def __init__(
        self,
        listening: socket.socket,
        connections: PlaceCounts[PeerT],
        judge: Callable[[socket.socket], PeerT],
        greet: Callable[[PeerT, Callable[[], None]], PeerProtocol],
        version: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = listening
        self._connections = connections
        self._judge = judge
        self._greet = greet
        self._version = version
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._parting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._serving: set[asyncio.Task[None]] = set()
        # Given up for a moment to accept, and refuse, a client when there is no other descriptor left.
        self._reserve: int | None = None
        self._fill_reserve()
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(listening.fileno(), self._accept_some)

    def close(self) -> None:
        """No new connections; those under way go on."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for connection in list(self._parting):
            self._part(connection)
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _accept_some(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                self._back_off(error)
                return
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            peer = self._judge(connection)
        except OSError:
            # The client of a TCP connection is gone already, and with it its address.
            connection.close()
            return
        refusal = self._connections.admit(peer)
        if refusal is not None:
            self._refuse(connection, refusal)
            return
        serving = self._loop.create_task(self._serve(connection, peer), name="serve a connection")
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, connection: socket.socket, peer: PeerT) -> None:
        """The protocol takes over from here, and gives the place back when its connection ends."""
        release = _once(partial(self._connections.release, peer))
        try:
            await self._loop.connect_accepted_socket(
                partial(self._greet, peer, release),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
            )
        except OSError:
            # Also where the keys of TLS were not agreed upon.
            release()
            connection.close()

    def _refuse(self, connection: socket.socket, words: str) -> None:
        # A client that left, or whose buffer is full before a single byte was read: nobody is there to be told.
        with contextlib.suppress(OSError):
            if self._tls is None:
                connection.send(write_answer("busy", words, self._version))
            connection.shutdown(socket.SHUT_WR)
        if len(self._parting) < self._connections.most_parting:
            self._parting[connection] = self._loop.call_later(PARTING_SECONDS, self._part, connection)
        else:
            connection.close()

    def _part(self, connection: socket.socket) -> None:
        self._parting.pop(connection).cancel()
        connection.close()

    def _back_off(self, error: OSError) -> None:
        """Accept nothing for a moment.

        Clients in the queue are told why, one by one, over the descriptor kept in reserve.
        """
        self._loop.remove_reader(self._socket.fileno())
        self._resuming = self._loop.call_later(BACK_OFF_SECONDS, self._resume)
        if error.errno != errno.EMFILE or self._reserve is None:
            return
        for connection in list(self._parting):
            self._part(connection)
        words = (
            f"the daemon is busy: it has no file descriptor left ({self._connections.total} connections); raise "
            "its limit (LimitNOFILE=, ulimit -n), or call again later"
        )
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._refuse_from_reserve(words):
                return

    def _refuse_from_reserve(self, words: str) -> bool:
        """False where nobody waits, or the reserve could not be filled again."""
        if self._reserve is None:
            return False
        os.close(self._reserve)
        self._reserve = None
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return False
        else:
            with connection, contextlib.suppress(OSError):
                connection.setblocking(False)
                if self._tls is None:
                    connection.send(write_answer("busy", words, self._version))
        finally:
            self._fill_reserve()
        return True

    def _fill_reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _resume(self) -> None:
        self._resuming = None
        if self._reserve is None:
            self._fill_reserve()
        self._loop.add_reader(self._socket.fileno(), self._accept_some)


def _once(act: Callable[[], None]) -> Callable[[], None]:
    """`act` at the first call, and nothing at the next ones."""
    left = [act]

    def act_once() -> None:
        if left:
            left.pop()()

    return act_once

"""Accepts connections: judges each peer once, and admits it or refuses it with a message. Survives a lack of file
descriptors.

`ControlSocket` and `TcpPort` start and close a `Listener`. asyncio's own server is not used, because it accepts every
connection without asking, and logs one traceback for each queued connection when descriptors run out.
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

# The most connections in the kernel's queue that wait to be accepted.
BACKLOG = 512
# The most connections accepted in one turn of the loop.
ACCEPTED_AT_ONCE = 32
# Seconds without accepting after descriptors or memory ran out.
BACK_OFF_SECONDS = 0.2
# Seconds that a refused client has to send its request and read the refusal. If the connection were closed at once,
# the client would fail while it sends, and never read the refusal.
PARTING_SECONDS = 1.0
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# The time limit of a TLS handshake.
HANDSHAKE_SECONDS = 10.0
PeerT = TypeVar("PeerT")
PlacedT_contra = TypeVar("PlacedT_contra", contravariant=True)


class PlaceCounts(Protocol[PlacedT_contra]):
    """The limits on connections, implemented in connections.py."""

    most_refused_open: int

    @property
    def total(self) -> int: ...
    def admit(self, peer: PlacedT_contra, /) -> str | None: ...
    def release(self, peer: PlacedT_contra, /) -> None: ...


class Listener(Generic[PeerT]):
    """Owns the listening socket. `judge` identifies the peer of a connection. `make_protocol` makes the protocol of an
    admitted connection."""

    def __init__(
        self,
        listening: socket.socket,
        connections: PlaceCounts[PeerT],
        judge: Callable[[socket.socket], PeerT],
        make_protocol: Callable[[PeerT, Callable[[], None]], PeerProtocol],
        version: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = listening
        self._connections = connections
        self._judge = judge
        self._make_protocol = make_protocol
        self._version = version
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._parting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._serving: set[asyncio.Task[None]] = set()
        # A spare descriptor. It is closed for a moment to accept and refuse a client when no other descriptor is left.
        self._reserve: int | None = None
        self._fill_reserve()
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(listening.fileno(), self._accept_some)

    def close(self) -> None:
        """Accept no new connections. Open connections go on."""
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
            # The TCP client has already disconnected, so its address is gone.
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
        """Pass the connection to its protocol, which releases its place when the connection ends."""
        release = _once(partial(self._connections.release, peer))
        try:
            await self._loop.connect_accepted_socket(
                partial(self._make_protocol, peer, release),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
            )
        except OSError:
            # This error is also raised if the TLS handshake failed.
            release()
            connection.close()

    def _refuse(self, connection: socket.socket, words: str) -> None:
        # An error means that the client has left, or that its buffer is full. In both cases nobody reads the refusal.
        with contextlib.suppress(OSError):
            if self._tls is None:
                connection.send(write_answer("busy", words, self._version))
            connection.shutdown(socket.SHUT_WR)
        if len(self._parting) < self._connections.most_refused_open:
            self._parting[connection] = self._loop.call_later(PARTING_SECONDS, self._part, connection)
        else:
            connection.close()

    def _part(self, connection: socket.socket) -> None:
        self._parting.pop(connection).cancel()
        connection.close()

    def _back_off(self, error: OSError) -> None:
        """Accept nothing for `BACK_OFF_SECONDS`.

        If the process ran out of descriptors, refuse the queued clients one by one, with the spare descriptor.
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
        """Refuse one queued client with the spare descriptor. False if no client waits, or there is no spare one."""
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
    """Return a function that calls `act` the first time, and does nothing after that."""
    left = [act]

    def act_once() -> None:
        if left:
            left.pop()()

    return act_once

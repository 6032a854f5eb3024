"""Who called: the kernel says which user, a token says which run, or what a person let its bearer do.

The peer's credentials are read from the socket when a connection is made and cannot be forged. A run speaks with its own
token and for its own session alone, and who belongs to a run speaks as that run or not at all; everybody else who gets through is
the daemon's own user, narrowed by the token they show, if they show one.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

from wakeful.api.service import RunIdentity
from wakeful.api.tokens import Token

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    """`run` is None for a person; `uid` is the user at the other end, by the kernel's word. `token`: what narrows them.

    `author` is who the log names; `judged_as` whose role in a session counts: a token never gives its bearer more than they have."""

    author: str
    run: RunIdentity | None = None
    uid: int | None = None
    token: Token | None = None
    person: str | None = None

    @property
    def judged_as(self) -> str:
        return self.person or self.author


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that tells the app, as `peer_uid` and `peer_pid` of the request's state, who is at the other end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        uid, pid = read_peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer_uid": uid, "peer_pid": pid}


def read_peer(connection: socket.socket) -> tuple[int, int | None]:
    """The user and the process at the other end, as they were when it connected."""
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return uid, pid
    # macOS and the BSDs: xucred of LOCAL_PEERCRED (level 0, option 1) is a version, then the uid.
    return struct.unpack("Ii", connection.getsockopt(0, 1, 8))[1], None


def name_person(uid: int) -> str:
    try:
        return f"person:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"person:{uid}"


def name_run(run: RunIdentity) -> str:
    return f"run:{run.name}#{run.run}"


def name_token(token: Token) -> str:
    return f"token:{token.id}"

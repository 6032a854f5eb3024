"""Every way in which a client gets no answer, as errors in words. Both transports raise them.

Nobody listens, a stranger listens, the daemon is busy, it left before it answered, what answers is not wakeful, or the
daemon answered with an error.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import struct
from collections.abc import Mapping

from wakeful.errors import CallerError, OperatorError
from wakeful.text.display import escape

# Names the account whose daemon a person means, where that is not their own.
OWNER_VARIABLE = "WAKEFUL_OWNER"
# The status of a call whose first request with the same key is under way.
UNDER_WAY = 409
# pid, uid and gid at the other end.
_CREDENTIALS = struct.Struct("3i")


class DaemonUnreachable(OperatorError):
    """No answer of our daemon came."""


class DaemonAway(DaemonUnreachable):
    """Nothing that is a daemon answers."""


class EffectUnknown(DaemonAway):
    """The daemon left between the request and the answer; whether it did what it was asked is not known."""


class DaemonBusy(DaemonUnreachable):
    """The daemon is there, and has no place for one more connection. It read nothing of the request."""


class NotOurDaemon(DaemonUnreachable):
    """The socket is another user's, and nothing was sent."""


class DaemonRefused(CallerError):
    """The daemon answered with an error. The words are the daemon's own."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def read_peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and the user of the process that listens, as the kernel knows them."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def refuse_stranger(connection: socket.socket, path: str, owner: str | None = None) -> None:
    """Raise NotOurDaemon where the user who listens is neither we, nor root, nor the owner whom a person named.

    Whatever the name of the socket, that is not our daemon, and is told no token. Where systemd listens for the daemon,
    root does. An owner of None means that no person can name one.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return
    _, uid = read_peer(connection)
    if uid in (os.geteuid(), 0) or os.geteuid() == 0 or _is_owner(uid, owner):
        return
    words = f"user {uid} listens on {escape(path)}, and you are user {os.geteuid()}: nothing was sent"
    if owner is not None:
        words += f"; give your own with --socket, or say whose daemon you mean: {OWNER_VARIABLE}={uid}"
    raise NotOurDaemon(words)


def _is_owner(uid: int, owner: str | None) -> bool:
    """Did the person say that they mean the daemon of this account, by its name or number?"""
    if not owner or owner == str(uid):
        return bool(owner)
    try:
        return pwd.getpwnam(owner).pw_uid == uid
    except KeyError:
        return False


def explain_failed_connect(error: OSError, address: str, remedy: str) -> DaemonUnreachable:
    """The error of a connection that was not made."""
    match error:
        case BlockingIOError():
            return DaemonBusy(
                f"the daemon at {escape(address)} is busy: more clients want to connect than it can take, "
                "or it is stopped; wakeful doctor tells more"
            )
        case PermissionError():
            return NotOurDaemon(
                f"{escape(address)} may not be opened: it belongs to another user's daemon, or the isolation of the "
                "run closes it; give your own with --socket"
            )
        case _:
            return DaemonAway(f"no daemon answers at {escape(address)} ({error.strerror or error}); {remedy}")


def explain_no_http(address: str) -> DaemonAway:
    return DaemonAway(f"what answers at {escape(address)} does not speak HTTP; give the right place with --socket")


def read_version(headers: Mapping[str, str], address: str) -> str:
    """The version of the daemon that answered. Raises DaemonAway where what answered is not wakeful."""
    version = headers.get("wakeful-version")
    if version is None:
        raise DaemonAway(f"what answers at {escape(address)} is not wakeful; give the right place with --socket")
    return version


def is_busy(status: int, headers: Mapping[str, str]) -> bool:
    """Did it read nothing of the request, and could it take the request in a moment?"""
    return status == 503 and "retry-after" in headers


def read_refusal(body: bytes, status: int) -> str:
    """The words of an error answer: a problem document, or the `{error: words}` of an earlier release."""
    try:
        found = json.loads(body)
        return str(found.get("detail") or found.get("error") or found["title"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"the daemon answered {status}: {body[:200].decode(errors='replace')}"

"""The errors of a request that did not succeed, and their messages. Both transports raise them.

The reasons are: nothing listens, a stranger listens, the daemon is busy, the daemon left before it answered, the
listener is not wakeful, or the daemon answered with an error.
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

# The environment variable that names the account of another user's daemon.
OWNER_VARIABLE = "WAKEFUL_OWNER"
# The HTTP status if the first request with the same key is still under way.
UNDER_WAY = 409
# pid, uid and gid at the other end.
_CREDENTIALS = struct.Struct("3i")


class DaemonUnreachable(OperatorError):
    """Our daemon gave no answer."""


class DaemonAway(DaemonUnreachable):
    """No daemon answers, or it went away before it answered."""


class EffectUnknown(DaemonAway):
    """The daemon went away between the request and the answer. It is unknown whether it carried out the request."""


class DaemonBusy(DaemonUnreachable):
    """The daemon runs but accepts no more connections now. It read nothing of the request."""


class NotOurDaemon(DaemonUnreachable):
    """The socket belongs to another user, and nothing was sent."""


class DaemonRefused(CallerError):
    """The daemon answered with an error. The message is the daemon's own."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def read_peer(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process that listens, as the kernel reports them."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def refuse_stranger(connection: socket.socket, path: str, owner: str | None = None) -> None:
    """Raise NotOurDaemon if the user of the listening process is neither ours, nor root, nor the given owner.

    A process of another user is not our daemon, and must not get a token. Root is accepted, because systemd may listen
    for the daemon. If `owner` is None, the message does not suggest `OWNER_VARIABLE`.
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
    """Does `owner` name this account, by its name or number?"""
    if not owner or owner == str(uid):
        return bool(owner)
    try:
        return pwd.getpwnam(owner).pw_uid == uid
    except KeyError:
        return False


def explain_failed_connect(error: OSError, address: str, remedy: str) -> DaemonUnreachable:
    """Make the error of a connection that failed."""
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
    return DaemonAway(f"the server at {escape(address)} does not speak HTTP; give the right path with --socket")


def read_version(headers: Mapping[str, str], address: str) -> str:
    """Return the version of the daemon that answered. Raises DaemonAway if the listener is not wakeful."""
    version = headers.get("wakeful-version")
    if version is None:
        raise DaemonAway(f"the server at {escape(address)} is not wakeful; give the right path with --socket")
    return version


def is_busy(status: int, headers: Mapping[str, str]) -> bool:
    """Did the daemon refuse the request unread, because it is busy for a moment? The client may repeat it."""
    return status == 503 and "retry-after" in headers


def read_refusal(body: bytes, status: int) -> str:
    """Read the message of an error answer: a problem document, or the `{error: words}` of an earlier release."""
    try:
        found = json.loads(body)
        return str(found.get("detail") or found.get("error") or found["title"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"the daemon answered {status}: {body[:200].decode(errors='replace')}"

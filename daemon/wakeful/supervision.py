"""Talking to systemd: ready, status, watchdog, stopping, and the socket it listens on for us. Silent where nobody listens.

Fire and forget over a datagram socket. WATCHDOG=1 is sent only when the reactor made progress or had
nothing to do: a loop that hangs must be seen to hang. A socket that systemd hands over is systemd's: it is never
unlinked or bound anew here, or who connects during a restart would find nobody.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

from wakeful.errors import OperatorError

# SD_LISTEN_FDS_START: descriptors that systemd hands over begin behind the three standard ones.
FIRST_HANDED_OVER = 3


class Supervisor:
    def __init__(self, environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        usec = environ.get("WATCHDOG_USEC", "")
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        # Half the period, as sd_watchdog_enabled(3) advises.
        self.watchdog_seconds = int(usec) / 2e6 if usec.isdigit() and is_for_us else None

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            try:
                channel.sendto(text.encode(), address)
            except OSError as error:
                # The supervisor went away: it will not miss what it cannot read, but a person may want to know.
                print(f"wakeful: systemd does not take notifications: {error}", flush=True)
                self._address = ""


def take_listener(environ: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """The listening socket that systemd handed over, or None. Its variables are taken away, so that no child thinks them its own."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    # Left over from a parent's environment, those descriptors are somebody else's.
    if pid != str(os.getpid()) or not count.isdigit() or count == "0":
        return None
    for number in range(FIRST_HANDED_OVER, FIRST_HANDED_OVER + int(count)):
        os.set_inheritable(number, False)
    if count != "1":
        raise OperatorError(f"systemd hands over {count} sockets, and wakeful listens on one: leave one ListenStream= in wakeful.socket")
    listener = socket.socket(fileno=FIRST_HANDED_OVER)
    kind = (listener.family, listener.type, listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    if kind != (socket.AF_UNIX, socket.SOCK_STREAM, 1) or not isinstance(listener.getsockname(), str) or not listener.getsockname():
        raise OperatorError("the socket that systemd hands over is no listening UNIX socket with a path: say ListenStream=/PATH in wakeful.socket")
    return listener

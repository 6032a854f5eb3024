"""Talking to systemd: ready, status, watchdog, stopping. Silent where nobody listens.

Fire and forget over a datagram socket. WATCHDOG=1 is sent only when the reactor made progress or had
nothing to do: a loop that hangs must be seen to hang.
"""

from __future__ import annotations

import os
import socket
import time


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

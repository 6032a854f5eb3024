"""Speaks the protocol of systemd: ready, status, watchdog, stopping, the socket that systemd opens for the daemon, and
the store of descriptors.

Notifications are datagrams without an answer. Without systemd nothing is sent. WATCHDOG=1 is sent only if the reactor
made progress or had nothing to do, so that systemd notices a loop that hangs. A socket that systemd passed belongs to
systemd. It is never unlinked or bound again here, because clients that connect during a restart would be refused.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple

from wakeful.errors import OperatorError

# SD_LISTEN_FDS_START: the first descriptor that systemd passes comes after the three standard ones.
FIRST_HANDED_OVER = 3
# Seconds to wait for systemctl. A service that is being stopped has a minute, and this must not use much of it.
_PATIENCE_SECONDS = 5.0


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
        if self._address and (problem := _notify(self._address, text)) is not None:
            # The supervisor is gone and needs no notifications, but a person may want to know.
            print(f"wakeful: systemd does not take notifications: {problem}", flush=True)
            self._address = ""


class SystemdDescriptorStore:
    """systemd's store of descriptors. They outlive the daemon, and systemd passes them to the next one.

    systemd takes them only from the service's main process (NotifyAccess=main), so no run can add or remove any.
    """

    def __init__(self, address: str, capacity: int) -> None:
        self._address = address
        self.capacity = capacity

    def put(self, name: str, fds: Sequence[int]) -> bool:
        # FDPOLL=0: otherwise systemd drops a descriptor that reports a hang-up or an error, which is when the next
        # daemon needs it most.
        return _notify(self._address, f"FDSTORE=1\nFDPOLL=0\nFDNAME={name}", fds) is None

    def remove(self, name: str) -> None:
        _notify(self._address, f"FDSTOREREMOVE=1\nFDNAME={name}")


def find_keeper(environ: Mapping[str, str] = os.environ) -> SystemdDescriptorStore | None:
    """Return the store of descriptors. None if there is none.

    The variable FDSTORE has the store's capacity. systemd sets it from version 254 on. Our units set it for older
    versions.
    """
    address, capacity = environ.get("NOTIFY_SOCKET", ""), environ.get("FDSTORE", "")
    return SystemdDescriptorStore(address, int(capacity)) if address and capacity.isdigit() and int(capacity) else None


def _notify(address: str, text: str, fds: Sequence[int] = ()) -> OSError | None:
    place = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.connect(place)
            socket.send_fds(channel, [text.encode()], list(fds)) if fds else channel.send(text.encode())
        except OSError as error:
            return error
    return None


async def is_restarting() -> bool:
    """Is systemd stopping this service only to start it again?

    systemctl is asked, because systemd does not notify the service of this. False if systemctl does not answer.
    """
    unit, is_person = _find_unit()
    if unit is None:
        return False
    words = ("systemctl", *(("--user",) if is_person else ()), "list-jobs", "--no-legend", "--plain", unit)
    try:
        asked = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            answer, _ = await asked.communicate()
    except TimeoutError:
        asked.kill()
        await asked.wait()
        return False
    # Each line has the job's number, the unit, the job's type and its state.
    lines = [line.split() for line in answer.decode(errors="replace").splitlines()]
    return any(line[1:3] == [unit, "restart"] for line in lines)


def _find_unit() -> tuple[str | None, bool]:
    """Find the service whose control group this process is in, and whether it belongs to a user's own systemd."""
    for line in Path("/proc/self/cgroup").read_text(errors="replace").splitlines():
        names = line.removeprefix("0::").split("/") if line.startswith("0::") else []
        services = [name for name in names if name.endswith(".service")]
        if services:
            return services[-1], any(name.startswith("user@") for name in services[:-1])
    return None, False


class HandedOver(NamedTuple):
    """The descriptors that systemd passed at the start.

    `listener` is the socket that systemd opened for the daemon. `stored` has the descriptors, by name, that an earlier
    daemon put into the store.
    """

    listener: socket.socket | None = None
    stored: Mapping[str, Sequence[int]] = {}


def take_handed_over(environ: MutableMapping[str, str] = os.environ) -> HandedOver:
    """Take the descriptors from systemd. The variables are removed, so that no child process takes them for its own."""
    pid, count, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    # Variables that were inherited from a parent process do not describe descriptors of this process.
    if pid != str(os.getpid()) or not count.isdigit() or count == "0":
        return HandedOver()
    fds = range(FIRST_HANDED_OVER, FIRST_HANDED_OVER + int(count))
    named = dict(zip(fds, names.split(":"), strict=False))
    sockets, stored = [], dict[str, list[int]]()
    for fd in fds:
        os.set_inheritable(fd, False)
        # The daemon never puts a socket into the store.
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            sockets.append(fd)
        else:
            stored.setdefault(named.get(fd, ""), []).append(fd)
    if len(sockets) > 1:
        raise OperatorError(
            f"systemd hands over {len(sockets)} sockets, and wakeful listens on one: "
            "leave one ListenStream= in wakeful.socket"
        )
    return HandedOver(_check_listener(sockets[0]) if sockets else None, stored)


def _check_listener(fd: int) -> socket.socket:
    listener = socket.socket(fileno=fd)
    kind = (listener.family, listener.type, listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    if (
        kind != (socket.AF_UNIX, socket.SOCK_STREAM, 1)
        or not isinstance(listener.getsockname(), str)
        or not listener.getsockname()
    ):
        raise OperatorError(
            "the socket that systemd hands over is not a listening UNIX socket with a path: "
            "set ListenStream=/PATH in wakeful.socket"
        )
    return listener

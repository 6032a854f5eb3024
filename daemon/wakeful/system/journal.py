"""The journal of systemd, spoken natively: one entry is a set of fields,
so that what a daemon says can be asked for by session and run.

Used by the daemon's voice when its output is connected to the journal. A datagram to the journal's socket; what does
not fit in one goes as a sealed memory file. By the protocol a value with a newline is sent by its length: nothing that
comes from outside can add a field or break an entry. Never blocks for long and never raises:
whoever cannot be told is not told.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from array import array
from collections.abc import Mapping
from typing import Literal

SOCKET = "/run/systemd/journal/socket"
# syslog(3): what is over, what a person should look at, what is worth noting, what happens.
Priority = Literal[2, 3, 4, 5, 6]
CRITICAL: Priority = 2
ERROR: Priority = 3
WARNING: Priority = 4
NOTICE: Priority = 5
INFO: Priority = 6
# How long a journal that is full may hold the voice: entries are dropped then, the log has all.
PATIENCE_SECONDS = 2.0


class Journal:
    """Where entries go. `find_journal` makes one."""

    def __init__(self, address: str = SOCKET) -> None:
        self._address = address
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._channel.settimeout(PATIENCE_SECONDS)

    def send(self, fields: Mapping[str, str]) -> bool:
        """Whether it was taken."""
        entry = encode(fields)
        try:
            self._channel.sendto(entry, self._address)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                return False
            return self._send_file(entry)
        return True

    def _send_file(self, entry: bytes) -> bool:
        """An entry larger than a datagram: the journal maps the file,
        and takes it only if nobody can change it any more."""
        number = os.memfd_create("wakeful-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            view = memoryview(entry)
            while view:
                view = view[os.write(number, view) :]
            fcntl.fcntl(
                number,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
            )
            # Not socket.send_fds: it leaves the address out (Python 3.11).
            self._channel.sendmsg(
                [b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [number]))], 0, self._address
            )
        except OSError:
            return False
        finally:
            os.close(number)
        return True

    def close(self) -> None:
        self._channel.close()


def encode(fields: Mapping[str, str]) -> bytes:
    """One entry by the native protocol: `NAME=value`, or by its length where a newline would end the value early."""
    entry = bytearray()
    for name, value in fields.items():
        data = value.encode(errors="backslashreplace")
        if b"\n" in data:
            entry += name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
        else:
            entry += name.encode() + b"=" + data + b"\n"
    return bytes(entry)


def find_journal(environ: Mapping[str, str] = os.environ) -> Journal | None:
    """The journal, if standard output or error is connected to it.

    The variable alone is not enough: it is inherited.
    """
    said = environ.get("JOURNAL_STREAM", "")
    if not said or not os.path.exists(SOCKET):
        return None
    for number in (1, 2):
        try:
            found = os.fstat(number)
        except OSError:
            continue
        if said == f"{found.st_dev}:{found.st_ino}":
            return Journal()
    return None

"""Writes to systemd's journal by its native protocol. An entry is a set of fields, so entries can be searched by
session and run.

The daemon's printer uses it if the daemon's output is connected to the journal. An entry is one datagram, or a sealed
memory file if it is too large. A value with a newline is sent with its length, so no text from outside can add a field
or break an entry. Blocks for at most `PATIENCE_SECONDS`, and never raises: an entry that cannot be sent is dropped.
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
# Priorities of syslog(3).
Priority = Literal[2, 3, 4, 5, 6]
CRITICAL: Priority = 2
ERROR: Priority = 3
WARNING: Priority = 4
NOTICE: Priority = 5
INFO: Priority = 6
# Seconds to wait while the journal's queue is full. Then the entry is dropped; the session's log still has the record.
PATIENCE_SECONDS = 2.0


class Journal:
    """A connection to the journal. `find_journal` makes one."""

    def __init__(self, address: str = SOCKET) -> None:
        self._address = address
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._channel.settimeout(PATIENCE_SECONDS)

    def send(self, fields: Mapping[str, str]) -> bool:
        """Send an entry. Returns True if the journal accepted it."""
        entry = encode(fields)
        try:
            self._channel.sendto(entry, self._address)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                return False
            return self._send_file(entry)
        return True

    def _send_file(self, entry: bytes) -> bool:
        """Send an entry that is larger than a datagram, as a memory file. The journal only takes a sealed file."""
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
            # Not socket.send_fds, which ignores the address (Python 3.11).
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
    """Encode an entry: each field as `NAME=value`, or with the value's length if the value contains a newline."""
    entry = bytearray()
    for name, value in fields.items():
        data = value.encode(errors="backslashreplace")
        if b"\n" in data:
            entry += name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
        else:
            entry += name.encode() + b"=" + data + b"\n"
    return bytes(entry)


def find_journal(environ: Mapping[str, str] = os.environ) -> Journal | None:
    """Return the journal if standard output or standard error is connected to it, otherwise None.

    The variable JOURNAL_STREAM alone proves nothing, because child processes inherit it.
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

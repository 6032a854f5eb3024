"""A minimal supervisor like systemd: it starts a command, restarts it when it dies, and stores its descriptors.

It stores and hands over descriptors, and accepts messages, as sd_notify(3) and sd_listen_fds(3) describe. Like the
first process of a machine, it inherits and reaps the processes that a dead daemon leaves. SIGTERM ends the command and
then the supervisor. `PLACE/main` holds the pid of the command's process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CREDENTIALS = struct.Struct("3i")
MOST_DESCRIPTORS = 64


class Supervisor:
    def __init__(self, place: Path, command: list[str]) -> None:
        self.place = place
        self.command = command
        self.stored: dict[str, list[int]] = {}
        self.main = 0
        self.is_ending = False
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.heard.bind(str(place / "notify"))

    def live(self) -> int:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGTERM, self.end)
        self.heard.settimeout(0.05)
        self.start()
        while True:
            self.hear()
            if not self.reap():
                return 0

    def end(self, number: int, frame: object) -> None:
        self.is_ending = True
        os.kill(self.main, signal.SIGTERM)

    def start(self) -> None:
        fds = [(name, fd) for name, fds in self.stored.items() for fd in fds]
        self.main = os.fork()
        if self.main:
            (self.place / "main.new").write_text(str(self.main))
            (self.place / "main.new").rename(self.place / "main")
            return
        # Numbers so high that no descriptor is overwritten before its turn.
        moved = [os.dup2(fd, 100 + number) for number, (_, fd) in enumerate(fds)]
        for number, fd in enumerate(moved):
            os.dup2(fd, 3 + number)
        os.closerange(3 + len(moved), 100 + len(moved))
        os.closerange(100, 100 + len(moved))
        os.environ.update(NOTIFY_SOCKET=str(self.place / "notify"), FDSTORE=str(MOST_DESCRIPTORS))
        if moved:
            os.environ.update(
                LISTEN_PID=str(os.getpid()),
                LISTEN_FDS=str(len(moved)),
                LISTEN_FDNAMES=":".join(name for name, _ in fds),
            )
        os.execv(self.command[0], self.command)

    def hear(self) -> None:
        try:
            text, ancillary, _, _ = self.heard.recvmsg(
                4096, socket.CMSG_SPACE(64) + socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
            )
        except TimeoutError:
            return
        words = dict(line.split("=", 1) for line in text.decode().splitlines())
        sender, fds = 0, list[int]()
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = CREDENTIALS.unpack(content[: CREDENTIALS.size])[0]
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = list(struct.unpack(f"{len(content) // 4}i", content))
        # As with NotifyAccess=main, only messages of the main process count.
        if sender == self.main and "FDSTORE" in words:
            self.stored.setdefault(words["FDNAME"], []).extend(fds)
        elif sender == self.main and "FDSTOREREMOVE" in words:
            fds = self.stored.pop(words["FDNAME"], [])
            for fd in fds:
                os.close(fd)
        else:
            for fd in fds:
                os.close(fd)
        (self.place / "stored.new").write_text("\n".join(sorted(self.stored)))
        (self.place / "stored.new").rename(self.place / "stored")

    def reap(self) -> bool:
        """Reap the processes that ended. Return whether to go on."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self.is_ending
            if not pid:
                return True
            if pid == self.main and self.is_ending:
                return False
            if pid == self.main:
                self.start()


sys.exit(Supervisor(Path(sys.argv[1]), sys.argv[2:]).live())

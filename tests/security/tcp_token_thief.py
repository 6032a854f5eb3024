"""The hostile program of test_tcp_callers.py: it runs as a session, has found a person's token, and shows it over TCP.

`plain` shows the token. `hidden` first hides this process's open sockets from other processes. `child` lets a child
with a cleared environment show it. The program prints the status of the answer.
"""

from __future__ import annotations

import ctypes
import http.client
import subprocess
import sys
from pathlib import Path

PR_GET_DUMPABLE = 3
PR_SET_DUMPABLE = 4


def show_token(address: str, token: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/sessions", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    print(f"status {answer.status} {answer.read().decode()}", flush=True)


if __name__ == "__main__":
    way, address = sys.argv[1:3]
    if way == "child":
        subprocess.run([sys.executable, __file__, "plain", address], env={}, check=True)
        sys.exit()
    if way == "hidden":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        assert ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    show_token(address, Path("in/found.token").read_text().strip())

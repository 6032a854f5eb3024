"""The clients of `window`, each kind in a process of its own, so that their CPU does not count as the daemon's.

python bench/http_clients.py streams|calls PLAN

The plan is JSON. A client prints `ready`, works until its standard input ends, and then prints its report, one line of
JSON.
"""

from __future__ import annotations

import http.client
import itertools
import json
import queue
import selectors
import socket
import sys
import threading
import time
from typing import Any

CONNECTIONS = 16
ANSWER_SECONDS = 60.0
_PIECE_BYTES = 1 << 18


class Stream:
    """One stream of server-sent events. It counts events without parsing them, which costs almost nothing."""

    def __init__(self, port: int, token: str, target: str) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port))
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
        self.connection.sendall(head.encode())
        self._tail = b""
        self.is_open = False
        self.events = 0
        self.size_bytes = 0
        self.has_ended = False

    def take(self) -> None:
        data = self.connection.recv(_PIECE_BYTES)
        if not data:
            self.has_ended = True
            return
        text = self._tail + data
        if not self.is_open and b"\r\n\r\n" in text:
            if not text.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"a stream was refused: {text[:500]!r}")
            self.is_open = True
        self.events += text.count(b"\nevent: ")
        self.size_bytes += len(data)
        # Keep the end of this piece, because the next event may begin in it.
        self._tail = text[-8:] if not text.endswith(b"\nevent: ") else b""


def read_streams(plan: dict[str, Any]) -> dict[str, Any]:
    streams = [Stream(plan["port"], plan["token"], target) for target in plan["targets"]]
    watched = selectors.DefaultSelector()
    watched.register(sys.stdin, selectors.EVENT_READ, None)
    for stream in streams:
        watched.register(stream.connection, selectors.EVENT_READ, stream)
    is_ready = False
    while True:
        for key, _ in watched.select():
            if key.data is None:
                return {
                    "events": [stream.events for stream in streams],
                    "bytes": sum(stream.size_bytes for stream in streams),
                    "ended": sum(stream.has_ended for stream in streams),
                    "cpu_seconds": time.process_time(),
                }
            key.data.take()
            if key.data.has_ended:
                watched.unregister(key.fileobj)
        if not is_ready and all(stream.is_open for stream in streams):
            is_ready = True
            print("ready", flush=True)


class Caller(threading.Thread):
    """A thread that takes calls from the queue and makes them on a connection of its own, which stays open."""

    def __init__(self, port: int, token: str, due: queue.SimpleQueue[tuple[float, dict[str, Any]] | None]) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._due = due
        self.took: list[tuple[str, float]] = []
        self.errors: list[str] = []

    def run(self) -> None:
        while (one := self._due.get()) is not None:
            due_at, call = one
            try:
                self._connection.request(call["method"], call["target"], call.get("body"), self._headers)
                answer = self._connection.getresponse()
                said = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                self.errors.append(f"{call['kind']}: {type(error).__name__}: {error}")
                continue
            if answer.status != 200:
                self.errors.append(f"{call['kind']}: {answer.status} {said[:200]!r}")
            # Count from the moment the call was due, because a call that waited for an earlier one was late, too.
            self.took.append((call["kind"], time.monotonic() - due_at))


def make_calls(plan: dict[str, Any]) -> dict[str, Any]:
    due: queue.SimpleQueue[tuple[float, dict[str, Any]] | None] = queue.SimpleQueue()
    callers = [Caller(plan["port"], plan["token"], due) for _ in range(CONNECTIONS)]
    for caller in callers:
        caller.start()
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    print("ready", flush=True)
    began = time.monotonic()
    for number, call in enumerate(itertools.cycle(plan["calls"])):
        at = began + number * 60.0 / plan["calls_a_minute"]
        if is_over.wait(max(0.0, at - time.monotonic())):
            break
        due.put((at, call))
    for _ in callers:
        due.put(None)
    for caller in callers:
        caller.join()
    return {
        "took": [one for caller in callers for one in caller.took],
        "errors": [one for caller in callers for one in caller.errors],
        "cpu_seconds": time.process_time(),
    }


if __name__ == "__main__":
    work = {"streams": read_streams, "calls": make_calls}[sys.argv[1]]
    print(json.dumps(work(json.loads(sys.argv[2]))), flush=True)

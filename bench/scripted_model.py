"""A model that answers at once, in a process of its own: OpenAI chat completions over HTTP/1.1.

It answers with one tool call after another, and then with text. Each client is known by its address,
`http://127.0.0.1:PORT/stream|plain/WHO/v1`. The content of a request is counted but not parsed, so that the hundredth
answer takes as long as the first. `GET /WHO` returns the times at which each request of WHO arrived and its answer was
sent. The one argument is the number of tool calls. It prints its port.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass

# The same tool in all harnesses. Each call reads another line of a file, so that no harness sees an agent that loops.
TOOL = "read"
_MODEL = {"id": "bench", "created": 0, "model": "bench"}
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class Exchange:
    """The times of one request, in seconds of the clock that all processes share. `size` is its body's length."""

    arrived: float
    answered: float
    size: int


def main(calls: int) -> None:
    exchanges: dict[str, list[Exchange]] = defaultdict(list)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=serve, args=(connection, calls, exchanges), daemon=True).start()


def serve(connection: socket.socket, calls: int, exchanges: dict[str, list[Exchange]]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while (request := take(connection)) is not None:
            path, size = request
            arrived = time.monotonic()
            how, _, rest = path.lstrip("/").partition("/")
            own = exchanges[rest.partition("/")[0] or how]
            if not rest:
                connection.sendall(write("application/json", json.dumps([asdict(one) for one in own]).encode()))
                continue
            turn = len(own) + 1
            connection.sendall(stream(turn, turn > calls) if how == "stream" else plain(turn, turn > calls))
            own.append(Exchange(arrived, time.monotonic(), size))


def take(connection: socket.socket) -> tuple[str, int] | None:
    """Return the path and length of the next request, once all of it has arrived. None at the end."""
    head = b""
    while b"\r\n\r\n" not in head:
        if not (more := connection.recv(1 << 16)):
            return None
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    size = next((int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")), 0)
    missing = size - len(body)
    while missing > 0 and (more := connection.recv(1 << 20)):
        missing -= len(more)
    return first.split(" ")[1], size


def write(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def call(turn: int) -> dict[str, object]:
    return {
        "id": f"call_{turn}",
        "type": "function",
        "function": {"name": TOOL, "arguments": json.dumps({"path": "page.md", "offset": turn, "limit": 1})},
    }


def plain(turn: int, is_last: bool) -> bytes:
    message = (
        {"role": "assistant", "content": "done"}
        if is_last
        else {"role": "assistant", "content": None, "tool_calls": [call(turn)]}
    )
    choice = {"index": 0, "message": message, "finish_reason": "stop" if is_last else "tool_calls"}
    return write(
        "application/json",
        json.dumps(_MODEL | {"object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode(),
    )


def stream(turn: int, is_last: bool) -> bytes:
    delta = (
        {"role": "assistant", "content": "done"}
        if is_last
        else {"role": "assistant", "tool_calls": [call(turn) | {"index": 0}]}
    )
    told = (
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if is_last else "tool_calls"}]},
        {"choices": [], "usage": _USAGE},
    )
    events = [
        b"data: " + json.dumps(_MODEL | {"object": "chat.completion.chunk"} | one).encode() + b"\n\n" for one in told
    ]
    return write("text/event-stream", b"".join(events) + b"data: [DONE]\n\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))

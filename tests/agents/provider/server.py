"""The scripted provider: a real HTTP server on loopback that answers as its script says, and keeps its requests.

It uses threads of the standard library. Every connection has its own thread, so a waiting or cut connection delays no
other. Any client can use it, synchronous or not, in this process or another. It listens on the loopback address only.
It also serves `/script/…`, by which a test controls a provider in another process.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from agents.provider.answer import count_tokens
from agents.provider.delivery import Delivery, ScriptMistake, deliver, plain
from agents.provider.endpoint import Endpoint
from agents.provider.formats import Format, Wire
from agents.provider.formats.all_formats import FORMATS, find_counted, write_count
from agents.provider.local_model_servers import ROUTES, LlamaCpp, Ollama, Vllm
from agents.provider.model_request import Asked, BrokenHistory, refuse_broken_history
from agents.provider.script import Script, ScriptExhausted, read_script, start

# The interval in which the accepting thread checks whether the test is over.
_POLL_SECONDS = 0.02


class Provider(Endpoint):
    """A model on loopback. Close it, or use it as a context manager. No thread or socket remains after that."""

    def __init__(self, script: Script = (), *, keys: set[str] | None = None, port: int = 0) -> None:
        self.requests: list[Asked] = []
        # Problems that no test expects: a request without a turn in the script, or one that a real provider refuses.
        self.surprises: list[str] = []
        # The server of local models that this provider imitates, and the requests for its routes.
        self.local: Vllm | LlamaCpp | Ollama | None = None
        self.looks: list[str] = []
        self._keys = keys
        self._lock = threading.Lock()
        self._number = 0
        self._gates: dict[str, threading.Event] = {}
        self._closing = threading.Event()
        self._choose = start(script)
        self._server = _Server(self, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="scripted provider"
        )
        super().__init__(f"http://127.0.0.1:{self._server.server_port}")
        self._thread.start()

    def play(self, script: Script) -> None:
        """Replace the script. The counts of faults and arrivals begin anew."""
        self._choose = start(script)

    def release(self, gate: str) -> None:
        """Let every request pass that `Hold`s at this gate, now and later."""
        self._gate(gate).set()

    def forget(self) -> None:
        """Drop the requests and surprises so far."""
        with self._lock:
            self.requests.clear()
            self.surprises.clear()

    def close(self) -> None:
        self._closing.set()
        for gate in list(self._gates.values()):
            gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def __enter__(self) -> Provider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Delivery:
        """Decide the response to one request, and keep the request."""
        counted = find_counted(path)
        format = counted or next((format for format in FORMATS if format.serves(path)), None)
        if format is None and path in ROUTES:
            self.looks.append(path)
            told = self.local.answer(path, body) if self.local is not None else None
            return plain(200, told) if told is not None else plain(404, {"error": "not found"})
        if format is None:
            return self._surprise(404, f"nothing is served at {path}", None)
        with self._lock:
            self._number += 1
            number = self._number
        try:
            asked = format.read(Wire(number, path, query, headers, msgspec.json.decode(body)))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            return self._surprise(400, f"{path}: not a request of this format: {error!r}", format)
        if counted:
            return plain(200, write_count(counted, count_tokens(asked.text)))
        with self._lock:
            self.requests.append(asked)
        if self._keys is not None and asked.key not in self._keys:
            return plain(401, format.fail(401, "invalid key", None))
        try:
            refuse_broken_history(asked.messages)
            return deliver(self._choose(asked), asked, format)
        except (BrokenHistory, ScriptExhausted, ScriptMistake) as error:
            return self._surprise(400, f"{type(error).__name__}: {error}", format)

    def control(self, method: str, path: str, body: bytes) -> Delivery:
        """Serve `/script/…`: read requests and surprises, replace the script, release a gate."""
        match method, path.removeprefix("/script/").split("/"):
            case "GET", ["requests"]:
                return plain(200, self.requests)
            case "GET", ["surprises"]:
                return plain(200, self.surprises)
            case "POST", ["play"]:
                self.play(read_script(body))
            case "POST", ["release", gate]:
                self.release(urllib.parse.unquote(gate))
            case "POST", ["forget"]:
                self.forget()
            case _:
                return plain(404, {"error": f"no {method} {path}"})
        return plain(200, {})

    def wait(self, seconds: float, gate: str | None) -> None:
        """Wait as a delivery says. A request that still waits when the provider closes is never answered."""
        if gate is not None:
            self._gate(gate).wait()
        elif seconds:
            self._closing.wait(seconds)
        if self._closing.is_set():
            raise ConnectionAbortedError("the provider closed")

    def complain(self, what: str) -> None:
        with self._lock:
            self.surprises.append(what)

    def _gate(self, name: str) -> threading.Event:
        with self._lock:
            gate = self._gates.setdefault(name, threading.Event())
        if self._closing.is_set():
            gate.set()
        return gate

    def _surprise(self, status: int, what: str, format: Format | None) -> Delivery:
        self.complain(what)
        return plain(status, format.fail(status, what, None) if format else {"error": {"message": what}})


class _Server(ThreadingHTTPServer):
    """A server that knows its open connections, closes them at the end, and resets those marked for it."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, provider: Provider, port: int) -> None:
        self.provider = provider
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: socket.socket, client_address: object) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self._open.discard(request)
        # A socket with SO_LINGER zero must send a reset, so it must not be shut down tidily first.
        if request.fileno() != -1 and request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == _NO_LINGER:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def hang_up(self) -> None:
        for request in list(self._open):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The connection ended in between.

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        # A killed client leaves its connection open. That is expected here.
        if not isinstance(error, OSError):
            self.provider.complain(f"the provider itself failed: {error!r}")


_NO_LINGER = struct.pack("ii", 1, 0)


class _Handler(BaseHTTPRequestHandler):
    """One connection. It reads requests and carries out deliveries."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        self._respond()

    def do_GET(self) -> None:
        self._respond()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing. The requests are in `requests`."""

    def _respond(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        provider = self.server.provider
        if url.path.startswith("/script/"):
            return self._send(provider.control(self.command, url.path, body))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(provider.answer(url.path, dict(urllib.parse.parse_qsl(url.query)), headers, body))

    def _send(self, delivery: Delivery) -> None:
        self._wait(delivery, 0)
        # The cut comes before the first byte: send not even a status line.
        if delivery.ending != "whole" and not delivery.chunks:
            return self._end(delivery)
        self._send_head(delivery)
        for number, chunk in enumerate(delivery.chunks):
            if number:
                self._wait(delivery, number)
            self.wfile.write(chunk if delivery.length is not None else b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self._end(delivery)

    def _send_head(self, delivery: Delivery) -> None:
        self.send_response(delivery.status)
        self.send_header("Content-Type", delivery.kind)
        if delivery.length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(delivery.length))
        for name, value in delivery.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _end(self, delivery: Delivery) -> None:
        if delivery.ending == "whole":
            if delivery.length is None:
                self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = True
        if delivery.ending == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)

    def _wait(self, delivery: Delivery, chunk: int) -> None:
        for wait in delivery.waits:
            if wait.chunk == chunk:
                self.server.provider.wait(wait.seconds, wait.gate)

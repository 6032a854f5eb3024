"""The command line's client of the control socket: one request per connection, over `client/sync_transport.py`.

If systemd owns the socket, a command waits in the socket's queue while the daemon restarts. The command then prints a
message after MOMENT_SECONDS and gives up after PATIENCE_SECONDS.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from wakeful import __version__
from wakeful.cli.daemon_location import find_socket, say_project_down
from wakeful.cli.exit_codes import Failure
from wakeful.cli.text import clear_line, escape, write_over
from wakeful.client.refusals import (
    OWNER_VARIABLE,
    DaemonAway,
    DaemonBusy,
    DaemonRefused,
    EffectUnknown,
    is_busy,
    read_peer,
    read_refusal,
    read_version,
)
from wakeful.client.sync_transport import Answer, connect, exchange, split_lines
from wakeful.client.wire import PATIENCE_SECONDS, encode_query, is_repeatable, make_headers, write_request

# Seconds without an answer until the command prints what it waits for.
MOMENT_SECONDS = 3.0


class Client:
    """Calls the daemon behind one socket, with the run's token inside a run.

    `project` is the state folder of the expected daemon, and `pid` the process id recorded there. A connection to
    another process is refused."""

    def __init__(
        self, path: str, token: str | None = None, *, pid: int | None = None, project: str | None = None
    ) -> None:
        self.path = path
        self._token = token
        self._pid = pid
        self.project = project
        self._has_compared = False

    def get_bytes(self, route: str, **query: Any) -> bytes:
        return self._ask("GET", route, query).read()

    def get(self, route: str, **query: Any) -> Any:
        return json.loads(self.get_bytes(route, **query))

    def get_answer(self, route: str, **query: Any) -> Answer:
        return self._ask("GET", route, query)

    def stream(self, route: str, **query: Any) -> Iterator[bytes]:
        """Yield the pieces of an answer as they arrive, without a timeout."""
        return self._ask("GET", route, query, is_patient=True).body

    def stream_lines(self, route: str, **query: Any) -> Iterator[bytes]:
        """Yield the lines of a JSON stream, without their newlines."""
        return split_lines(self.stream(route, **query))

    def post_lines(self, route: str, **body: Any) -> Iterator[bytes]:
        """Yield the lines of a JSON stream, without their newlines and without a timeout. If the caller stops
        reading, the daemon cancels the request."""
        given = {name: value for name, value in body.items() if value is not None}
        return split_lines(self._ask("POST", route, {}, body=json.dumps(given).encode(), is_patient=True).body)

    def post(self, route: str, **body: Any) -> Any:
        given = {name: value for name, value in body.items() if value is not None}
        return json.loads(self._ask("POST", route, {}, body=json.dumps(given).encode()).read())

    def call(self, verb: str, key: str | None = None, /, **body: Any) -> dict[str, Any]:
        given = {name: value for name, value in body.items() if value is not None}
        answer: dict[str, Any] = json.loads(
            self._ask("POST", f"/call/{verb}", {}, body=json.dumps(given).encode(), key=key).read()
        )
        return answer

    def _ask(
        self,
        method: str,
        route: str,
        query: dict[str, Any],
        *,
        body: bytes = b"",
        key: str | None = None,
        is_patient: bool = False,
    ) -> Answer:
        headers = make_headers(self._token) | {"Connection": "close"}
        request = write_request(method, route + encode_query(query), headers, body, key)
        try:
            answer = self._exchange(request, is_patient=is_patient)
        except EffectUnknown:
            # A GET and a call with an idempotency key can be repeated safely, so retry once. A command then does not
            # notice that the daemon restarts at this moment.
            if not is_repeatable(method, key):
                raise
            answer = self._exchange(request, is_patient=is_patient)
        self._compare_versions(answer)
        if answer.status >= 400:
            words = escape(read_refusal(answer.read(), answer.status))
            raise DaemonBusy(words) if is_busy(answer.status, answer.headers) else DaemonRefused(words, answer.status)
        return answer

    def _exchange(self, request: bytes, *, is_patient: bool) -> Answer:
        connection = self._connect()
        answer = exchange(connection, request, self.path, self._await_answer)
        if is_patient:
            connection.settimeout(None)
        return answer

    def _connect(self) -> socket.socket:
        owner = os.environ.get(OWNER_VARIABLE, "")
        if self.project is None:
            return connect(self.path, owner)
        try:
            connection = connect(self.path, owner)
        except DaemonAway:
            raise DaemonAway(say_project_down(self.project)) from None
        # The kernel reports pid 0 for a process of another container, which cannot be compared.
        if self._pid is not None and read_peer(connection)[0] not in (0, self._pid):
            # The daemon of the project was killed, and another process now listens at its socket.
            connection.close()
            raise DaemonAway(say_project_down(self.project))
        return connection

    def _await_answer(self, connection: socket.socket) -> None:
        """Wait for the first byte of the answer or the end of the connection, without consuming data."""
        if sys.stderr.isatty():
            self._await_visibly(connection)
        else:
            connection.settimeout(MOMENT_SECONDS)
            try:
                connection.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                print(
                    f"wakeful: the daemon at {escape(self.path)} is busy or starting; waiting up to "
                    f"{PATIENCE_SECONDS:.0f} s for its answer",
                    file=sys.stderr,
                    flush=True,
                )
        connection.settimeout(PATIENCE_SECONDS)

    def _await_visibly(self, connection: socket.socket) -> None:
        """Show on the terminal how many seconds have passed.

        A first search, the costs of a long log or a merge of many files take a while.
        """
        connection.settimeout(1.0)
        waited = 0
        try:
            while True:
                try:
                    connection.recv(1, socket.MSG_PEEK)
                    return
                except TimeoutError:
                    waited += 1
                    if waited >= PATIENCE_SECONDS:
                        raise
                    write_over(f"waiting for the daemon: {waited} s of at most {PATIENCE_SECONDS:.0f}")
        finally:
            if waited:
                clear_line()

    def _compare_versions(self, answer: Answer) -> None:
        theirs = read_version(answer.headers, self.path)
        if self._has_compared or theirs == __version__:
            return
        self._has_compared = True
        print(
            f"wakeful: this command is version {__version__}, the daemon is {escape(theirs)}: "
            "restart the daemon (systemctl --user restart wakeful), or upgrade the older of the two",
            file=sys.stderr,
        )


def read_token() -> str | None:
    """Return the token in WAKEFUL_TOKEN_FILE or WAKEFUL_TOKEN. Inside a run, it is the token of the run."""
    path = os.environ.get("WAKEFUL_TOKEN_FILE")
    if path is None:
        return os.environ.get("WAKEFUL_TOKEN")
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        raise Failure(
            f"cannot read the token at {path}: {error.strerror}; the token of a run is removed when the run ends"
        ) from None


class Options(NamedTuple):
    """The options that every verb has: `--socket` and `--json`, given before or after the verb."""

    socket: str | None = None
    is_json: bool = False

    def client(self) -> Client:
        """Make a client. Inside a run it uses the run's token, so that a verb can do no more than the run may."""
        place = find_socket(self.socket)
        return Client(place.path, read_token(), pid=place.pid, project=place.project)

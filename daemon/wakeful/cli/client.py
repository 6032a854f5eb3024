"""The command line's side of the control socket: one request a connection, over `client/sync_transport.py`.

Where systemd listens for the daemon, a command given while the daemon restarts waits in the socket's queue: it says so
after a moment, and is bounded.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from wakeful import __version__
from wakeful.cli.exit_codes import Failure
from wakeful.cli.places import find_socket, say_project_down
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

# After this long without an answer a person wants to know what the command waits for.
MOMENT_SECONDS = 3.0


class Client:
    """Speaks to the daemon behind one socket; with the run's token when a run uses it.

    `project` is the state folder whose daemon is meant, `pid` the process that it noted there:
    another one is not spoken to."""

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
        """The pieces of an answer as they come, for as long as it takes."""
        return self._ask("GET", route, query, is_patient=True).body

    def stream_lines(self, route: str, **query: Any) -> Iterator[bytes]:
        """Lines of JSON, without their newline."""
        return split_lines(self.stream(route, **query))

    def post_lines(self, route: str, **body: Any) -> Iterator[bytes]:
        """Lines of JSON, without their newline, for as long as it takes;
        leaving them unread ends what was asked for."""
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
            # A restart in that very moment need not be seen.
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
        # The kernel says 0 for a process of another container, which cannot be compared.
        if self._pid is not None and read_peer(connection)[0] not in (0, self._pid):
            # The daemon of the project was killed, and another one listens in its place since.
            connection.close()
            raise DaemonAway(say_project_down(self.project))
        return connection

    def _await_answer(self, connection: socket.socket) -> None:
        """Wait until the first byte or the end is there. Nothing is taken off the connection."""
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
        """A person sees every second that passes: of a first search, of the costs of a long log,
        of a merge of many files."""
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
                    write_over(f"the daemon works on it, or starts: {waited} s of at most {PATIENCE_SECONDS:.0f}")
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
    """The token of the run we are inside of, if we are inside of one; or one that somebody was given."""
    path = os.environ.get("WAKEFUL_TOKEN_FILE")
    if path is None:
        return os.environ.get("WAKEFUL_TOKEN")
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        raise Failure(f"cannot read the token at {path}: {error.strerror}; that of a run ends with the run") from None


class Options(NamedTuple):
    """The options that every verb has: `--socket` and `--json`, wherever they stood."""

    socket: str | None = None
    is_json: bool = False

    def client(self) -> Client:
        """Inside a run every verb speaks with the run's token, so that it can do no more than the run may."""
        place = find_socket(self.socket)
        return Client(place.path, read_token(), pid=place.pid, project=place.project)

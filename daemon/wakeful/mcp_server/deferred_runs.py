"""The tasks extension of MCP (`io.modelcontextprotocol/tasks`, 2026-07-28): `wakeful_run` and `wakeful_ask` return a
handle at once, and the client polls it.

The `mcp` package supports extensions in general, but not this one, so its three methods are here. A handle names a
session and the record that requested the run. Everything else is read from the log. So a handle needs no memory, and
survives this process and restarts of the daemon. The daemon judges a poll like any other request.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from mcp_types import RequestParams
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from wakeful.client.wire import quote_name
from wakeful.errors import CallerError
from wakeful.mcp_server.run_wait import Awaited

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 1_000
_HANDLE = re.compile(r"(?P<source>run|ask)/(?P<name>[^/]+)/(?P<record>\d{1,15})")
_SOURCES: dict[str, Literal["activation", "message"]] = {"run": "activation", "ask": "message"}


class Handle(NamedTuple):
    """The id of a deferred run, as the client knows it."""

    source: str
    name: str
    record: int

    def __str__(self) -> str:
        return f"{self.source}/{quote_name(self.name)}/{self.record}"

    def expect(self) -> Awaited:
        return Awaited(self.name, self.record, _SOURCES[self.source])


def read_handle(text: str) -> Handle:
    found = _HANDLE.fullmatch(text)
    if found is None:
        raise CallerError(f"there is no deferred run {text!r}; wakeful_run and wakeful_ask make them")
    return Handle(found["source"], unquote(found["name"]), int(found["record"]))


class HandleParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str


class UpdateParams(HandleParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any]


def view_state(handle: Handle, awaited: Awaited) -> dict[str, Any]:
    """View the state of a deferred run, without its result. With `resultType: task` it answers the tool call."""
    status = "working" if awaited.ended is None else _find_status(awaited.ended["outcome"])
    words = awaited.ended["words"] if awaited.ended is not None else _say_state(awaited)
    return {
        "taskId": str(handle),
        "status": status,
        "statusMessage": words,
        "createdAt": awaited.asked_at,
        "lastUpdatedAt": awaited.changed_at,
        # Never expires, because the log keeps it as long as the session.
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }


def _find_status(outcome: str) -> str:
    """Return the status of an ended run. A failed run is `completed`, with a result that reports the failure, because
    `failed` in this extension means an error of the protocol."""
    return "cancelled" if outcome in ("cancelled", "interrupted", "withdrawn") else "completed"


def _say_state(awaited: Awaited) -> str:
    return f"run {awaited.run} is under way" if awaited.run is not None else "it waits to run"

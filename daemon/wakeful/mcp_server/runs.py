"""Runs for MCP clients: `wakeful_run` and `wakeful_ask` follow a run from its activation to its end, or defer it.

`Awaited` reads the records of the log in order and finds the end of the run. The stream of records only makes that
faster. So a wait continues after a restart of the daemon, and needs no saved state. A deferred call returns a handle at
once, and the client polls it. This is the tasks extension of MCP (`io.modelcontextprotocol/tasks`, 2026-07-28). The
`mcp` package supports extensions in general, but not the tasks extension, so its three methods are here. A handle names
a session and the record that requested the run. The daemon judges a poll like any other request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from mcp_types import RequestParams
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from wakeful.client.refusals import DaemonAway, DaemonUnreachable
from wakeful.client.wire import PATIENCE_SECONDS, quote_name
from wakeful.errors import CallerError
from wakeful.mcp_server.contract import Daemon

# The most bytes of the end of a run's output that are returned with its outcome.
SHOWN_OUTPUT_BYTES = 4_000
# Seconds between progress messages. A client that gets no message for a long time gives up.
SIGN_SECONDS = 10.0
# Seconds between two attempts to follow a daemon that restarts.
PAUSE_SECONDS = 0.3
# The holds that end only when a person acts, or when a new budget period begins.
_LASTING_HOLDS = ("asking", "budget", "crashing")
_OVER = {
    "wake_withdrawn": "withdrawn",
    "session_terminated": "cancelled",
    "spec_removed": "cancelled",
}

RUN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "the session"},
        "run": {"type": ["integer", "null"], "description": "the number of the run; null: none started"},
        "outcome": {
            "type": "string",
            "enum": [
                "succeeded", "failed", "cancelled", "interrupted", "lost", "held", "withdrawn", "waiting",
            ],
            "description": "how it ended. held: it does not start. waiting: only the wait has ended",
        },
        "reason": {"type": ["string", "null"], "description": "why it ended like this, or does not start"},
        "words": {"type": "string", "description": "a summary for people"},
        "output": {"type": "string", "description": "the end of the run's output"},
        "answer": {"type": ["string", "null"], "description": "of a question: the agent's answer"},
    },
    "required": ["name", "run", "outcome", "words"],
}  # fmt: skip

Progress = Callable[[str], Awaitable[None]]
EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 1_000
_HANDLE = re.compile(r"(?P<source>run|ask)/(?P<name>[^/]+)/(?P<record>\d{1,15})")
_SOURCES: dict[str, Literal["activation", "message"]] = {"run": "activation", "ask": "message"}


class Awaited:
    """The run that deals with the activation, or the message, of one record.

    `ended` has the end of the run, as the fields of RUN_SCHEMA. It is None while the run waits or is under way."""

    def __init__(self, name: str, record: int, source: Literal["activation", "message"]) -> None:
        self.name = name
        self.record = record
        self._source = source
        self.last = record - 1
        self._position: int | None = None
        self._taken: set[int] = set()
        self._said: str | None = None
        self.run: int | None = None
        self.asked_at: str | None = None
        self.changed_at: str | None = None
        self.ended: dict[str, Any] | None = None

    def take(self, line: dict[str, Any]) -> None:
        """Take the next record. A record that was taken before changes nothing."""
        if line["seq"] <= self.last or self.ended is not None:
            return
        self.last = line["seq"]
        payload = line["payload"] or {}
        if line["seq"] == self.record:
            self._position = payload.get("position")
            self.asked_at = self.changed_at = line["at"]
            return
        match line["kind"]:
            case "run_started" if self._is_taken_in(payload):
                self._taken.add(payload["run"])
                self.run, self.changed_at = payload["run"], line["at"]
            case "turn_answered" if payload.get("run") in self._taken and payload.get("sub") is None:
                self._said = payload["answer"].get("text") or self._said
            case "run_finished" if payload["run"] in self._taken and self._is_final(payload):
                self._end(line, payload["outcome"], payload.get("reason"))
            case "session_slept" if self._is_stopped_by(payload["hold"]["kind"]):
                self._end(line, "held", payload["hold"]["words"])
            case kind if kind in _OVER:
                self._end(line, _OVER[kind], line.get("words"))

    def _is_taken_in(self, payload: dict[str, Any]) -> bool:
        return self._position is not None and int(payload["versions"].get(self._source, 0)) >= self._position

    def _is_final(self, payload: dict[str, Any]) -> bool:
        """Does the end of this run end the wait? A question is answered by the first run that reads it. An activation
        stays owed until a run succeeds or no retry follows."""
        return bool(payload["is_final"]) or self._source == "message"

    def _is_stopped_by(self, hold: str) -> bool:
        return hold in _LASTING_HOLDS if self._source == "message" else hold != "snoozed"

    def _end(self, line: dict[str, Any], outcome: str, reason: str | None) -> None:
        self.changed_at = line["at"]
        self.ended = {
            "name": self.name,
            "run": self.run,
            "outcome": outcome,
            "reason": reason,
            "words": f"{self.name}: {line.get('words') or reason or outcome}",
        }
        if self._source == "message":
            self.ended["answer"] = self._said


async def read_so_far(daemon: Daemon, awaited: Awaited) -> list[dict[str, Any]]:
    """Take all records that the log has by now, and return the new ones."""
    reply = await daemon.ask(
        "GET", f"/sessions/{quote_name(awaited.name)}/log", {"from": awaited.last + 1, "words": True}
    )
    records: list[dict[str, Any]] = reply.decode()
    for line in records:
        awaited.take(line)
    return records


async def wait_for_end(daemon: Daemon, awaited: Awaited, progress: Progress) -> dict[str, Any]:
    """Wait for the end of the run and return it. A restart of the daemon does not end the wait. Raises DaemonAway after
    `PATIENCE_SECONDS` without a daemon."""
    away_since: float | None = None
    while True:
        try:
            async with daemon.follow([awaited.name]) as following:
                away_since = None
                for line in await read_so_far(daemon, awaited):
                    await _tell(line, progress)
                while awaited.ended is None:
                    line = await _next_line(following, awaited, progress)
                    awaited.take(line)
                    await _tell(line, progress)
            return awaited.ended
        except DaemonUnreachable as error:
            now = asyncio.get_running_loop().time()
            away_since = away_since or now
            if now - away_since > PATIENCE_SECONDS:
                raise DaemonAway(f"{awaited.name}: the daemon stopped before the run ended ({error})") from None
            await asyncio.sleep(PAUSE_SECONDS)


async def _next_line(following: AsyncIterator[dict[str, Any]], awaited: Awaited, progress: Progress) -> dict[str, Any]:
    """Return the next record. Until it arrives, the client gets a progress message every `SIGN_SECONDS`."""
    coming = asyncio.ensure_future(anext(following))
    try:
        while True:
            done, _ = await asyncio.wait((coming,), timeout=SIGN_SECONDS)
            if done:
                return _read_line(coming)
            await progress(f"run {awaited.run} is under way" if awaited.run else f"{awaited.name} waits to run")
    finally:
        coming.cancel()


def _read_line(coming: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return coming.result()
    except StopAsyncIteration:
        raise DaemonAway("its stream ended") from None


async def _tell(line: dict[str, Any], progress: Progress) -> None:
    if line.get("words"):
        await progress(line["words"])


async def add_output(daemon: Daemon, ended: dict[str, Any]) -> dict[str, Any]:
    """Add the last part of the run's output to the fields of its end. If no run started, or if the run answered a
    question, nothing is added."""
    if ended["run"] is None or "answer" in ended:
        return ended
    reply = await daemon.ask("GET", f"/sessions/{quote_name(ended['name'])}/output", {"run": ended["run"]})
    return ended | {"output": reply.body[-SHOWN_OUTPUT_BYTES:].decode(errors="replace")}


def say_waiting(awaited: Awaited) -> dict[str, Any]:
    """Return the result of a wait that timed out before the end of the run."""
    words = f"run {awaited.run} goes on" if awaited.run else "it waits to run"
    return {
        "name": awaited.name,
        "run": awaited.run,
        "outcome": "waiting",
        "reason": None,
        "words": f"{awaited.name}: {words}; wakeful_show and wakeful_log show more",
    }


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
        # A handle never expires, because the log keeps the run as long as the session.
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }


def _find_status(outcome: str) -> str:
    """Return the status of an ended run. A failed run is `completed`, with a result that reports the failure, because
    `failed` in this extension means an error of the protocol."""
    return "cancelled" if outcome in ("cancelled", "interrupted", "withdrawn") else "completed"


def _say_state(awaited: Awaited) -> str:
    return f"run {awaited.run} is under way" if awaited.run is not None else "it waits to run"

"""Sessions as MCP resources: their addresses, their contents, and the reports of their changes.

`wakeful://session/NAME` is the session, `…/log` its newest records, `…/facts` its facts, `…/output/RUN` the output of a
run. A name is one segment, with its slashes escaped. Changes are found by following the records of sessions. A report
only tells the client to read the resource again. So the reports of a burst are joined to one. After a restart of the
daemon, every watched resource is reported as changed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from wakeful.client.refusals import DaemonRefused, DaemonUnreachable
from wakeful.client.wire import quote_name
from wakeful.errors import CallerError
from wakeful.mcp_server.contract import Daemon, Reach
from wakeful.mcp_server.tools import USUAL_RECORDS

ROOT = "wakeful://session/"
Part = Literal["session", "log", "facts", "output"]
JSON = "application/json"
LINES = "application/jsonl"
TEXT = "text/plain"
# Seconds in which the changes of a burst are joined to one report.
JOINED_SECONDS = 0.1
# The pause before the daemon is tried again during its restart. It doubles each time.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0


class Template(NamedTuple):
    """A URI template: the pattern of the addresses of one kind of resource."""

    uri: str
    name: str
    words: str
    media_type: str
    is_for_runs: bool


TEMPLATES = (
    Template(f"{ROOT}{{name}}", "session", "Everything about a session now, as `wakeful show` prints it", JSON, False),
    Template(f"{ROOT}{{name}}/log", "log", f"The newest {USUAL_RECORDS} records of a session", LINES, True),
    Template(
        f"{ROOT}{{name}}/facts", "facts", "The facts of a session, with the author and reason of each", JSON, True
    ),
    Template(f"{ROOT}{{name}}/output/{{run}}", "output", "The output of a run of a session", TEXT, False),
)
# The kinds of record that change the facts, and those that change the list of sessions.
_FACT_KINDS = frozenset(("fact_set", "fact_retracted", "session_rewound", "session_merged"))
LIST_KINDS = frozenset(
    ("session_opened", "session_renamed", "session_forked", "session_terminated", "session_reopened", "spec_declared",
     "spec_removed", "session_arrived", "session_departed", "session_archived", "session_restored")
)  # fmt: skip


class Address(NamedTuple):
    """One resource. `run` is set for an output only."""

    name: str
    part: Part
    run: int | None = None

    def __str__(self) -> str:
        tail = {"session": "", "log": "/log", "facts": "/facts", "output": f"/output/{self.run}"}[self.part]
        return f"{ROOT}{quote_name(self.name)}{tail}"


def read_address(uri: str) -> Address:
    segments = uri.removeprefix(ROOT).split("/") if uri.startswith(ROOT) else []
    match [unquote(one) for one in segments]:
        case [name] if name:
            return Address(name, "session")
        case [name, "log" | "facts" as part] if name:
            return Address(name, part)
        case [name, "output", run] if name and run.isascii() and run.isdigit() and len(run) < 10:
            return Address(name, "output", int(run))
        case _:
            known = ", ".join(one.uri for one in TEMPLATES)
            raise CallerError(f"there is no resource {uri!r}; expected one of {known}")


def find_templates(reach: Reach) -> list[Template]:
    return [one for one in TEMPLATES if one.is_for_runs or reach.own is None]


async def list_sessions(daemon: Daemon) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await daemon.ask("GET", "/sessions")).decode()
    return sorted(rows, key=lambda row: str(row["name"]))


async def read_resource(daemon: Daemon, address: Address) -> tuple[str, str]:
    """Read the text of a resource. Also returns its media type."""
    base = f"/sessions/{quote_name(address.name)}"
    match address.part:
        case "session":
            return await _read_json(daemon, base), JSON
        case "facts":
            return await _read_json(daemon, f"{base}/facts"), JSON
        case "log":
            reply = await daemon.ask("GET", f"{base}/log", {"last": USUAL_RECORDS, "words": True})
            return reply.body.decode(), LINES
        case "output":
            reply = await daemon.ask("GET", f"{base}/output", {"run": address.run})
            return reply.body.decode(errors="replace"), TEXT


async def _read_json(daemon: Daemon, path: str) -> str:
    return json.dumps((await daemon.ask("GET", path)).decode(), indent=1, ensure_ascii=False)


def find_changed(record: dict[str, Any], watched: frozenset[Address]) -> list[Address]:
    """Find the watched resources that a record changes."""
    return [one for one in watched if one.name == record["session"] and _is_changed(one, record)]


def _is_changed(address: Address, record: dict[str, Any]) -> bool:
    match address.part:
        case "facts":
            return record["kind"] in _FACT_KINDS
        case "output":
            return bool(record["run"] == address.run)
        case _:
            return True


async def complete(reach: Reach, argument: str, begun: str, known: dict[str, str]) -> list[str]:
    """List the values of a template's argument that begin with the text typed so far."""
    if reach.own is not None:
        return [reach.own] if argument == "name" and reach.own.startswith(begun) else []
    if argument == "name":
        return [row["name"] for row in await list_sessions(reach.daemon) if row["name"].startswith(begun)]
    if argument == "run" and known.get("name"):
        rows = await list_sessions(reach.daemon)
        runs = next((row["runs"] for row in rows if row["name"] == known["name"]), 0)
        return [str(run) for run in range(runs, 0, -1) if str(run).startswith(begun)]
    return []


# A function that reports the addresses that changed. Its second argument is True if the list of sessions changed too.
Report = Callable[[set[Address], bool], Awaitable[None]]


class Watch:
    """The resources that one client watches. `with_list`: also watch the list of sessions, by following all of them."""

    def __init__(self, daemon: Daemon, watched: frozenset[Address], *, with_list: bool = False) -> None:
        self._daemon = daemon
        self._watched = watched
        self._with_list = with_list
        self._names = [] if with_list else sorted({one.name for one in watched})

    async def run(self, report: Report, begun: asyncio.Future[None]) -> None:
        """Report changes until cancelled. `begun` is completed when no later change can be missed. If the daemon
        refuses or does not answer at the start, `begun` gets that error."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async with self._daemon.follow(self._names) as following:
                    if not begun.done():
                        begun.set_result(None)
                    else:
                        await report(set(self._watched), self._with_list)
                    pause = FIRST_PAUSE_SECONDS
                    await self._report_changes(following, report)
            except (DaemonUnreachable, DaemonRefused) as error:
                if not begun.done():
                    begun.set_exception(error)
                    return
                if isinstance(error, DaemonRefused):
                    # A session was renamed or no longer exists. The client reads it again, and gets the error.
                    await report(set(self._watched), self._with_list)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _report_changes(self, following: AsyncIterator[dict[str, Any]], report: Report) -> None:
        """Read records as they arrive, and report the changes of each burst together. Returns when the stream ends."""
        news = News()
        coming: asyncio.Future[dict[str, Any]] | None = None
        now = asyncio.get_running_loop().time
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(following))
                left = None if news.due is None else max(news.due - now(), 0)
                done, _ = await asyncio.wait((coming,), timeout=left)
                if news.due is not None and now() >= news.due:
                    await report(news.changed, news.is_list_changed)
                    news = News()
                if not done:
                    continue
                try:
                    record = coming.result()
                except StopAsyncIteration:
                    return
                finally:
                    coming = None
                news.changed.update(find_changed(record, self._watched))
                news.is_list_changed |= self._with_list and record["kind"] in LIST_KINDS
                if news.due is None and (news.changed or news.is_list_changed):
                    news.due = now() + JOINED_SECONDS
        finally:
            if coming is not None:
                coming.cancel()


class News:
    """The changes that are not reported yet. `due` is the time of their report, by the clock of the loop."""

    def __init__(self) -> None:
        self.changed: set[Address] = set()
        self.is_list_changed = False
        self.due: float | None = None

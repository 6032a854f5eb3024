"""Sessions as MCP resources: their addresses, their contents, and the resources that a record changes.

`wakeful://session/NAME` is the session, `…/log` its newest records, `…/facts` its facts, `…/output/RUN` the output of a
run. A name is one segment, with its slashes escaped.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from wakeful.client.wire import quote_name
from wakeful.errors import CallerError
from wakeful.mcp_server.contract import Daemon, Reach
from wakeful.mcp_server.tools import USUAL_RECORDS

ROOT = "wakeful://session/"
Part = Literal["session", "log", "facts", "output"]
JSON = "application/json"
LINES = "application/jsonl"
TEXT = "text/plain"


class Template(NamedTuple):
    """A family of addresses."""

    uri: str
    name: str
    words: str
    media_type: str
    is_for_runs: bool


TEMPLATES = (
    Template(f"{ROOT}{{name}}", "session", "Everything about a session now, as `wakeful show` tells it", JSON, False),
    Template(f"{ROOT}{{name}}/log", "log", f"The newest {USUAL_RECORDS} records of a session", LINES, True),
    Template(f"{ROOT}{{name}}/facts", "facts", "The facts of a session, with who said so and why", JSON, True),
    Template(f"{ROOT}{{name}}/output/{{run}}", "output", "What a run of a session wrote", TEXT, False),
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

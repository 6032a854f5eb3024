"""The routes that read sessions, facts, output, and the resources of runs.

They change nothing and never hold the loop for long.

`wakeful top` sends a request every second or two. So the rows of idle sessions are cached, and only the process trees
of runs are measured. CPU is given as the seconds used so far. A client computes the CPU share from two answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import aclosing
from itertools import islice
from typing import Any, cast

import msgspec
import psutil
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.contract import Service
from wakeful.api.gate.people import list_roles
from wakeful.api.operations.offered_tools import list_down
from wakeful.api.operations.participants import ParticipantCache, find_accounts
from wakeful.api.presence import Presence
from wakeful.api.requests import (
    JSON,
    Handlers,
    answer_json,
    find_session,
    read_cursor,
    read_limit,
    read_number,
    service_of,
    visible_to,
    write_next,
)
from wakeful.api.routes.trace import find_hint
from wakeful.core.record.erased_payloads import ERASED
from wakeful.core.record.events import SpecDeclared
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode, hash_state
from wakeful.eventlog.contract import LogReader
from wakeful.history.positions import fold_position
from wakeful.history.run_output import RunOutput, check_run, find_in_output, find_lines
from wakeful.views.records import view_runs
from wakeful.views.session_page import show, show_past, view_facts, view_participants
from wakeful.views.session_rows import WANTED_WORDS, Filter, Rows, list_by_name
from wakeful.views.times import show_time
from wakeful.views.why import view_down

RUNS_SHOWN = 10
# Two records for each run shown, its start and its end, and one for the run under way.
RUN_RECORDS = 2 * RUNS_SHOWN + 1
# The output so far arrives without pauses. After this many seconds of silence, all of it has been read.
QUIET_SECONDS = 0.05
# The most characters of a hint in a header. JSON may write each character as six, and every client accepts that length.
_LONGEST_HINT = 1000
_PART_BYTES = 64 * 1024


async def read_sessions(request: Request) -> Response:
    service = service_of(request)
    rows: Rows = request.app.state.rows
    wanted = _read_filter(request)
    is_brief = request.query_params.get("brief") == "true"
    limit, after = read_limit(request), read_cursor(request, str)
    if not is_brief:
        await request.app.state.day.catch_up(service.log, service.moment().wall)
    if limit is None:
        await rows.warm(service.core, service.moment())
    core, moment = service.core, service.moment()
    ids = visible_to(request).list_ids()
    sessions: Iterable[Session] = list_by_name(core)
    if ids is not None:
        sessions = (session for session in sessions if session.id in ids)
    if after is not None:
        sessions = (session for session in sessions if session.name > after)
    chosen = wanted.choose(core, sessions, moment)
    page = list(chosen if limit is None else islice(chosen, limit + 1))
    headers: dict[str, str] = {}
    if limit is not None and len(page) > limit:
        del page[limit:]
        headers = write_next(request, page[-1].name)
    present = _find_present(request) if request.query_params.get("present") == "true" else None
    encoded = rows.encode(core, moment, page, is_brief=is_brief, present=present)
    if not is_brief:
        return Response(encoded, media_type=JSON, headers=headers)
    # The brief list is for the table of `wakeful list`. It also has the refused specs, because their sessions are
    # missing from the table or not up to date.
    refused = service.problems() if wanted == Filter() and ids is None else {}
    body = msgspec.json.encode({"sessions": msgspec.Raw(encoded), "refused": refused})
    return Response(body, media_type=JSON, headers=headers)


def _read_filter(request: Request) -> Filter:
    query = request.query_params
    states = [*query.getlist("state"), *(word for word in ("failed", "asks") if query.get(word) == "true")]
    unknown = next((word for word in states if word not in WANTED_WORDS), None)
    if unknown is not None:
        raise CallerError(f"there is no state {unknown!r}; expected one of {', '.join(WANTED_WORDS)}")
    return Filter(tuple(states), tuple(query.getlist("tag")), query.get("folder"), query.get("text"))


def _find_present(request: Request) -> dict[str, list[dict[str, Any]]]:
    """Find the people who are present in each session."""
    presence: Presence = request.app.state.presence
    found: dict[str, list[dict[str, Any]]] = {}
    for one in presence.list_present():
        found.setdefault(one.session, []).append(
            {"person": one.person, "doing": one.doing, "since": show_time(one.since)}
        )
    return found


async def read_session(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    at = request.query_params.get("at")
    if at is not None:
        past = await find_past(service, session, at)
        parts = await asyncio.to_thread(ParticipantCache().parts, service.log, past.id, past.seq)
        return answer_json(
            {
                **show_past(past),
                "state_hash": hash_state(past),
                "participants": view_participants(past, parts, find_accounts(past)),
            }
        )
    roster: ParticipantCache = request.app.state.roster
    parts = await asyncio.to_thread(roster.parts, service.log, session.id, session.seq)
    down = await asyncio.to_thread(list_down, service.log, session) if session.owner is not None else ()
    # Find the session again, because it may have changed meanwhile. There is no await from here on, so all values are
    # of one moment.
    session = find_session(request, service)
    records = service.log.read(
        session.id, kinds=("run_started", "run_readopted", "run_finished"), limit=RUN_RECORDS, newest_first=True
    )
    shown = show(
        service.core,
        session,
        service.moment(),
        runs=view_runs(records, RUNS_SHOWN),
        problem=find_problem(service.problems(), session),
        describe=service.describe_target,
        usage=service.usage(session.id),
    )
    shown["servers_down"] = view_down(service.redact(down))
    # The agents that a message can be addressed to.
    shown["agents"] = sorted(service.core.agents)
    shown["present"] = _find_present(request).get(session.id, [])
    visible = visible_to(request)
    for neighbours in ("upstream", "readers"):
        shown[neighbours] = [name for name in shown[neighbours] if visible.sees_name(name)]
    given = list_roles(request.app.state.people, session, service.core.state.sessions.get)
    return answer_json(
        {
            **shown,
            "state_hash": hash_state(session),
            "participants": view_participants(session, parts, find_accounts(session), given),
        }
    )


async def find_past(service: Service, session: Session, position: str) -> Session:
    """Fold the session at a past position. This is done in a thread, because a long history without a snapshot takes a
    while."""
    now = service.moment().wall
    return await asyncio.to_thread(fold_position, service.log, session, position, now)


def find_problem(problems: dict[str, str], session: Session) -> str | None:
    """Find the problem of the session's file, or else of its agent's file."""
    agent = session.spec.agent if session.spec is not None else None
    return problems.get(session.name) or (problems.get(f"agents/{agent}") if agent is not None else None)


async def read_facts(request: Request) -> Response:
    session = find_session(request, service_of(request))
    return answer_json(view_facts(session))


async def read_output(request: Request) -> Response:
    """Return a run's output as bytes. If the output was too long, a part of it is omitted after `Wakeful-Head`
    bytes."""
    service = service_of(request)
    session = find_session(request, service)
    find = request.query_params.get("find")
    is_following = request.query_params.get("follow") == "true"
    if find is not None and is_following:
        raise CallerError("find searches what a run has written so far; leave follow out")
    if is_following and session.run is not None:
        return StreamingResponse(service.follow_output(session.id), media_type="application/octet-stream")
    open_run = session.run.run if session.run is not None else None
    run = check_run(session, read_number(request, "run") or open_run)
    if find is not None:
        return await _find_in_output(service, session.id, run, find, is_open=run == open_run)
    if run == open_run:
        head, tail = await _read_so_far(service, session.id), b""
        total = len(head)
    else:
        head, tail, total = await asyncio.to_thread(service.output, session.id, run)
    headers = {"Wakeful-Run": str(run), "Wakeful-Head": str(len(head)), "Wakeful-Total": str(total)}
    if run != open_run and (hint := await asyncio.to_thread(find_hint, service, session, run)) is not None:
        # JSON, because a header must be ASCII and one line.
        headers["Wakeful-Hint"] = json.dumps(hint[:_LONGEST_HINT])
    return Response(head + tail, media_type="application/octet-stream", headers=headers)


async def _find_in_output(service: Service, session_id: str, run: int, text: str, *, is_open: bool) -> Response:
    """Find the lines of a run's output that contain a text, each as `12:line`. The search runs in a thread."""
    if is_open:
        # The output of a run under way already has a line that stands for the omitted part.
        so_far = await _read_so_far(service, session_id)
        total = len(so_far)
        found = await asyncio.to_thread(find_lines, so_far, text)
    else:
        head, tail, total = await asyncio.to_thread(service.output, session_id, run)
        found = await asyncio.to_thread(find_in_output, RunOutput(run, head, tail, total), text)
    headers = {"Wakeful-Run": str(run), "Wakeful-Total": str(total), "Wakeful-Found": str(found.total)}
    if found.gap is not None:
        headers["Wakeful-Gap"] = str(found.gap)
    body = b"".join(line + b"\n" for line in found.lines)
    return Response(body, media_type="application/octet-stream", headers=headers)


async def _read_so_far(service: Service, session_id: str) -> bytes:
    chunks: list[bytes] = []
    async with aclosing(cast("Any", service.follow_output(session_id))) as output:
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    chunks.append(await anext(output))
            except (TimeoutError, StopAsyncIteration):
                return b"".join(chunks)


async def read_top(request: Request) -> Response:
    service = service_of(request)
    rows: Rows = request.app.state.rows
    moment = service.moment()
    core = service.core
    ids = visible_to(request).list_ids()
    return answer_json(
        {
            "at": show_time(moment.wall),
            "version": service.version,
            "started_at": show_time(service.started_at),
            "daemon": _measure_daemon(service.pid),
            "slots": dict[str, object](core.view_slots()["commands"]) | {"agents": core.view_slots()["agents"]},
            "runs": {one: run for one, run in _view_runs(service).items() if ids is None or one in ids},
            "sessions": msgspec.Raw(
                rows.encode(core, moment, [one for one in list_by_name(core) if ids is None or one.id in ids])
            ),
        }
    )


def _measure_daemon(pid: int) -> dict[str, float | int]:
    process = psutil.Process(pid)
    with process.oneshot():
        spent = process.cpu_times()
        return {"pid": pid, "cpu_seconds": spent.user + spent.system, "rss_bytes": process.memory_info().rss}


def _view_runs(service: Service) -> dict[str, dict[str, object]]:
    """View the runs under way, by session id. `usage` is None while a run has no process."""
    found: dict[str, dict[str, object]] = {}
    for session_id in service.core.state.running:
        run = service.core.state.get(session_id).run
        if run is not None:
            found[session_id] = {
                "run": run.run,
                "started_at": show_time(run.started_at),
                "usage": service.usage(session_id),
            }
    return found


async def read_spec(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    text = await asyncio.to_thread(find_text, service.log, session)
    return answer_json(
        {"name": session.name, "id": session.id, "is_filed": session.declaration.is_filed, "text": service.redact(text)}
    )


def find_text(log: LogReader, session: Session) -> str | None:
    """Find the text that a session was opened with. None if a file declares it, or if there is no text. Blocking."""
    if session.declaration.is_filed:
        return None
    for record in log.read(session.id, kinds=("spec_declared",), newest_first=True):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(event, SpecDeclared) and event.text is not None:
            return event.text if event.text != ERASED else None
    return None


HANDLERS: Handlers = {
    "GET /sessions": read_sessions,
    "GET /sessions/{name}": read_session,
    "GET /sessions/{name}/facts": read_facts,
    "GET /sessions/{name}/output": read_output,
    "GET /sessions/{name}/spec": read_spec,
    "GET /top": read_top,
}

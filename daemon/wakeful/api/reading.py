"""The routes that read sessions, the log and output. They change nothing and never hold the loop for long.

A log is read in pages, so that a million records are streamed while the daemon goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.answers import JSON, answer_json, answer_lines, find_named, service_of
from wakeful.api.service import FollowLine, Service
from wakeful.core.reducer import fold
from wakeful.core.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record
from wakeful.narration import narrate
from wakeful.views.listing import Rows
from wakeful.views.records import encode_line, view_record, view_runs
from wakeful.views.showing import show, show_past, view_facts
from wakeful.views.telling import tell
from wakeful.views.times import read_time, show_time

PAGE = 500
RUNS_SHOWN = 10
# A started run and its end, for each run shown, and the one under way.
RUN_RECORDS = 2 * RUNS_SHOWN + 1
# A run's output so far arrives at once; after this much silence we have it.
QUIET_SECONDS = 0.05


async def read_version(request: Request) -> Response:
    service = service_of(request)
    places = service.places
    return answer_json(
        {
            "version": service.version,
            "pid": service.pid,
            "started_at": show_time(service.started_at),
            "specs": str(places.specs),
            "state": str(places.state),
            "socket": str(places.socket),
        }
    )


async def read_sessions(request: Request) -> Response:
    service = service_of(request)
    rows: Rows = request.app.state.rows
    if request.query_params.get("brief") != "true":
        return Response(rows.encode(service.core, service.moment()), media_type=JSON)
    # For the table people read, with what they would miss in it: the specs that made no session, or not their latest.
    brief = msgspec.Raw(rows.encode(service.core, service.moment(), is_brief=True))
    return answer_json({"sessions": brief, "refused": service.problems()})


async def read_session(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    at = read_number(request, "at")
    if at is not None:
        # Off the loop: a long history without a snapshot takes a while to fold.
        return answer_json(show_past(await asyncio.to_thread(fold_until, service, session, at)))
    records = service.log.read(session.id, kinds=("run_started", "run_finished"), limit=RUN_RECORDS, newest_first=True)
    return answer_json(
        show(
            service.core,
            session,
            service.moment(),
            runs=view_runs(records, RUNS_SHOWN),
            problem=find_problem(service.problems(), session),
            describe=service.describe_target,
        )
    )


def find_problem(problems: dict[str, str], session: Session) -> str | None:
    """What is wrong with its own file, or with its agent's."""
    agent = session.spec.agent if session.spec is not None else None
    return problems.get(session.name) or (problems.get(f"agents/{agent}") if agent is not None else None)


def fold_until(service: Service, session: Session, seq: int) -> Session:
    if not 1 <= seq <= session.seq:
        raise CallerError(f"{session.name} has records 1 to {session.seq}, there is no {seq}")
    snapshot = service.log.snapshot(session.id, at_or_before=seq)
    past = msgspec.json.decode(snapshot.state, type=Session) if snapshot is not None else None
    for record in service.log.read(session.id, from_seq=1 if snapshot is None else snapshot.seq + 1, to_seq=seq):
        if record.payload is None:
            raise CallerError(f"record {record.seq} of {session.name} was erased: its state at {seq} cannot be told any more")
        past = fold(past, decode(record.kind, record.payload), seq=record.seq, at=record.at, author=record.author)
    assert past is not None
    return past


async def read_log(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    query = request.query_params
    bounds: dict[str, Any] = {
        "to_seq": read_number(request, "to"),
        "since": read_time(query["since"]) if "since" in query else None,
        "until": read_time(query["until"]) if "until" in query else None,
        "kinds": tuple(query.getlist("kind")) or None,
        "run": read_number(request, "run"),
        "author": query.get("author"),
    }
    first, last = read_number(request, "from") or 1, read_number(request, "last")
    with_words = query.get("words") == "true"
    if last is not None:
        newest = list(service.log.read(session.id, from_seq=first, limit=last, newest_first=True, **bounds))
        return Response(b"".join(_line_of_log(record, with_words) for record in reversed(newest)), media_type="application/jsonl")
    return answer_lines(_stream_log(service, session.id, first, bounds, with_words))


async def _stream_log(service: Service, session_id: str, first: int, bounds: dict[str, Any], with_words: bool) -> AsyncIterator[bytes]:
    while True:
        page = list(service.log.read(session_id, from_seq=first, limit=PAGE, **bounds))
        if page:
            yield b"".join(_line_of_log(record, with_words) for record in page)
        if len(page) < PAGE:
            return
        first = page[-1].seq + 1
        # Let the daemon do its own work between pages.
        await asyncio.sleep(0)


def _line_of_log(record: Record, with_words: bool) -> bytes:
    """A line of the contract; `words`, for people, only when asked for. Every record has some."""
    if not with_words:
        return encode_line(record)
    event = decode(record.kind, record.payload) if record.payload is not None else None
    words = (narrate(event) or tell(event)) if event is not None else "erased"
    return msgspec.json.encode({**view_record(record), "words": words}) + b"\n"


def _line_of_follow(line: FollowLine, with_words: bool) -> bytes:
    """The same with its session; `words` are null for what nobody waits for."""
    record = line.record
    if not with_words:
        return encode_line(record, line.session)
    words = narrate(decode(record.kind, record.payload)) if record.payload is not None else "erased"
    return msgspec.json.encode({"session": line.session, **view_record(record), "words": words}) + b"\n"


async def read_facts(request: Request) -> Response:
    session = find_session(request, service_of(request))
    return answer_json(view_facts(session))


async def follow(request: Request) -> Response:
    service = service_of(request)
    names = {find_named(service, name).name for name in request.query_params.getlist("name")}
    lines = service.follow(names or None)
    with_words = request.query_params.get("words") == "true"
    # Subscribed before the headers leave: who has them and then acts, misses nothing.
    first = asyncio.ensure_future(cast("Any", anext(lines)))
    await asyncio.sleep(0)
    return answer_lines(_stream_follow(lines, first, with_words))


async def _stream_follow(lines: AsyncIterator[FollowLine], first: asyncio.Future[FollowLine], with_words: bool) -> AsyncIterator[bytes]:
    async with aclosing(cast("Any", lines)):
        try:
            line = await first
        except StopAsyncIteration:
            return
        yield _line_of_follow(line, with_words)
        async for line in lines:
            yield _line_of_follow(line, with_words)


async def read_output(request: Request) -> Response:
    """A run's output as bytes; what the bounds left out lies between `Wakeful-Head` bytes and the rest."""
    service = service_of(request)
    session = find_session(request, service)
    if request.query_params.get("follow") == "true" and session.run is not None:
        return StreamingResponse(service.follow_output(session.id), media_type="application/octet-stream")
    open_run = session.run.run if session.run is not None else None
    run = read_number(request, "run") or open_run or (session.last_run.run if session.last_run is not None else None)
    if run is None or session.runs == 0:
        raise CallerError(f"{session.name} has not run yet")
    if not 1 <= run <= session.runs:
        raise CallerError(f"{session.name} has no run {run}; " + (f"its runs are 1 to {session.runs}" if session.runs > 1 else "it has run once"))
    if run == open_run:
        head, tail = await _read_so_far(service, session.id), b""
        total = len(head)
    else:
        head, tail, total = service.output(session.id, run)
    headers = {"Wakeful-Run": str(run), "Wakeful-Head": str(len(head)), "Wakeful-Total": str(total)}
    return Response(head + tail, media_type="application/octet-stream", headers=headers)


async def _read_so_far(service: Service, session_id: str) -> bytes:
    chunks: list[bytes] = []
    async with aclosing(cast("Any", service.follow_output(session_id))) as output:
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    chunks.append(await anext(output))
            except (TimeoutError, StopAsyncIteration):
                return b"".join(chunks)


def find_session(request: Request, service: Service) -> Session:
    return find_named(service, decode_name(request.path_params["name"]))


def decode_name(segment: str) -> str:
    return unquote(segment)


def read_number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    # Longer numbers than SQLite's 64 bits would be refused there, in its words.
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CallerError(f"{name}={text!r}: expected a number")
    return int(text)

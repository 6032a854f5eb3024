"""The route POST /replay: runs a recorded run again, with the inputs that it had.

The answer is a stream of JSON lines. The first line names the inputs that are missing, the last line is the report. The
answer is a stream because a run may take hours, and because the replay must end when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_routed
from wakeful.api.contract import Service, find_named
from wakeful.api.problems import WrongBody
from wakeful.api.requests import Handlers, answer_lines, service_of
from wakeful.core.record.events import RunFinished
from wakeful.core.record.state import Session
from wakeful.errors import CallerError, InternalError
from wakeful.eventlog.codec import decode
from wakeful.history.conversation import read_received
from wakeful.history.positions import fold_until
from wakeful.run_files.replay import Recorded, ReplayOptions
from wakeful.views.causes import view_causes_file


async def replay(request: Request) -> Response:
    service = service_of(request)
    body = await read_routed(request, "POST /replay")
    if body.command is not None and (not body.command or not body.command[0]):
        raise WrongBody("a command has at least one word")
    if body.keep is not None and not body.keep.startswith("/"):
        raise WrongBody("keep is an absolute path")
    session = find_named(service, body.name)
    recorded = await asyncio.to_thread(find_recorded, service, session, body.run)
    prepared = await service.replays.prepare(recorded, ReplayOptions(command=body.command, keep=body.keep))
    return answer_lines(_encode(service.replays.carry_out(prepared)))


def find_recorded(service: Service, session: Session, run: int) -> Recorded:
    """Read a run from the log: the session as it was at the run's start, and the record of its end. Blocking.

    Raises CallerError if there is no such run, or it cannot be replayed.
    """
    log = service.log
    started = next(log.read(session.id, kinds=("run_started",), run=run, limit=1), None)
    if started is None:
        raise CallerError(
            f"{session.name} has no run {run}; "
            + (f"its runs are 1 to {session.tally.runs}" if session.tally.runs else "it has not run yet")
        )
    ending = next(log.read(session.id, kinds=("run_finished",), run=run, limit=1), None)
    finished = decode(ending.kind, ending.payload) if ending is not None and ending.payload is not None else None
    if not isinstance(finished, RunFinished):
        raise CallerError(f"run {run} of {session.name} " + ("is not over yet" if ending is None else "was erased"))
    past = fold_until(log, session, started.seq)
    if session.trust_words is not None:
        raise CallerError(f"{session.name} {session.trust_words}")
    if started.seq <= session.declaration.foreign_until and past.spec != session.spec:
        raise CallerError(
            f"run {run} of {session.name} happened elsewhere, under a spec that is not trusted here; "
            "it cannot be replayed"
        )
    if past.run is None:
        raise InternalError(f"run {run} of {session.name} started at record {started.seq}, but is not open there")
    causes = msgspec.json.encode(view_causes_file(past, past.run, read_received(log, past, past.run)))
    return Recorded(
        session=past, finished=finished, causes=causes, scratch=f"{service.places.state}/scratch/{session.id}"
    )


async def _encode(lines: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield msgspec.json.encode(line) + b"\n"


HANDLERS: Handlers = {
    "POST /replay": replay,
}

"""The routes POST /call/trace and GET /sessions/{name}/trace. The first runs a session with tracing. The second shows
what a traced run was denied, with the lines to paste into its spec.

The call activates the session like any activation. The record of the run's end has the findings. The lines to paste are
made from that record and the present spec, so they can be requested again. Nothing here changes a spec.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service
from wakeful.api.requests import Handlers, answer_json, find_session, read_number, service_of
from wakeful.core.record.events import RunFinished
from wakeful.core.record.observations import Traced
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.specs.trace_suggestions import SpecSuggestion, spell, suggest
from wakeful.text.display import count

# The number of latest runs that are searched for a trace if no run is named.
_LATEST = 100


async def read_trace(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    finished = await asyncio.to_thread(_find_traced, service, session, read_number(request, "run"))
    assert finished.trace is not None
    has_passed = finished.outcome == "succeeded" and not finished.trace.is_observed
    paste = await asyncio.to_thread(_suggest, session, finished.trace, has_passed)
    root = os.path.realpath(session.spec.root) if session.spec is not None else "/"
    absent = await asyncio.to_thread(_list_absent, paste, root)
    return answer_json(_view(session, finished, finished.trace, paste) | {"absent": absent})


def find_hint(service: Service, session: Session, run: int) -> str | None:
    """Return the hint that was recorded with a failed run. If it only suggests a trace, and a traced run was denied
    something, return a hint about that denial instead. Blocking."""
    finished = next(_read_ends(service, session, run), None)
    if finished is None or finished.hint is None or "wakeful trace" not in finished.hint:
        return finished.hint if finished is not None else None
    traced = next((end for end in _read_ends(service, session, None) if end.trace is not None), None)
    if traced is None or traced.trace is None or not traced.trace.denied:
        return finished.hint
    first = traced.trace.denied[0]
    rest = len(traced.trace.denied) + traced.trace.more - 1
    more = f" and {count(rest, 'other thing')}" if rest else ""
    return (
        f"run {traced.run}, which was traced, was denied {first.what}{more}: `wakeful trace {session.name} --run "
        f"{traced.run}` lists what to declare"
    )


def _read_ends(service: Service, session: Session, run: int | None) -> Iterator[RunFinished]:
    records = service.log.read(session.id, kinds=("run_finished",), run=run, newest_first=True, limit=_LATEST)
    ends = (decode(record.kind, record.payload) for record in records if record.payload is not None)
    return (end for end in ends if isinstance(end, RunFinished))


def _find_traced(service: Service, session: Session, run: int | None) -> RunFinished:
    """Find the end of this run, or of the latest traced run if `run` is None. Raises CallerError if no such run was
    traced. Blocking."""
    traced = next((end for end in _read_ends(service, session, run) if end.trace is not None), None)
    if traced is None:
        which = (
            f"run {run} of {session.name} was not traced"
            if run is not None
            else f"no run of {session.name} was traced lately"
        )
        raise CallerError(f"{which}; `wakeful trace {session.name}` runs it once, traced")
    return traced


def _suggest(session: Session, trace: Traced, has_passed: bool) -> SpecSuggestion:
    spec = session.spec
    if spec is None:
        return SpecSuggestion()
    home = os.path.realpath(os.path.expanduser("~"))
    return suggest(spec, trace.denied, root=os.path.realpath(spec.root), home=home, has_passed=has_passed)


def _list_absent(paste: SpecSuggestion, root: str) -> list[str]:
    """List the paths to be allowed that do not exist. Blocking.

    A person must create them first, because the isolation cannot open a path that does not exist.
    """
    places = [os.path.join(root, os.path.expanduser(path)) for path in (paste.allow or {}).get("write", ())]
    return [path for path in places if not os.path.exists(path)]


def _view(session: Session, finished: RunFinished, trace: Traced, paste: SpecSuggestion) -> dict[str, Any]:
    return {
        "name": session.name,
        "run": finished.run,
        "outcome": finished.outcome,
        "reason": finished.reason,
        "observed": trace.is_observed,
        "denied": [msgspec.to_builtins(one) for one in trace.denied],
        "more": trace.more,
        "words": trace.words,
        "paste": {"bindings": paste.bindings, "allow": paste.allow, "network": paste.network},
        "lines": spell(paste),
    }


HANDLERS: Handlers = {
    "GET /sessions/{name}/trace": read_trace,
}

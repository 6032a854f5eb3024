"""The routes of `why`, `plan` and `doctor`: the cause of a state, the effect of a change, the state of the daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, assert_never

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import PathVerdict, Service, refuse_refused
from wakeful.api.gate.access_tokens import Tokens, TokensUnreadable
from wakeful.api.gate.callers import VisibleSessions
from wakeful.api.operations.causal_chain import find_asked, find_chain, find_file_writer, why_run
from wakeful.api.operations.offered_tools import list_down
from wakeful.api.problems import Refusals
from wakeful.api.requests import Handlers, answer_json, service_of, visible_to
from wakeful.api.routes.notify import view_notifiers
from wakeful.api.routes.questions import say_refusal
from wakeful.api.routes.sessions import find_problem
from wakeful.api.routes.trace import find_hint
from wakeful.api.tcp_port import TcpPort
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.path_reports import CannotTell, Excluded, Found, NearlyMatched, NotYetLooked
from wakeful.core.record.events import SessionMerged
from wakeful.core.record.observations import Enforceable
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.zones import is_zone_known
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.views.limit_levels import view_limits
from wakeful.views.path_bindings import Reached, find_writers, plan_now, plan_paths
from wakeful.views.times import say_shown, say_time, shorten, show_time, show_time_or_none
from wakeful.views.why import (
    FileWriter,
    find_last_change,
    find_version,
    has_failed,
    view_guarded,
    why_output,
    why_session,
)
from wakeful.workspaces.fork_workspaces import measure

# The most records searched for the run that wrote the present version of an output.
RUN_RECORDS = 400


async def explain_why(request: Request) -> Response:
    """Explain `x`, as the person typed it: a run, else a session, else a path. `path` is the absolute path that the
    client made of `x`."""
    service = service_of(request)
    x, path = request.query_params.get("x"), request.query_params.get("path")
    ids = visible_to(request).list_ids()
    session, run = find_asked(service, x, request.query_params.get("run"))
    if session is not None and ids is not None and session.id not in ids:
        # Answer as if the session did not exist.
        session = None
    if session is not None and run is not None:
        return answer_json(await asyncio.to_thread(why_run, service, session, run, ids))
    if session is not None:
        last = session.last_run if has_failed(session) else None
        hint = await asyncio.to_thread(find_hint, service, session, last.run) if last is not None else None
        down = await asyncio.to_thread(list_down, service.log, session)
        refusal = await asyncio.to_thread(say_refusal, service.log, session)
        found = why_session(
            service.core,
            session,
            service.moment(),
            find_problem(service.problems(), session),
            hint,
            service.redact(down),
        )
        found["words"] += request.app.state.unrecorded.say_refusals(session)
        run = (
            session.run.run
            if session.run is not None
            else session.last_run.run
            if session.last_run is not None
            else None
        )
        found["words"][1:1] = service.redact(refusal)
        return answer_json(
            {
                **found,
                "links": await asyncio.to_thread(find_chain, service, session, run, ids) if run is not None else [],
            }
        )
    if x is not None and ids is None:
        refuse_refused(service, x)
    if path is None or not path.startswith("/"):
        raise CallerError(
            f"no session is called {x!r}, and it is not an absolute path; `wakeful list` shows the sessions"
        )
    path = os.path.normpath(path)
    writers = [one for one in find_writers(service.core, path) if ids is None or one.session.id in ids]
    files = [
        await asyncio.to_thread(find_file_writer, service, writer.session, writer.binding, path) for writer in writers
    ]
    found = _why_path(service, path, list(zip(writers, files, strict=True)), ids)
    for output in found["outputs"]:
        if output["run"] is not None:
            writer = service.core.state.by_name(output["session"])
            output["links"] = await asyncio.to_thread(find_chain, service, writer, output["run"]["run"], ids)
    return answer_json(found)


def _why_path(
    service: Service, path: str, writers: list[tuple[Reached, FileWriter | None]], ids: frozenset[str] | None
) -> dict[str, Any]:
    outputs = [_why_output(service, path, writer, file) for writer, file in writers]
    inputs = [
        {
            "session": one.session,
            "binding": one.binding,
            "words": _say_verdict(service, one),
            "looked_at": show_time_or_none(one.looked_at),
        }
        for one in service.explain_path(path)
        if ids is None or service.core.state.ids.get(one.session) in ids
    ]
    # The caller learns nothing about a path that none of their sessions covers.
    change = find_last_change(service.core, path) if ids is None or inputs or outputs else None
    words = [sentence for output in outputs for sentence in output["words"]]
    words += [f"{one['session']}, {one['binding']}: {one['words']}" for one in inputs]
    if change is not None:
        words.append(f"It was last found {change['change']} at {say_shown(change['at'])}.")
    elif inputs and not outputs:
        words.append("No change of it was found since the daemon started.")
    if ids is None and not inputs and Path(path).is_relative_to(service.places.state):
        words.append(f"{path} lies in the state folder of wakeful, which is never watched or read.")
    if not words:
        words.append(
            f"No binding of any session{' you see' if ids is not None else ''} covers {path}, or nearly does; "
            "`wakeful show NAME` lists the bindings of one."
        )
    return {"about": "path", "path": path, "outputs": outputs, "inputs": inputs, "last_change": change, "words": words}


def _say_verdict(service: Service, verdict: PathVerdict) -> str:
    """Describe a verdict. The text shows the version of the whole binding, as other answers do. The digest of a single
    file would appear nowhere else."""
    match verdict.meaning:
        case Excluded(by):
            return f"excluded by {by}"
        case NearlyMatched(pattern, words):
            return f"nearly matches {pattern}: {words}"
        case NotYetLooked():
            return "matches; not yet looked at"
        case CannotTell(problem):
            found = problem
        case Found(is_there):
            version = (
                find_version(service.core, service.core.state.by_name(verdict.session), verdict.binding)
                if is_there
                else None
            )
            found = f"its binding is at {shorten(version)}" if is_there else "nothing there"
        case never:
            assert_never(never)
    return f"matches; looked at {say_time(verdict.looked_at)}: {found}"


def _why_output(service: Service, path: str, writer: Reached, file: FileWriter | None) -> dict[str, Any]:
    records = service.log.read(
        writer.session.id,
        kinds=("run_started", "run_finished", "outputs_adopted"),
        limit=RUN_RECORDS,
        newest_first=True,
    )
    return why_output(service.core, path, writer, records, file)


async def explain_plan(request: Request) -> Response:
    service = service_of(request)
    paths = request.query_params.getlist("path")
    relative = next((path for path in paths if not path.startswith("/")), None)
    if relative is not None:
        raise CallerError(f"{relative!r} is not an absolute path; the daemon does not know the caller's folder")
    visible = visible_to(request)
    if not paths:
        plan = plan_now(service.core, service.moment())
        return answer_json(plan | {"now": [one for one in plan["now"] if visible.sees_name(one["session"])]})
    plan = plan_paths(service.core, [os.path.normpath(path) for path in paths], service.moment())
    return answer_json(plan if visible.is_whole else _narrow_plan(plan, visible))


def _narrow_plan(plan: dict[str, Any], visible: VisibleSessions) -> dict[str, Any]:
    """Remove the sessions that the caller may not see from a plan. The waves keep their numbers."""
    waves = [
        [
            entry | {"upstream": [name for name in entry["upstream"] if visible.sees_name(name)]}
            for entry in wave
            if visible.sees_name(entry["session"])
        ]
        for wave in plan["waves"]
    ]
    matched = {cause["path"] for wave in waves for entry in wave for cause in entry["causes"]}
    return plan | {"waves": waves, "unmatched": [path for path in plan["paths"] if path not in matched]}


async def explain_health(request: Request) -> Response:
    """Report the state of the daemon for `doctor`. The command line itself checks the machine."""
    service = service_of(request)
    core = service.core
    degraded = []
    for session in core.state:
        budget = session.spec.budget if session.is_live and session.spec is not None else None
        if budget is not None and not is_zone_known(budget.timezone):
            words = (
                f"the time zone {budget.timezone} is not in this machine's zone database, so days are counted in "
                "UTC; install tzdata and start the daemon again"
            )
            degraded.append({"session": session.name, "binding": "budget", "words": words})
        for bound in core.looked.bounds.get(session.id, ()):
            look = core.looked.target(bound)
            problem = (look.degraded or look.problem) if look is not None else None
            if problem is not None:
                degraded.append({"session": session.name, "binding": bound.name, "words": problem})
    return answer_json(
        {
            "version": service.version,
            "pid": service.pid,
            "started_at": show_time(service.started_at),
            "specs": str(service.places.specs),
            "state": str(service.places.state),
            "read_only": service.log.read_only,
            "sessions": len(core.state.sessions),
            "running": len(core.state.running),
            "targets": len(core.looked.targets),
            "problems": service.problems(),
            "defects": service.defects(),
            "degraded": degraded,
            "damaged": [
                {"session": one.name, "words": one.damage_words}
                for one in core.state
                if isinstance(one, DamagedSession)
            ],
            "guarded": view_guarded(core, service.moment()),
            "unfinished_merges": await asyncio.to_thread(_view_unfinished, service),
            "workspaces": await asyncio.to_thread(_view_workspaces, list(core.state)),
            "isolation": view_enforceable(core, await asyncio.to_thread(service.enforceable)),
            "trust": service.trust.view(),
            "notifiers": view_notifiers(service),
            "limits": view_limits(core.settings.limits, core.state),
            "blobs": (await asyncio.to_thread(service.blobs.sizes))._asdict(),
            "tokens": _view_tokens(request.app.state.tokens),
            "connections": request.app.state.connections.view(),
            "http": view_http(request),
        }
    )


def view_http(request: Request) -> dict[str, Any]:
    """View the TCP port: its address (None while closed), its connections, and its refusals."""
    tcp: TcpPort = request.app.state.tcp
    refusals: Refusals = request.app.state.refusals
    return {"url": tcp.url, "connections": tcp.connections.view(), "refusals": refusals.read()}


def view_enforceable(core: Core, found: Enforceable) -> dict[str, Any]:
    """View the isolation that this machine can enforce, and the sessions that run without isolation."""
    unisolated = [
        one.name for one in core.state if one.is_live and one.spec is not None and not one.spec.confinement.is_enforced
    ]
    return {
        "landlock": found.landlock,
        "unenforced": list(found.unenforced),
        "gaps": [{"what": gap.what, "means": gap.means, "needs": gap.needs} for gap in found.gaps],
        "shielding": found.is_shielding,
        "bounding": found.is_bounding,
        "kept_closed": list(found.kept_closed),
        "allow_unisolated": core.settings.allow_unisolated,
        "unisolated": sorted(unisolated),
    }


def _view_tokens(tokens: Tokens) -> dict[str, str | None]:
    """Report the problem of the token file that makes all tokens invalid. None if there is no problem."""
    try:
        tokens.list_all()
    except TokensUnreadable as problem:
        return {"path": str(tokens.path), "problem": str(problem)}
    return {"path": str(tokens.path), "problem": None}


def _view_workspaces(sessions: list[Session]) -> list[dict[str, Any]]:
    """List the workspaces of forks that were terminated. They stay until a person removes them."""
    ended = [
        (one.name, one.lineage.workspace.folder)
        for one in sessions
        if one.is_terminated and one.lineage.workspace is not None
    ]
    found = [{"session": name, "folder": folder, "bytes": measure(folder)} for name, folder in sorted(ended)]
    return [one for one in found if one["bytes"] is not None]


def _view_unfinished(service: Service) -> list[dict[str, str]]:
    """List the merges that are recorded, but whose files were not written because the daemon died."""
    wanted = set(service.workspaces.list_unfinished())
    found = []
    for session in list(service.core.state) if wanted else ():
        for record in service.log.read(session.id, kinds=("session_merged",)):
            event = decode(record.kind, record.payload) if record.payload is not None else None
            if isinstance(event, SessionMerged) and event.record in wanted:
                found.append({"session": session.name, "fork": event.name})
    return found


HANDLERS: Handlers = {
    "GET /why": explain_why,
    "GET /plan": explain_plan,
    "GET /doctor": explain_health,
}

"""The route GET /sessions/{name}/question: the question that a session asks a person, and what the answer "yes" would
allow.

If the question is about a run, the answer has the changes since the last success, as diffs. If it is about a tool call
of an agent, the answer has the arguments of the call, and the diff of the file that the call would write. Also views
the last answer, for a person who answers second and for `why`. Nothing is changed here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service
from wakeful.api.operations.lifecycle_calls import LastAnswer, find_last_answer, read_answer
from wakeful.api.requests import Handlers, answer_json, find_session, service_of
from wakeful.api.routes.context import BOUNDS
from wakeful.core.deciding.dispatch import gather_causes
from wakeful.core.looking.path_reports import Changed, Compared
from wakeful.core.looking.targets import target_of
from wakeful.core.record import events as ev
from wakeful.core.record.state import Question, Session
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.core.spec.session import SessionSpec
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.model_context.diffs import FileSides, diff_sides, read_now
from wakeful.views.causes import view_causes
from wakeful.views.times import say_time, show_time, show_time_or_none
from wakeful.views.why import describe_cause

# The most records that are searched for the call that an agent asks about. The call is nearly always in the last turn.
MOST_TURNS = 20
# The most characters of a diff. A longer diff is cut, with a remark that the person should read the file.
LONGEST_DIFF = 200_000


async def read_question(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    last = await asyncio.to_thread(find_last_answer, service.log, session)
    found: dict[str, Any] = {
        "session": session.name,
        "asks": None,
        "words": None,
        "until": None,
        "causes": [],
        "changes": [],
        "call": None,
        "last_answer": view_answer(service, last),
    }
    hold, wake = session.hold, session.wake
    if hold is None or hold.kind != "asking" or wake is None or session.spec is None:
        return answer_json(found)
    found |= {"words": hold.words, "until": show_time_or_none(hold.until)}
    if session.question is not None:
        asks = "permission" if session.question.is_permission else "question"
        call = await asyncio.to_thread(_view_call, service, session, session.question)
        return answer_json(found | {"asks": asks, "words": session.question.text, "call": call})
    causes = (
        gather_causes(service.core, session, service.moment().wall)[0]
        if session.is_armed and session.id in service.core.looked.bounds
        else wake.causes
    )
    trees = await compare_commits(service, session.spec, causes)
    changes = await asyncio.to_thread(_view_changes, service, session, causes, trees)
    return answer_json(found | {"asks": "run", "causes": view_causes(causes), "changes": changes})


async def compare_commits(service: Service, spec: SessionSpec, causes: tuple[ev.Cause, ...]) -> dict[str, Compared]:
    """Compare the commits of each binding with those of the last success."""
    found: dict[str, Compared] = {}
    for cause in causes:
        binding = spec.binding(cause.binding)
        target = target_of(spec, binding) if isinstance(binding, CommitsBinding) else None
        if target is not None and cause.old is not None and cause.new is not None:
            found[cause.binding] = await service.compare_commits(target.key, cause.old, cause.new, BOUNDS)
    return found


def _view_changes(
    service: Service, session: Session, causes: tuple[ev.Cause, ...], trees: dict[str, Compared]
) -> list[dict[str, Any]]:
    assert session.spec is not None
    files = FileSides(session, session.spec.root, log=service.log, blobs=service.blobs)
    shown = []
    for cause in causes:
        compared = trees.get(cause.binding, Compared()) if cause.kind == "commits" else files.read(cause)
        paths = compared.paths or cause.paths
        shown.append(
            {
                "binding": cause.binding,
                "kind": cause.kind,
                "words": describe_cause(cause),
                "problem": service.redact(compared.problem),
                "paths": [{"path": one.path, "change": one.change} for one in paths],
                "diffs": [_view_diff(service, changed) for changed in compared.sides],
            }
        )
    return shown


def _view_diff(service: Service, changed: Changed) -> dict[str, Any]:
    diff, note = diff_sides(changed, service.redact)
    if diff is not None and len(diff) > LONGEST_DIFF:
        diff, note = diff[:LONGEST_DIFF], f"cut after {LONGEST_DIFF} characters; read the file"
    return {"path": changed.path, "diff": diff, "note": note}


def _view_call(service: Service, session: Session, question: Question) -> dict[str, Any] | None:
    """View the tool call that waits for the answer: its name, its arguments, and the diff of the file that it would
    write."""
    for record in service.log.read(session.id, kinds=("turn_answered",), newest_first=True, limit=MOST_TURNS):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if not isinstance(event, ev.TurnAnswered):
            continue
        call = next((one for one in event.answer.calls if one.id == question.call), None)
        if call is not None:
            shown = {"name": call.name, "arguments": service.redact(call.arguments)}
            return shown | {"diff": _view_writing(service, session, call.name, call.arguments)}
    return None


class _Writing(Struct):
    """The arguments of the tools that write files: the whole content, or one text that replaces another."""

    path: str
    content: str | None = None
    old: str | None = None
    new: str | None = None
    all: bool = False


def _view_writing(service: Service, session: Session, tool: str, arguments: str) -> dict[str, Any] | None:
    if tool not in ("write", "edit") or session.spec is None:
        return None
    try:
        given = msgspec.json.decode(arguments, type=_Writing)
    except msgspec.DecodeError:
        # The tool itself will report what is wrong with the arguments.
        return None
    before = read_now(session.spec.root, given.path)
    if given.content is not None:
        return _view_diff(service, Changed(given.path, before, given.content.encode()))
    if given.old is None or given.new is None or not isinstance(before, bytes):
        return None
    after = before.replace(given.old.encode(), given.new.encode(), -1 if given.all else 1)
    return _view_diff(service, Changed(given.path, before, after))


def view_answer(service: Service, last: LastAnswer | None) -> dict[str, Any] | None:
    if last is None:
        return None
    return {
        "author": last.author,
        "at": show_time(last.at),
        "text": service.redact(last.text),
        "rationale": service.redact(last.rationale),
    }


def say_refusal(log: LogReader, session: Session) -> list[str]:
    """Report the person who refused the last wake of a session, and the reason. Empty if no one refused it.
    Blocking."""
    if session.wake is not None or session.run is not None:
        return []
    kinds = ("wake_withdrawn", "run_started", "wake_requested")
    last = next(log.read(session.id, kinds=kinds, newest_first=True, limit=1), None)
    found = read_answer(last) if last is not None and last.kind == "wake_withdrawn" else None
    if found is None:
        return []
    who, because = found.author.removeprefix("person:"), f": {found.rationale}" if found.rationale else ""
    return [f"Its last run was refused by {who} at {say_time(found.at)}{because}."]


HANDLERS: Handlers = {
    "GET /sessions/{name}/question": read_question,
}

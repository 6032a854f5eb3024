"""The route GET /sessions/{name}/context: the prompt that a model would get if the session ran now, part by part. Also
assembles the real prompt of a run.

The parts that need the loop come first: the owed causes and the commits. The rest is read off the loop. Nothing is
recorded.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service, know_agent
from wakeful.api.operations.offered_tools import read_offered
from wakeful.api.requests import Handlers, answer_json, find_session, service_of
from wakeful.core.agents.model_text import estimate_definition, estimate_entry
from wakeful.core.agents.turns import Answered, Asked, Entry, Returned, ToolCall
from wakeful.core.deciding.run_start import is_run_due, preview_run
from wakeful.core.looking.observed_state import PATHS_IN_A_CAUSE
from wakeful.core.looking.path_reports import Bounds, Compared
from wakeful.core.looking.targets import target_of
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec, fit_window
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.model_context.assemble import Assembled, assemble, assemble_sub
from wakeful.model_context.diffs import MOST_COMPARED
from wakeful.model_context.prompt_parts import Part
from wakeful.run_files.replay_comparison import LARGEST_TEXT_BYTES
from wakeful.views.causes import view_causes

BOUNDS = Bounds(paths=PATHS_IN_A_CAUSE, contents=MOST_COMPARED, content_bytes=LARGEST_TEXT_BYTES)
MOST_OPENINGS = 100


async def assemble_for(service: Service, session: Session, agent: AgentSpec, *, is_fresh: bool = False) -> Assembled:
    """Assemble the prompt for the open run of `session`. For a preview, this run is only imagined."""
    trees = await _compare_commits(service, session)

    def assemble_redacted() -> Assembled:
        made = assemble(
            session, agent, log=service.log, blobs=service.blobs, redact=service.redact, trees=trees, is_fresh=is_fresh
        )
        return redact_assembled(made, service)

    return await asyncio.to_thread(assemble_redacted)


async def assemble_for_sub(service: Service, session: Session, agent: AgentSpec, call_id: str, text: str) -> Assembled:
    """Assemble the prompt of a sub-agent for its piece of work in the run under way."""

    def assemble_redacted() -> Assembled:
        return redact_assembled(
            assemble_sub(session, agent, call_id, text, log=service.log, blobs=service.blobs, redact=service.redact),
            service,
        )

    return await asyncio.to_thread(assemble_redacted)


def redact_assembled(made: Assembled, service: Service) -> Assembled:
    """Remove the values of secrets, also values that were recorded before they were declared as secrets.

    Pending tool calls stay as recorded. They will be carried out, and changed arguments would have other effects."""
    kept: Assembled = service.redact(made)
    entries = tuple(drop_changed_raw(before, after) for before, after in zip(made.entries, kept.entries, strict=True))
    return made if kept is made else replace(kept, entries=entries, pending=made.pending)


def drop_changed_raw(before: Entry, after: Entry) -> Entry:
    """Drop the provider's raw message if redaction changed it. Providers sign the thinking in a raw message, and refuse
    a changed message. The text and the calls are sent without it."""
    is_changed = isinstance(before, Answered) and isinstance(after, Answered) and before.raw != after.raw
    return replace(after, raw=None) if is_changed else after


async def _compare_commits(service: Service, session: Session) -> dict[str, Compared]:
    """Compare the commits of each binding with those of the last success.

    Git names objects by their content, so the same ids always give the same bytes.
    """
    run = session.run
    assert run is not None
    found: dict[str, Compared] = {}
    for cause in run.causes:
        binding = run.spec.binding(cause.binding)
        if not isinstance(binding, CommitsBinding) or cause.old is None or cause.new is None:
            continue
        target = target_of(run.spec, binding)
        assert target is not None
        found[cause.binding] = await service.compare_commits(target.key, cause.old, cause.new, BOUNDS)
    return found


async def read_context(request: Request) -> Response:
    service = service_of(request)
    present = find_session(request, service)
    wanted = request.query_params.get("agent")
    await know_agent(service, wanted)
    imagined = preview_run(service.core, present, wanted, service.moment().wall)
    is_due = is_run_due(service.core, present)
    agent, source = imagined.agent, None
    if agent.asks_window:
        agent, source = await asyncio.to_thread(fit_found_window, service.log, present, agent)
    assembled = await assemble_for(service, imagined.session, agent, is_fresh=imagined.is_fresh)
    counted = await asyncio.to_thread(read_counted, service.log, present)
    offered, _ = await asyncio.to_thread(read_offered, service.log, present)
    return answer_json(
        {
            "session": present.name,
            "state": "running" if present.run is not None else "at rest",
            "wanted": is_due,
            **view_assembled(imagined.session, agent, assembled, source),
            "tools": view_offered(service.redact(offered)) if offered is not None else None,
            "counted": counted,
        }
    )


def fit_found_window(log: LogReader, session: Session, agent: AgentSpec) -> tuple[AgentSpec, str]:
    """Fit the agent to the context window that the server of its model reported at the last run. Also returns the
    source of that figure. Blocking."""
    for record in log.read(session.id, kinds=("prompt_assembled",), newest_first=True, limit=MOST_OPENINGS):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.PromptAssembled(model=model, window_tokens=int(tokens), window_source=str(source)) if (
                model == agent.model_name
            ):
                return fit_window(agent, tokens), source
    return agent, "its server is asked when it runs"


def view_assembled(
    session: Session, agent: AgentSpec, assembled: Assembled, source: str | None = None
) -> dict[str, Any]:
    """View the prompt in the order in which a model gets it: instructions, conversation, opening."""
    run = session.run
    assert run is not None
    return {
        "run": run.run,
        "agent": agent.name,
        "model": agent.models[0].name if agent.models else None,
        "causes": view_causes(run.causes),
        "instructions": [_view_part(part) for part in assembled.instructions],
        "conversation": [_view_entry(entry) for entry in assembled.entries],
        "pending": [_view_call(call, assembled.permissions) for call in assembled.pending],
        "later": [_view_entry(entry) for entry in assembled.later],
        "opening": [_view_part(part) for part in assembled.opening],
        "tokens": {
            "parts": assembled.tokens,
            "total": assembled.total_tokens,
            "window": agent.window.tokens,
            "window_source": source,
            "compress_at": agent.window.compress_at,
        },
    }


def _view_part(part: Part) -> dict[str, Any]:
    return {"name": part.name, "tokens": part.tokens, "text": part.text}


def _view_entry(entry: Entry) -> dict[str, Any]:
    shown: dict[str, Any]
    match entry:
        case Asked(text=text):
            shown = {"kind": "asked", "text": text}
        case Answered(text=text, calls=calls, model=model):
            shown = {
                "kind": "answered",
                "model": model,
                "text": text,
                "calls": [_view_call(call, {}) for call in calls],
            }
        case Returned(call=call, name=name, text=text, is_error=is_error, images=images):
            shown = {"kind": "returned", "call": call, "name": name, "text": text, "is_error": is_error}
            shown |= (
                {
                    "images": [
                        {"media_type": one.media_type, "address": one.address, "size_bytes": one.size_bytes}
                        for one in images
                    ]
                }
                if images
                else {}
            )
    return shown | {"tokens": estimate_entry(entry)}


def _view_call(call: ToolCall, permissions: dict[str, bool]) -> dict[str, Any]:
    allowed = {"permitted": permissions[call.id]} if call.id in permissions else {}
    return {"call": call.id, "name": call.name, "arguments": call.arguments, **allowed}


def view_offered(event: ev.TurnRequested) -> dict[str, Any]:
    definitions = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "tokens": estimate_definition(tool),
        }
        for tool in event.tools
    ]
    return {
        "run": event.run,
        "model": event.model,
        "tokens": sum(one["tokens"] for one in definitions),
        "offered": definitions,
    }


def read_counted(log: LogReader, session: Session) -> dict[str, Any] | None:
    """Return the input tokens of the last answered request: our estimate, and the provider's count. None if no request
    was answered. Blocking."""
    answered: ev.TurnAnswered | None = None
    for record in log.read(session.id, kinds=("turn_answered", "turn_requested"), newest_first=True, limit=8):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.TurnAnswered(sub=None) as event if answered is None:
                answered = event
            case ev.TurnRequested(run=run, turn=turn, input_tokens=estimated, model=model, sub=None) if (
                answered is not None and (run, turn) == (answered.run, answered.turn)
            ):
                return {"run": run, "model": model, "estimated": estimated, "counted": answered.usage.input}
    return None


HANDLERS: Handlers = {
    "GET /sessions/{name}/context": read_context,
}

"""Converts records of the log to spans: a wake, the runs that serve it, and their model requests and tool calls.

Names and attributes follow OpenTelemetry's conventions for generative AI. Ids are computed from the records. So a
record that is read twice, even by another daemon, gives the same span. A span contains no text of people, models or
tools, except the reason of a failure. Pure.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from wakeful.core.agents.turns import SubWork
from wakeful.core.record import events as ev
from wakeful.core.spec.agent import split_model

# The most ended runs that are remembered, so that a wake can be linked to the run that caused it.
ENDS_REMEMBERED = 5000
Attribute = str | int | float | bool | tuple[str, ...]


class Place(Struct, frozen=True):
    """The ids by which other spans refer to a span."""

    trace_id: int
    span_id: int


class Span(Struct, frozen=True, kw_only=True):
    """A finished span. Times are in nanoseconds. `error` is the reason of a failure."""

    place: Place
    parent_id: int | None
    name: str
    kind: Literal["internal", "client"]
    start: int
    end: int
    attributes: dict[str, Attribute]
    error: str | None = None
    links: tuple[Place, ...] = ()


class Seen(Struct, frozen=True):
    """A record of the log, with its position in the order of all sessions and the name of its session."""

    position: int
    session: str
    name: str
    seq: int
    at: int
    parent: str | None
    event: ev.Event


class _Begun(Struct, frozen=True, kw_only=True):
    """A span that has not ended."""

    place: Place
    parent_id: int | None
    name: str
    start: int
    position: int
    attributes: dict[str, Attribute]
    links: tuple[Place, ...] = ()
    kind: Literal["internal", "client"] = "internal"


class SpanBuilder:
    """Takes the records of a log in order, and yields each span when it has ended."""

    def __init__(self) -> None:
        self._wakes: dict[str, _Begun] = {}
        self._runs: dict[str, _Begun] = {}
        # The keys are the session, and the key of the step within its run.
        self._steps: dict[str, dict[str, _Begun]] = {}
        self._ended: OrderedDict[str, Place] = OrderedDict()

    @property
    def oldest(self) -> int | None:
        """The position of the first record that an open span needs. None if no span is open."""
        return min((one.position for one in (*self._wakes.values(), *self._runs.values())), default=None)

    def take(self, seen: Seen) -> Iterator[Span]:
        event = seen.event
        match event:
            case ev.WakeRequested():
                self._begin_wake(seen, event)
            case ev.WakeWithdrawn(reason=reason):
                yield from self._end_wake(seen, {"wakeful.outcome": f"withdrawn: {reason}"}, None)
            case ev.RunStarted():
                self._begin_run(seen, event)
            case ev.RunFinished():
                yield from self._end_run(seen, event)
            case ev.TurnRequested(run=run, turn=turn, model=model, sub=sub):
                self._begin_turn(seen, model, _name_turn(run, turn, sub), sub)
            case ev.TurnAnswered(run=run, turn=turn, sub=sub, answer=answer, usage=usage):
                told: dict[str, Attribute] = {
                    "gen_ai.response.model": answer.model,
                    "gen_ai.usage.input_tokens": usage.input,
                    "gen_ai.usage.output_tokens": usage.output,
                }
                yield from self._end_step(seen, _name_turn(run, turn, sub), told, None)
            case ev.TurnFailed(run=run, turn=turn, sub=sub, fault=fault, words=words):
                yield from self._end_step(seen, _name_turn(run, turn, sub), {"error.type": fault}, words)
            case ev.ToolCalled(call=call, sub=sub):
                attributes: dict[str, Attribute] = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
                self._begin_step(seen, call.id, f"execute_tool {call.name}", attributes, sub)
            case ev.ToolReturned(call=call_id, is_error=is_error):
                yield from self._end_step(seen, call_id, {}, "the tool returned an error" if is_error else None)
            case ev.SessionTerminated() | ev.SpecRemoved():
                self._wakes.pop(seen.session, None)

    # -- wakes and runs -----------------------------------------------------------------------

    def _begin_wake(self, seen: Seen, event: ev.WakeRequested) -> None:
        cause = self._ended.get(seen.parent) if seen.parent is not None else None
        started = self._runs.get(seen.parent.partition(":")[0]) if seen.parent is not None else None
        origin = cause or (started.place if started is not None else None)
        self._wakes[seen.session] = _Begun(
            place=_place_wake(seen.session, seen.seq),
            parent_id=None,
            name=f"invoke_workflow {seen.name}",
            start=seen.at * 1000,
            position=seen.position,
            attributes={
                **_say_session(seen, "invoke_workflow"),
                "wakeful.wake": event.wake,
                "wakeful.causes": tuple(f"{one.kind} {one.binding}" for one in event.causes),
            },
            links=(origin,) if origin is not None else (),
        )

    def _end_wake(self, seen: Seen, attributes: dict[str, Attribute], error: str | None) -> Iterator[Span]:
        begun = self._wakes.pop(seen.session, None)
        if begun is not None:
            yield _end(begun, seen, attributes, error)

    def _begin_run(self, seen: Seen, event: ev.RunStarted) -> None:
        # The parent of this record is the record that opened the wake. So the ids of the wake's span are known even if
        # that record was not read.
        seq = int(seen.parent.rpartition(":")[2]) if seen.parent is not None else seen.seq
        wake = _place_wake(seen.session, seq)
        agent = event.agent
        attributes = {
            **_say_session(seen, "invoke_agent" if agent is not None else None),
            "wakeful.run": event.run,
            "wakeful.attempt": event.attempt,
        }
        if agent is not None:
            attributes["gen_ai.agent.name"] = agent.name
            if agent.models:
                attributes |= _say_model(agent.models[0].name)
        self._runs[seen.session] = _Begun(
            place=Place(wake.trace_id, _hash_span(seen.session, seen.seq)),
            parent_id=wake.span_id,
            name=f"invoke_agent {agent.name}" if agent is not None else f"run {seen.name}",
            start=seen.at * 1000,
            position=seen.position,
            attributes=attributes,
        )

    def _end_run(self, seen: Seen, event: ev.RunFinished) -> Iterator[Span]:
        # These steps have no recorded end. The process was killed, or a person must be asked first.
        for begun in self._steps.pop(seen.session, {}).values():
            yield _end(begun, seen, {}, "its end is not on record")
        told: dict[str, Attribute] = {"wakeful.outcome": event.outcome, "wakeful.final": event.is_final}
        if event.exit_code is not None:
            told["process.exit.code"] = event.exit_code
        if event.usage.tokens:
            told["wakeful.tokens"] = event.usage.tokens
        if event.usage.usd:
            told["wakeful.usd"] = event.usage.usd
        error = (event.reason or event.outcome) if event.outcome in ("failed", "lost") else None
        begun_run = self._runs.pop(seen.session, None)
        if begun_run is not None:
            self._remember(f"{seen.session}:{seen.seq}", begun_run.place)
            yield _end(begun_run, seen, told, error)
        if event.is_final:
            yield from self._end_wake(seen, {"wakeful.outcome": event.outcome}, error)

    def _remember(self, record: str, place: Place) -> None:
        self._ended[record] = place
        if len(self._ended) > ENDS_REMEMBERED:
            self._ended.popitem(last=False)

    # -- steps within a run -------------------------------------------------------------------

    def _begin_turn(self, seen: Seen, model: str, key: str, sub: SubWork | None) -> None:
        provider = split_model(model)
        name = provider[1] if provider is not None else model
        attributes = {"gen_ai.operation.name": "chat", **_say_model(model)}
        self._begin_step(seen, key, f"chat {name}", attributes, sub, is_client=True)

    def _begin_step(
        self,
        seen: Seen,
        key: str,
        name: str,
        attributes: dict[str, Attribute],
        sub: SubWork | None,
        *,
        is_client: bool = False,
    ) -> None:
        run = self._runs.get(seen.session)
        if run is None:
            return
        steps = self._steps.setdefault(seen.session, {})
        # The steps of a sub-agent are children of the tool call that it answers.
        above = steps.get(sub.call, run) if sub is not None else run
        if sub is not None:
            attributes = {**attributes, "gen_ai.agent.name": sub.agent}
        operation = {} if is_client else {"gen_ai.operation.name": "execute_tool"}
        steps[key] = _Begun(
            place=Place(run.place.trace_id, _hash_span(seen.session, seen.seq)),
            parent_id=above.place.span_id,
            name=name,
            start=seen.at * 1000,
            position=seen.position,
            attributes={**operation, **attributes, "gen_ai.conversation.id": seen.session},
            kind="client" if is_client else "internal",
        )

    def _end_step(self, seen: Seen, key: str, attributes: dict[str, Attribute], error: str | None) -> Iterator[Span]:
        begun = self._steps.get(seen.session, {}).pop(key, None)
        if begun is not None:
            yield _end(begun, seen, attributes, error)


def _end(begun: _Begun, seen: Seen, attributes: dict[str, Attribute], error: str | None) -> Span:
    return Span(
        place=begun.place,
        parent_id=begun.parent_id,
        name=begun.name,
        kind=begun.kind,
        start=begun.start,
        # If the clock was set back, the span has a length of 0, not a negative one.
        end=max(begun.start, seen.at * 1000),
        attributes={**begun.attributes, **attributes},
        error=error,
        links=begun.links,
    )


def _say_session(seen: Seen, operation: str | None) -> dict[str, Attribute]:
    named: dict[str, Attribute] = {"wakeful.session": seen.name, "gen_ai.conversation.id": seen.session}
    return {"gen_ai.operation.name": operation, **named} if operation is not None else named


def _say_model(name: str) -> dict[str, Attribute]:
    """Split `anthropic:claude-sonnet-4-5` into the attributes for provider and model."""
    found = split_model(name)
    if found is None:
        return {"gen_ai.request.model": name}
    return {"gen_ai.provider.name": found[0], "gen_ai.request.model": found[1]}


def _name_turn(run: int, turn: int, sub: SubWork | None) -> str:
    return f"turn {run} {turn} {sub.call if sub is not None else ''}"


def _place_wake(session: str, seq: int) -> Place:
    trace_id = int.from_bytes(hashlib.blake2b(f"wake {session}:{seq}".encode(), digest_size=16).digest())
    return Place(trace_id or 1, _hash_span(session, seq))


def _hash_span(session: str, seq: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{session}:{seq}".encode(), digest_size=8).digest()) or 1

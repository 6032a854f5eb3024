"""The causal chain of a run, link by link. A link is a run, its causes, and the runs or people that made these causes.

A link is made only from records: the start, the end and the wakes of the run, and the records that the wakes name as
their parents. If a parent is not in the log, or its payload is gone, the link says so. So no chain ends without a
reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from wakeful.core.record.events import Cause, RunFinished, RunStarted
from wakeful.core.spec.session import SessionSpec
from wakeful.views.causes import view_causes
from wakeful.views.records import Recorded, say_cost
from wakeful.views.times import say_time, shorten, show_time
from wakeful.views.why import describe_cause


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one wake: a run, a record that a person or a run made, a missing record, or the outside world."""

    # The recorded "session:seq". None for the outside world.
    parent: str | None
    name: str | None = None
    run: int | None = None
    # The record that a person or a run made.
    record: Recorded | None = None
    words: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One run of the chain.

    `started` and `finished` are None if they are not in the log, or their payload is gone.
    """

    name: str
    session: str
    run: int
    start: Recorded | None
    started: RunStarted | None
    end: Recorded | None
    finished: RunFinished | None
    spec: SessionSpec | None
    origins: tuple[Origin, ...]

    @property
    def label(self) -> str:
        return f"{self.name}#{self.run}"


def view_link(link: Link) -> dict[str, Any]:
    started, finished = link.started, link.finished
    return {
        "session": link.name,
        "id": link.session,
        "run": link.run,
        "seq": link.start.seq if link.start is not None else None,
        "attempt": started.attempt if started is not None else None,
        "outcome": finished.outcome if finished is not None else None,
        "started_at": show_time(link.start.at) if link.start is not None else None,
        "finished_at": show_time(link.end.at) if link.end is not None else None,
        "causes": view_causes(started.causes) if started is not None else [],
        "versions": _name_versions(link) if started is not None else {},
        "written": finished.written if finished is not None else {},
        "workspace": finished.workspace if finished is not None else None,
        "usage": None
        if finished is None
        else {
            name: getattr(finished.usage, name)
            for name in ("wall_seconds", "cpu_seconds", "tokens", "estimated_tokens", "usd")
        },
        "led_by": [_view_origin(origin) for origin in link.origins],
        "words": say_link(link),
    }


def _view_origin(origin: Origin) -> dict[str, Any]:
    record = origin.record
    return {
        "parent": origin.parent,
        "session": origin.name,
        "run": origin.run,
        "kind": record.kind if record is not None else None,
        "author": record.author if record is not None else None,
        "words": _say_origin(origin),
    }


def say_link(link: Link) -> list[str]:
    """Describe the run, its end, its causes, and the origins of its wakes."""
    words = [_say_run(link)]
    if link.finished is not None and link.finished.hint is not None:
        words.append(link.finished.hint)
    if link.started is not None:
        words += [f"woken by {say_cause(cause)}" for cause in link.started.causes]
    words += dict.fromkeys(_say_origin(origin) for origin in link.origins)
    return words


def _say_run(link: Link) -> str:
    if link.start is None:
        return f"{link.label}: its start is not in this log"
    if link.started is None:
        return f"{link.label}: its causes were erased or archived"
    attempt = f", attempt {link.started.attempt + 1}" if link.started.attempt else ""
    if link.finished is None or link.end is None:
        return f"{link.label} is under way since {say_time(link.start.at)}{attempt}"
    usage = link.finished.usage
    reason = f" ({link.finished.reason})" if link.finished.reason else ""
    worked = f", by agent {link.started.agent.name}" if link.started.agent is not None else ""
    place = f", in a workspace of its own ({link.finished.workspace})" if link.finished.workspace else ""
    return (
        f"{link.label} {link.finished.outcome}{reason} at {say_time(link.end.at)}{attempt}{worked}, "
        f"{say_cost(msgspec.to_builtins(usage), msgspec.to_builtins(link.finished.subagents))}{place}"
    )


def say_cause(cause: Cause) -> str:
    """Describe a cause. If it has paths, its old and new version are added."""
    words = describe_cause(cause)
    if cause.paths and (cause.old or cause.new) and cause.old != cause.new:
        words += f" ({shorten(cause.old)} -> {shorten(cause.new)})"
    return words


def _say_origin(origin: Origin) -> str:
    if origin.words is not None:
        return origin.words
    if origin.run is not None:
        return f"which was caused by {origin.name}#{origin.run}"
    if origin.record is not None:
        return (
            f"asked for by {origin.record.author} at {say_time(origin.record.at)} ({origin.record.kind}, seq "
            f"{origin.record.seq} of {origin.name})"
        )
    return "which was caused from outside, not by a record"


def _name_versions(link: Link) -> dict[str, str]:
    """Name the versions that the run saw by the current names of its bindings. A binding without a name is shown by
    identity.
    """
    assert link.started is not None
    names = {binding.identity: binding.name for binding in link.spec.bindings} if link.spec is not None else {}
    return {names.get(key, key): version for key, version in link.started.versions.items()}

"""Causes and runs in the form of specs.md: `{binding, kind, old, new, paths, delta, commits, at}`.

Shared by `list`, `show`, `why` and the file that a run finds at WAKEFUL_CAUSES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from wakeful.core.deciding.owed import find_new_messages, list_new_deliveries
from wakeful.core.record.events import Cause, MessageAdded
from wakeful.core.record.state import LastRun, OpenRun, Session
from wakeful.views.times import show_time, show_time_or_none

# The most characters of one message, and of all messages together, that a run gets.
LONGEST_TEXT = 64 * 1024
LONGEST_TEXTS = 256 * 1024
# The most waiting deliveries that are shown of each webhook. The others are counted.
DELIVERIES_SHOWN = 5


def view_cause(cause: Cause) -> dict[str, Any]:
    return {
        "binding": cause.binding,
        "kind": cause.kind,
        "old": cause.old,
        "new": cause.new,
        "reason": cause.reason,
        "paths": [{"path": path.path, "change": path.change} for path in cause.paths],
        "delta": cause.delta,
        "commits": list(cause.commits),
        "at": show_time_or_none(cause.at),
    }


def view_causes(causes: tuple[Cause, ...]) -> list[dict[str, Any]]:
    return [view_cause(cause) for cause in causes]


def view_causes_file(
    session: Session, run: OpenRun, received: Sequence[tuple[int, MessageAdded]] = ()
) -> dict[str, Any]:
    """Make the document that a run finds at WAKEFUL_CAUSES.

    `received` are the messages that no earlier run has handled, oldest first, with their times.
    """
    messages = _view_messages(received)
    seen, until = find_new_messages(session, run)
    return {
        "session": session.name,
        "run": run.run,
        "objective": run.spec.objective,
        # The paths are given as they are: the encoder writes them, and no dict is built for each of up to a thousand.
        "causes": [view_cause(replace(cause, paths=())) | {"paths": cause.paths} for cause in run.causes],
        "deliveries": _view_deliveries(session, run),
        "messages": messages,
        "messages_left_out": max(0, until - seen) - len(messages),
        "depth": len(run.chain),
        "resumed_from": run.resumed_from,
    }


def _view_deliveries(session: Session, run: OpenRun) -> list[dict[str, Any]]:
    """View each delivery that no run has handled, oldest first, and its file in $WAKEFUL_BINDING_<NAME>."""
    return [
        {
            "binding": binding.name,
            "position": one.position,
            "delivery": one.delivery,
            "event": one.event,
            "at": show_time(one.at),
            "size": one.size_bytes,
            "file": one.file_name if one.payload is not None else None,
        }
        for binding in run.spec.webhooks
        for one in list_new_deliveries(session, run, binding.identity)
    ]


def view_waiting(session: Session) -> list[dict[str, Any]]:
    """View the webhooks of a session that have deliveries waiting for a run, with the first of these deliveries."""
    found = []
    for binding in session.spec.webhooks if session.spec is not None else ():
        seen = int(session.marks.seen.get(binding.identity, "0"))
        known = session.find_webhook(binding.identity)
        if known.position > seen:
            first = [one for one in known.waiting if one.position > seen][:DELIVERIES_SHOWN]
            found.append(
                {
                    "binding": binding.name,
                    "waiting": known.position - seen,
                    "first": [
                        {
                            "position": one.position,
                            "delivery": one.delivery,
                            "event": one.event,
                            "at": show_time(one.at),
                        }
                        for one in first
                    ],
                }
            )
    return found


def say_waiting(session: Session) -> list[str]:
    """Write a sentence for each webhook whose deliveries wait."""
    return [_say_webhook(one) for one in view_waiting(session)]


def _say_webhook(row: dict[str, Any]) -> str:
    first = ", ".join(" ".join(text for text in (one["event"], one["delivery"]) if text) for one in row["first"])
    rest = row["waiting"] - len(row["first"])
    number = "1 delivery waits" if row["waiting"] == 1 else f"{row['waiting']:,} deliveries wait"
    return f"{number} at {row['binding']}: {first}" + (f" and {rest:,} more." if rest else ".")


def _view_messages(received: Sequence[tuple[int, MessageAdded]]) -> list[dict[str, Any]]:
    """View the newest messages that fit, oldest first. They are data from others, not instructions."""
    shown: list[dict[str, Any]] = []
    room = LONGEST_TEXTS
    for at, message in reversed(received):
        text = message.text[:LONGEST_TEXT]
        room -= len(text)
        if room < 0:
            break
        shown.append(
            {
                "position": message.position,
                "sender": message.sender,
                "at": show_time(at),
                "text": text,
                "cut": len(text) < len(message.text),
            }
        )
    return shown[::-1]


def view_last_run(last: LastRun | None) -> dict[str, Any] | None:
    """View the last run that ended, exactly as in the outside contract. None before the first."""
    if last is None:
        return None
    return {
        "run": last.run,
        "outcome": last.outcome,
        "started_at": show_time(last.started_at),
        "finished_at": show_time(last.finished_at),
        "causes": view_causes(last.causes),
    }


def view_open_run(run: OpenRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "run": run.run,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "started_at": show_time(run.started_at),
        "resumed_from": run.resumed_from,
        "mixed": run.mixed,
        "daemons": run.daemons,
        "stopping": None if run.stop is None else {"why": run.stop.why, "by": run.stop.by},
        "causes": view_causes(run.causes),
        "subagents": {name: asdict(spent) for name, spent in run.progress.subs.items()},
    }

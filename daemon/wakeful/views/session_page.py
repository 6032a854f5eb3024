"""Everything about one session that `show` prints, now or folded up to an earlier seq.

`show` needs the live core, because present versions, last looks and queues are not in the log. `show_past` needs only a
session folded up to some seq, and shows only recorded facts. `view_participants` lists the people and runs that acted
in the session, with their number of records, the last time, and the role. `view_knowledge` and `view_forks` show the
knowledge of the session and its forks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from wakeful.core.calls.roles import PERSON, find_role, find_smaller
from wakeful.core.deciding.owed import is_new, version_now
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.granted_places import list_granted_reads
from wakeful.core.looking.observed_state import Bound, TargetLook, bounds_of
from wakeful.core.record.events import Hold
from wakeful.core.record.knowledge import Fact
from wakeful.core.record.lifecycle_stages import name_state
from wakeful.core.record.observations import Moment, Usage
from wakeful.core.record.state import Session, State
from wakeful.core.spec.bindings import (
    FileBinding,
    WebhookBinding,
)
from wakeful.core.spec.budget import PERIODS, UNITS, Amounts, Budget, Spent
from wakeful.core.spec.session import Retention, Role, SessionSpec
from wakeful.views.causes import view_causes, view_last_run, view_open_run
from wakeful.views.session_rows import list_row
from wakeful.views.times import show_time, show_time_or_none
from wakeful.views.why_not import find_next_look, say_binding


def show(
    core: Core,
    session: Session,
    moment: Moment,
    *,
    runs: list[dict[str, Any]],
    problem: str | None,
    describe: Callable[[str], str | None],
    usage: Usage | None,
) -> dict[str, Any]:
    """Show a session.

    `runs` are its last runs from the log, and `problem` is the error in its file. `describe` returns how a target is
    watched. `usage` has the resources that the present run has used.
    """
    bounds = core.looked.bounds.get(session.id, ())
    recorded = _view_recorded(session)
    if recorded["run"] is not None:
        recorded["run"]["usage"] = usage
    return {
        **list_row(core, session, moment),
        **recorded,
        "bindings": [_view_bound(core, session, bound, moment, describe) for bound in bounds],
        "upstream": sorted(core.graph.upstreams.get(session.name, {})),
        "readers": sorted(core.graph.readers.get(session.name, ())),
        # The sessions that a failure of this one wakes, and the sessions whose failure wakes this one.
        "wakes_on_failure": sorted(core.graph.failure_readers.get(session.name, ())),
        "woken_by_failure_of": sorted(core.graph.find_failure_upstreams(session.name)),
        "forks": view_forks(core.state, session),
        "last_runs": runs,
        "problem": problem,
    }


def show_past(session: Session) -> dict[str, Any]:
    """Show the session as its log was at `session.seq`."""
    words = _recorded_hold_words(session)
    state = name_state(session, is_held=words is not None)
    spec = session.spec
    bounds = bounds_of(spec)[0] if spec is not None else ()
    return {
        "name": session.name,
        "id": session.id,
        "state": state,
        "reason": words if state == "sleeping" else None,
        "agent": session.owner,
        "priority": spec.priority if spec is not None else None,
        "runs": session.tally.runs,
        "last_run": view_last_run(session.last_run),
        **_view_recorded(session),
        "bindings": [_view_marks(session, bound) for bound in bounds],
    }


def _recorded_hold_words(session: Session) -> str | None:
    if session.move_words is not None:
        return session.move_words
    if session.brake is not None:
        return session.brake
    if not session.declaration.is_declared:
        return "undeclared: its file is gone from sessions.d"
    if session.spec is not None and not session.spec.enabled:
        return "disabled in its spec"
    if session.hold is not None:
        return session.hold.words
    wake = session.wake
    return (
        f"backing off: attempt {wake.attempt + 1} follows" if wake is not None and wake.retry_at is not None else None
    )


def _view_recorded(session: Session) -> dict[str, Any]:
    """View the fields of the session that come only from the log."""
    spec, wake = session.spec, session.wake
    return {
        "seq": session.seq,
        "opened_at": show_time(session.opened_at),
        "last_active_at": show_time_or_none(session.last_active_at),
        "objective": spec.objective if spec is not None else None,
        "tags": list(spec.tags) if spec is not None else [],
        "root": spec.root if spec is not None else None,
        "people": dict(sorted(spec.people.items())) if spec is not None else {},
        "retention": view_retention(spec.retention) if spec is not None else None,
        "confinement": view_confinement(spec) if spec is not None and spec.run is not None else None,
        "budget": view_budget(spec.budget, session.tally.spent) if spec is not None else None,
        "approve": "before_run" if spec is not None and spec.is_approved_first else None,
        "hold": view_hold(session.hold),
        "wake": None
        if wake is None
        else {
            "wake": wake.wake,
            "requested_at": show_time(wake.requested_at),
            "attempt": wake.attempt,
            "retry_at": show_time_or_none(wake.retry_at),
            "causes": view_causes(wake.causes),
        },
        "run": view_open_run(session.run),
        "kept_outputs": [structs.asdict(kept) for kept in session.last_run.kept]
        if session.last_run is not None
        else [],
        "successes": session.tally.successes,
        "mailbox": session.mailbox.position,
        "tokens": session.knowledge.size_tokens,
        "facts": view_facts(session),
        "handoff": session.knowledge.handoff,
        **view_knowledge(session),
    }


def view_retention(retention: Retention | None) -> dict[str, Any] | None:
    return None if retention is None else {field: getattr(retention, field) for field in retention.__struct_fields__}


def view_confinement(spec: SessionSpec) -> dict[str, Any]:
    """View the access that runs have beyond their bindings, in the words of the spec.

    `reads` lists every place that runs may read, with the reason.
    """
    asked = spec.confinement
    network = asked.network if isinstance(asked.network, bool) else list(asked.network)
    allow = {"read": list(asked.allow_read), "write": list(asked.allow_write)}
    reads = [{"path": one.path, "by": one.by} for one in list_granted_reads(spec, os.path.isfile)]
    return {
        "isolation": asked.level,
        "network": network,
        "fetch": list(spec.fetch),
        "allow": allow,
        "workspace": spec.run.workspace if spec.run is not None else None,
        "reads": reads,
    }


def view_budget(budget: Budget | None, spent: dict[str, Spent]) -> dict[str, Any] | None:
    """View the bounds by run and by period, and the amounts that were spent since each period began."""
    if budget is None:
        return None
    shown: dict[str, Any] = {"run": _view_amounts(budget.run, None)} if budget.run != Amounts() else {}
    for period in PERIODS:
        bound = budget.bound(period)
        if bound is not None:
            now = spent.get(period)
            shown[period] = {
                "since": show_time_or_none(now.since if now is not None else None),
                **_view_amounts(bound, now),
            }
    return {**shown, "timezone": budget.timezone}


def _view_amounts(bound: Amounts, spent: Spent | None) -> dict[str, Any]:
    bounded = {name: limit for name in UNITS if (limit := getattr(bound, name)) is not None}
    return {
        name: {"limit": limit, "spent": getattr(spent, name) if spent is not None else 0}
        for name, limit in bounded.items()
    }


def view_hold(hold: Hold | None) -> dict[str, Any] | None:
    return None if hold is None else {"kind": hold.kind, "words": hold.words, "until": show_time_or_none(hold.until)}


def view_facts(session: Session) -> list[dict[str, Any]]:
    return [view_fact(session.knowledge.facts[key]) for key in sorted(session.knowledge.facts)]


def view_fact(fact: Fact) -> dict[str, Any]:
    return {
        "key": fact.key,
        "value": fact.value,
        "author": fact.author,
        "seq": fact.seq,
        "rationale": fact.rationale,
        "confidence": fact.confidence,
        "source": fact.source,
    }


def _view_marks(session: Session, bound: Bound) -> dict[str, Any]:
    return {
        "name": bound.name,
        "kind": bound.kind,
        "what": bound.description,
        "wake": bound.wake,
        "access": bound.binding.access if isinstance(bound.binding, FileBinding) else "read",
        "seen": session.marks.seen.get(bound.key),
        "good": session.marks.good.get(bound.key),
    }


def _view_bound(
    core: Core, session: Session, bound: Bound, moment: Moment, describe: Callable[[str], str | None]
) -> dict[str, Any]:
    look = core.looked.target(bound)
    version = version_now(core.state, core.looked, session, bound)
    clock = core.looked.clocks.get((session.id, bound.key))
    return {
        **_view_marks(session, bound),
        "version": version,
        "owed": bound.wake and is_new(core.state, core.looked, session, bound),
        # The target no longer has the version its last good run left. Drift is shown, never a cause by itself (rule 7).
        "drift": _has_drifted(session, bound, version),
        "next_due": show_time_or_none(clock.next_due) if clock is not None else None,
        "next_look": show_time_or_none(find_next_look(look, moment)) if look is not None else None,
        "why_not": say_binding(core, session, bound, moment),
        **(_view_look(look, describe) if look is not None else {}),
        **_view_signing(core, bound),
    }


def _view_signing(core: Core, bound: Bound) -> dict[str, Any]:
    """View the reason why a webhook accepts no deliveries."""
    names = bound.binding.secrets if isinstance(bound.binding, WebhookBinding) else ()
    problems = [problem for name in names if (problem := core.looked.secrets.get(name)) is not None]
    return {"problem": f"it refuses all deliveries: {problems[0]}"} if problems else {}


def _has_drifted(session: Session, bound: Bound, version: str | None) -> bool:
    left = session.marks.good.get(bound.key)
    return bound.is_written and version is not None and left is not None and version != left


def _view_look(look: TargetLook, describe: Callable[[str], str | None]) -> dict[str, Any]:
    return {
        "looked_at": show_time_or_none(look.looked_at),
        "dirty": look.is_dirty,
        "absent": look.is_absent,
        "problem": look.problem,
        "held": look.held,
        "degraded": look.degraded,
        "watched": describe(look.target.key),
    }


# The daemon's own author name, which is not a participant.
DAEMON = "wakeful"


class Part(Struct, frozen=True):
    records: int
    last_at: int


def add_part(parts: dict[str, Part], author: str, at: int) -> None:
    """Count one more record. All runs of a session count as one participant."""
    if author == DAEMON:
        return
    who = author.partition("#")[0] if author.startswith("run:") else author
    before = parts.get(who)
    parts[who] = Part(1, at) if before is None else Part(before.records + 1, max(at, before.last_at))


def view_participants(
    session: Session, parts: Mapping[str, Part], uids: Mapping[str, int], given: Mapping[str, Role] | None = None
) -> list[dict[str, Any]]:
    """List the authors of records, the latest first, then the people who only have a role.

    `uids` maps an author to the uid by which the spec names that author. `given` has the roles that the daemon's owner
    gave people, by author. If a person has a role from the spec and from the owner, the smaller role counts.
    """
    given = given or {}
    by_uid = {str(uid) for uid in uids.values()}
    people = session.spec.people if session.spec is not None else {}
    named = {f"{PERSON}{name}" for name in people if name not in by_uid} | uids.keys() | given.keys()
    rows = sorted(parts.items(), key=lambda one: (-one[1].last_at, one[0])) + [
        (who, None) for who in sorted(named - parts.keys())
    ]
    return [
        {
            "author": who,
            # A run acts for its session, and has no role.
            "role": find_smaller(find_role(session, who, uids.get(who)), given.get(who))
            if who.startswith(PERSON)
            else None,
            "records": part.records if part is not None else 0,
            "last_at": show_time(part.last_at) if part is not None else None,
        }
        for who, part in rows
    ]


def view_knowledge(session: Session) -> dict[str, Any]:
    """View the knowledge of a session that only the log contains. Its facts and its hand-off are viewed elsewhere."""
    conversation = session.knowledge.conversation
    return {
        "memory": session.knowledge.memory,
        "todo": [{"text": item.text, "status": item.status} for item in session.knowledge.todo],
        "conversation": {
            "messages": conversation.messages,
            "bytes": conversation.size_bytes,
            "summary": conversation.summary,
        },
        "checkpoints": [
            {"name": name, "seq": mark.seq, "at": show_time(mark.at), "author": mark.author, "note": mark.note}
            for name, mark in sorted(session.lineage.checkpoints.items(), key=lambda item: item[1].seq)
        ],
        "conflicts": [
            {
                "number": conflict.number,
                "key": conflict.key,
                "base": conflict.base,
                "ours": conflict.ours,
                "theirs": conflict.theirs,
                "fork": conflict.fork,
                "theirs_rationale": conflict.theirs_rationale,
            }
            for conflict in session.lineage.conflicts
        ],
        "origin": None
        if session.lineage.origin is None
        else {
            "session": session.lineage.origin.session,
            "name": session.lineage.origin.name,
            "seq": session.lineage.origin.seq,
            "hash": session.lineage.origin.hash,
        },
        "model": session.declaration.model,
        "workspace": session.lineage.workspace.folder if session.lineage.workspace is not None else None,
        "detached": list(session.lineage.detached),
    }


def view_forks(state: State, session: Session) -> list[dict[str, Any]]:
    """View the forks of a session, and their forks, as a tree, by their present names."""
    children: dict[str, list[Session]] = {}
    for one in state:
        if one.lineage.origin is not None:
            children.setdefault(one.lineage.origin.session, []).append(one)
    return _view_children(children, session) if session.id in children else []


def _view_children(children: dict[str, list[Session]], parent: Session) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "id": one.id,
            "at": one.lineage.origin.seq if one.lineage.origin is not None else 0,
            "seq": one.seq,
            "merged": parent.lineage.merges.get(one.id),
            "forks": _view_children(children, one),
        }
        for one in sorted(
            children.get(parent.id, ()),
            key=lambda child: (child.lineage.origin.seq if child.lineage.origin else 0, child.name),
        )
    ]

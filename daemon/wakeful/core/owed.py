"""Which bindings are new: the comparison that is the truth of the whole product.

Level kinds are owed when the version differs from seen, ordered kinds when the position is
ahead of it (rule 4); unknown is no version (rule 5). Pure reading of state and looked.
"""

from __future__ import annotations

from wakeful.core.events import Cause
from wakeful.core.looked import Bound, Looked, TargetLook
from wakeful.core.reducer import is_ahead
from wakeful.core.spec import CronBinding, EveryBinding, SessionBinding, SessionSpec
from wakeful.core.state import Session, State

ACTIVATION = "activation"
FIRST = "first"
MESSAGE_KEY = "message"


def takes_first_run(spec: SessionSpec) -> bool:
    """`first`: run where files, commits, probes or sessions wake it; clocks and messages start at declaration."""
    if spec.first is not None:
        return spec.first == "run"
    return any(b.wake and _kind_word(b) in ("file", "commits", "probe", "session") for b in spec.bindings)


def _kind_word(binding: object) -> str:
    return type(binding).__struct_config__.tag  # type: ignore[attr-defined]


def version_now(state: State, looked: Looked, session: Session, bound: Bound) -> str | None:
    """The version a run started now would see; None where it is unknown, not looked at or has none yet."""
    target = looked.target(bound)
    if target is not None:
        return _next_commit(session, bound, target) if bound.is_each_commit else target.version
    match bound.kind:
        case "spec":
            return session.spec_version
        case "message":
            return str(session.mailbox)
        case "session":
            assert isinstance(bound.binding, SessionBinding)
            return str(upstream_position(state, bound.binding.session))
        case "cron" | "every":
            clock = looked.clocks.get((session.id, bound.key))
            return clock.latest if clock is not None else None
        case _:
            return None


def _next_commit(session: Session, bound: Bound, target: TargetLook) -> str | None:
    """each_commit takes one commit a run, in order (rule 38); a look from another base says nothing (rule 11)."""
    seen = session.seen.get(bound.key)
    if seen is None or target.version is None:
        return target.version
    return target.pending[0] if target.pending and target.base == seen else seen


def upstream_position(state: State, name: str) -> int:
    """Where a `session` binding stands: how many runs of the upstream succeeded."""
    session_id = state.ids.get(name)
    return state.get(session_id).successes if session_id is not None else 0


def is_new(state: State, looked: Looked, session: Session, bound: Bound) -> bool:
    version = version_now(state, looked, session, bound)
    if version is None or bound.kind == "service":
        return False
    seen = session.seen.get(bound.key)
    match bound.kind:
        case "message":
            return session.mailbox_waking > int(seen or "0")
        case "session":
            return int(version) > int(seen or "0")
        case "cron" | "every":
            return is_ahead(version, seen)
        case _:
            return version != seen


def new_bindings(state: State, looked: Looked, session: Session) -> list[Bound]:
    """Waking bindings that are new, `when` applied; activations and first sight are not bindings."""
    if not session.is_armed:
        return []
    assert session.spec is not None
    bounds = looked.bounds.get(session.id, ())
    new = [bound for bound in bounds if bound.wake and is_new(state, looked, session, bound)]
    match session.spec.when:
        case "any":
            return new
        case "all":
            explicit = [bound for bound in bounds if bound.wake and not bound.is_implied]
            implied = [bound for bound in new if bound.is_implied]
            return new if implied or all(bound in new for bound in explicit) else []
        case "changed":
            if any(not bound.is_clock for bound in new) or has_other_news(state, looked, session):
                return new
            return []


def has_other_news(state: State, looked: Looked, session: Session) -> bool:
    """Is any read binding but the clock new, also one that does not wake?"""
    return any(
        not bound.is_clock and not bound.is_written and is_new(state, looked, session, bound)
        for bound in looked.bounds.get(session.id, ())
    )


def is_activation_owed(session: Session) -> bool:
    return session.activations > int(session.seen.get(ACTIVATION, "0"))


def is_first_owed(session: Session) -> bool:
    return not session.is_first_taken and session.spec is not None and takes_first_run(session.spec)


def is_owed(state: State, looked: Looked, session: Session) -> bool:
    if not session.is_armed:
        return False
    return is_activation_owed(session) or is_first_owed(session) or bool(new_bindings(state, looked, session))


def owed_names(state: State, looked: Looked, session: Session) -> list[str]:
    if not session.is_armed:
        return []
    names = [bound.name for bound in new_bindings(state, looked, session)]
    if is_first_owed(session):
        names = [FIRST]
    return names + [ACTIVATION] * is_activation_owed(session)


def describe_causes(state: State, looked: Looked, session: Session, at: int) -> tuple[tuple[Cause, ...], tuple[str, ...]]:
    """The causes of a wake requested now, and the longest chain of runs that led here (rule 34)."""
    causes: list[Cause] = []
    chain: tuple[str, ...] = ()
    if is_activation_owed(session):
        seen = session.seen.get(ACTIVATION)
        causes.append(
            Cause(binding=ACTIVATION, kind=ACTIVATION, key=ACTIVATION, old=seen, new=str(session.activations), reason=session.note, at=at)
        )
    is_first = is_first_owed(session)
    if is_first:
        causes.append(Cause(binding=FIRST, kind=FIRST, key=FIRST, reason="first sight", at=at))
    for bound in new_bindings(state, looked, session):
        # At first sight every level version is new; only occurrences of their own stand beside it (rule 25).
        if is_first and bound.kind not in ("cron", "every", "message"):
            continue
        cause, link = _describe(state, looked, session, bound, at)
        causes.append(cause)
        chain = max(chain, link, key=len)
    return tuple(causes), chain


def _describe(state: State, looked: Looked, session: Session, bound: Bound, at: int) -> tuple[Cause, tuple[str, ...]]:
    version = version_now(state, looked, session, bound)
    target = looked.target(bound)
    if target is None:
        old = session.seen.get(bound.key)
        if bound.kind == "message":
            chain = session.mailbox_chain
        elif bound.kind == "session":
            chain = _upstream_chain(state, bound)
        else:
            chain = ()
        return Cause(binding=bound.name, kind=bound.kind, key=bound.key, old=old, new=version, at=at, delta="known"), chain
    # A level wake tells everything since the last success (rule 14).
    old = session.seen.get(bound.key) if bound.is_each_commit else session.good.get(bound.key)
    delta = target.delta_since(old)
    reason = "touched during run" if bound.key in session.touched else None
    cause = Cause(
        binding=bound.name,
        kind=bound.kind,
        key=bound.key,
        old=old,
        new=version,
        reason=reason,
        paths=delta.paths,
        delta="known" if delta.is_known else "unknown",
        commits=(version,) if bound.is_each_commit and version else delta.commits,
        at=delta.at or at,
    )
    return cause, delta.chain


def _upstream_chain(state: State, bound: Bound) -> tuple[str, ...]:
    assert isinstance(bound.binding, SessionBinding)
    session_id = state.ids.get(bound.binding.session)
    last = state.get(session_id).last_run if session_id is not None else None
    return (*last.chain, session_id) if last is not None and session_id is not None else ()


def start_versions(state: State, looked: Looked, session: Session) -> dict[str, str]:
    """What a run started now sees: recorded in run_started, counted when it ends for good (rule 14)."""
    versions = {}
    for bound in looked.bounds.get(session.id, ()):
        version = version_now(state, looked, session, bound)
        if version is None or bound.kind == "service":
            continue
        versions[bound.key] = _next_slot(looked, session, bound, version)
    if session.activations:
        versions[ACTIVATION] = str(session.activations)
    return versions


def _next_slot(looked: Looked, session: Session, bound: Bound, version: str) -> str:
    """`catch_up: all` takes one slot a run (rule 36): the oldest that is still owed."""
    if not isinstance(bound.binding, CronBinding | EveryBinding) or bound.binding.catch_up != "all":
        return version
    clock = looked.clocks[(session.id, bound.key)]
    return clock.oldest_owed or version

"""Which bindings are new, and which causes are owed: the central comparison of the daemon.

A level binding is new if its version differs from seen, an ordered one if its position is ahead of seen (rule 4). An
unknown version never counts as new (rule 5). These functions read state and looked and change neither, except that a
target caches its last delta (`TargetLook.told`).
"""

from __future__ import annotations

from itertools import takewhile

from wakeful.core.deciding.clock_slots import next_slot_after
from wakeful.core.looking.observed_state import Bound, ClockLook, Looked, TargetLook
from wakeful.core.looking.targets import find_commit
from wakeful.core.record.events import Cause
from wakeful.core.record.state import ACTIVATION, OpenRun, Session, State, Unread, is_ahead
from wakeful.core.record.webhook_deliveries import Delivery
from wakeful.core.spec.bindings import (
    ClockBinding,
    CronBinding,
    EveryBinding,
    SessionBinding,
)
from wakeful.core.spec.session import SessionSpec

FIRST = "first"
TOUCHED = "touched during run"
# The most bytes of payloads that one run gets, because most machines keep them in memory. The next run gets the rest.
MOST_DELIVERED_BYTES = 64_000_000


def takes_first_run(spec: SessionSpec) -> bool:
    """Does the session run once after its declaration?

    `first` in the spec decides. By default it does if files, commits, probes or successes of sessions wake it. Clocks,
    messages and failures of sessions start at their declaration, and cause no first run.
    """
    if spec.first is not None:
        return spec.first == "run"
    return any(
        binding.wake and not binding.is_condition and not binding.starts_at_declaration for binding in spec.bindings
    )


def version_now(state: State, looked: Looked, session: Session, bound: Bound) -> str | None:
    """Return the version that a run started now would see. None if it is unknown, not looked at or not there yet."""
    if bound.target is not None:
        target = looked.targets[bound.target]
        return _next_commit(session, bound, target) if bound.is_each_commit else target.version
    match bound.kind:
        case "spec":
            return session.declaration.version
        case "message":
            return str(read_mailbox(session)[0])
        case "session":
            assert isinstance(bound.binding, SessionBinding)
            return str(upstream_position(state, bound.binding))
        case "webhook":
            return str(_last_delivery(session, bound.key))
        case "cron" | "every":
            clock = looked.clocks.get((session.id, bound.key))
            return _next_slot(session, bound, clock) if clock is not None else None
        case _:
            return None


def read_mailbox(session: Session) -> tuple[int, str | None]:
    """Return the last message that the next run reads, and the agent that answers it.

    A run reads messages to one agent only, and questions of one person only."""
    unread = session.list_unread()
    if not unread:
        return session.mailbox.position, None
    group = list_addressed(session)
    others = (one.position for one in unread[len(group) :])
    return next(others, session.mailbox.position + 1) - 1, group[0].agent


def list_addressed(session: Session) -> tuple[Unread, ...]:
    """List the messages that the next run answers: the first unread ones to the same agent, from the same person."""
    unread = session.list_unread()
    return tuple(takewhile(lambda one: (one.agent, one.asker) == (unread[0].agent, unread[0].asker), unread))


def find_activation(session: Session, *, is_aside: bool) -> int:
    """Return the newest activation that the next run deals with.

    An activation that came with another question is left to the run of that question. A run aside leaves activations
    without a question to the session's own run.
    """
    seen, group = int(session.marks.seen.get(ACTIVATION, "0")), list_addressed(session)
    own = {one.activation for one in group}
    others = {one.activation for one in session.list_unread() if one.activation and one not in group}
    if is_aside and own != {0}:
        others |= set(range(seen + 1, session.activation.position + 1)) - own
    return min((one - 1 for one in others if one > seen), default=session.activation.position)


def find_new_messages(session: Session, run: OpenRun) -> tuple[int, int]:
    """Return two positions. Messages after the first position, up to the second, were handled by no earlier run."""
    return int(session.marks.seen.get("message", "0")), int(run.versions.get("message", "0"))


def _last_delivery(session: Session, key: str) -> int:
    """Return the position of the last delivery that a run started now gets. A run gets all waiting deliveries, up to
    MOST_DELIVERED_BYTES in sum."""
    webhook = session.find_webhook(key)
    if webhook.waiting_bytes <= MOST_DELIVERED_BYTES:
        return webhook.position
    seen, room = int(session.marks.seen.get(key, "0")), MOST_DELIVERED_BYTES
    last = seen
    for one in webhook.waiting:
        room -= one.size_bytes if one.position > seen else 0
        if room < 0 and last > seen:
            return last
        last = max(last, one.position)
    return webhook.position


def list_new_deliveries(session: Session, run: OpenRun, key: str) -> tuple[Delivery, ...]:
    """List the deliveries to one webhook that no earlier run dealt with, oldest first."""
    seen, until = int(session.marks.seen.get(key, "0")), int(run.versions.get(key, "0"))
    return tuple(one for one in session.find_webhook(key).waiting if seen < one.position <= until)


def _next_commit(session: Session, bound: Bound, target: TargetLook) -> str | None:
    """Return the next commit of an each_commit binding, which takes one commit per run, in order (rule 38).

    A look from another base is ignored (rule 11).
    """
    seen = session.marks.seen.get(bound.key)
    if seen is None or target.version is None:
        return target.version
    return target.pending[0] if target.pending and target.base == seen else seen


def _next_slot(session: Session, bound: Bound, clock: ClockLook) -> str | None:
    """Return the latest slot, never one before seen (rule 37). `catch_up: all` takes the slot after seen (rule 36)."""
    binding, latest, seen = bound.binding, clock.latest, session.marks.seen.get(bound.key)
    assert isinstance(binding, CronBinding | EveryBinding)
    if latest is None or seen is None:
        return latest
    if binding.catch_up != "all" or latest <= seen:
        return max(latest, seen)
    if clock.following is not None and clock.following[0] == seen:
        return min(clock.following[1], latest)
    return min(find_following_slot(binding, seen, session.id) or latest, latest)


def find_following_slot(binding: ClockBinding, seen: str, session_id: str) -> str | None:
    coming = next_slot_after(binding, seen, session_id)
    return coming.slot if coming is not None else None


def upstream_position(state: State, binding: SessionBinding) -> int:
    """Return the position of a `session` binding: the number of upstream runs with an end that the binding counts."""
    upstream = state.find_named(binding.session)
    if upstream is None:
        return 0
    tally = upstream.tally
    match binding.on:
        case "succeeded":
            return tally.successes
        case "failed":
            return tally.failures
        case "finished":
            return tally.successes + tally.failures


def is_new(state: State, looked: Looked, session: Session, bound: Bound) -> bool:
    if bound.is_condition:
        return False
    version = version_now(state, looked, session, bound)
    if version is None:
        return False
    seen = session.marks.seen.get(bound.key)
    if bound.kind == "message":
        # Not every message wakes.
        return session.mailbox.waking > int(seen or "0")
    if bound.only_advances:
        # At position 0, nothing has come yet.
        return version != "0" and is_ahead(version, seen)
    return version != seen


def new_bindings(state: State, looked: Looked, session: Session) -> list[Bound]:
    """List the waking bindings that are new, with `when` applied. Activations and the first run are not bindings."""
    if not session.is_live:
        return []
    assert session.spec is not None
    bounds = looked.bounds.get(session.id, ())
    new = [bound for bound in bounds if bound.wake and is_new(state, looked, session, bound)]
    if session.spec.run is None:
        # A session without `run` answers questions and does nothing else.
        new = [bound for bound in new if bound.kind == "message"]
    if not new:
        return new
    if not session.marks.is_first_taken and not takes_first_run(session.spec):
        # Not adopted yet: only clocks, the mailbox, webhooks and failures have a start position (rule 25).
        new = [bound for bound in new if bound.starts_at_declaration]
    match session.spec.when:
        case "any":
            return new
        case "all":
            explicit = [bound for bound in bounds if bound.wake and not bound.is_implied]
            is_implied = any(bound.is_implied for bound in new)
            return new if is_implied or all(bound in new for bound in explicit) else []
        case "changed":
            is_news = any(not bound.is_clock for bound in new) or has_other_news(state, looked, session)
            return new if is_news else []


def has_other_news(state: State, looked: Looked, session: Session) -> bool:
    """Is any read binding new, except clocks? Bindings that do not wake count as well."""
    return any(
        not bound.is_clock and not bound.is_written and is_new(state, looked, session, bound)
        for bound in looked.bounds.get(session.id, ())
    )


def is_activation_owed(session: Session) -> bool:
    return session.activation.position > int(session.marks.seen.get(ACTIVATION, "0"))


def is_first_owed(session: Session) -> bool:
    return (
        not session.marks.is_first_taken
        and session.spec is not None
        and session.spec.run is not None
        and takes_first_run(session.spec)
    )


def is_owed(state: State, looked: Looked, session: Session) -> bool:
    if not session.is_live:
        return False
    return is_activation_owed(session) or is_first_owed(session) or bool(new_bindings(state, looked, session))


def owed_names(state: State, looked: Looked, session: Session) -> list[str]:
    if not session.is_live:
        return []
    names = [FIRST] if is_first_owed(session) else [bound.name for bound in new_bindings(state, looked, session)]
    return names + [ACTIVATION] * is_activation_owed(session)


def describe_causes(
    state: State, looked: Looked, session: Session, at: int
) -> tuple[tuple[Cause, ...], tuple[str, ...]]:
    """Return the causes of a wake requested now, and the longest chain of runs that led to them by messages and
    `session` bindings (rule 34)."""
    causes: list[Cause] = []
    chain: tuple[str, ...] = ()
    if is_activation_owed(session):
        seen = session.marks.seen.get(ACTIVATION)
        causes.append(
            Cause(
                binding=ACTIVATION,
                kind=ACTIVATION,
                key=ACTIVATION,
                old=seen,
                new=str(session.activation.position),
                reason=session.activation.note,
                at=at,
            )
        )
    is_first = is_first_owed(session)
    if is_first:
        causes.append(Cause(binding=FIRST, kind=FIRST, key=FIRST, reason="first sight", at=at))
    for bound in new_bindings(state, looked, session):
        # The cause `first` covers every level binding. Slots, messages, deliveries and failures are causes of their
        # own (rule 25).
        if is_first and not bound.starts_at_declaration:
            continue
        causes.append(_describe(state, looked, session, bound, at))
        chain = max(chain, _chain_of(state, session, bound), key=len)
    return tuple(causes), chain


def _describe(state: State, looked: Looked, session: Session, bound: Bound, at: int) -> Cause:
    version = version_now(state, looked, session, bound)
    target = looked.target(bound)
    # A level cause covers all changes since the last success (rule 14), an ordered cause only the new ones (rule 16).
    old = (session.marks.seen if bound.is_ordered else session.marks.good).get(bound.key)
    if target is None:
        reason = _say_end(state, bound.binding) if isinstance(bound.binding, SessionBinding) else None
        return Cause(
            binding=bound.name,
            kind=bound.kind,
            key=bound.key,
            old=old,
            new=version,
            reason=reason,
            at=at,
            delta="known",
        )
    if bound.key in session.marks.touched:
        reason = TOUCHED
    elif bound.key in session.marks.conflicted:
        reason = "conflict"
    else:
        reason = "history-rewritten" if bound.is_each_commit and target.is_rewritten else None
    delta = target.delta_since(old)
    return Cause(
        binding=bound.name,
        kind=bound.kind,
        key=bound.key,
        old=old,
        new=version,
        reason=reason,
        paths=delta.paths,
        delta="known" if delta.is_known else "unknown",
        commits=(find_commit(version),) if bound.is_each_commit and version else delta.commits,
        at=delta.at or at,
    )


def _say_end(state: State, binding: SessionBinding) -> str | None:
    """Describe the end of the upstream's last run, if the binding counts failures. The woken run gets this text."""
    upstream = state.find_named(binding.session) if binding.counts_failures else None
    last = upstream.last_run if upstream is not None else None
    if last is None or last.outcome not in ("succeeded", "failed"):
        return None
    words = f": {last.reason}" if last.outcome == "failed" and last.reason else ""
    return f"run {last.run} {last.outcome}{words}"


def _chain_of(state: State, session: Session, bound: Bound) -> tuple[str, ...]:
    if bound.kind == "message":
        return session.mailbox.chain
    if not isinstance(bound.binding, SessionBinding):
        return ()
    upstream = state.find_named(bound.binding.session)
    if upstream is None or upstream.last_run is None:
        return ()
    return (*upstream.last_run.chain, upstream.id)


def start_versions(state: State, looked: Looked, session: Session) -> dict[str, str]:
    """Return the versions that a run started now sees.

    `run_started` records them. They become seen when the run ends for good (rule 14).
    """
    versions = {}
    for bound in looked.bounds.get(session.id, ()):
        version = version_now(state, looked, session, bound)
        if version is not None and not bound.is_condition:
            versions[bound.key] = version
    if session.activation.position:
        versions[ACTIVATION] = str(session.activation.position)
    if session.is_asked:
        # A session without `run` has no message binding, but it is asked questions.
        versions["message"] = str(read_mailbox(session)[0])
    return versions

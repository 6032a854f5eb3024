"""fold(session, event) -> session: the only way state comes to be.

Live and replay run the same code, so a snapshot anywhere is harmless. The reducer trusts what is
in the log: it never refuses, never looks, never decides.
"""

from __future__ import annotations

from functools import singledispatch

from msgspec.structs import replace

from wakeful.core import events as ev
from wakeful.core.spec import CommitsBinding, FileBinding, ProbeBinding, SessionSpec
from wakeful.core.state import Fact, LastRun, OpenRun, OpenWake, Session, Stop

STARTS_REMEMBERED = 12


def fold(session: Session | None, event: ev.Event, *, seq: int, at: int, author: str) -> Session:
    if isinstance(event, ev.SessionOpened):
        return Session(id=event.id, name=event.name, opened_at=at, last_active_at=at, seq=seq)
    assert session is not None, "the first event of a session is session_opened"
    return replace(_apply(event, session, at, author, seq), seq=seq)


@singledispatch
def _apply(event: ev.Event, session: Session, at: int, author: str, seq: int) -> Session:
    raise TypeError(f"no fold for {type(event).__name__}")


@_apply.register
def _(event: ev.SessionRenamed, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, name=event.new)


@_apply.register
def _(event: ev.SpecDeclared, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        spec=event.spec,
        is_declared=True,
        spec_version=event.version,
        text_digest=event.text_digest,
        seen={**session.seen, **event.positions},
        good={**session.good, **event.positions},
        # A new spec ends what only a new spec can mend (rules 21, 34); a snooze stays.
        hold=None if session.hold is not None and session.hold.kind != "snoozed" else session.hold,
        wake=_forgive(session.wake),
    )


@_apply.register
def _(event: ev.SpecRemoved, session: Session, at: int, author: str, seq: int) -> Session:
    # The run ends under its spec; the wake, its back-off and the edges go (rule 26). What was
    # owed is not lost: seen did not move, so the same file declared again is owed again.
    return replace(session, is_declared=False, wake=session.wake if session.run else None)


@_apply.register
def _(event: ev.SessionAdopted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        seen={**session.seen, **event.versions},
        good={**session.good, **event.versions},
        is_first_taken=True,
    )


@_apply.register
def _(event: ev.ActivationRequested, session: Session, at: int, author: str, seq: int) -> Session:
    hold = session.hold if session.hold is not None and session.hold.kind == "snoozed" else None
    return replace(
        session, activations=event.position, note=event.note, hold=hold, wake=_forgive(session.wake), last_active_at=at
    )


@_apply.register
def _(event: ev.MessageAdded, session: Session, at: int, author: str, seq: int) -> Session:
    if not event.wake:
        return replace(session, mailbox=event.position, last_active_at=at)
    return replace(
        session, mailbox=event.position, mailbox_waking=event.position, mailbox_chain=event.chain, last_active_at=at
    )


@_apply.register
def _(event: ev.MessageSent, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, last_active_at=at)


@_apply.register
def _(event: ev.NoteAdded, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, handoff=event.text, last_active_at=at)


@_apply.register
def _(event: ev.FactSet, session: Session, at: int, author: str, seq: int) -> Session:
    fact = Fact(key=event.key, value=event.value, author=author, seq=seq, rationale=event.rationale)
    return replace(session, facts={**session.facts, event.key: fact}, last_active_at=at)


@_apply.register
def _(event: ev.FactRetracted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, facts={key: fact for key, fact in session.facts.items() if key != event.key})


@_apply.register
def _(event: ev.WakeRequested, session: Session, at: int, author: str, seq: int) -> Session:
    wake = OpenWake(wake=event.wake, requested_at=at, causes=event.causes, chain=event.chain)
    return replace(session, wake=wake, wakes=event.wake)


@_apply.register
def _(event: ev.WakeExtended, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.wake is not None
    return replace(session, wake=replace(session.wake, causes=event.causes, chain=event.chain))


@_apply.register
def _(event: ev.WakeWithdrawn, session: Session, at: int, author: str, seq: int) -> Session:
    if not event.versions:
        return replace(session, wake=None)
    return replace(
        session,
        wake=None,
        seen=_advance(session.seen, event.versions, session.spec),
        touched=(),
        is_first_taken=True,
        is_suspect=False,
    )


@_apply.register
def _(event: ev.RunStarted, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.wake is not None and session.spec is not None
    run = OpenRun(
        run=event.run,
        run_id=event.run_id,
        wake=event.wake,
        attempt=event.attempt,
        incarnation=event.incarnation,
        started_at=at,
        versions=event.versions,
        causes=event.causes,
        spec=session.spec,
        chain=event.chain,
        mixed=event.mixed,
        resumed_from=event.resumed_from,
    )
    is_retry = session.wake.tried is not None
    return replace(
        session,
        run=run,
        runs=event.run,
        starts=session.starts if is_retry else (*session.starts, at)[-STARTS_REMEMBERED:],
        last_active_at=at,
        wake=replace(session.wake, attempt=event.attempt, tried=event.versions, retry_at=None),
    )


@_apply.register
def _(event: ev.RunStopRequested, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, stop=Stop(event.why, author)))


@_apply.register
def _(event: ev.RunFinished, session: Session, at: int, author: str, seq: int) -> Session:
    run = session.run
    assert run is not None
    last = LastRun(
        run=run.run,
        outcome=event.outcome,
        reason=event.reason,
        started_at=run.started_at,
        finished_at=at,
        causes=run.causes,
        chain=run.chain,
        exit_code=event.exit_code,
        written=event.written,
        usage=event.usage,
    )
    session = replace(session, run=None, last_run=last, last_active_at=at)
    if not event.is_final:
        return replace(session, is_suspect=True, wake=_keep_open(session, event))
    return _move_marks(session, run, event)


def _keep_open(session: Session, event: ev.RunFinished) -> OpenWake | None:
    """Retry, replaced, lost: neither mark moves, the wake stays (rules 15, 22)."""
    wake = session.wake
    if wake is None or not session.is_declared:
        return None
    match event.outcome:
        case "failed":
            return replace(
                wake,
                attempt=wake.attempt + 1,
                failures=wake.failures + 1,
                retry_at=event.retry_at,
                backoff_seconds=event.backoff_seconds,
            )
        case "lost":
            return replace(wake, lost=wake.lost + 1)
        case _:
            return wake


def _move_marks(session: Session, run: OpenRun, event: ev.RunFinished) -> Session:
    """The end for good: seen moves to what the run saw, good only with success (rules 15-17)."""
    succeeded = event.outcome == "succeeded"
    left = {binding.identity: event.written[binding.name] for binding in run.spec.files if binding.name in event.written}
    versions = {**run.versions, **left}
    seen = _advance(session.seen, versions, run.spec)
    for key in event.touched:
        seen.pop(key, None)
    return replace(
        session,
        seen=seen,
        good=_advance(session.good, versions, run.spec) if succeeded else session.good,
        touched=event.touched,
        successes=session.successes + succeeded,
        is_first_taken=True,
        is_suspect=event.outcome not in ("succeeded", "cancelled"),
        wake=None,
    )


@_apply.register
def _(event: ev.SlotSkipped, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, seen={**session.seen, event.key: max(event.slot, session.seen.get(event.key, ""))})


@_apply.register
def _(event: ev.ClockRebased, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, seen={**session.seen, event.key: event.new}, good={**session.good, event.key: event.new})


@_apply.register
def _(event: ev.SessionSuspended, session: Session, at: int, author: str, seq: int) -> Session:
    return session


@_apply.register
def _(event: ev.SessionSlept, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, hold=event.hold)


@_apply.register
def _(event: ev.SessionResumed, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, hold=None, wake=_forgive(session.wake), starts=())


@_apply.register
def _(event: ev.SessionTerminated, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, is_terminated=True, wake=None, hold=None)


@_apply.register
def _(event: ev.SessionReopened, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, is_terminated=False)


def _forgive(wake: OpenWake | None) -> OpenWake | None:
    """A person or a new spec said go on: the loop's chain, the back-off and the crash count start anew."""
    if wake is None:
        return None
    return replace(wake, chain=(), lost=0, retry_at=None, attempt=0, failures=0)


LEVEL_KINDS = (FileBinding, CommitsBinding, ProbeBinding)


def level_keys(spec: SessionSpec | None) -> frozenset[str]:
    """Keys whose version is compared by difference; all others only ever move forward (rule 4)."""
    if spec is None:
        return frozenset(("spec", "program"))
    level = (b.identity for b in spec.bindings if isinstance(b, LEVEL_KINDS) and not getattr(b, "each_commit", False))
    return frozenset((*level, "spec", "program"))


def is_ahead(position: str, than: str | None) -> bool:
    """Order of positions: counters as numbers, clock slots as ISO text, commits by difference."""
    if than is None:
        return True
    if position.isdigit() and than.isdigit():
        return int(position) > int(than)
    return position > than


def _advance(marks: dict[str, str], versions: dict[str, str], spec: SessionSpec | None) -> dict[str, str]:
    """Level marks are set; ordered marks never go back (rule 16)."""
    level = level_keys(spec)
    moved = dict(marks)
    for key, version in versions.items():
        if key in level or key.startswith("commits ") or is_ahead(version, moved.get(key)):
            moved[key] = version
    return moved

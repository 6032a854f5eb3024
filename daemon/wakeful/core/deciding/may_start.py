"""May this session start now? `judge_start` checks the conditions in order; the first that fails is the verdict.

`dispatch` acts on the verdict, and `list` and `why` print its text, so they cannot disagree. An activation
skips settle, pace, holds, snooze, back-off and loop sleep, but not slots (rule 20).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from wakeful.core.deciding.acting_agent import find_acting
from wakeful.core.deciding.busy_upstreams import find_holding_upstreams, find_root_words
from wakeful.core.deciding.clock_slots import is_inside_window, window_opens_at
from wakeful.core.deciding.holds import find_ask_timeout, find_hold_of_start, make_question_hold, say_ask_timeout
from wakeful.core.deciding.loop_guard import RUNS_IN_A_ROW, find_pace, find_pause, find_self_fed, name_binding
from wakeful.core.deciding.owed import is_activation_owed
from wakeful.core.deciding.rule_of_two import find_rule_of_two_breach
from wakeful.core.deciding.working_state import Core, Deadline
from wakeful.core.looking.observed_state import Bound
from wakeful.core.record.events import Hold
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.budget import find_exhausted

SAME_SESSION_IN_CHAIN = 3
# The reason shown for a wake that waits for nothing.
STARTING = "starting"


@dataclass(slots=True, frozen=True)
class Ready:
    """May start now."""

    # The session goes ahead although an upstream is owed again (rule 32).
    is_mixed: bool = False


@dataclass(slots=True, frozen=True)
class WaitsForSlot:
    """Waits for nothing but a free slot."""

    words: str


@dataclass(slots=True, frozen=True)
class WaitsForUpstream:
    """Held by a busy upstream session. Its text costs a walk through the graph, so only a view computes it."""

    upstream: str


@dataclass(slots=True, frozen=True)
class WaitsForFedInput:
    """An input that an upstream session writes has to be looked at first (rule 12)."""

    words: str


@dataclass(slots=True, frozen=True)
class YieldsToReader:
    """Yields to a starving reader, which goes first (rule 32)."""

    words: str
    reader_id: str


@dataclass(slots=True, frozen=True)
class WaitsForTime:
    """Waits for its pace, its window or the loop guard."""

    words: str
    deadline: Deadline


@dataclass(slots=True, frozen=True)
class WaitsForOther:
    """Waits for something else whose end is reported: a look, a hold, files that are being written."""

    words: str


@dataclass(slots=True, frozen=True)
class Sleeps:
    """Due, but must sleep from now on: because of a loop, a spent budget or a question."""

    hold: Hold


Waits = WaitsForSlot | WaitsForUpstream | WaitsForFedInput | YieldsToReader | WaitsForTime | WaitsForOther
Verdict = Ready | Waits | Sleeps


def judge_start(core: Core, session: Session, moment: Moment) -> Verdict:
    """Decide whether a session with an open wake and no open run may start now."""
    if core.is_stopping:
        return WaitsForOther("the daemon is stopping")
    writing = core.looked.writing.get(session.id)
    if writing is not None:
        # An activation waits as well, because the run would start on half of the files (rule 44).
        return WaitsForOther(f"files written by {writing.words}")
    if (unseen := _find_unclear_input(core, session)) is not None:
        return unseen
    if (held := find_hold_of_start(core, session, moment)) is not None:
        return WaitsForOther(held)
    if (wait := find_time_wait(core, session, moment)) is not None:
        return wait
    if not is_activation_owed(session) and (loop := _find_loop(core, session)) is not None:
        return Sleeps(Hold(kind="loop", words=loop))
    if (spent := _find_spent(session, moment)) is not None:
        return Sleeps(spent)
    verdict = _judge_graph_and_slots(core, session)
    if not isinstance(verdict, Ready):
        return verdict
    question = _find_question(core, session, moment)
    return Sleeps(question) if question is not None else verdict


def _find_unclear_input(core: Core, session: Session) -> WaitsForOther | WaitsForFedInput | None:
    """Find a binding that must be looked at before the start (rule 13), or that has no known version (rule 5)."""
    is_urgent = is_activation_owed(session)
    for bound in core.looked.bounds.get(session.id, ()):
        if bound.target is None or (bound.is_written and not bound.wake):
            continue
        look = core.looked.targets[bound.target]
        if not look.is_looked and look.held is None:
            return WaitsForOther(f"looking at {bound.name}")
        if is_urgent or bound.is_condition:
            continue
        if look.held is not None:
            return WaitsForOther(look.held)
        if look.version is None:
            return WaitsForOther(f"cannot see {bound.name}: {look.problem}")
        if look.is_absent and _waits_when_missing(bound):
            return WaitsForOther(f"{bound.name} is not there yet")
        if look.is_dirty and _is_fed(core, session, bound):
            # Only a change of an input that an upstream writes delays a queued wake (rule 12).
            return WaitsForFedInput(f"looking at {bound.name}")
    return None


def _waits_when_missing(bound: Bound) -> bool:
    return isinstance(bound.binding, FileBinding) and bound.binding.missing == "wait"


def _is_fed(core: Core, session: Session, bound: Bound) -> bool:
    return isinstance(bound.binding, FileBinding) and bool(core.graph.feeders(session.name, bound.binding.pattern))


def find_time_wait(core: Core, session: Session, moment: Moment) -> WaitsForTime | None:
    """Return the wait of an open wake for its pace, its window or the loop guard. None if it waits for no time."""
    if is_activation_owed(session):
        return None
    waits = _list_time_waits(core, session, moment)
    return next((one for one in waits if not core.has_passed(session.id, one.deadline, moment)), None)


def _list_time_waits(core: Core, session: Session, moment: Moment) -> Iterator[WaitsForTime]:
    """Yield the waits of the session: its pace, its window, and the two waits of the loop guard."""
    spec, wake = session.spec, session.wake
    assert spec is not None and wake is not None
    is_retry = wake.tried is not None
    if spec.pace_seconds and session.last_run is not None and not is_retry:
        until = session.last_run.started_at + int(spec.pace_seconds * 1e6)
        words = f"pace: at most one run every {spec.pace_seconds:g}s"
        yield WaitsForTime(words, Deadline("pace", until, spec.pace_seconds))
    if spec.window is not None and not is_inside_window(spec.window, moment.wall):
        opens_at = window_opens_at(spec.window, moment.wall)
        yield WaitsForTime("outside its window", Deadline("window", opens_at, is_wall_time=True))
    pause = find_pause(session) if not is_retry else None
    if pause is not None:
        name = name_binding(core, session, (pause.key,))
        words = f"paced, its input {name} changed during its last {pause.runs} runs"
        yield WaitsForTime(words, Deadline("pause", pause.until, pause.seconds))
    pace = find_pace(core, session, moment.wall)
    if pace is not None:
        yield WaitsForTime(pace.words, Deadline("paced", pace.until, pace.wait_seconds))


def _find_loop(core: Core, session: Session) -> str | None:
    """Say why the wake seems to come from a loop (rule 34 a, b), or None. The wake is held; its causes stay owed."""
    wake = session.wake
    assert wake is not None
    if wake.tried is not None:
        return None
    if wake.chain.count(session.id) >= SAME_SESSION_IN_CHAIN:
        return f"loop: its own runs led to this wake {SAME_SESSION_IN_CHAIN} times"
    if len(wake.chain) > core.settings.loop_depth:
        return f"loop: a chain of {len(wake.chain)} runs led to this wake (loop_depth {core.settings.loop_depth})"
    if (name := find_self_fed(core, session)) is not None:
        return f"loop: its input {name} changed during each of its last {RUNS_IN_A_ROW} runs, and never between them"
    return None


def _find_spent(session: Session, moment: Moment) -> Hold | None:
    """Return the hold of a spent budget, or None. It also holds activations and retries, which cost as much."""
    budget = session.spec.budget if session.spec is not None else None
    found = find_exhausted(budget, session.tally.spent, moment.wall) if budget is not None else None
    if found is None:
        return None
    return Hold(kind="budget", words=found.words, until=found.until, length_seconds=(found.until - moment.wall) / 1e6)


def _find_question(core: Core, session: Session, moment: Moment) -> Hold | None:
    """Return the question that a person must answer before the run, or None.

    One yes covers the wake, its retries and later causes.
    """
    assert session.spec is not None and session.wake is not None
    if session.approved == session.wake.wake:
        return None
    danger = find_rule_of_two_breach(core.untrusted_text, session)
    if danger is None and not session.spec.is_approved_first:
        return None
    told = ", ".join(dict.fromkeys(cause.binding for cause in session.wake.causes))
    why = f"; {danger}" if danger is not None else ""
    seconds = find_ask_timeout(session.spec, find_acting(core, session)[0])
    return make_question_hold(
        seconds,
        f"may it run? woken by {told}{why}: wakeful answer {session.name} yes, or no{say_ask_timeout(seconds)}",
        moment.wall,
    )


def _judge_graph_and_slots(core: Core, session: Session) -> Verdict:
    """Judge the conditions that depend on other sessions: the graph, yielding to readers, and slots."""
    is_mixed = False
    if not is_activation_owed(session):
        holding = next(find_holding_upstreams(core, session), None)
        if holding is not None:
            if not _is_starving(core, session) or _is_stuck(core, session) or _runs_upstream(core, session):
                return WaitsForUpstream(holding)
            is_mixed = True
        favoured = _find_favoured_reader(core, session)
        if favoured is not None:
            return YieldsToReader(f"its reader {favoured.name} goes first", favoured.id)
    assert session.spec is not None
    if core.looked.shortage is not None:
        return WaitsForSlot(core.looked.shortage)
    is_agent = find_acting(core, session)[0] is not None
    if not core.has_slot(session.spec.pool, is_agent=is_agent):
        pool = session.spec.pool
        kind = "a slot for agents" if is_agent else "a slot"
        return WaitsForSlot(f"a slot in pool {pool}" if pool and core.has_slot(None, is_agent=is_agent) else kind)
    return Ready(is_mixed)


def _is_starving(core: Core, session: Session) -> bool:
    """Did an upstream succeed 3 times since this wake was first held? (rule 32)"""
    fairness = core.looked.fairness
    if not fairness.may_starve(session.id):
        return False
    failure_upstreams = core.graph.find_failure_upstreams(session.name)
    return any(
        fairness.has_starved(session.id, core.state.ids[name], counts_failures=name in failure_upstreams)
        for name in core.graph.all_upstreams(session.name)
        if name in core.state.ids
    )


def _is_stuck(core: Core, session: Session) -> bool:
    """Is an upstream stuck? Only a person may let the reader go ahead of it (rule 31)."""
    return any(core.busy[upstream].is_stuck for upstream in find_holding_upstreams(core, session))


def _runs_upstream(core: Core, session: Session) -> bool:
    upstreams = (core.state.find_named(name) for name in core.graph.all_upstreams(session.name))
    return any(upstream is not None and upstream.run is not None for upstream in upstreams)


def _find_favoured_reader(core: Core, session: Session) -> Session | None:
    """Find a starving reader that is held only by its upstreams. It goes first, otherwise both would wait (rule 32).

    A reader that is held by something else does not starve, because `dispatch` releases its upstreams.
    """
    if not core.looked.fairness.anyone_may_starve():
        return None
    for reader in sorted(core.graph.all_readers(session.name)):
        other = core.state.find_named(reader)
        if other is not None and other.run is None and _is_starving(core, other) and not _is_stuck(core, other):
            return other
    return None


class QueueReason(NamedTuple):
    """The reason why a wake waits, and the moment of its next try, if known."""

    words: str
    until: int | None = None


def find_queue_words(core: Core, session: Session, moment: Moment) -> str | None:
    """Say why a wake waits, with the time until its next try. None if nothing is queued."""
    queue = find_queue_reason(core, session, moment)
    return say_queue_reason(queue, moment) if queue is not None else None


def find_queue_reason(core: Core, session: Session, moment: Moment) -> QueueReason | None:
    if session.run is not None or not session.is_armed:
        return None
    if session.wake is None:
        looks = (core.looked.target(bound) for bound in core.looked.bounds.get(session.id, ()))
        held = next((look.held for look in looks if look is not None and look.held is not None), None)
        return QueueReason(held) if held is not None else None
    verdict = judge_start(core, session, moment)
    match verdict:
        case Ready():
            return QueueReason(STARTING)
        case WaitsForUpstream(upstream=upstream):
            return QueueReason(find_root_words(core, upstream))
        case WaitsForTime(words=words, deadline=deadline):
            return QueueReason(words, deadline.until)
        case WaitsForSlot() | WaitsForFedInput() | YieldsToReader() | WaitsForOther():
            return QueueReason(verdict.words)
        case Sleeps(hold=hold):
            return QueueReason(hold.words)
        case _:
            assert_never(verdict)


def say_queue_reason(queue: QueueReason, moment: Moment) -> str:
    return queue.words if queue.until is None else f"{queue.words}; next start {_say_wait(queue.until, moment)}"


def _say_wait(until: int, moment: Moment) -> str:
    seconds = max(0, round((until - moment.wall) / 1e6))
    if seconds < 120:
        return f"in {seconds} s"
    return f"in {seconds // 60} min" if seconds < 7200 else f"in {seconds // 3600} h {seconds % 3600 // 60} min"

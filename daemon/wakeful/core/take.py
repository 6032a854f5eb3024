"""take: an observation becomes events, or changes only what is looked (rule 2).

One function per observation. Nothing here decides whether a session runs: that is dispatch.
"""

from __future__ import annotations

import hashlib
from functools import singledispatch

from wakeful.core import events as ev
from wakeful.core.calls import Called
from wakeful.core.clocks import first_positions, ring_clocks
from wakeful.core.decision import Decision
from wakeful.core.finish import finish_run
from wakeful.core.judge import judge_call
from wakeful.core.looked import Ended, TargetLook
from wakeful.core.machine import Core
from wakeful.core.observation import (
    ClockTicked,
    DaemonStarted,
    DaemonStopping,
    Declaration,
    ProcessEnded,
    RunRecovered,
    SettingsRead,
    SpecsRead,
    TargetLooked,
    TargetsHinted,
)
from wakeful.core.spec import digest_noticed
from wakeful.core.state import Session


@singledispatch
def take(observation: object, core: Core, decision: Decision) -> None:
    raise TypeError(f"no one takes {type(observation).__name__}")


@take.register
def _(observation: DaemonStarted, core: Core, decision: Decision) -> None:
    core.incarnation = observation.incarnation
    core.settings = observation.settings
    for session_id in core.state.running:
        decision.planned[session_id] = None


@take.register
def _(observation: DaemonStopping, core: Core, decision: Decision) -> None:
    core.is_stopping = True
    if not observation.is_forced:
        return
    for session_id in sorted(core.state.running):
        run = core.state.get(session_id).run
        if run is not None and run.stop is None:
            core.emit(decision, session_id, ev.RunStopRequested(run=run.run, why="shutdown"))


@take.register
def _(observation: SettingsRead, core: Core, decision: Decision) -> None:
    core.settings = observation.settings


# -- specs ------------------------------------------------------------------------------------


@take.register
def _(observation: SpecsRead, core: Core, decision: Decision) -> None:
    """One batch (rule 26). The first of an incarnation is complete: what it does not name is gone."""
    removed = set(observation.removed)
    for name in (*observation.removed, *(d.spec.name for d in observation.declared)):
        core.looked.refused.pop(name, None)
    core.looked.refused.update(observation.refused)
    declared = list(observation.declared)
    if core.is_first_reading:
        core.is_first_reading = False
        declared += _last_good(core, observation)
        named = {d.spec.name for d in declared}
        removed |= {session.name for session in core.state if session.is_declared and session.name not in named}
    declared = [d for d in declared if not _is_terminated(core, d.spec.name)]
    refused = core.graph.admit([d.spec for d in declared], removed)
    core.looked.refused.update(refused)
    for name in sorted(removed):
        _remove(core, decision, name)
    for declaration in declared:
        if declaration.spec.name not in refused:
            _declare(core, decision, declaration)


def _last_good(core: Core, observation: SpecsRead) -> list[Declaration]:
    """A file that cannot be read at start keeps the spec that stands in the log."""
    named = {d.spec.name for d in observation.declared}
    kept = (core.state.by_name(name) for name in observation.refused if name in core.state.ids and name not in named)
    return [Declaration(s.spec, s.text_digest) for s in kept if s.is_declared and s.spec is not None]


def _is_terminated(core: Core, name: str) -> bool:
    session_id = core.state.ids.get(name)
    return session_id is not None and core.state.get(session_id).is_terminated


def _remove(core: Core, decision: Decision, name: str) -> None:
    session_id = core.state.ids.get(name)
    if session_id is None or not core.state.get(session_id).is_declared:
        return
    core.emit(decision, session_id, ev.SpecRemoved())
    core.busy.pop(name, None)
    decision.forget += core.looked.unbind(session_id)


def _declare(core: Core, decision: Decision, declaration: Declaration) -> None:
    spec, wall = declaration.spec, decision.moment.wall
    session_id = core.state.ids.get(spec.name)
    session = core.state.get(session_id) if session_id is not None else None
    if session is None:
        session_id = _new_id(core, spec.name, wall)
        session = core.emit(decision, session_id, ev.SessionOpened(id=session_id, name=spec.name))
    assert session_id is not None
    if not session.is_declared or session.spec != spec:
        positions = first_positions(spec, session, session_id, wall)
        event = ev.SpecDeclared(spec=spec, version=digest_noticed(spec), text_digest=declaration.text_digest, positions=positions)
        core.emit(decision, session_id, event)
    follow, forget = core.looked.bind(session_id, spec, decision.moment.mono)
    decision.follow += follow
    decision.forget += forget
    for target in follow:
        core.want_look(decision, core.looked.targets[target.key])
    ring_clocks(core, decision, session_id)
    decision.touch(session_id)
    for reader in core.graph.readers.get(spec.name, ()):
        if reader in core.state.ids:
            decision.touch(core.state.ids[reader])


def _new_id(core: Core, name: str, wall: int) -> str:
    """Unique without randomness: the incarnation was drawn outside."""
    return hashlib.blake2b(f"{core.incarnation}\0{name}\0{wall}".encode(), digest_size=6).hexdigest()


# -- looking ----------------------------------------------------------------------------------


@take.register
def _(observation: TargetsHinted, core: Core, decision: Decision) -> None:
    """Every binding that matches is dirty before anything is decided (rule 10)."""
    for key in observation.targets:
        look = core.looked.targets.get(key)
        if look is None:
            continue
        look.held = None
        look.dirty(decision.moment.mono)
        _touch_subscribers(decision, look)
    for key in observation.targets:
        look = core.looked.targets.get(key)
        if look is not None:
            core.want_look(decision, look)


@take.register
def _(observation: TargetLooked, core: Core, decision: Decision) -> None:
    result, moment = observation.result, decision.moment
    look = core.looked.targets.get(result.target)
    # Forgotten meanwhile, or older than what was applied (rule 11).
    if look is None or result.generation < look.applied:
        return
    if _is_to_be_read_again(look, result.is_unstable, moment.mono):
        look.looking = None
        look.last_dirt = moment.mono
    else:
        look.apply(result, moment.wall)
    for key in result.also_dirty:
        other = core.looked.targets.get(key)
        if other is not None and other is not look:
            other.dirty(moment.mono)
            core.want_look(decision, other)
            _touch_subscribers(decision, other)
    core.want_look(decision, look)
    _touch_subscribers(decision, look)


def _is_to_be_read_again(look: TargetLook, is_unstable: bool, mono: float) -> bool:
    """A file that moves while it is read counts only after settle_max (rule 12)."""
    return is_unstable and look.first_dirt is not None and mono < look.first_dirt + look.target.settle_max_seconds


def _touch_subscribers(decision: Decision, look: TargetLook) -> None:
    for session_id in look.subscribers:
        decision.touch(session_id)


# -- clock ------------------------------------------------------------------------------------


@take.register
def _(observation: ClockTicked, core: Core, decision: Decision) -> None:
    if decision.moment.wall < core.last_wall:
        # The clock was set back: no heap entry tells, so every clock binding is read again.
        for session_id in {session_id for session_id, _ in core.looked.clocks}:
            ring_clocks(core, decision, session_id)
            decision.touch(session_id)
    core.last_wall = decision.moment.wall
    for kind, key in core.mono.pop_due(decision.moment.mono):
        _ring(core, decision, kind, key)
    for kind, key in core.wall.pop_due(decision.moment.wall):
        _ring(core, decision, kind, key)


def _ring(core: Core, decision: Decision, kind: str, key: str) -> None:
    if kind == "target":
        look = core.looked.targets.get(key)
        if look is not None:
            core.want_look(decision, look)
        return
    if key not in core.state.sessions:
        return
    if kind == "clock":
        ring_clocks(core, decision, key)
    decision.touch(key)


# -- runs -------------------------------------------------------------------------------------


@take.register
def _(observation: ProcessEnded, core: Core, decision: Decision) -> None:
    session = _session_of(core, observation.session, observation.run_id)
    if session is None:
        return
    mono = decision.moment.mono
    core.looked.ended[session.id] = Ended(observation, mono)
    # Its outputs, and what is dirty of its inputs, are looked at before the run is closed (rule 29).
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        if look is not None and bound.kind in ("file", "program") and (bound.is_written or look.is_dirty):
            look.dirty(mono, urgent=True)
            core.want_look(decision, look)
    decision.touch(session.id)


@take.register
def _(observation: RunRecovered, core: Core, decision: Decision) -> None:
    session = _session_of(core, observation.session, observation.run_id)
    if session is not None:
        finish_run(core, decision, session, None)


def _session_of(core: Core, session_id: str, run_id: str) -> Session | None:
    """Anything about a run that is not the open one is dropped (rule 40)."""
    session = core.state.sessions.get(session_id)
    return session if session is not None and session.run is not None and session.run.run_id == run_id else None


# -- calls ------------------------------------------------------------------------------------


@take.register
def _(observation: Called, core: Core, decision: Decision) -> None:
    decision.reply = judge_call(observation.call, core, decision, observation)

"""take: turns an observation into events, or only changes `looked` (rule 2).

One function for each kind of observation. Whether a session runs is decided by `dispatch`, not here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from wakeful.core.calls.call_rules import CALL_RULES, refuse_by_role
from wakeful.core.calls.call_types import Called
from wakeful.core.calls.roles import find_called, refuse_damaged
from wakeful.core.deciding.acting_agent import has_prompt, list_secrets_of_start
from wakeful.core.deciding.clock_bindings import update_clocks
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.outputs import land_outputs
from wakeful.core.deciding.run_end import begin_run_end, finish_run
from wakeful.core.deciding.spec_declaration import declare, new_id
from wakeful.core.deciding.working_state import Core
from wakeful.core.deciding.written_files import end_writing
from wakeful.core.looking.observed_state import TargetLook
from wakeful.core.record import events as ev
from wakeful.core.record.observations import (
    AgentsRead,
    ClockTicked,
    DaemonStarted,
    DaemonStopping,
    Declaration,
    DiskSpaceSeen,
    FilesWritten,
    LandingEnded,
    NotificationEnded,
    OutputsKept,
    ProcessEnded,
    RunAttached,
    RunRecovered,
    SecretsSeen,
    SettingsRead,
    SpecsRead,
    StrictnessSeen,
    TargetLooked,
    TargetsHinted,
)
from wakeful.core.record.state import Session
from wakeful.core.spec.session import is_refused

Observation = (
    DaemonStarted
    | DaemonStopping
    | SpecsRead
    | AgentsRead
    | SettingsRead
    | TargetsHinted
    | TargetLooked
    | DiskSpaceSeen
    | SecretsSeen
    | StrictnessSeen
    | ClockTicked
    | ProcessEnded
    | OutputsKept
    | FilesWritten
    | LandingEnded
    | NotificationEnded
    | RunAttached
    | RunRecovered
    | Called
)


def take(observation: Observation, core: Core, decision: Decision) -> None:
    TAKES[type(observation)](observation, core, decision)


def _take_daemon_started(observation: DaemonStarted, core: Core, decision: Decision) -> None:
    core.incarnation = observation.incarnation
    core.settings = observation.settings
    core.inheriting = frozenset(core.state.running)
    for session_id in sorted(core.state.running):
        decision.planned[session_id] = None


def _take_daemon_stopping(observation: DaemonStopping, core: Core, decision: Decision) -> None:
    core.is_stopping = True
    if not observation.is_forced:
        return
    for session_id in sorted(core.state.running):
        run = core.state.get(session_id).run
        if run is not None and run.stop is None and run.staged is None and run.run_id not in observation.spared:
            core.emit(decision, session_id, ev.RunStopRequested(run=run.run, why="shutdown"))


def _take_settings_read(observation: SettingsRead, core: Core, decision: Decision) -> None:
    is_isolation_news = core.settings.allow_unisolated != observation.settings.allow_unisolated
    core.settings = observation.settings
    for session in core.state if is_isolation_news else ():
        if session.spec is not None and not session.spec.confinement.is_enforced:
            decision.touch(session.id)


def _take_disk_space_seen(observation: DiskSpaceSeen, core: Core, decision: Decision) -> None:
    """Record whether there is disk space. No session is touched: waiting sessions are in the queue, and every decision
    offers them slots."""
    core.looked.shortage = observation.words


def _take_strictness_seen(observation: StrictnessSeen, core: Core, decision: Decision) -> None:
    core.looked.strict_problem = observation.words
    for session in core.state:
        if session.spec is not None and session.spec.confinement.level == "strict":
            decision.touch(session.id)


def _take_secrets_seen(observation: SecretsSeen, core: Core, decision: Decision) -> None:
    """Dispatch the sessions that need a secret which appeared or vanished."""
    before, core.looked.secrets = core.looked.secrets, observation.found
    for session in core.state:
        if session.spec is not None and any(
            before.get(name, "") != observation.found.get(name, "") for name in list_secrets_of_start(core, session)
        ):
            decision.touch(session.id)


def _take_agents_read(observation: AgentsRead, core: Core, decision: Decision) -> None:
    """Dispatch the sessions whose agent appeared, vanished or changed. Runs under way keep their agent."""
    before = core.agents, core.agent_problems
    core.agents, core.agent_problems = observation.agents, observation.refused
    named = {*core.agents, *core.agent_problems, *before[0], *before[1]}
    news = {
        name
        for name in named
        if [one.get(name) for one in before] != [core.agents.get(name), core.agent_problems.get(name)]
    }
    # A changed sub-agent also changes its agent: a run needs the keys of its agent's sub-agents.
    news |= {agent.name for agent in core.agents.values() if not news.isdisjoint(agent.subagents)}
    for session in core.state if news else ():
        if session.mailbox.unread or (has_prompt(session) and session.owner in news):
            decision.touch(session.id)


# -- specs ------------------------------------------------------------------------------------


def _take_specs_read(observation: SpecsRead, core: Core, decision: Decision) -> None:
    """Take in one reading of specs (rule 26). The first reading after a start has all specs: a spec that is missing in
    it is gone."""
    for name in (*observation.removed, *(d.spec.name for d in observation.declared)):
        core.looked.refused.pop(name, None)
        core.looked.untrusted.pop(name, None)
    core.looked.refused.update(observation.refused)
    withheld = _withhold(core, decision, observation.declared)
    unread = {**observation.refused, **withheld}
    declared = [d for d in observation.declared if d.needs_trust is None and not _is_shut(core, d.spec.name)]
    # A session that no file declares (a fork) is not removed because a file is missing.
    removed = {name for name in observation.removed if not _is_unfiled(core, name)}
    if core.is_first_reading:
        core.is_first_reading = False
        declared += _place_last_good(core, declared, unread)
        named = {d.spec.name for d in declared}
        removed |= {
            one.name
            for one in core.state
            if one.declaration.is_declared and one.name not in named and one.declaration.needs_trust is None
        }
    elif unread:
        declared += _list_reopened(core, unread)
    # A run under way ends under its spec, and its edges stay until then (rule 26).
    leaving = {name for name in removed if _is_running(core, name)}
    for name in sorted(removed):
        core.touch_around(decision, name)
    before = {d.spec.name: sorted(core.graph.readers.get(d.spec.name, ())) for d in declared}
    for name in leaving:
        core.graph.leave(name)
    refused = core.graph.admit([d.spec for d in declared], removed - leaving)
    core.looked.refused.update(refused)
    for name in sorted(removed):
        _remove(core, decision, name, is_leaving=name in leaving)
    for declaration in declared:
        name = declaration.spec.name
        if name not in refused:
            declare(core, decision, declaration)
        elif (kept := _keep_last_good(core, name)) is not None:
            declare(core, decision, kept)
        core.touch_named(
            decision,
            (*before[name], *sorted(core.graph.readers.get(name, ())), *core.graph.upstreams.get(name, ())),
        )


def _withhold(core: Core, decision: Decision, declared: Iterable[Declaration]) -> dict[str, str]:
    """Withhold the specs that are not trusted yet. A new spec gets a session that shows it and does nothing.
    A known session keeps its last good spec."""
    withheld = {one.spec.name: one.needs_trust for one in declared if one.needs_trust is not None}
    core.looked.untrusted.update(withheld)
    for name in sorted(withheld):
        if name not in core.state.ids:
            session_id = new_id(core, name, decision.moment.wall)
            core.emit(decision, session_id, ev.SessionOpened(id=session_id, name=name))
        decision.touch(core.state.ids[name])
    return withheld


def _place_last_good(core: Core, declared: list[Declaration], refused: dict[str, str]) -> list[Declaration]:
    """Place the last good specs, which at the start are those in the log, in the graph before the new ones (rule 26).

    Returns the declarations of specs that stay in force although no readable file declares them: because the file was
    refused, or because a fork has no file.
    """
    specs = {d.spec.name: d.spec for d in declared}
    placed, kept = [], []
    for session in core.state:
        if (
            not session.declaration.is_declared
            or session.is_shut
            or session.spec is None
            or session.declaration.needs_trust is not None
        ):
            continue
        is_unfiled = not session.declaration.is_filed and session.name not in specs
        cannot_be_read = is_refused(session.name, refused)
        if session.name in specs or cannot_be_read or is_unfiled:
            placed.append(session.spec)
        if (cannot_be_read and session.name not in specs) or is_unfiled:
            kept.append(Declaration(session.spec, session.declaration.text_digest, session.declaration.is_filed))
    # Two last good specs conflict if a session was closed, another session took its paths, and the first was reopened.
    conflicts = core.graph.admit(placed, ())
    core.looked.refused.update(conflicts)
    return [one for one in kept if one.spec.name not in conflicts]


def _list_reopened(core: Core, refused: dict[str, str]) -> list[Declaration]:
    """List the last good specs of sessions that were reopened while their file was refused. These specs count too."""
    unread = (
        session
        for session in core.state
        if session.declaration.is_declared and not session.is_shut and session.id not in core.looked.bounds
    )
    return [
        Declaration(one.spec, one.declaration.text_digest, one.declaration.is_filed)
        for one in unread
        if one.spec is not None and is_refused(one.name, refused)
    ]


def _keep_last_good(core: Core, name: str) -> Declaration | None:
    """Return the last good spec of a session whose new spec was refused.

    None if the last good spec conflicts as well. A session that was closed has no place in the graph, so another
    session may have taken its paths before it was opened again.
    """
    session = core.state.find_named(name)
    if session is None or not session.declaration.is_declared or session.spec is None:
        return None
    if core.graph.admit([session.spec], ()):
        return None
    return Declaration(session.spec, session.declaration.text_digest, session.declaration.is_filed)


def _is_shut(core: Core, name: str) -> bool:
    session = core.state.find_named(name)
    return session is not None and session.is_shut


def _is_unfiled(core: Core, name: str) -> bool:
    session = core.state.find_named(name)
    return session is not None and not session.declaration.is_filed


def _is_running(core: Core, name: str) -> bool:
    session = core.state.find_named(name)
    return session is not None and session.run is not None and session.id in core.looked.bounds


def _remove(core: Core, decision: Decision, name: str, *, is_leaving: bool) -> None:
    session = core.state.find_named(name)
    # The log of a closed session accepts no records.
    if session is None or not session.declaration.is_declared or session.is_shut:
        return
    session = core.emit(decision, session.id, ev.SpecRemoved())
    if not is_leaving:
        core.detach(decision, session)


# -- looking ----------------------------------------------------------------------------------


def _take_targets_hinted(observation: TargetsHinted, core: Core, decision: Decision) -> None:
    """Mark all hinted targets as dirty before anything is decided (rule 10)."""
    for key in observation.targets:
        look = core.looked.targets.get(key)
        if look is None:
            continue
        look.mark_dirty(decision.moment.mono)
        _touch_subscribers(decision, look)
    for key in observation.targets:
        look = core.looked.targets.get(key)
        if look is not None:
            core.want_look(decision, look)


def _take_target_looked(observation: TargetLooked, core: Core, decision: Decision) -> None:
    result, moment = observation.result, decision.moment
    look = core.looked.targets.get(result.target)
    # The target was forgotten in the meantime.
    if look is None:
        return
    look.take_result(result, moment)
    for key in result.also_dirty:
        other = core.looked.targets.get(key)
        if other is not None and other is not look:
            other.mark_dirty(moment.mono)
            core.want_look(decision, other)
            _touch_subscribers(decision, other)
    core.want_look(decision, look)
    _touch_subscribers(decision, look)


def _touch_subscribers(decision: Decision, look: TargetLook) -> None:
    # Sorted, so that the order does not depend on hashes, and a seed always gives the same history.
    for session_id in sorted(look.subscribers):
        decision.touch(session_id)


# -- clock ------------------------------------------------------------------------------------


def _take_clock_ticked(observation: ClockTicked, core: Core, decision: Decision) -> None:
    moment = decision.moment
    for kind, key in itertools.chain(core.mono.pop_due(moment.mono), core.wall.pop_due(moment.wall)):
        if kind == "target":
            look = core.looked.targets.get(key)
            if look is not None:
                core.want_look(decision, look)
        elif key in core.state.sessions:
            if kind == "clock":
                update_clocks(core, decision, key)
            decision.touch(key)


# -- runs -------------------------------------------------------------------------------------


def _take_process_ended(observation: ProcessEnded, core: Core, decision: Decision) -> None:
    session = _session_of(core, observation.session, observation.run_id)
    if session is not None:
        begin_run_end(core, decision, session, observation)


def _take_outputs_kept(observation: OutputsKept, core: Core, decision: Decision) -> None:
    """Record that saving the outputs of the ended run is over. Some outputs may not have been saved. Inputs are saved
    later, and never delay the end of the run."""
    session = _session_of(core, observation.session, observation.run_id)
    ended = core.looked.ended.get(session.id) if session is not None else None
    if session is None or ended is None or not ended.is_keeping:
        return
    ended.is_keeping, ended.files = False, observation.files
    decision.touch(session.id)


def _take_landing_ended(observation: LandingEnded, core: Core, decision: Decision) -> None:
    session = _session_of(core, observation.session, observation.run_id)
    report = land_outputs(core, decision, session, observation.kept) if session is not None else None
    if report is not None:
        begin_run_end(core, decision, core.state.get(observation.session), report)


def _take_files_written(observation: FilesWritten, core: Core, decision: Decision) -> None:
    end_writing(core, decision, observation.session, observation.paths)


def _take_run_attached(observation: RunAttached, core: Core, decision: Decision) -> None:
    session = _session_of(core, observation.session, observation.run_id)
    run = session.run if session is not None else None
    if session is not None and run is not None and run.incarnation != core.incarnation:
        core.emit(decision, session.id, ev.RunReadopted(run=run.run, incarnation=core.incarnation), run=run.run)


def _take_run_recovered(observation: RunRecovered, core: Core, decision: Decision) -> None:
    session = _session_of(core, observation.session, observation.run_id)
    if session is not None:
        finish_run(core, decision, session, None)


def _session_of(core: Core, session_id: str, run_id: str) -> Session | None:
    """Return the session if this run is its open run. A report about any other run is dropped (rule 40)."""
    session = core.state.sessions.get(session_id)
    return session if session is not None and session.run is not None and session.run.run_id == run_id else None


# -- notifications ----------------------------------------------------------------------------


def _take_notification_ended(observation: NotificationEnded, core: Core, decision: Decision) -> None:
    session = core.state.sessions.get(observation.session)
    # The log of a closed session accepts no records. The notifier's own ledger has the result anyway.
    if session is None or session.is_shut:
        return
    told: dict[str, Any] = {
        "notifier": observation.notifier,
        "event": observation.event,
        "about": observation.about,
        "delivery": observation.delivery,
        "attempts": observation.attempts,
    }
    event = (
        ev.NotificationDelivered(**told)
        if observation.problem is None
        else ev.NotificationAbandoned(**told, words=observation.problem)
    )
    core.emit(decision, session.id, event)


# -- calls ------------------------------------------------------------------------------------


def _take_called(observation: Called, core: Core, decision: Decision) -> None:
    for session in find_called(core, observation.call):
        refuse_by_role(session, observation.call, observation.author)
        # A call about all sessions skips the damaged ones.
        if observation.call.name:
            refuse_damaged(session)
    decision.reply = CALL_RULES[type(observation.call)].judge(observation.call, core, decision, observation)


# The function for each kind of observation.
TAKES: dict[type[Observation], Callable[[Any, Core, Decision], None]] = {
    DaemonStarted: _take_daemon_started,
    DaemonStopping: _take_daemon_stopping,
    SettingsRead: _take_settings_read,
    DiskSpaceSeen: _take_disk_space_seen,
    StrictnessSeen: _take_strictness_seen,
    SecretsSeen: _take_secrets_seen,
    AgentsRead: _take_agents_read,
    SpecsRead: _take_specs_read,
    TargetsHinted: _take_targets_hinted,
    TargetLooked: _take_target_looked,
    ClockTicked: _take_clock_ticked,
    ProcessEnded: _take_process_ended,
    OutputsKept: _take_outputs_kept,
    LandingEnded: _take_landing_ended,
    FilesWritten: _take_files_written,
    NotificationEnded: _take_notification_ended,
    RunAttached: _take_run_attached,
    RunRecovered: _take_run_recovered,
    Called: _take_called,
}

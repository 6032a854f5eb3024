"""The start of a run: the record that it begins with, and the preview of the next run.

`make_start` gathers what the run sees: its agent, its versions and causes, which attempt it is on the same versions
(rule 21), whether it continues an earlier run, and whether it is traced. `make_start` records nothing, so `dispatch`
uses it to start runs, and `wakeful context` uses it to preview them (`preview_run`).
Attempts belong to the start versions of inputs: an output that a failed attempt left half written is not newer input.
A traced run is isolated as any run, except an observed run, to which nothing is denied. Observing needs the operator's
permission (`allow_unisolated`), and is refused if it would bring secrets, untrusted text and a way out together.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.deciding.acting_agent import find_acting, find_owner
from wakeful.core.deciding.loop_guard import find_pace, is_backlog
from wakeful.core.deciding.owed import describe_causes, find_activation, is_owed, list_addressed, start_versions
from wakeful.core.deciding.rule_of_two import find_rule_of_two_breach
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import events as ev
from wakeful.core.record.fold import fold
from wakeful.core.record.fold_runs import OWN, find_interrupted_run
from wakeful.core.record.state import ACTIVATION, Session
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import PromptRun, observe_spec
from wakeful.errors import CallerError

# The causes that a run aside handles.
ASIDE_KEYS = ("message", ACTIVATION)


def make_start(core: Core, session: Session, wall: int, is_mixed: bool = False) -> ev.RunStarted:
    """Build the start that the open wake would lead to now. Records nothing."""
    wake = session.wake
    assert wake is not None
    agent, is_aside = find_acting(core, session)
    versions = start_versions(core.state, core.looked, session)
    if is_aside:
        # A run aside deals with the question alone. All other causes stay owed.
        versions = {key: version for key, version in versions.items() if key in ASIDE_KEYS}
    if session.activation.position:
        versions[ACTIVATION] = str(find_activation(session, is_aside=is_aside))
    attempt = _find_attempt(core, session, versions)
    asker = _find_asker(session) if is_aside else None
    resumed_from = _resumed_from(session, asker, is_aside=is_aside)
    trace = session.activation.trace
    # The permission to observe may have ended since the request.
    if trace == "observed" and refuse_observing(core, session) is not None:
        trace = "declared"
    return ev.RunStarted(
        run=session.tally.runs + 1,
        run_id=f"{session.id}.{session.tally.runs + 1}",
        wake=wake.wake,
        # Attempts belong to the start versions. Changed versions start again at 0 (rule 21).
        attempt=attempt,
        incarnation=core.incarnation,
        versions=versions,
        causes=_select_causes(session, wake.causes, versions, is_aside=is_aside),
        chain=wake.chain,
        mixed=is_mixed,
        resumed_from=resumed_from,
        is_backlog=is_backlog(core, session, wake.causes),
        paced=session.tally.paced + 1 if find_pace(core, session, wall) is not None else 0,
        is_fresh=_begins_anew(session, asker, attempt, resumed_from),
        trace=trace,
        agent=agent,
        is_aside=is_aside,
        asker=asker,
    )


def _select_causes(
    session: Session, causes: tuple[ev.Cause, ...], versions: dict[str, str], *, is_aside: bool
) -> tuple[ev.Cause, ...]:
    """Select the causes that the run deals with. Activations for another run are left out."""
    taken = versions.get(ACTIVATION, "0")
    selected: list[ev.Cause] = []
    for cause in causes:
        if is_aside and cause.key not in ASIDE_KEYS:
            continue
        if cause.key != ACTIVATION or cause.new == taken:
            selected.append(cause)
        elif int(taken) > int(session.marks.seen.get(ACTIVATION, "0")):
            selected.append(replace(cause, new=taken))
    return tuple(selected)


def _find_asker(session: Session) -> str | None:
    """Return the person in whose own conversation a question is answered.

    None if the session has one conversation for all.
    """
    assert session.spec is not None
    return next((one.asker for one in list_addressed(session)), None) if session.spec.conversation == "fresh" else None


def _resumed_from(session: Session, asker: str | None, *, is_aside: bool) -> int | None:
    """Return the run that this run continues: the last run of its conversation, if that was interrupted or lost.

    A new question continues no run.
    """
    last = session.last_run
    if is_aside and (last is None or last.seq == session.knowledge.dealt_until):
        return None
    if asker != session.knowledge.asker:
        return session.knowledge.talks[asker or OWN].cut_run if (asker or OWN) in session.knowledge.talks else None
    return find_interrupted_run(session)


def _begins_anew(session: Session, asker: str | None, attempt: int, resumed_from: int | None) -> bool:
    """Does the run begin a new conversation, because a person asked for it or its spec says so?

    A retry, and a run that continues an interrupted run, keep the conversation.
    """
    if asker is not None:
        return attempt == 0 and resumed_from is None and any(one.is_fresh for one in list_addressed(session))
    if session.activation.is_fresh:
        return True
    assert session.spec is not None
    return session.spec.conversation == "fresh" and attempt == 0 and resumed_from is None


def _find_attempt(core: Core, session: Session, versions: dict[str, str]) -> int:
    """Return the number of failed tries on these versions, 0 if they were not tried yet."""
    wake, last = session.wake, session.last_run
    assert wake is not None
    if wake.tried is not None:
        return wake.attempt if _have_same_inputs(core, session, wake.tried, versions) else 0
    # An input was touched while the last try failed for good. That gives one more run (rule 17), without new retries.
    if last is not None and last.failed_on is not None and _have_same_inputs(core, session, last.failed_on, versions):
        return last.attempt
    return 0


def _have_same_inputs(core: Core, session: Session, tried: dict[str, str], versions: dict[str, str]) -> bool:
    if tried == versions:
        return True
    outputs = _list_own_writes(core, session, versions)
    return all(tried.get(key) == versions.get(key) for key in tried.keys() | versions.keys() if key not in outputs)


def _list_own_writes(core: Core, session: Session, versions: dict[str, str]) -> set[str]:
    """List the keys of the session's outputs, except those with a change by others that wakes it."""
    left = session.last_run.written if session.last_run is not None else {}
    own = set()
    for bound in core.looked.bounds.get(session.id, ()):
        is_unchanged = bound.name in left and left[bound.name] == versions.get(bound.key)
        if (bound.is_written and not bound.wake) or ((bound.is_written or bound.is_both) and is_unchanged):
            own.add(bound.key)
    return own


def refuse_observing(core: Core, session: Session) -> str | None:
    """Say why the session may not be observed, and what to do. None if it may."""
    spec = session.spec
    assert spec is not None
    if not core.settings.allow_unisolated:
        return (
            f"observing runs {session.name} without isolation, which is not allowed here; leave --observe out, or "
            "set allow_unisolated: true in wakeful.yaml"
        )
    if any(binding.access == "both" for binding in spec.files):
        return f"{session.name} reads and writes the same files, which needs isolation: strict; leave --observe out"
    if (legs := find_rule_of_two_breach(core.untrusted_text, replace(session, spec=observe_spec(spec)))) is not None:
        return (
            f"{session.name} would have untrusted text, private data and a way to send data out ({legs}); "
            "leave --observe out"
        )
    return None


# -- preview ----------------------------------------------------------------------------------


class PreviewedRun(Struct, frozen=True):
    """A session with a run that is under way, or would be if it started now. Nothing is recorded, and nothing starts.

    `is_fresh`: the run would begin a new conversation, which is not recorded yet.
    """

    session: Session
    agent: AgentSpec
    is_fresh: bool = False


def preview_run(core: Core, session: Session, for_agent: str | None, at: int) -> PreviewedRun:
    """Preview the next run, or the run under way. Raises CallerError if no agent would work in the session."""
    if session.is_shut or session.spec is None:
        raise CallerError(
            f"{session.name} takes no more runs, so no model sees anything of it; "
            f"`wakeful show {session.name}` says why"
        )
    agent = _find_previewed_agent(core, session, for_agent)
    is_fresh = False
    if session.run is None:
        session, is_fresh = _start(core, session, at)
    assert session.run is not None
    owner = find_owner(core, session)
    is_aside = session.run.is_aside or (for_agent is not None and (owner is None or owner.name != agent.name))
    return PreviewedRun(replace(session, run=replace(session.run, agent=agent, is_aside=is_aside)), agent, is_fresh)


def _find_previewed_agent(core: Core, session: Session, for_agent: str | None) -> AgentSpec:
    if for_agent is not None:
        agent = core.agents.get(for_agent)
        if agent is None:
            known = (
                f"there are {', '.join(sorted(core.agents))}"
                if core.agents
                else "there is none; agents are declared in sessions.d/agents/"
            )
            raise CallerError(f"no agent is called {for_agent!r}: {known}")
        return agent
    acting = session.run.agent if session.run is not None else find_acting(core, session)[0]
    if acting is not None:
        return acting
    name = session.owner
    if session.spec is not None and isinstance(session.spec.run, PromptRun):
        raise CallerError(f"{session.name} needs agent {name!r}, which no file in sessions.d/agents/ declares")
    raise CallerError(
        f"no agent works in {session.name}, so no model sees anything of it; "
        "--for-agent NAME shows what that agent would see"
    )


def is_run_due(core: Core, session: Session) -> bool:
    """Would the session run now, or does it run already?"""
    return session.run is not None or session.wake is not None or is_owed(core.state, core.looked, session)


def _start(core: Core, session: Session, at: int) -> tuple[Session, bool]:
    if session.wake is None:
        causes, _ = describe_causes(core.state, core.looked, session, at)
        session = _fold(session, ev.WakeRequested(wake=session.tally.wakes + 1, causes=causes), at)
    start = make_start(core, session, at)
    return _fold(session, start, at), start.is_fresh


def _fold(session: Session, event: ev.Event, at: int) -> Session:
    return fold(session, event, seq=session.seq + 1, at=at, author="daemon")

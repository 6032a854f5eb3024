"""The preview of a session's next run, as if it started now. Nothing is recorded, and nothing starts.

`wakeful context` uses it to show what a model would see. The preview is built by the functions of a real start
(`make_start`), so the two cannot differ.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.deciding.acting_agent import find_acting, find_owner
from wakeful.core.deciding.core import Core
from wakeful.core.deciding.dispatch import make_start
from wakeful.core.deciding.owed import describe_causes, is_owed
from wakeful.core.record import events as ev
from wakeful.core.record.fold import fold
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import PromptRun
from wakeful.errors import CallerError


class PreviewedRun(Struct, frozen=True):
    """A session with a run that is under way, or would be.

    `is_fresh`: the run would begin a new conversation, which is not recorded yet.
    """

    session: Session
    agent: AgentSpec
    is_fresh: bool = False


def imagine_run(core: Core, session: Session, for_agent: str | None, at: int) -> PreviewedRun:
    """Preview the next run, or the run under way. Raises CallerError if no agent would work in the session."""
    if session.is_shut or session.spec is None:
        raise CallerError(
            f"{session.name} takes no more runs, so no model sees anything of it; "
            f"`wakeful show {session.name}` says why"
        )
    agent = find_agent(core, session, for_agent)
    is_fresh = False
    if session.run is None:
        session, is_fresh = _start(core, session, at)
    assert session.run is not None
    owner = find_owner(core, session)
    is_aside = session.run.is_aside or (for_agent is not None and (owner is None or owner.name != agent.name))
    return PreviewedRun(replace(session, run=replace(session.run, agent=agent, is_aside=is_aside)), agent, is_fresh)


def find_agent(core: Core, session: Session, for_agent: str | None) -> AgentSpec:
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
        raise CallerError(f"{session.name} is worked by agent {name!r}, which no file in sessions.d/agents/ declares")
    raise CallerError(
        f"{session.name} is worked by no agent, so no model sees anything of it; "
        "--for-agent NAME shows what that one would see"
    )


def is_wanted(core: Core, session: Session) -> bool:
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

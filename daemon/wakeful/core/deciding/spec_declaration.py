"""Declaring a spec: open the session if it is new, record its spec, and follow its targets.

Called for every declaration of a reading of `sessions.d/`, and by the calls that declare without a file.
"""

from __future__ import annotations

import hashlib

from wakeful.core.deciding.clock_bindings import first_positions, update_clocks
from wakeful.core.deciding.decision import DAEMON, Decision
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import events as ev
from wakeful.core.record.observations import Declaration
from wakeful.core.record.state import Session
from wakeful.core.spec.session import digest_noticed


def declare(core: Core, decision: Decision, declaration: Declaration, *, author: str = DAEMON) -> Session:
    spec, wall = declaration.spec, decision.moment.wall
    session = core.state.find_named(spec.name)
    if session is None:
        session_id = new_id(core, spec.name, wall)
        session = core.emit(decision, session_id, ev.SessionOpened(id=session_id, name=spec.name))
    if (
        not session.declaration.is_declared
        or session.spec != spec
        or session.declaration.is_filed != declaration.is_filed
    ):
        event = ev.SpecDeclared(
            spec=spec,
            version=digest_noticed(spec),
            text_digest=declaration.text_digest,
            positions=first_positions(core.state, spec, session, wall),
            is_filed=declaration.is_filed,
            text=declaration.text,
        )
        session = core.emit(decision, session.id, event, author=author)
    assert session.spec is not None
    # Before a person has trusted the spec, no binding of it is looked at, and no probe of it runs.
    if session.declaration.needs_trust is not None:
        return session
    # Use the spec of the state, not the equal one of the declaration, so that 10,000 specs are in memory once.
    follow, forget = core.looked.bind(session.id, session.spec, decision.moment.mono)
    decision.follow += follow
    decision.forget += forget
    for target in follow:
        core.want_look(decision, core.looked.targets[target.key])
    update_clocks(core, decision, session.id)
    decision.touch(session.id)
    return session


def declare_again(core: Core, decision: Decision, session: Session) -> None:
    """Follow the bindings of a reopened session again, if no file declares it."""
    if (
        session.declaration.is_filed
        or not session.declaration.is_declared
        or session.is_shut
        or session.spec is None
        or session.declaration.needs_trust is not None
    ):
        return
    if session.name not in core.graph.admit([session.spec], set()):
        declare(core, decision, Declaration(session.spec, session.declaration.text_digest, False))
        # Without readers, its upstreams had no busy mark in the meantime (rule 30).
        core.touch_around(decision, session.name)


def new_id(core: Core, name: str, wall: int) -> str:
    """Make a unique session id without randomness. The incarnation was drawn outside of the core."""
    text = f"{core.incarnation}\0{name}\0{wall}"
    # The id is taken if a session of this name was renamed since, and the clock shows the same time as at its opening.
    while (found := hashlib.blake2b(text.encode(), digest_size=6).hexdigest()) in core.state.sessions:
        text += "\0"
    return found

"""Is a session still going to change what it writes? A reader starts only when no upstream is (rule 30).

The answer is kept per session as words, and passed on to readers only when it flips (rule 42),
so the cost of an observation follows the sessions it touches.
"""

from __future__ import annotations

from wakeful.core.decision import Decision
from wakeful.core.machine import Core
from wakeful.core.owed import is_first_owed, is_owed
from wakeful.core.state import Session


def refresh_busy(core: Core, decision: Decision, session_id: str) -> None:
    session = core.state.get(session_id)
    words = find_own_business(core, session) or find_busy_upstream(core, session)
    if words == core.busy.get(session.name):
        return
    was_busy = session.name in core.busy
    if words is None:
        del core.busy[session.name]
    else:
        core.busy[session.name] = words
    if was_busy and words is not None:
        return
    for reader in core.graph.readers.get(session.name, ()):
        reader_id = core.state.ids.get(reader)
        if reader_id is not None:
            decision.touch(reader_id)


def find_own_business(core: Core, session: Session) -> str | None:
    """Why this session itself is busy, or None. Sleeping and not owed does not count (rule 31)."""
    if session.run is not None:
        return "is running"
    if not session.is_armed:
        return None
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        if look is None or not bound.wake or bound.kind == "service":
            continue
        if not look.is_looked and look.problem is None:
            return "is not looked at yet"
        if look.version is None:
            return f"cannot see {bound.name}"
        if look.is_dirty:
            return f"is changing ({look.held or bound.name})"
    # First sight not taken; a session that only clocks wake has taken it at its declaration.
    if is_first_owed(session):
        return "has not run yet"
    if session.is_suspect:
        return _outcome_words(session)
    if session.wake is not None or is_owed(core.state, core.looked, session):
        return f"sleeps with changes ({session.hold.kind})" if session.hold is not None else "has changes to take in"
    return None


def _outcome_words(session: Session) -> str:
    outcome = session.last_run.outcome if session.last_run is not None else "unfinished"
    return {"lost": "was lost in a crash", "interrupted": "was interrupted"}.get(outcome, outcome)


def find_busy_upstream(core: Core, session: Session, *, tolerant: bool = False) -> str | None:
    """The root of what holds this session, in words: `payroll failed`. Tolerant: `stale: allow` opts out of it."""
    for upstream, is_stale_allowed in sorted(core.graph.upstreams.get(session.name, {}).items()):
        if tolerant and is_stale_allowed:
            continue
        words = core.busy.get(upstream)
        if words is not None:
            return words if words.startswith("upstream ") else f"upstream {upstream} {words}"
    return None

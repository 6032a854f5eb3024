"""How fast a session may start: beyond a limit it is paced, and never stopped (rule 34 c).

The verdict asks before a start, dispatch records the answer with it, and the views tell it. A paced session waits longer after each start while
changes go on, and is free again after a quiet minute. Its newest version always runs. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.agency import find_acting
from wakeful.core.events import Cause
from wakeful.core.machine import Core
from wakeful.core.state import Session

MINUTE_US = 60_000_000


class Speed(Struct, frozen=True):
    """How many starts a minute are free, and how long a start waits beyond that: the first wait doubles up to the longest."""

    starts_a_minute: int
    first_wait_seconds: float
    longest_wait_seconds: float


COMMANDS = Speed(120, 1.0, 10.0)
# Each start of an agent costs money.
AGENTS = Speed(12, 10.0, 300.0)


class Pace(Struct, frozen=True):
    """Why a start waits, and until when (wall time)."""

    recent: int
    until: int
    wait_seconds: float
    limit: Speed

    @property
    def words(self) -> str:
        return f"paced, {self.recent} starts in the last minute"


def find_pace(core: Core, session: Session, wall: int) -> Pace | None:
    """The pace of a session with an open wake; None where its next start is free."""
    wake = session.wake
    assert wake is not None
    # A retry has its own back-off, and catching up is no sign of a loop.
    if not session.starts or wake.tried is not None or is_backlog(core, session, wake.causes):
        return None
    limit = AGENTS if find_acting(core, session)[0] is not None else COMMANDS
    recent = sum(wall - at < MINUTE_US for at in session.starts)
    if recent < limit.starts_a_minute and (session.paced == 0 or _was_quiet(session)):
        return None
    wait_seconds = min(limit.first_wait_seconds * 2**session.paced, limit.longest_wait_seconds)
    return Pace(recent, session.starts[-1] + int(wait_seconds * 1e6), wait_seconds, limit)


def _was_quiet(session: Session) -> bool:
    """Whether nothing woke the session in the minute after its last run: a wake is requested when its change is found."""
    assert session.wake is not None
    return session.last_run is None or session.wake.requested_at - session.last_run.finished_at >= MINUTE_US


def is_backlog(core: Core, session: Session, causes: tuple[Cause, ...]) -> bool:
    """Whether these are only slots, activations, and commits that waited behind the last run: catching up is not a loop."""
    waited = core.looked.backlogs.get(session.id, frozenset())
    return all(cause.kind in ("cron", "every", "activation") or cause.new in waited for cause in causes)

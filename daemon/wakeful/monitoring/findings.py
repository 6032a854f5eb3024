"""The findings of `wakeful health`: their form, the survey of sessions, and the interface for other parts that report
findings.

`wakeful health` and Prometheus request the survey every few seconds, even with 10,000 sessions. So the result for an
idle session is cached. The cached result is dropped when the session changes, when its budget period or a hold ends, or
when a setting, a secret, an agent or the trust changes. Parts of the daemon that have problems of their own implement
`Reporter`, and answer from memory. Used on the loop only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct

from wakeful.core.deciding.holds import find_doubt, find_hold_words
from wakeful.core.deciding.may_start import find_queue_reason
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.lifecycle_stages import StateWord, name_state
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Archived, DamagedSession, Departed, Session
from wakeful.core.spec.budget import PERIODS, UNITS, Budget, Period, find_present, find_turn
from wakeful.monitoring.metrics_text import Family
from wakeful.views.limit_levels import find_excesses, view_excess
from wakeful.views.session_rows import find_gone, find_restless

# `wrong`: a person should act, and the daemon counts as unhealthy. `note`: for information only.
Level = Literal["wrong", "note"]
What = Literal[
    "failed", "asks", "trust", "sleeps", "held", "budget", "limit", "damaged", "spec", "binding", "log", "disk",
    "defect", "notify", "webhook", "gate", "traces",
]  # fmt: skip
# Seconds after which a waiting run is reported.
HELD_SECONDS = 60.0
# The most wakes whose reason for waiting is looked up, the oldest first. Each lookup takes some microseconds.
MOST_HELD_ASKED = 200
# The most sessions surveyed in one turn of the loop. The first look at a session takes some 20 us.
SESSIONS_AT_ONCE = 500
# The most findings of each kind that are kept. The rest is only counted.
MOST_KEPT = 100
# A budget counts as nearly spent from this share on.
NEARLY = 0.8
# The holds that mean that runs went wrong.
_BROKEN = ("failed", "crashing", "loop")
# The first words of the reasons to sleep that a spec or a call expects. Any other reason means that something is
# missing, so it is `wrong`.
_EXPECTED = ("service ", "a fork without its own files")


class Finding(Struct, frozen=True, kw_only=True):
    """One problem. `since` is in microseconds. `mend` is the command that a person should type next."""

    what: What
    words: str
    level: Level = "wrong"
    session: str | None = None
    since: int | None = None
    mend: str | None = None


class Reporter(Protocol):
    """A part of the daemon that reports its own problems and metrics."""

    def find_problems(self) -> Iterable[Finding]: ...

    def measure(self) -> Iterable[Family]: ...


class Surveyed(Struct, frozen=True):
    """The findings of one session. They are valid until the session changes, but no longer than the time `until`."""

    session: Session
    state: StateWord
    findings: tuple[Finding, ...]
    until: int | None


@dataclass(slots=True)
class Survey:
    """The totals and the findings of all sessions."""

    states: Counter[str] = field(default_factory=Counter)
    # The number of sessions with an open wake and no run: `agent` or `command`.
    queued: Counter[str] = field(default_factory=Counter)
    # The number of findings of each level and kind, and the first `MOST_KEPT` findings of each.
    counts: Counter[tuple[Level, What]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        for one in findings:
            kind = one.level, one.what
            self.counts[kind] += 1
            if self.counts[kind] <= MOST_KEPT:
                self.findings.append(one)

    @property
    def asking(self) -> int:
        return self.counts["wrong", "asks"]

    @property
    def failed(self) -> int:
        return self.counts["wrong", "failed"]


class SessionSurvey:
    """Surveys the sessions. Caches the findings of idle sessions between two calls."""

    def __init__(self) -> None:
        self._kept: dict[str, Surveyed] = {}
        self._inputs_then: tuple[object, ...] = ()

    def survey(self, core: Core, moment: Moment) -> Survey | None:
        """Survey the sessions. None if too many sessions have changed for one turn of the loop. The next call continues
        where this call stopped."""
        self._forget_outdated(core)
        left = SESSIONS_AT_ONCE
        restless = find_restless(core)
        kept, found, waiting = self._kept, Survey(), []
        for session_id, session in core.state.sessions.items():
            known = kept.get(session_id)
            if known is None or known.session is not session:
                if not left:
                    return None
                left -= 1
                known = kept[session_id] = _look_at(core, session, moment)
            elif session_id in restless or (known.until is not None and known.until <= moment.wall):
                known = kept[session_id] = _look_at(core, session, moment)
            found.states[known.state] += 1
            if known.findings:
                found.add(known.findings)
            if session.wake is not None and session.run is None:
                waiting.append(session)
        for session in waiting:
            spec = session.spec
            found.queued["agent" if spec is not None and spec.agent is not None else "command"] += 1
        found.add(_find_held(core, waiting, moment))
        found.add(_find_brake(core))
        if len(kept) > len(core.state.sessions):
            self._kept = {one: kept[one] for one in core.state.sessions}
        return found

    def _forget_outdated(self, core: Core) -> None:
        inputs_now = (
            core.settings.allow_unisolated,
            core.settings.limits,
            core.looked.strict_problem,
            tuple(core.looked.secrets.items()),
            tuple(core.looked.untrusted.items()),
            tuple(map(id, core.agents.values())),
            tuple(core.agent_problems.items()),
        )
        if inputs_now != self._inputs_then:
            self._kept.clear()
            self._inputs_then = inputs_now


def _look_at(core: Core, session: Session, moment: Moment) -> Surveyed:
    is_over = session.is_terminated or isinstance(session.closed, Archived)
    words = None if is_over else find_hold_words(core, session, moment)
    state = name_state(session, is_held=words is not None)
    if isinstance(session, DamagedSession):
        finding = Finding(
            what="damaged",
            session=session.name,
            words=f"{session.name} is damaged: {session.damage}",
            mend="wakeful doctor",
        )
        return Surveyed(session, state, (finding,), None)
    if is_over or find_gone(session) is not None or isinstance(session.closed, Departed):
        return Surveyed(session, state, (), None)
    findings = [*_find_trouble(core, session, words), *_find_limits(core, session)]
    spending, until = _find_spending(session, moment.wall)
    findings += spending
    hold = session.hold
    ends = [one for one in (until, hold.until if hold is not None else None) if one is not None]
    if session.wake is not None and session.wake.retry_at is not None:
        ends.append(session.wake.retry_at)
    return Surveyed(session, state, tuple(findings), min(ends, default=None))


def _find_trouble(core: Core, session: Session, words: str | None) -> Iterator[Finding]:
    """Find why a session sleeps, if a person should know. Nothing is found during a run, because the run may end the
    trouble."""
    hold, last, name = session.hold, session.last_run, session.name
    if words is None or session.run is not None or session.brake is not None:
        return
    if find_doubt(core, session) is not None:
        yield Finding(what="trust", session=name, words=f"{name} {words}", mend=f"wakeful trust {name}")
        return
    if hold is not None and words == hold.words:
        since = last.finished_at if last is not None and hold.kind in _BROKEN else session.last_active_at
        if hold.kind in _BROKEN:
            mend = f"wakeful why {name}"
            yield Finding(what="failed", session=name, words=f"{name} {hold.words}", since=since, mend=mend)
        elif hold.kind == "asking":
            # The text ends with the command that answers the question. Cut that off, because `mend` has the command.
            words = re.split(r":? \(?wakeful answer ", hold.words, maxsplit=1)[0].removeprefix("asks: ")
            mend = f"wakeful answer {name}"
            yield Finding(what="asks", session=name, words=f"{name} asks: {words}", since=since, mend=mend)
        elif hold.kind == "budget":
            mend = f"wakeful costs {name}"
            yield Finding(what="budget", session=name, words=f"{name}: {hold.words}", since=since, mend=mend)
        return
    if (session.wake is not None and session.wake.retry_at is not None) or not session.is_armed:
        return
    level: Level = "note" if words.startswith(_EXPECTED) else "wrong"
    yield Finding(what="sleeps", level=level, session=name, words=f"{name} sleeps: {words}", mend=f"wakeful why {name}")


def _find_limits(core: Core, session: Session) -> Iterator[Finding]:
    for name, amount in find_excesses(session, core.settings.limits):
        excess = view_excess(session, name, amount, core.settings.limits)
        level: Level = "wrong" if excess["level"] == "hard" else "note"
        words = f"{session.name}, {excess['words']}"
        yield Finding(what="limit", level=level, session=session.name, words=words, mend=excess["mend"] or None)


def _find_spending(session: Session, at: int) -> tuple[list[Finding], int | None]:
    """Find the budgets that are nearly spent. Also returns the time when the first of their periods ends, or None."""
    budget = session.spec.budget if session.spec is not None else None
    if budget is None or (session.hold is not None and session.hold.kind == "budget"):
        return [], None
    found, turns = [], []
    for share, period, words in list_shares(budget, session, at):
        if share >= NEARLY:
            turns.append(find_turn(period, at, budget.timezone))
            words = f"{session.name}: {words}"
            mend = f"wakeful costs {session.name}"
            found.append(Finding(what="budget", level="note", session=session.name, words=words, mend=mend))
    return found, min(turns, default=None)


def list_shares(budget: Budget, session: Session, at: int) -> Iterator[tuple[float, Period, str]]:
    """Yield the spent share of every bound of a session's budget, with its period and a text."""
    spent = session.tally.spent
    if not spent:
        return
    for period in PERIODS:
        bound = budget.bound(period)
        if bound is None or period not in spent:
            continue
        now = find_present(spent, budget, period, at)
        for name, unit in UNITS.items():
            limit = getattr(bound, name)
            if limit:
                used = getattr(now, name)
                yield used / limit, period, f"{used:g} of {limit:g} {unit} of the {period} are spent"


def _find_held(core: Core, waiting: list[Session], moment: Moment) -> Iterator[Finding]:
    """Find the wakes that have waited for more than a minute. One finding for each reason, such as a failed upstream,
    even if many sessions wait for it."""
    before = moment.wall - int(HELD_SECONDS * 1e6)
    late = [one for one in waiting if one.wake is not None and one.wake.requested_at < before and one.hold is None]
    late.sort(key=_find_requested)
    reasons: dict[str, list[Session]] = {}
    for session in late[:MOST_HELD_ASKED]:
        queue = find_queue_reason(core, session, moment)
        # A wait with a known end is not reported. If the wake waits because the session sleeps, that is already a
        # finding.
        if queue is not None and queue.until is None and queue.words != find_hold_words(core, session, moment):
            reasons.setdefault(queue.words, []).append(session)
    for words, held in reasons.items():
        names = ", ".join(one.name for one in held[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
        verb = "waits" if len(held) == 1 else "wait"
        yield Finding(
            what="held",
            # A slot becomes free without a person. A failed upstream has its own finding.
            level="note" if words.startswith(("a slot", "upstream ")) else "wrong",
            session=held[0].name if len(held) == 1 else None,
            words=f"{names} {verb}: {words}",
            since=_find_requested(held[0]),
            mend=f"wakeful why {held[0].name}",
        )


def _find_requested(session: Session) -> int:
    return session.wake.requested_at if session.wake is not None else 0


def _find_brake(core: Core) -> Iterator[Finding]:
    if core.state.braked:
        session = core.state.get(min(core.state.braked))
        yield Finding(what="held", words=f"every session sleeps: {session.brake}", mend="wakeful resume --all")

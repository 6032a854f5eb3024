"""`Core`: state and looked, and the functions that `take` and `dispatch` share: emitting, slots, deadlines, looks.

Only `decide` changes the core. It does no I/O and reads no clock: the moment comes with each observation,
so a test can replay years in minutes from a seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from wakeful.core.deciding.decision import DAEMON, Decision, Entry, find_parent, note_periods
from wakeful.core.deciding.graph import Graph
from wakeful.core.deciding.plan import Action, Look, plan
from wakeful.core.deciding.rule_of_two import UntrustedTextFlow
from wakeful.core.looking.observed_state import Looked, TargetLook
from wakeful.core.record.events import Event
from wakeful.core.record.fold import fold
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import AGENT_POOL, GENERAL_POOL, DamagedSession, Session, State
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.core.spec.session import Settings
from wakeful.errors import InternalError


class Deadlines:
    """The due times of one clock, in a heap. An entry is only a hint to check again, so stale entries do no harm."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, str]] = []
        self._known: dict[tuple[str, str], float] = {}

    def add(self, due: float, kind: str, key: str) -> None:
        known = self._known.get((kind, key))
        if known is not None and known <= due:
            return
        self._known[(kind, key)] = due
        heapq.heappush(self._heap, (due, kind, key))

    def drop(self, kind: str, key: str) -> None:
        """Forget a due time. Its heap entry stays until it reaches the top."""
        self._known.pop((kind, key), None)
        self._drop_stale()

    def pop_due(self, now: float) -> Iterable[tuple[str, str]]:
        while self._heap and self._heap[0][0] <= now:
            due, kind, key = heapq.heappop(self._heap)
            if self._known.get((kind, key)) == due:
                del self._known[(kind, key)]
                yield kind, key
        self._drop_stale()

    def _drop_stale(self) -> None:
        """Remove stale entries from the top of the heap."""
        while self._heap and self._known.get(self._heap[0][1:]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    @property
    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None


@dataclass(slots=True, frozen=True)
class Deadline:
    """A moment after which a session may go on. It is over at `until`, or when its length has passed
    on the monotonic clock, so a clock that is set back cannot prolong it (rule 37)."""

    what: str
    until: int
    length_seconds: float | None = None
    # The deadline is a time of the wall clock, such as the opening of a window. It moves when the clock is set.
    is_wall_time: bool = False


@dataclass(slots=True, frozen=True)
class BusyReason:
    """Why a session's outputs may still change (rule 30). `words` is None if only its upstreams are busy."""

    words: str | None
    # The session has failed, is parked, sleeps with changes, or is held by such a session. That does not end by itself
    # (rule 31).
    is_stuck: bool = False


class Lane(NamedTuple):
    """The slots that a session needs: one of its pool, if it has one, and one for commands or for agents."""

    pool: str | None
    is_agent: bool


class ReadyQueue:
    """Sessions that wait only for a slot, in the order in which they get their slots (rule 35).

    Sessions that need the same slots wait in one lane, so free slots are checked once per lane and not once per
    session. Only `dispatch` changes the queue. Views show the order of the waiting sessions.
    """

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[tuple[float, str]]] = {}
        # The rank and lane of each waiting session. A heap entry that differs is out of date.
        self._places: dict[str, tuple[float, Lane]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._places

    def find_rank(self, session_id: str) -> float | None:
        place = self._places.get(session_id)
        return place[0] if place is not None else None

    def put(self, session_id: str, rank: float, lane: Lane) -> None:
        """Queue a session; the smallest rank goes first. A session that waits already moves to its new rank."""
        if self._places.get(session_id) != (rank, lane):
            self._places[session_id] = rank, lane
            heapq.heappush(self._lanes.setdefault(lane, []), (rank, session_id))

    def remove(self, session_id: str) -> None:
        self._places.pop(session_id, None)

    def take(self, has_slot: Callable[[Lane], bool]) -> str | None:
        """Remove and return the first session for which a slot is free."""
        open_lanes = [lane for lane in list(self._lanes) if has_slot(lane)]
        firsts = [(*first, lane) for lane in open_lanes if (first := self._pass_over_removed(lane)) is not None]
        if not firsts:
            return None
        _, session_id, lane = min(firsts, key=lambda one: one[:2])
        heapq.heappop(self._lanes[lane])
        del self._places[session_id]
        return session_id

    def _pass_over_removed(self, lane: Lane) -> tuple[float, str] | None:
        """Return the first valid entry of a lane. Drops entries of sessions that were removed or have another place."""
        entries = self._lanes[lane]
        while entries and self._places.get(entries[0][1]) != (entries[0][0], lane):
            heapq.heappop(entries)
        if not entries:
            del self._lanes[lane]
            return None
        return entries[0]


class Core:
    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        self.state = State()
        self.looked = Looked()
        self.graph = Graph()
        self.settings = Settings()
        # The declared agents by name, and the reasons why files of agents are not in force.
        self.agents: dict[str, AgentSpec] = {}
        self.agent_problems: dict[str, str] = {}
        self.untrusted_text = UntrustedTextFlow(self.graph, self.state)
        self.incarnation = ""
        # Sessions with a run that an earlier daemon began.
        self.inheriting: frozenset[str] = frozenset()
        self.is_first_reading = True
        # No new runs once the daemon is stopping.
        self.is_stopping = False
        # Wall time minus boot time, in microseconds. It changes only when the clock is set.
        self.clock_offset: int | None = None
        # Sessions with readers whose outputs may still change, by name.
        self.busy: dict[str, BusyReason] = {}
        self.mono = Deadlines()
        self.wall = Deadlines()
        self.ready = ReadyQueue()
        # (session id, name of a deadline) -> its wall time, and its end on the monotonic clock (rule 37).
        self.patience: dict[tuple[str, str], tuple[int, float]] = {}
        for session in sessions:
            self.state.put(session)

    def emit(
        self,
        decision: Decision,
        session_id: str,
        event: Event,
        *,
        author: str = DAEMON,
        run: int | None = None,
        key: str | None = None,
    ) -> Session:
        before = self.state.sessions.get(session_id)
        if isinstance(before, DamagedSession):
            raise InternalError(
                f"{type(event).__name__} was to be recorded in {before.name}, which is read-only: {before.damage}"
            )
        seq = (before.seq if before is not None else 0) + 1
        if run is None and before is not None and before.run is not None:
            run = before.run.run
        event = note_periods(before, event, decision.moment.wall)
        parent = find_parent(self.state, before, event, decision.entries)
        session = fold(before, event, seq=seq, at=decision.moment.wall, author=author)
        if run is None and session.run is not None:
            run = session.run.run
        self.state.put(session)
        decision.entries.append(Entry(session_id, seq, event, author, run, parent, key))
        decision.touch(session_id)
        decision.planned[session_id] = None
        return session

    def has_slot(self, pool: str | None, *, is_agent: bool) -> bool:
        """Is a slot free? Agents have separate slots, so waiting for a model blocks no command."""
        settings, used = self.settings, self.state.used
        kind, limit = (AGENT_POOL, settings.agent_concurrency) if is_agent else (GENERAL_POOL, settings.concurrency)
        if self.looked.shortage is not None or used.get(kind, 0) >= limit:
            return False
        return pool is None or used.get(pool, 0) < settings.pools.get(pool, 1)

    def view_slots(self) -> dict[str, dict[str, int]]:
        """Count the used slots and all slots, for `commands` and for `agents`."""
        used = self.state.used
        return {
            "commands": {"used": used.get(GENERAL_POOL, 0), "of": self.settings.concurrency},
            "agents": {"used": used.get(AGENT_POOL, 0), "of": self.settings.agent_concurrency},
        }

    def want_look(self, decision: Decision, look: TargetLook) -> None:
        """Begin the look if it is due, else set a deadline for it."""
        if not look.is_dirty or look.looking is not None or look.is_waiting:
            return
        due = look.due
        if due > decision.moment.mono:
            self.mono.add(due, "target", look.target.key)
            return
        look.looking = look.generation
        decision.looks.append(
            Look(
                target=look.target.key, generation=look.generation, base=self._base_of(look), takes_open=look.takes_open
            )
        )

    def inherited_since(self, target: str) -> int | None:
        """Return the start of the first run that an earlier daemon began and that reads this target.

        None if there is no such run.
        """
        look = self.looked.targets.get(target) if self.inheriting else None
        if look is None:
            return None
        runs = (self.state.get(session_id).run for session_id in self.inheriting & look.subscribers)
        return min(
            (
                run.started_at
                for run in runs
                if run is not None and (run.daemons > 1 or run.incarnation != self.incarnation)
            ),
            default=None,
        )

    def _base_of(self, look: TargetLook) -> str | None:
        """Return the commit that a look at commits starts from. None for other kinds of targets."""
        if not look.target.key.startswith("commits"):
            return None
        for session_id in sorted(look.subscribers):
            session = self.state.get(session_id)
            for bound in self.looked.bounds.get(session_id, ()):
                if bound.target == look.target.key and isinstance(bound.binding, CommitsBinding):
                    marks = session.marks.seen if bound.binding.each_commit else session.marks.good
                    return marks.get(bound.key)
        return None

    def has_passed(self, session_id: str, deadline: Deadline, moment: Moment) -> bool:
        """Is a deadline over? Changes nothing: `await_deadline` begins to measure its length."""
        if moment.wall >= deadline.until:
            return True
        known, due = self.patience.get((session_id, deadline.what), (None, 0.0))
        return known == deadline.until and moment.mono >= due

    def await_deadline(self, session_id: str, deadline: Deadline, moment: Moment) -> None:
        """Begin to measure the length of a deadline, if that has not begun. The session is dispatched at its end."""
        self.wall.add(deadline.until, "session", session_id)
        if deadline.is_wall_time:
            return
        key = session_id, deadline.what
        known, due = self.patience.get(key, (None, 0.0))
        if known != deadline.until:
            remaining = (deadline.until - moment.wall) / 1e6
            length = deadline.length_seconds
            due = moment.mono + (remaining if length is None else min(remaining, length))
            self.patience[key] = deadline.until, due
        self.mono.add(due, "session", session_id)

    def detach(self, decision: Decision, session: Session) -> None:
        """Stop looking at the session's bindings, and remove the session from the graph and the queue."""
        self.touch_around(decision, session.name)
        self.graph.remove(session.name)
        self.busy.pop(session.name, None)
        self.ready.remove(session.id)
        decision.forget += self.looked.unbind(session.id)

    def touch_around(self, decision: Decision, name: str) -> None:
        """Dispatch the readers and upstreams of a session, because it may hold them, or they may yield to it."""
        self.touch_named(decision, (*sorted(self.graph.readers.get(name, ())), *sorted(self.graph.all_upstreams(name))))

    def touch_named(self, decision: Decision, names: Iterable[str]) -> None:
        """Dispatch the sessions of these names. The graph also has names that belong to no session."""
        for name in names:
            if name in self.state.ids:
                decision.touch(self.state.ids[name])

    def plan(self, session_id: str, attached: frozenset[str] | set[str]) -> list[Action]:
        return plan(self.state.get(session_id), self.incarnation, attached)

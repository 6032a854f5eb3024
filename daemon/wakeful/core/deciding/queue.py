"""Sessions that wait for nothing but a slot, in the order in which they get one (rule 35).

Sessions that need the same slots wait in one lane, so free slots are checked once per lane and not once per session.
Only `dispatch` changes the queue. Views show the order of the waiting sessions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple


class Lane(NamedTuple):
    """The slots that a session needs: one of its pool, if it has one, and one for commands or for agents."""

    pool: str | None
    is_agent: bool


class ReadyQueue:
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

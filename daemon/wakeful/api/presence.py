"""Presence: the people who looked at a session, or wrote to it, within the last minute.

Presence is kept in memory only, and used on the loop only. The gate notes each GET request about a session. The routes
note calls, and hold an entry while a stream of a session is open. Streams that show presence to others use `listen`. No
timer runs while there are no listeners or no entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Literal, NamedTuple

Doing = Literal["looks", "writes"]
# Seconds that a person counts as present after their last request.
PRESENT_SECONDS = 60.0
# The most entries. When there are more, the entry that would expire first is dropped.
MOST_PRESENT = 10_000


class Present(NamedTuple):
    """A person who is present in a session. `since` is the time when the unbroken presence began, in microseconds
    UTC."""

    person: str
    session: str
    doing: Doing
    since: int


@dataclass(slots=True)
class _Entry:
    since: int
    looked_until: float
    wrote_until: float
    # The number of the person's open streams of this session.
    held: int = 0
    # The activity that was last reported to listeners.
    told: Doing = "looks"

    def until(self) -> float:
        return float("inf") if self.held else max(self.looked_until, self.wrote_until)

    def doing(self, now: float) -> Doing:
        return "writes" if self.wrote_until > now else "looks"


class Presence:
    """The present people of all sessions. `session` is an id. `person` is a name without `person:`, or an author of
    another kind."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._listeners: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None
        # Grows whenever the answer of `list_present` changes.
        self.version = 0

    def note(self, person: str, session: str, doing: Doing, wall: int) -> None:
        """Note that a person has just looked or written. `wall` is the current time in microseconds UTC."""
        now = monotonic()
        entry, is_new = self._enter(person, session, wall, now)
        if doing == "writes":
            entry.wrote_until = now + PRESENT_SECONDS
        else:
            entry.looked_until = now + PRESENT_SECONDS
        self._tell_change(entry, now, is_new=is_new)

    @contextmanager
    def hold(self, person: str, session: str, wall: int) -> Iterator[None]:
        """Count the person as looking until the context ends, and for `PRESENT_SECONDS` after it."""
        now = monotonic()
        entry, is_new = self._enter(person, session, wall, now)
        entry.held += 1
        self._tell_change(entry, now, is_new=is_new)
        try:
            yield
        finally:
            entry.held -= 1
            entry.looked_until = monotonic() + PRESENT_SECONDS
            self._set_timer()

    def list_present(self, session: str | None = None) -> list[Present]:
        """List the people present, in all sessions or in one, in order of arrival."""
        now = monotonic()
        return [
            Present(person, one, entry.doing(now), entry.since)
            for (person, one), entry in sorted(self._entries.items(), key=lambda item: (item[1].since, item[0]))
            if entry.until() > now and session in (None, one)
        ]

    @contextmanager
    def listen(self, heard: asyncio.Event) -> Iterator[None]:
        """Set the event whenever the answer of `list_present` has changed."""
        self._listeners.add(heard)
        self._set_timer()
        try:
            yield
        finally:
            self._listeners.discard(heard)
            self._set_timer()

    def _enter(self, person: str, session: str, wall: int, now: float) -> tuple[_Entry, bool]:
        entry = self._entries.get((person, session))
        if entry is not None and entry.until() > now:
            return entry, False
        if len(self._entries) >= MOST_PRESENT:
            self._drop_gone(now)
        if len(self._entries) >= MOST_PRESENT:
            del self._entries[min(self._entries, key=lambda key: self._entries[key].until())]
        entry = self._entries[person, session] = _Entry(wall, now, now)
        return entry, True

    def _tell_change(self, entry: _Entry, now: float, *, is_new: bool) -> None:
        doing = entry.doing(now)
        if is_new or doing != entry.told:
            entry.told = doing
            self._tell()
        self._set_timer()

    def _tell(self) -> None:
        self.version += 1
        for heard in self._listeners:
            heard.set()

    def _set_timer(self) -> None:
        """Set the timer for the moment when the first entry expires or stops writing, if there are listeners."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._listeners or not self._entries:
            return
        now = monotonic()
        times = [entry.until() for entry in self._entries.values()]
        times += [entry.wrote_until for entry in self._entries.values() if entry.wrote_until > now]
        first = min(times)
        if first != float("inf"):
            self._timer = asyncio.get_running_loop().call_later(max(0.0, first - now), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = monotonic()
        has_changed = self._drop_gone(now)
        for entry in self._entries.values():
            doing = entry.doing(now)
            has_changed |= doing != entry.told
            entry.told = doing
        if has_changed:
            self._tell()
        self._set_timer()

    def _drop_gone(self, now: float) -> bool:
        gone = [key for key, entry in self._entries.items() if entry.until() <= now]
        for key in gone:
            del self._entries[key]
        return bool(gone)

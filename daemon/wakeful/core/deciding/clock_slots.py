"""The due times of clock bindings: slots of cron expressions and periods, and the windows sessions may run in.

The core and `specs/` call these pure functions. Time is in microseconds UTC. Slots are ISO UTC text that sorts by time.
cronsim finds the wall times that match, and this module maps wall time to instants by the rules of Debian cron:
- A fixed time that daylight saving skips is due once, when the gap ends. A fixed time that it repeats is due only at
  its first pass.
- An expression with `*` in its minute or hour follows real time through both passes of a repeated hour.
Nothing here reads the clock, and no search iterates over all slots of an interval.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from copy import copy
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from wakeful.core.spec.bindings import ClockBinding, CronBinding, EveryBinding
from wakeful.core.spec.session import Window
from wakeful.core.spec.zones import find_zone

SECOND_US = 1_000_000
_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_LAST_SECOND = (datetime.max - _EPOCH) // _SECOND
# The spans of a search backwards. cronsim gives up after 50 years without a match, so a longer search finds nothing.
_FIRST_LOOK_BACK_SECONDS = 90
_LONGEST_LOOK_BACK_SECONDS = 51 * 366 * _DAY_SECONDS
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class SlotDue(NamedTuple):
    """A slot, and the moment it falls due: the slot itself plus the session's stable jitter."""

    slot: str
    due_us: int


# A cache, because every check of a clock needs its zone.
_zone = lru_cache(maxsize=1024)(find_zone)


def find_cron_problem(expression: str, timezone: str) -> str | None:
    """Say why this expression has no slots. None if it has slots. `specs/` checks this before it makes a binding."""
    try:
        CronSim(_spell_out(expression), _EPOCH)
    except CronSimError as error:
        return f'cron expression {expression!r}: {str(error).lower()}; expected five fields, such as "0 6 1 * *"'
    schedule = _schedule(expression, timezone)
    if schedule is None:
        return f"time zone {timezone!r} is not known; expected a name such as Europe/Berlin or UTC"
    if schedule.next_after(0) is None:
        return f"cron expression {expression!r} never matches any day"
    return None


def latest_slot(binding: ClockBinding, at_us: int, jitter_key: str, known: str | None = None) -> str | None:
    """Return the newest slot that is due at this moment. None if there never was one.

    `known` is any slot of an `every` binding, whose slots are whole periods apart. Without it, slots count from 1970.
    """
    reached_us = at_us - jitter_us(binding, jitter_key)
    match binding:
        case EveryBinding():
            return _format_slot(binding, _last_period(binding, reached_us, known))
        case CronBinding():
            schedule = _schedule(binding.expression, binding.timezone)
            found = None if schedule is None else schedule.latest_until(reached_us // SECOND_US)
            return None if found is None else _format_slot(binding, found * SECOND_US)


def next_slot_after(
    binding: ClockBinding, slot_or_us: str | int, jitter_key: str, known: str | None = None
) -> SlotDue | None:
    """Return the slot after this slot, or the first that falls due after this moment. None if none ever comes.

    `known` is as in `latest_slot`.
    """
    jitter = jitter_us(binding, jitter_key)
    after_us = slot_us(slot_or_us) if isinstance(slot_or_us, str) else slot_or_us - jitter
    match binding:
        case EveryBinding():
            known = slot_or_us if isinstance(slot_or_us, str) else known
            found_us = _last_period(binding, after_us, known) + period_us(binding)
        case CronBinding():
            schedule = _schedule(binding.expression, binding.timezone)
            found = None if schedule is None else schedule.next_after(after_us // SECOND_US)
            if found is None:
                return None
            found_us = found * SECOND_US
    return SlotDue(_format_slot(binding, found_us), found_us + jitter)


def move_slot(binding: ClockBinding, slot: str, by_us: int) -> str:
    """Return a slot moved by this much, rounded to the precision of the binding's slots."""
    unit_us = 1 if _is_fine(binding) else SECOND_US
    return _format_slot(binding, slot_us(slot) + round(by_us / unit_us) * unit_us)


def slot_us(slot: str) -> int:
    """Return the instant of a slot, in microseconds UTC."""
    return (datetime.fromisoformat(slot).replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)


def jitter_us(binding: ClockBinding, jitter_key: str) -> int:
    """Return the shift of this session's slots. It is the same after every restart, so that no slot is due twice."""
    spread_us = round(binding.jitter_seconds * SECOND_US)
    if spread_us <= 0:
        return 0
    digest = hashlib.blake2b(jitter_key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % spread_us


def is_inside_window(window: Window, at_us: int) -> bool:
    """Is the wall clock of the window's zone inside the window?"""
    # A zone that tzdata no longer knows must not keep the session waiting for ever.
    zone = _zone(window.timezone)
    if zone is None or window.start_minute == window.end_minute:
        return True
    wall = _wall_at(zone, at_us // SECOND_US)
    minute = wall.hour * 60 + wall.minute
    if window.start_minute < window.end_minute:
        return window.start_minute <= minute < window.end_minute
    return minute >= window.start_minute or minute < window.end_minute


def window_opens_at(window: Window, at_us: int) -> int:
    """Return the next moment at which the window opens, or `at_us` itself if it is open."""
    zone = _zone(window.timezone)
    if zone is None or is_inside_window(window, at_us):
        return at_us
    today = _wall_at(zone, at_us // SECOND_US).replace(hour=0, minute=0, second=0)
    last_day = 3
    # A gap can skip the start of the window, or the whole day in a zone that crosses the date line. The window then
    # opens at the end of the gap.
    at = at_us // SECOND_US
    candidates = [change.at for change in _changes_between(zone, at, at + last_day * _DAY_SECONDS)]
    for day in range(last_day + 1):
        start = (today + timedelta(days=day, minutes=window.start_minute)).replace(tzinfo=zone)
        candidates += [int(start.replace(fold=fold).timestamp()) for fold in (0, 1)]
    coming = (at * SECOND_US for at in candidates)
    return min(us for us in coming if us > at_us and is_inside_window(window, us))


class _OffsetChange(NamedTuple):
    """A change of a zone's offset, and the second from which it counts."""

    at: int
    before: int
    after: int


class _Schedule:
    """A parsed expression in its zone. Instants are whole seconds UTC.

    It caches the last pair of neighbouring slots, because thousands of sessions that share an expression
    ask about moments between the same two slots.
    """

    def __init__(self, sim: CronSim, zone: tzinfo, is_fixed_time: bool) -> None:
        self.sim = sim
        self.zone = zone
        self.is_fixed_time = is_fixed_time
        self._neighbours = (0, 0)

    def next_after(self, at: int) -> int | None:
        """Return the first instant after `at` at which the expression is due."""
        slot, following = self._neighbours
        return following if slot <= at < following else self._search_after(at)

    def latest_until(self, at: int) -> int | None:
        """Return the last due instant that is not after `at`."""
        slot, following = self._neighbours
        if slot <= at < following:
            return slot
        found = self._search_back(at)
        later = None if found is None else self._search_after(found)
        if found is not None and later is not None:
            self._neighbours = (found, later)
        return found

    def _search_after(self, at: int) -> int | None:
        begins = at
        last = _last_change(self.zone, at)
        offset = _offset_at(self.zone, at)
        wall = _EPOCH + timedelta(seconds=at + offset)
        if self.is_fixed_time and last is not None:
            # In the second pass of a repeated hour every fixed time of that hour was due already.
            wall = max(wall, _EPOCH + timedelta(seconds=last.at + last.before - 1))
        match = self._wall_after(wall)
        while match is not None:
            # A wall time inside a gap maps to an instant before the change. It is due when the gap ends.
            instant = max(_seconds(match) - offset, begins)
            change = next(_changes_between(self.zone, begins, instant), None)
            if change is None:
                return instant
            begins, offset = change.at, change.after
            # A fixed time is due once, wherever the wall clock jumps. An expression that follows real time is matched
            # again from the new wall time.
            if not self.is_fixed_time:
                match = self._wall_after(_EPOCH + timedelta(seconds=change.at + change.after - 1))
        return None

    def _search_back(self, at: int) -> int | None:
        """Find the last due instant by forward searches: first from starts further and further back, then by bisection.

        cronsim's own reverse search disagrees with its forward search inside a repeated hour (6 of 3,685 probes).
        """
        span = _FIRST_LOOK_BACK_SECONDS
        while (found := self.next_after(at - span)) is None or found > at:
            if span >= _LONGEST_LOOK_BACK_SECONDS:
                return None
            span = min(span * 8, _LONGEST_LOOK_BACK_SECONDS)
        empty_from = at
        while (later := self.next_after(found)) is not None and later <= at:
            found = later
            middle = (found + empty_from) // 2
            later = self.next_after(middle)
            if later is not None and later <= at:
                found = later
            else:
                empty_from = middle
        return found

    def _wall_after(self, wall: datetime) -> datetime | None:
        # A copy avoids parsing the expression again, which costs ten times as much as the search.
        # Without a zone cronsim only does calendar arithmetic.
        sim = copy(self.sim)
        sim.dt = wall
        try:
            return next(sim)
        except (StopIteration, OverflowError):
            # No match within 50 years, or the calendar ends (year 9999).
            return None


@lru_cache(maxsize=4096)
def _schedule(expression: str, timezone: str) -> _Schedule | None:
    """Parse an expression. None if it has no slots: it is not valid, or tzdata has lost the zone since."""
    zone = _zone(timezone)
    spelled = _spell_out(expression)
    try:
        sim = CronSim(spelled, _EPOCH)
    except CronSimError:
        return None
    if zone is None:
        return None
    fields = spelled.split()
    # This is Debian cron's test of a fixed time. Cron has no expressions of six fields; those follow real time.
    is_fixed_time = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")
    return _Schedule(sim, zone, is_fixed_time)


def _spell_out(expression: str) -> str:
    return _NICKNAMES.get(expression.strip().lower(), expression)


def _wall_at(zone: tzinfo, at: int) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None)


def _offset_at(zone: tzinfo, at: int) -> int:
    return _seconds(_wall_at(zone, at)) - at


def _seconds(wall: datetime) -> int:
    return (wall - _EPOCH) // _SECOND


def _changes_between(zone: tzinfo, after: int, until: int) -> Iterator[_OffsetChange]:
    """Yield the changes later than `after` and not later than `until`, in order.

    Only the years in between are searched. A search of all 50 years of the calendar, for a zone that has no more
    changes, took 38,000 lookups in the zone, 15 % of a profiled start with six sessions.
    """
    for year in range(_year(after), _year(until) + 1):
        for change in _changes_in_year(zone, year):
            if after < change.at <= until:
                yield change


def _last_change(zone: tzinfo, at: int) -> _OffsetChange | None:
    """Return the newest change that is not after `at`. One year back is enough, because only the last hours matter."""
    year = _year(at)
    earlier = [change for near in (year - 1, year) for change in _changes_in_year(zone, near) if change.at <= at]
    return earlier[-1] if earlier else None


def _year(at: int) -> int:
    # Python's calendar ends at this second.
    return datetime.fromtimestamp(min(at, _LAST_SECOND), UTC).year


@lru_cache(maxsize=4096)
def _changes_in_year(zone: tzinfo, year: int) -> tuple[_OffsetChange, ...]:
    """List every change of offset in a year. zoneinfo has no such list, so this compares the offsets at midnight, and
    finds the moment of a change by bisection."""
    if not MINYEAR + 1 < year < MAXYEAR:
        return ()
    begins = _seconds(datetime(year, 1, 1))
    ends = _seconds(datetime(year + 1, 1, 1))
    changes = []
    for day in range(begins, ends, _DAY_SECONDS):
        before, after = _offset_at(zone, day - 1), _offset_at(zone, day + _DAY_SECONDS - 1)
        if before != after:
            changes.append(_OffsetChange(_find_change(zone, day - 1, day + _DAY_SECONDS - 1), before, after))
    return tuple(changes)


def _find_change(zone: tzinfo, low: int, high: int) -> int:
    before = _offset_at(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def period_us(binding: EveryBinding) -> int:
    return max(1, round(binding.period_seconds * SECOND_US))


def _last_period(binding: EveryBinding, at_us: int, known: str | None) -> int:
    """Return the last moment, not after `at_us`, that is whole periods away from a known slot."""
    length_us = period_us(binding)
    shift_us = slot_us(known) % length_us if known is not None else 0
    return (at_us - shift_us) // length_us * length_us + shift_us


def _is_fine(binding: ClockBinding) -> bool:
    """Are the slots of this binding written to the microsecond?"""
    return isinstance(binding, EveryBinding) and period_us(binding) % SECOND_US != 0


def _format_slot(binding: ClockBinding, us: int) -> str:
    instant = _EPOCH + timedelta(microseconds=us)
    # All slots of one binding have the same width, or text order would not be time order.
    return instant.isoformat(timespec="microseconds" if _is_fine(binding) else "seconds") + "Z"

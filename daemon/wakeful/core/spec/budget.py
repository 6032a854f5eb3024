"""The budget of a session and the amounts spent: in one run, and by the hour, day and month of its time zone.

The verdict checks the budget before a run starts: a spent budget holds the wake, and never consumes it. The rest of
the budget limits the run itself (`find_allowance`), so that the last run does not overspend. The reducer charges the
amounts in the log, so a restart forgets nothing. The functions are pure.

A decision reads the zone database. The event holds the periods that a fold needs (`find_periods`), so a fold reads the
database only for older records, which lack them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.spec.zones import find_zone

Period = Literal["hour", "day", "month"]
PERIODS: tuple[Period, ...] = ("hour", "day", "month")
# Time zone -> period -> its start, in microseconds.
Periods = dict[str, dict[str, int]]
# The counted amounts, each with the unit that people read.
UNITS = {
    "runs": "runs",
    "wall_seconds": "s",
    "cpu_seconds": "s of CPU",
    "written_bytes": "bytes written",
    "tokens": "tokens",
    "usd": "USD",
}
# Amounts that the requests of a run spend. The other amounts are spent by the run itself.
OF_REQUESTS = ("tokens", "usd")


class Amounts(Struct, frozen=True, kw_only=True):
    """One number for each counted amount: limits, or usage to compare with limits. In limits, None means no limit."""

    runs: int | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    written_bytes: int | None = None
    tokens: int | None = None
    usd: float | None = None


class Budget(Struct, frozen=True, kw_only=True):
    run: Amounts = Amounts()
    hour: Amounts | None = None
    day: Amounts | None = None
    month: Amounts | None = None
    # The time zone of the hours, days and months.
    timezone: str = "UTC"

    def bound(self, period: Period) -> Amounts | None:
        bound: Amounts | None = getattr(self, period)
        return bound


class Price(Struct, frozen=True, kw_only=True):
    """USD for a million tokens.

    `cached` is the price of input that the provider read from its cache. `cache_write` is the price of input that it
    stored there, for the shortest time that it offers. None means the usual price of input.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None


class Spent(Struct, frozen=True, kw_only=True):
    """The amounts spent since the start of a period. `since` is in microseconds."""

    since: int
    runs: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    written_bytes: int = 0
    tokens: int = 0
    usd: float = 0.0

    def plus(self, other: Spent) -> Spent:
        """Add the amounts of another value for the same period."""
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in UNITS})


class Exhausted(Struct, frozen=True):
    words: str
    # The end of the period, in microseconds.
    until: int


def find_periods(budgets: Iterable[Budget | None], at: int) -> Periods | None:
    """Return the starts of the periods that these budgets count. None if they count none."""
    found: Periods = {}
    for budget in budgets:
        for period in PERIODS if budget is not None else ():
            if budget is not None and budget.bound(period) is not None:
                found.setdefault(budget.timezone, {})[period] = _begin(period, at, budget.timezone)
    return found or None


def charge(
    spent: dict[str, Spent], budget: Budget, at: int, periods: Periods | None = None, **used: float
) -> dict[str, Spent]:
    """Return the amounts spent after `used` is added at that time. Only periods with a bound are counted."""
    charged: dict[str, Spent] = {}
    begins = (periods or {}).get(budget.timezone, {})
    for period in PERIODS:
        if budget.bound(period) is None:
            continue
        now = find_present(spent, budget, period, at, begins.get(period))
        charged[period] = replace(now, **{name: getattr(now, name) + amount for name, amount in used.items()})
    return charged


def find_exhausted(
    budget: Budget, spent: dict[str, Spent], at: int, *, counted: Collection[str] = UNITS, **wanted: float
) -> Exhausted | None:
    """Find a bound that leaves nothing for one more run, or less than `wanted`. If there are several, return the one
    that lasts longest.

    `counted` are the amounts that are checked. For a request of a run they are tokens and money, because the run itself
    was counted at its start.
    """
    found = []
    for period in PERIODS:
        bound = budget.bound(period)
        if bound is None:
            continue
        now = find_present(spent, budget, period, at)
        for name, unit in UNITS.items():
            limit = getattr(bound, name) if name in counted else None
            if limit is None:
                continue
            more, used = wanted.get(name, 0.0), getattr(now, name)
            if used >= limit or used + more > limit:
                words = f"budget of the {period}: {used:g} of {limit:g} {unit} spent"
                words += f", and the next request may take {more:g}" if used < limit else ""
                found.append(Exhausted(words, find_turn(period, max(at, now.since), budget.timezone)))
    return max(found, key=lambda one: one.until, default=None)


def find_shortage(bound: Amounts, wanted: Amounts) -> str | None:
    """Describe the first wanted amount that exceeds its bound. None if no amount does."""
    for name, unit in UNITS.items():
        limit, amount = getattr(bound, name), getattr(wanted, name)
        if limit is not None and amount is not None and amount > limit:
            return f"{amount:g} of {limit:g} {unit}"
    return None


def find_overspent(bound: Amounts, taken: Amounts) -> str | None:
    """Describe the first bound that the taken amounts use up. None if there is none."""
    for name, unit in UNITS.items():
        limit, amount = getattr(bound, name), getattr(taken, name)
        if limit is not None and amount is not None and amount >= limit:
            return f"{amount:g} of {limit:g} {unit} spent"
    return None


def find_allowance(budget: Budget, spent: dict[str, Spent], at: int) -> Amounts:
    """Return the amounts that the next run may use: the bound of a run, or the rest of a period if that is less."""
    left = {name: [limit] for name in UNITS if (limit := getattr(budget.run, name)) is not None}
    for period in PERIODS:
        bound = budget.bound(period)
        if bound is None:
            continue
        now = find_present(spent, budget, period, at)
        for name in UNITS:
            if (limit := getattr(bound, name)) is not None:
                left.setdefault(name, []).append(max(0, limit - getattr(now, name)))
    return Amounts(**{name: min(amounts) for name, amounts in left.items()})


def find_turn(period: Period, at: int, timezone: str) -> int:
    """Return the end of the period that contains this time, in microseconds."""
    begin = _begin(period, at, timezone)
    match period:
        case "hour":
            return begin + 3_600_000_000
        case "day":
            return _midnight(_wall(begin, timezone).date() + timedelta(days=1), timezone)
        case "month":
            first = _wall(begin, timezone).date()
            return _midnight((first + timedelta(days=32)).replace(day=1), timezone)


def find_present(spent: dict[str, Spent], budget: Budget, period: Period, at: int, begin: int | None = None) -> Spent:
    """Return the amounts spent in the present period.

    If the clock was set back, amounts of a later period still count, until that period is over.
    """
    known = spent.get(period)
    begin = _begin(period, at, budget.timezone) if begin is None else begin
    return known if known is not None and known.since >= begin else Spent(since=begin)


def _begin(period: Period, at: int, timezone: str) -> int:
    match period:
        case "hour":
            # An hour of the clock in that zone, because the offset of some zones is not a whole hour.
            offset = _wall(at, timezone).utcoffset() or timedelta()
            shift = int(offset.total_seconds()) * 1_000_000
            return (at + shift) // 3_600_000_000 * 3_600_000_000 - shift
        case "day":
            return _midnight(_wall(at, timezone).date(), timezone)
        case "month":
            return _midnight(_wall(at, timezone).date().replace(day=1), timezone)


def _wall(at: int, timezone: str) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).astimezone(_find_zone(timezone))


def _midnight(day: date, timezone: str) -> int:
    begin = datetime(day.year, day.month, day.day, tzinfo=_find_zone(timezone))
    return int(begin.timestamp()) * 1_000_000


def _find_zone(name: str) -> tzinfo:
    """Return the zone, or UTC if the machine's database does not have it. `doctor` reports a missing zone."""
    return find_zone(name) or UTC


def counts_money(budget: Budget | None) -> bool:
    return budget is not None and any(
        bound is not None and bound.usd is not None for bound in (budget.run, budget.hour, budget.day, budget.month)
    )

"""Budgets as values: the amounts spent in each period, when a period ends, and what is left for the next run."""

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.core.spec.budget import (
    PERIODS,
    Amounts,
    Budget,
    Spent,
    charge,
    find_allowance,
    find_exhausted,
    find_periods,
    find_turn,
)
from wakeful.core.spec.zones import is_zone_known

SHANGHAI, KOLKATA, BERLIN = "Asia/Shanghai", "Asia/Kolkata", "Europe/Berlin"


def us(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("period", "at", "zone", "turn"),
    [
        ("hour", "2026-11-16 09:59:59", SHANGHAI, "2026-11-16 10:00:00"),
        ("hour", "2026-11-16 10:00:00", SHANGHAI, "2026-11-16 11:00:00"),
        ("hour", "2026-11-16 10:15:00", KOLKATA, "2026-11-16 11:00:00"),
        ("day", "2026-11-16 00:00:00", SHANGHAI, "2026-11-17 00:00:00"),
        ("day", "2026-10-25 01:00:00", BERLIN, "2026-10-26 00:00:00"),
        ("day", "2026-03-29 01:00:00", BERLIN, "2026-03-30 00:00:00"),
        ("month", "2026-12-31 23:59:59", BERLIN, "2027-01-01 00:00:00"),
        ("month", "2028-02-29 12:00:00", SHANGHAI, "2028-03-01 00:00:00"),
    ],
)
def test_a_period_turns_by_the_clock_of_its_zone(period: str, at: str, zone: str, turn: str) -> None:
    assert find_turn(period, us(at, zone), zone) == us(turn, zone)


@given(
    st.integers(0, 4_000_000_000_000_000),
    st.sampled_from(PERIODS),
    st.sampled_from([SHANGHAI, KOLKATA, BERLIN, "America/St_Johns"]),
)
def test_every_moment_lies_in_a_period_that_turns_later(at: int, period: str, zone: str) -> None:
    turn = find_turn(period, at, zone)
    assert at < turn
    assert find_turn(period, turn - 1, zone) == turn
    assert find_turn(period, turn, zone) > turn


def test_what_was_spent_counts_until_its_period_turns() -> None:
    budget = Budget(hour=Amounts(runs=2), day=Amounts(runs=3), timezone=SHANGHAI)
    at = us("2026-11-16 09:10:00", SHANGHAI)
    spent = charge({}, budget, at, runs=1)
    assert find_exhausted(budget, spent, at) is None
    spent = charge(spent, budget, at, runs=1)
    found = find_exhausted(budget, spent, at)
    assert found is not None
    assert (found.words, found.until) == ("budget of the hour: 2 of 2 runs spent", us("2026-11-16 10:00:00", SHANGHAI))
    at = us("2026-11-16 10:00:00", SHANGHAI)
    assert find_exhausted(budget, spent, at) is None
    spent = charge(spent, budget, at, runs=1)
    found = find_exhausted(budget, spent, at)
    assert found is not None
    assert (found.words, found.until) == ("budget of the day: 3 of 3 runs spent", us("2026-11-17 00:00:00", SHANGHAI))


def test_of_two_spent_budgets_the_one_that_lasts_longer_is_told() -> None:
    budget = Budget(hour=Amounts(runs=1), month=Amounts(usd=2.0))
    spent = charge({}, budget, 0, runs=1, usd=2.5)
    found = find_exhausted(budget, spent, 0)
    assert found is not None and found.words == "budget of the month: 2.5 of 2 USD spent"


def test_a_clock_set_back_gives_nothing_back() -> None:
    budget = Budget(day=Amounts(runs=1))
    later = us("2026-11-16 12:00:00", "UTC")
    spent = charge({}, budget, later, runs=1)
    yesterday = later - 86_400_000_000
    found = find_exhausted(budget, spent, yesterday)
    assert found is not None and found.until == us("2026-11-17 00:00:00", "UTC")


def test_the_next_run_may_use_what_is_left_and_no_more_than_one_run_may() -> None:
    budget = Budget(
        run=Amounts(wall_seconds=60.0, usd=0.5), day=Amounts(cpu_seconds=100.0, usd=2.0, wall_seconds=3600.0)
    )
    spent = charge({}, budget, 0, cpu_seconds=70.0, usd=1.8, wall_seconds=90.0)
    left = find_allowance(budget, spent, 0)
    assert left == Amounts(wall_seconds=60.0, cpu_seconds=30.0, usd=pytest.approx(0.2))
    assert find_allowance(budget, charge(spent, budget, 0, cpu_seconds=90.0), 0).cpu_seconds == 0


def test_periods_without_a_bound_are_not_counted() -> None:
    assert charge({}, Budget(run=Amounts(usd=1.0)), 0, runs=1) == {}
    assert charge({"hour": Spent(since=0, runs=5)}, Budget(day=Amounts(runs=9)), 0, runs=1) == {
        "day": Spent(since=0, runs=1)
    }


def test_a_fold_asks_no_zone_database_for_what_the_event_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of time zones change.

    Every machine must fold the same log to the same state, also one without a zone database.
    """
    budget = Budget(day=Amounts(runs=9), month=Amounts(runs=90), timezone="Asia/Shanghai")
    at = us("2026-03-01 20:00:00", "UTC")
    periods = find_periods((budget, None), at)
    assert periods == {
        "Asia/Shanghai": {"day": us("2026-03-01 16:00:00", "UTC"), "month": us("2026-02-28 16:00:00", "UTC")}
    }
    expected = charge({}, budget, at, runs=1)

    def refuse(name: str) -> None:
        raise AssertionError(f"asked for {name}")

    monkeypatch.setattr("wakeful.core.spec.zones.ZoneInfo", refuse)
    assert charge({}, budget, at, periods, runs=1) == expected
    assert find_periods((Budget(run=Amounts(runs=1)), None), at) is None


def test_a_zone_that_the_machine_does_not_know_counts_as_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """UTC itself needs no zone database."""

    def lose(name: str) -> None:
        raise ZoneInfoNotFoundError(name)

    at, midnight = us("2026-03-01 20:00:00", "UTC"), us("2026-03-01 00:00:00", "UTC")
    monkeypatch.setattr("wakeful.core.spec.zones.ZoneInfo", lose)
    for name in ("Asia/Shanghai", "UTC"):
        assert charge({}, Budget(day=Amounts(runs=9), timezone=name), at, runs=1)["day"].since == midnight
    assert is_zone_known("UTC") and not is_zone_known("Asia/Shanghai")

"""Slots and windows: tables for the difficult time zones, and a minute-by-minute walk of the zones as the reference."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from wakeful.core.deciding import clock_slots as cron
from wakeful.core.spec.bindings import CronBinding, EveryBinding
from wakeful.core.spec.session import Window

KEY = "session-1"


def every_cron(expression: str, timezone: str = "UTC", **options: object) -> CronBinding:
    return CronBinding(name="clock", expression=expression, timezone=timezone, **options)


def us(text: str) -> int:
    return cron.slot_us(text)


def slots(expression: str, timezone: str, begins: str, ends: str) -> list[str]:
    """Walk forward. Return all slots after one moment, up to another."""
    return walk(every_cron(expression, timezone), begins, ends)


def walk(binding: cron.ClockBinding, slot: str, ends: str) -> list[str]:
    found = []
    while (coming := cron.next_slot_after(binding, slot, KEY)) is not None and coming.due_us <= us(ends):
        slot = coming.slot
        found.append(slot)
    return found


@pytest.mark.parametrize(
    ("expression", "timezone", "begins", "ends", "expected"),
    [
        # Berlin, spring 2026: 02:00 becomes 03:00 at 01:00Z. A fixed time inside the gap is due once, at its end.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("0,30 2-3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", []),
        ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00Z", ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]),
        # Berlin, autumn 2026: 03:00 becomes 02:00 at 01:00Z. A fixed time is due in the first pass, `*/20` in both.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("*/20 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z",
         ["2026-10-25T00:00:00Z", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:20:00Z", "2026-10-25T01:40:00Z"]),
        ("0 3 * * *", "Europe/Berlin", "2026-10-25T00:59:00Z", "2026-10-25T12:00:00Z", ["2026-10-25T02:00:00Z"]),
        # Helsinki 2027: 03:00 to 04:00 on 28 March at 01:00Z, back on 31 October.
        ("15 3 * * *", "Europe/Helsinki", "2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z", ["2027-03-28T01:00:00Z", "2027-03-29T00:15:00Z"]),
        ("15 3 * * *", "Europe/Helsinki", "2027-10-30T12:00:00Z", "2027-11-01T12:00:00Z", ["2027-10-31T00:15:00Z", "2027-11-01T01:15:00Z"]),
        # Lord Howe changes by half an hour: 02:00 becomes 01:30 on 5 April 2026 (15:00Z of the day before).
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T20:00:00Z", ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]),
        ("*/20 5 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z", ["2026-04-04T18:30:00Z", "2026-04-04T18:50:00Z", "2026-04-04T19:10:00Z"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-04T18:00:00Z", ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]),
        # Cairo skips midnight itself (24 April 2026), and repeats the last hour of a Thursday (29 October).
        ("0 0 * * *", "Africa/Cairo", "2026-04-22T23:00:00Z", "2026-04-24T23:00:00Z", ["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"]),
        ("30 23 * * 4", "Africa/Cairo", "2026-10-23T00:00:00Z", "2026-10-31T00:00:00Z", ["2026-10-29T20:30:00Z"]),
        ("0 12 1 1 *", "Africa/Cairo", "2026-06-01T00:00:00Z", "2028-06-01T00:00:00Z", ["2027-01-01T10:00:00Z", "2028-01-01T10:00:00Z"]),
        # The rules of cron itself: two day fields mean OR, Sunday is 0 and 7, a leap day comes every four years.
        ("0 0 13 * 5", "UTC", "2026-11-10T00:00:00Z", "2026-11-21T00:00:00Z", ["2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"]),
        ("0 0 * * 7", "UTC", "2026-11-01T00:00:00Z", "2026-11-09T00:00:00Z", ["2026-11-08T00:00:00Z"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2036-12-31T00:00:00Z", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"]),
        ("@monthly", "Asia/Shanghai", "2026-11-02T00:00:00Z", "2027-01-01T00:00:00Z", ["2026-11-30T16:00:00Z", "2026-12-31T16:00:00Z"]),
    ],
)  # fmt: skip
def test_slots_follow_cron_through_daylight_saving(
    expression: str, timezone: str, begins: str, ends: str, expected: list[str]
) -> None:
    """Each row lists exactly the slots that are due between two moments."""
    assert slots(expression, timezone, begins, ends) == expected


# The reference: the rules of cron, applied minute by minute, with matchers written by hand.
MATCHERS: dict[str, Callable[[datetime], bool]] = {
    "30 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 30),
    "0 0 * * *": lambda wall: (wall.hour, wall.minute) == (0, 0),
    "15,45 0-4 * * *": lambda wall: wall.minute in (15, 45) and wall.hour <= 4,
    "*/20 * * * *": lambda wall: wall.minute % 20 == 0,
    "*/20 5 * * *": lambda wall: wall.minute % 20 == 0 and wall.hour == 5,
    "10 * * * *": lambda wall: wall.minute == 10,
}


def is_fixed(expression: str) -> bool:
    minute, hour, *_ = expression.split()
    return not minute.startswith("*") and not hour.startswith("*")


def show_wall(zone: ZoneInfo, begins: datetime, minutes: int) -> list[tuple[datetime, datetime]]:
    """Return every minute with its wall time."""
    instants = (begins + timedelta(minutes=step) for step in range(minutes + 1))
    return [(instant, instant.astimezone(zone).replace(tzinfo=None)) for instant in instants]


def walk_minutes(expression: str, shown: list[tuple[datetime, datetime]]) -> list[str]:
    """List the slots after the first minute.

    A fixed time is due when the wall clock first reaches or passes it. Other times are due when the clock shows them.
    """
    matches = MATCHERS[expression]
    if not is_fixed(expression):
        return [as_slot(instant) for instant, wall in shown[1:] if matches(wall)]
    reached = shown[0][1]
    due = []
    for instant, wall in shown[1:]:
        while reached < wall:
            reached += timedelta(minutes=1)
            if matches(reached) and due[-1:] != [as_slot(instant)]:
                due.append(as_slot(instant))
    return due


def as_slot(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def zones_by_behaviour() -> dict[tuple[object, ...], str]:
    """Find one zone for each distinct offset and set of changes from 2026 to 2028.

    Changes are located to the half hour.
    """
    found: dict[tuple[object, ...], str] = {}
    for name in sorted(available_timezones() - {"localtime", "Factory"}):
        zone = ZoneInfo(name)
        days = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(3 * 365)]
        offsets = [day.astimezone(zone).utcoffset() for day in days]
        changes = [day for day, before, after in zip(days, offsets, offsets[1:], strict=False) if before != after]
        if changes:
            found.setdefault((offsets[0], max(offsets), *(find_change(zone, day) for day in changes)), name)
    return found


def find_change(zone: ZoneInfo, day: datetime) -> datetime:
    """Return the half hour of a day at which the offset differs from that at its beginning."""
    halves = (day + timedelta(minutes=30 * half) for half in range(49))
    return next(half for half in halves if half.astimezone(zone).utcoffset() != day.astimezone(zone).utcoffset())


# A fixed time, because changes of offset skip or repeat such times. The other expressions take longer.
ALWAYS_WALKED = ("30 2 * * *",)


@pytest.mark.parametrize(
    "expression", [one if one in ALWAYS_WALKED else pytest.param(one, marks=pytest.mark.long) for one in MATCHERS]
)
def test_every_slot_of_every_zone_is_accounted_once_around_each_change_of_offset(expression: str) -> None:
    """Skipped and repeated fixed times come once, intervals in both passes. Latest, next and walked slots agree."""
    zones = zones_by_behaviour()
    assert len(zones) > 25
    for (_, _, *changes), name in zones.items():
        binding = every_cron(expression, name)
        for change in changes:
            shown = show_wall(ZoneInfo(name), change - timedelta(hours=7), 14 * 60)
            expected = walk_minutes(expression, shown)
            first, last = as_slot(shown[0][0]), as_slot(shown[-1][0])
            assert slots(expression, name, first, last) == expected, (name, first)
            for slot, following in list(zip(expected, expected[1:], strict=False))[::5]:
                assert cron.latest_slot(binding, us(slot), KEY) == slot
                assert cron.latest_slot(binding, us(following) - 1, KEY) == slot
                assert cron.next_slot_after(binding, us(slot), KEY) == (following, us(following))


@given(
    expression=st.sampled_from(["* * * * *", "*/7 3 * * *", "30 2 * * *", "0 6 1 * *", "0 0 29 2 *", "0 0 * * 1#1", "59 23 31 12 *"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "America/New_York", "Asia/Kathmandu"]),
    at=st.integers(us("1975-01-01T00:00:00Z"), us("2090-01-01T00:00:00Z")),
)  # fmt: skip
def test_latest_and_next_enclose_every_moment(expression: str, timezone: str, at: int) -> None:
    """At any moment, no slot lies between the latest and the next one."""
    binding = every_cron(expression, timezone)
    latest = cron.latest_slot(binding, at, KEY)
    following = cron.next_slot_after(binding, at, KEY)
    assert latest is not None and following is not None
    assert us(latest) <= at < us(following.slot)
    assert cron.next_slot_after(binding, latest, KEY) == following


def test_the_latest_slot_of_a_minutely_expression_is_found_years_on_without_walking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search takes fewer than ten steps, not one per slot."""
    binding = every_cron("* * * * *", "Europe/Berlin")
    searched = []
    original = CronSim.__next__
    monkeypatch.setattr(CronSim, "__next__", lambda sim: searched.append(sim.dt) or original(sim))
    assert cron.latest_slot(binding, us("2061-07-01T12:34:56Z"), KEY) == "2061-07-01T12:34:00Z"
    assert 0 < len(searched) < 10


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4 *", "not cron", "60 * * * *"])
def test_an_expression_without_any_slot_is_never_due(expression: str) -> None:
    """Nothing is due and nothing raises. `find_cron_problem` gives the reason."""
    binding = every_cron(expression)
    assert cron.latest_slot(binding, us("2026-11-01T00:00:00Z"), KEY) is None
    assert cron.next_slot_after(binding, 0, KEY) is None
    assert cron.find_cron_problem(expression, "UTC")


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "", "Europe", "../../etc/passwd", "a\0b"])
def test_a_zone_that_does_not_exist_has_no_slots_and_is_said_in_words(timezone: str) -> None:
    """A time zone that is missing from tzdata does not crash the daemon."""
    assert "is not known" in (cron.find_cron_problem("0 6 * * *", timezone) or "")
    assert cron.latest_slot(every_cron("0 6 * * *", timezone), us("2026-11-01T00:00:00Z"), KEY) is None


def test_good_expressions_have_no_problem() -> None:
    """Common expressions are accepted, nicknames included."""
    for expression in ("0 6 1 * *", "*/5 * * * *", "@daily", "0 0 * * MON-FRI", "0 0 L * *", "0 0 29 2 *"):
        assert cron.find_cron_problem(expression, "Asia/Shanghai") is None


def test_the_end_of_the_calendar_is_none_and_not_an_error() -> None:
    """Year 9999 has a latest slot and no next one."""
    assert cron.next_slot_after(every_cron("0 0 1 1 *"), "9999-12-01T00:00:00Z", KEY) is None


def test_slots_of_a_period_are_its_multiples_since_the_epoch() -> None:
    """A restart does not move the slots: 30 minutes means :00 and :30."""
    binding = EveryBinding(name="often", period_seconds=1800.0)
    at = us("2026-11-01T06:44:59Z")
    assert cron.latest_slot(binding, at, KEY) == "2026-11-01T06:30:00Z"
    assert cron.next_slot_after(binding, at, KEY) == ("2026-11-01T07:00:00Z", us("2026-11-01T07:00:00Z"))
    assert cron.next_slot_after(binding, "2026-11-01T07:00:00Z", KEY).slot == "2026-11-01T07:30:00Z"


def test_slots_of_a_period_below_a_second_keep_text_order_equal_to_time_order() -> None:
    """All slots of one binding have the same width."""
    binding = EveryBinding(name="quick", period_seconds=0.25)
    found = walk(binding, "2026-11-01T06:00:00Z", "2026-11-01T06:00:02Z")
    assert len(found) == 8
    assert found == sorted(found)
    assert [us(slot) for slot in found] == sorted(us(slot) for slot in found)


@given(
    key=st.text(min_size=1),
    jitter=st.floats(0.001, 86400),
    at=st.integers(us("2020-01-01T00:00:00Z"), us("2040-01-01T00:00:00Z")),
)
def test_jitter_shifts_the_due_moment_and_never_the_slot(key: str, jitter: float, at: int) -> None:
    """A slot is due at its time plus a shift, which is stable per session and below the jitter."""
    binding = every_cron("0 * * * *", jitter_seconds=jitter)
    following = cron.next_slot_after(binding, at, key)
    shift = following.due_us - us(following.slot)
    assert 0 <= shift < max(1, jitter * 1e6)
    assert shift == cron.jitter_us(binding, key)
    assert following.due_us > at
    assert cron.latest_slot(binding, following.due_us, key) == following.slot
    assert cron.latest_slot(binding, following.due_us - 1, key) < following.slot


def test_two_sessions_do_not_share_their_jitter() -> None:
    """After a resume of the machine, not all sessions start in the same second."""
    binding = every_cron("0 * * * *", jitter_seconds=300.0)
    assert len({cron.jitter_us(binding, f"session-{number}") for number in range(50)}) > 45


BERLIN_DAY = Window(8 * 60, 20 * 60, "Europe/Berlin")
BERLIN_NIGHT = Window(22 * 60, 6 * 60, "Europe/Berlin")


@pytest.mark.parametrize(
    ("window", "at", "opens"),
    [
        (BERLIN_DAY, "2026-11-01T06:59:59Z", "2026-11-01T07:00:00Z"),
        (BERLIN_DAY, "2026-11-01T07:00:00Z", "2026-11-01T07:00:00Z"),
        (BERLIN_DAY, "2026-11-01T19:00:00Z", "2026-11-02T07:00:00Z"),
        # The clock changes overnight: eight in the morning comes an hour earlier or later than the day before.
        (BERLIN_DAY, "2026-03-28T20:00:00Z", "2026-03-29T06:00:00Z"),
        (BERLIN_DAY, "2026-10-24T20:00:00Z", "2026-10-25T07:00:00Z"),
        # An end before the start crosses midnight.
        (BERLIN_NIGHT, "2026-11-01T12:00:00Z", "2026-11-01T21:00:00Z"),
        (BERLIN_NIGHT, "2026-11-01T23:30:00Z", "2026-11-01T23:30:00Z"),
        (BERLIN_NIGHT, "2026-11-02T05:00:00Z", "2026-11-02T21:00:00Z"),
        # The start does not exist on that day. The window opens at the end of the gap.
        (Window(150, 300, "Europe/Berlin"), "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"),
        # The whole window does not exist on that day.
        (Window(120, 180, "Europe/Berlin"), "2026-03-29T00:30:00Z", "2026-03-30T00:00:00Z"),
        # The hour is repeated: the window opens, closes with the wall clock, and opens again.
        (Window(150, 170, "Europe/Berlin"), "2026-10-25T00:55:00Z", "2026-10-25T01:30:00Z"),
        (Window(0, 1440, "UTC"), "2026-10-25T00:55:00Z", "2026-10-25T00:55:00Z"),
    ],
)
def test_a_window_opens_by_the_wall_clock_of_its_zone(window: Window, at: str, opens: str) -> None:
    """Each row has a moment, and the next moment at which the window is open."""
    assert cron.window_opens_at(window, us(at)) == us(opens)
    assert cron.is_inside_window(window, us(at)) == (at == opens)
    assert cron.is_inside_window(window, us(opens))


@given(
    start=st.integers(0, 1439),
    end=st.integers(1, 1440),
    timezone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu"]),
    at=st.integers(us("2026-01-01T00:00:00Z"), us("2028-01-01T00:00:00Z")),
)
def test_a_window_is_closed_until_the_moment_it_opens(start: int, end: int, timezone: str, at: int) -> None:
    """No moment before the opening is inside the window."""
    window = Window(start, end, timezone)
    opens = cron.window_opens_at(window, at)
    assert cron.is_inside_window(window, opens)
    if opens > at:
        assert not cron.is_inside_window(window, at)
        assert not cron.is_inside_window(window, opens - 1)
        step = max(1, (opens - at) // 50)
        assert not any(cron.is_inside_window(window, moment) for moment in range(at, opens, step))

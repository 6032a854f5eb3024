"""The alarm clock reports in time, reports again after the wall clock was set, and is silent otherwise."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from wait_conditions import eventually_async
from wakeful.core.record.observations import ClockTicked
from wakeful.sources.clock import Clock, Clocks, describe_jump


def wall_us() -> int:
    return time.time_ns() // 1000


class Rings:
    """Collects the clock's reports as the moment of each."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, observation: ClockTicked) -> None:
        assert observation == ClockTicked()
        self.at.append(time.time())


@pytest.fixture
def rings() -> Rings:
    return Rings()


@pytest_asyncio.fixture
async def started() -> AsyncIterator[Callable[..., Clock]]:
    """Start clocks in the test's event loop. Each is stopped when the test ends."""
    clocks: list[Clock] = []

    def start(report: Rings, **options: object) -> Clock:
        now_us = options.pop("now_us", wall_us)
        clock = Clock(report, asyncio.get_running_loop(), now_us, **options)
        clock.start()
        clocks.append(clock)
        return clock

    yield start
    for clock in clocks:
        clock.stop()


@pytest.mark.asyncio
async def test_it_rings_once_at_the_moment_it_was_set_to(rings: Rings, started: Callable[..., Clock]) -> None:
    """One alarm gives one report, and not before its moment."""
    clock = started(rings)
    due_us = wall_us() + 60_000
    clock.wake_at(due_us)
    await eventually_async(lambda: rings.at)
    assert rings.at[0] * 1e6 >= due_us - 1000
    clock.wake_at(wall_us() + 30_000)
    await eventually_async(lambda: len(rings.at) == 2)
    clock.stop()


@pytest.mark.asyncio
async def test_a_moment_in_the_past_rings_at_once(rings: Rings, started: Callable[..., Clock]) -> None:
    """An alarm is reported however late it is. None is skipped as a misfire."""
    clock = started(rings)
    clock.wake_at(0)
    await eventually_async(lambda: rings.at)
    clock.stop()


@pytest.mark.asyncio
async def test_only_the_latest_alarm_counts(rings: Rings, started: Callable[..., Clock]) -> None:
    """A new alarm replaces the old one, None removes it, and the same moment twice is one alarm."""
    clock = started(rings)
    clock.wake_at(wall_us() + 20_000)
    clock.wake_at(None)
    clock.wake_at(None)
    late = wall_us() + 120_000
    clock.wake_at(wall_us() + 40_000)
    clock.wake_at(late)
    clock.wake_at(late)
    await eventually_async(lambda: rings.at)
    assert rings.at[0] * 1e6 >= late - 1000
    assert len(rings.at) == 1
    clock.stop()


@pytest.mark.asyncio
async def test_a_moment_beyond_the_calendar_is_never(rings: Rings, started: Callable[..., Clock]) -> None:
    """A due moment far in the future is not an error."""
    clock = started(rings)
    clock.wake_at(2**62)
    clock.wake_at(wall_us())
    await eventually_async(lambda: rings.at)
    clock.stop()


@pytest.mark.asyncio
async def test_it_ticks_without_any_alarm_and_stops_when_told(rings: Rings, started: Callable[..., Clock]) -> None:
    """Regular ticks limit how late any report can be. After stop there are none."""
    clock = started(rings, tick_seconds=0.01)
    await eventually_async(lambda: len(rings.at) >= 3)
    clock.stop()
    heard = len(rings.at)
    sentinel = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, sentinel.set)
    await sentinel.wait()
    assert len(rings.at) == heard


@pytest.mark.asyncio
async def test_a_clock_set_back_keeps_ticking_and_is_said_in_words(rings: Rings, started: Callable[..., Clock]) -> None:
    """A clock that is set back by an hour is not silent for an hour."""
    shift_us = 0
    heard: list[str] = []
    clock = started(rings, now_us=lambda: wall_us() + shift_us, tick_seconds=0.01, on_jump=heard.append)
    await eventually_async(lambda: rings.at)
    shift_us = -3_600_000_000
    await eventually_async(lambda: heard)
    ticks = len(rings.at)
    await eventually_async(lambda: len(rings.at) > ticks + 2)
    assert heard == ["the wall clock was set back by 1 h"]
    clock.stop()


@pytest.mark.asyncio
async def test_a_machine_that_slept_is_noticed_at_the_next_tick(rings: Rings, started: Callable[..., Clock]) -> None:
    """The boot clock went on and the monotonic clock did not. The clock says so once."""
    slept = 0.0
    heard: list[str] = []
    clock = started(
        rings,
        now_us=lambda: wall_us() + int(slept * 1e6),
        read_boot=lambda: time.monotonic() + slept,
        tick_seconds=0.01,
        on_jump=heard.append,
    )
    await eventually_async(lambda: rings.at)
    slept = 36_120.0
    await eventually_async(lambda: heard)
    ticks = len(rings.at)
    await eventually_async(lambda: len(rings.at) > ticks + 2)
    assert heard == ["the machine slept for 10 h 2 min"]
    clock.stop()


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (Clocks(130.0, 80.0, 90.0), None),
        (Clocks(130.01, 80.0, 90.0), None),
        (Clocks(130.0 + 86400, 80.0, 90.0), "the wall clock was set forward by 1 d"),
        (Clocks(125.0, 80.0, 90.0), "the wall clock was set back by 5 s"),
        (Clocks(-1e6, 80.0, 90.0), "the wall clock was set back by 11 d 13 h"),
        (Clocks(190.0, 80.0, 150.0), "the machine slept for 1 min"),
    ],
)
def test_jumps_are_told_from_the_passing_of_time(after: Clocks, words: str | None) -> None:
    """Each row has the three clocks thirty seconds later, and the message."""
    assert describe_jump(Clocks(100.0, 50.0, 60.0), after) == words


def test_the_real_boot_clock_is_read() -> None:
    """In a time namespace that shifts the boot clock, the reading is shifted by the same amount."""
    unshare = shutil.which("unshare")
    shifted = [unshare or "unshare", "-T", "--boottime", "36000", sys.executable, "-c"]
    program = "from wakeful.sources.clock import read_boot_seconds as r; import time; print(r() - time.monotonic())"
    done = subprocess.run([*shifted, program], capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode != 0:
        pytest.skip(f"unshare -T does not work here: {done.stderr.strip()}")
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) - float(plain.stdout) == pytest.approx(36000, abs=1)

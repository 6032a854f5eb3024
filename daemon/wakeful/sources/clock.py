"""Rings when the next due moment comes. The clock does not know or decide what is due.

The reactor sets the next due moment with `wake_at`. Each ring reports one `ClockTicked`, and the core then compares
what is due with the present moment. APScheduler keeps the one alarm, in memory. A tick every half minute limits how
late a ring can be after the machine slept or its clock was set. Nothing is stored here: a lost ring costs half a
minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger

from wakeful.core.record.observations import ClockTicked

TICK_SECONDS = 30.0
# NTP slews a clock by at most 500 ppm, which is 15 ms between two ticks. A larger move means that the clock was set.
JUMP_SECONDS = 2.0
_ALARM = "due"
# The last moment that a datetime can hold. A later moment is treated as never.
_LAST_US = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000


def read_wall() -> int:
    """Read the wall clock, in microseconds since 1970."""
    return time.time_ns() // 1000


def read_boot_seconds() -> float:
    """Read the seconds since boot, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clocks(NamedTuple):
    """The three clocks of the machine, in seconds. Boot time counts sleep, monotonic time does not, wall time can be
    set.
    """

    wall: float
    monotonic: float
    boot: float


def describe_jump(before: Clocks, after: Clocks) -> str | None:
    """Describe a sleep of the machine or a jump of the wall clock between two readings. None if there was neither."""
    slept = (after.boot - before.boot) - (after.monotonic - before.monotonic)
    moved = (after.wall - before.wall) - (after.boot - before.boot)
    if slept >= JUMP_SECONDS:
        return f"the machine slept for {_spell_seconds(slept)}"
    if moved >= JUMP_SECONDS:
        return f"the wall clock was set forward by {_spell_seconds(moved)}"
    if moved <= -JUMP_SECONDS:
        return f"the wall clock was set back by {_spell_seconds(-moved)}"
    return None


class Clock:
    """Rings at the next due moment and at least every half minute. `on_jump` gets a text when the machine slept or its
    clock was set.
    """

    def __init__(
        self,
        report: Callable[[ClockTicked], None],
        loop: asyncio.AbstractEventLoop,
        now_us: Callable[[], int],
        *,
        on_jump: Callable[[str], None] | None = None,
        tick_seconds: float = TICK_SECONDS,
        read_boot: Callable[[], float] = read_boot_seconds,
    ) -> None:
        self._report = report
        self._loop = loop
        self._now_us = now_us
        self._on_jump = on_jump
        self._tick_seconds = tick_seconds
        self._read_boot = read_boot
        self._alarm_us: int | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._last = self._read()
        # The default misfire_grace_time is one second, with which a busy loop would lose the alarm and only log a
        # warning.
        self._scheduler = AsyncIOScheduler(
            event_loop=loop,
            timezone=UTC,
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )

    def start(self) -> None:
        """Begin to tick. Called once, on the loop."""
        self._last = self._read()
        self._scheduler.start()
        self._schedule_tick()

    def stop(self) -> None:
        """Stop ringing."""
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def wake_at(self, wall_us: int | None) -> None:
        """Set the one alarm to this moment, or to none if nothing is due. A moment in the past rings at once."""
        if wall_us is not None and wall_us > _LAST_US:
            wall_us = None
        if wall_us == self._alarm_us:
            return
        if wall_us is None:
            # The job is already gone if it is ringing at this moment.
            if self._scheduler.get_job(_ALARM) is not None:
                self._scheduler.remove_job(_ALARM)
        else:
            moment = datetime.fromtimestamp(wall_us / 1_000_000, UTC)
            self._scheduler.add_job(self._ring, DateTrigger(moment), (wall_us,), id=_ALARM, replace_existing=True)
        self._alarm_us = wall_us

    async def _ring(self, wall_us: int) -> None:
        # A coroutine, because APScheduler hands plain functions to a pool of threads.
        if self._alarm_us == wall_us:
            self._alarm_us = None
        self._report(ClockTicked())

    def _schedule_tick(self) -> None:
        # The loop's own timer is used. An APScheduler interval counts by the wall clock, and would stay silent for an
        # hour after the clock is set back by an hour.
        self._ticking = self._loop.call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        self._schedule_tick()
        before, self._last = self._last, self._read()
        words = describe_jump(before, self._last)
        if words is not None:
            # The alarm was set as a span of monotonic time, which no longer ends at the due moment.
            self._scheduler.wakeup()
            if self._on_jump is not None:
                self._on_jump(words)
        self._report(ClockTicked())

    def _read(self) -> Clocks:
        return Clocks(self._now_us() / 1_000_000, time.monotonic(), self._read_boot())


def _spell_seconds(seconds: float) -> str:
    whole = round(seconds)
    spans = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts = []
    for length, unit in spans:
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])

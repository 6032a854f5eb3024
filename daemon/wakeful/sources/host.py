"""The host as a source: its clocks, and the room on the disk that holds the log.

`Clock` rings when something is due, and never decides what: the reactor sets the next due moment with `wake_at`, each
ring reports one `ClockTicked`, and the core compares what is due with the moment it is told. A lost ring costs half a
minute, since the clock ticks that often. `RoomWatch` reports when runs must wait for free space, and when they need
wait no more. Wiring constructs both; they keep no truth of their own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from wakeful.core.record.observations import ClockTicked, RoomSeen
from wakeful.core.spec.limits import find_mark, judge_room
from wakeful.sources.contract import read_boot_seconds

TICK_SECONDS = 30.0
# Slewing by NTP moves a clock by 500 ppm, 15 ms between two ticks: whatever moves it this far set it.
JUMP_SECONDS = 2.0
# A timer of the loop may fire this much early: its own clock has a resolution.
_EARLY_US = 1000
# No alarm is set for longer: a tick comes sooner, and a timer of many years is refused by epoll.
_LONGEST_ALARM_SECONDS = 86_400.0
LOOK_SECONDS = 2.0
# Runs can write faster than we look: near the mark we look more often.
NEAR_FACTOR = 10
LOOK_NEAR_SECONDS = 0.2


class Clocks(NamedTuple):
    """The three clocks of the machine in seconds: boot runs on while it sleeps, monotonic does not, wall can be set."""

    wall: float
    monotonic: float
    boot: float


def describe_jump(before: Clocks, after: Clocks) -> str | None:
    """What happened to the clocks between two readings, in words, or None."""
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
    """Rings at the next due moment and at least every half minute.

    `on_jump` is told of sleep and set clocks in words.
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
        self._alarm: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._last = self._read()

    def start(self) -> None:
        """Begin to ring."""
        self._last = self._read()
        self._schedule_tick()
        self._set_alarm()

    def stop(self) -> None:
        """Ring no more."""
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        self._set_alarm()

    def wake_at(self, wall_us: int | None) -> None:
        """Keep one alarm, at this moment; None where nothing is due. A moment in the past rings at once."""
        if wall_us != self._alarm_us:
            self._alarm_us = wall_us
            self._set_alarm()

    def _set_alarm(self) -> None:
        """Set the loop's timer by the wall clock as it is now. A tick sets it anew after the wall clock jumped."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm_us is None or self._ticking is None:
            return
        left = (self._alarm_us - self._now_us()) / 1_000_000
        self._alarm = self._loop.call_later(min(max(left, 0.0), _LONGEST_ALARM_SECONDS), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._alarm_us is not None and self._alarm_us > self._now_us() + _EARLY_US:
            # The wall clock was set back since, or the moment lies more than a day ahead.
            self._set_alarm()
            return
        self._alarm_us = None
        self._report(ClockTicked())

    def _schedule_tick(self) -> None:
        # By the loop's monotonic clock: a tick by the wall clock would stay silent for an hour after that was set back
        # by one.
        self._ticking = self._loop.call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        self._schedule_tick()
        before, self._last = self._last, self._read()
        words = describe_jump(before, self._last)
        if words is not None:
            # The alarm was set as a span of monotonic time, which no longer ends at its moment.
            self._set_alarm()
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


class RoomWatch:
    """The daemon looks once before anything may start, and then keeps this beside everything else.

    A look is one `statvfs`, on the loop: a few microseconds,
    since the state folder never lies on a network file system.
    """

    def __init__(self, folder: str, report: Callable[[RoomSeen], None]) -> None:
        self._folder = folder
        self._report = report
        self._words: str | None = None

    def look(self) -> float:
        """Report what changed; returns the seconds until the next look."""
        try:
            found = os.statvfs(self._folder)
        except FileNotFoundError:
            # The state folder was deleted: the log notices, and ends the daemon in words.
            return LOOK_SECONDS
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        words = judge_room(free, total, is_short=self._words is not None)
        if words != self._words:
            self._words = words
            self._report(RoomSeen(words))
        return LOOK_NEAR_SECONDS if free < find_mark(total) * NEAR_FACTOR else LOOK_SECONDS

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        while True:  # noqa: ASYNC110 - no event tells of the room on a disk
            await asyncio.sleep(self.look())

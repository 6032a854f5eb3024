"""The running loop with a record of the timers that were set through it. A test passes it to a source as its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class TimedLoop:
    """Passes every call to the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        # The length of every timer that was set by `call_later`.
        self.pauses: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        self.pauses.append(seconds)
        return self.call_at(self._loop.time() + seconds, callback, *arguments)

    def call_at(self, when: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        def fire() -> None:
            self._timers.remove(timer)
            callback(*arguments)

        timer = self._loop.call_at(when, fire)
        self._timers.append(timer)
        return timer

    @property
    def pending(self) -> list[asyncio.TimerHandle]:
        """The timers that have neither fired nor been cancelled."""
        self._timers = [timer for timer in self._timers if not timer.cancelled()]
        return self._timers

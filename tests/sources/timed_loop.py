"""The running loop with a record of the timers that were set through it. It is handed to a source as its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class TimedLoop:
    """Every call goes to the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        # The length of every timer that was set by `call_later`.
        self.pauses: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        self.pauses.append(seconds)
        return self._keep(self._loop.call_later(seconds, callback, *arguments))

    def call_at(self, when: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        return self._keep(self._loop.call_at(when, callback, *arguments))

    def _keep(self, timer: asyncio.TimerHandle) -> asyncio.TimerHandle:
        self._timers.append(timer)
        return timer

    @property
    def pending(self) -> list[asyncio.TimerHandle]:
        """The timers that will still fire."""
        now = self._loop.time()
        return [timer for timer in self._timers if not timer.cancelled() and timer.when() > now]

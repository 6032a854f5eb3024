"""Lets the watcher be exchanged while the daemon runs, when `hints` in wakeful.yaml changes.

Wiring hands `HintsSwitch.make` to every source as its maker of watchers and tells `choose` each new setting. A source
notices nothing but a `Lost`, after which it looks at everything: by then the new watcher is armed for all it had armed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

from wakeful.sources.hints.choice import HintsSetting, choose_hints
from wakeful.sources.hints.contract import Gone, Hints, Lost, MakeHints, Report


class HintsSwitch:
    """One setting for all watchers of the daemon."""

    def __init__(self, setting: HintsSetting) -> None:
        self._setting: HintsSetting = setting
        self._make = choose_hints(setting)
        self._made: list[SwitchedHints] = []

    def make(self, loop: asyncio.AbstractEventLoop, report: Report) -> Hints:
        made = SwitchedHints(self._make, loop, report)
        self._made.append(made)
        return made

    def choose(self, setting: HintsSetting) -> None:
        """On the loop. Raises OperatorError where this system cannot; then all stays as it was."""
        if setting == self._setting:
            return
        self._make = choose_hints(setting)
        self._setting = setting
        for made in self._made:
            made.exchange(self._make, f"hints: {setting} in wakeful.yaml")


class SwitchedHints:
    """Implements `Hints` by another implementation, which may be exchanged for a third."""

    def __init__(self, make: MakeHints, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        self._loop = loop
        self._report = report
        # Held while a look in a thread arms: none may arm with a watcher that is being closed.
        self._lock = threading.Lock()
        self._armed: set[str] = set()
        self._current = make(loop, report)

    @property
    def degraded(self) -> str | None:
        return self._current.degraded

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        wanted = list(folders)
        with self._lock:
            refused = self._current.arm(wanted)
            self._armed.update(wanted)
            self._armed.difference_update(refused)
        return refused

    def disarm(self, folders: Iterable[str]) -> None:
        unwanted = list(folders)
        with self._lock:
            self._armed.difference_update(unwanted)
            self._current.disarm(unwanted)

    def hear(self) -> None:
        self._current.hear()

    def close(self) -> None:
        self._current.close()

    def exchange(self, make: MakeHints, why: str) -> None:
        """Arm with the new watcher, say that everything is to be looked at, close the old one: in this order."""
        with self._lock:
            old, self._current = self._current, make(self._loop, self._report)
            refused = self._current.arm(self._armed)
            self._armed.difference_update(refused)
        # Whoever had one of these watched must hear that it no longer is.
        self._report((Lost(why), *(Gone(folder) for folder in refused)))
        old.close()

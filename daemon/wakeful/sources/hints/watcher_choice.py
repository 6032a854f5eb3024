"""Chooses a watcher by the setting `hints` and by what this system supports, and again when the setting changes.

The wiring passes `HintsSwitch.make` to every source as its maker of watchers, and calls `choose` with each new setting.
A source notices only a `Lost`, after which it looks at everything. By then the new watcher watches every folder of the
old one.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable
from typing import Literal

from wakeful.errors import OperatorError
from wakeful.sources.hints.contract import Gone, Hints, Lost, MakeHints, Report
from wakeful.sources.hints.watchfiles import WatchfilesHints

HintsSetting = Literal["auto", "inotify", "watchfiles", "poll"]

IS_LINUX = sys.platform == "linux"
if IS_LINUX:
    from wakeful.sources.hints.inotify import InotifyHints


def choose_hints(setting: HintsSetting) -> MakeHints:
    """Return the maker of watchers for this setting. `auto` is inotify on Linux, watchfiles elsewhere."""
    match setting:
        case "poll":
            return lambda loop, report: NoHints("chosen by `hints: poll`")
        case "watchfiles":
            return WatchfilesHints
        case "inotify" if not IS_LINUX:
            raise OperatorError(
                f"wakeful.yaml: `hints: inotify` needs Linux, this is {sys.platform}; write `hints: auto`"
            )
        case "auto" if not IS_LINUX:
            return WatchfilesHints
        case _:
            return _make_inotify


def _make_inotify(loop: asyncio.AbstractEventLoop, report: Report) -> Hints:
    try:
        return InotifyHints(loop, report)
    except OSError as problem:
        # Other programs have used up the user's limit of instances. Late hints are better than no daemon.
        return NoHints(f"no inotify instance ({problem.strerror}; see fs.inotify.max_user_instances)")


class NoHints:
    """Implements `Hints` without any report. `degraded` gives the reason."""

    def __init__(self, why: str) -> None:
        self._why = why
        self.degraded: str | None = f"polling: {why}"

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(folders, self._why)

    def disarm(self, folders: Iterable[str]) -> None:
        """Do nothing, because nothing is watched."""

    def hear(self) -> None:
        """Do nothing, because there is no queue."""

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class HintsSwitch:
    """Applies one setting to all watchers of the daemon."""

    def __init__(self, setting: HintsSetting) -> None:
        self._setting: HintsSetting = setting
        self._make = choose_hints(setting)
        self._made: list[SwitchedHints] = []

    def make(self, loop: asyncio.AbstractEventLoop, report: Report) -> Hints:
        made = SwitchedHints(self._make, loop, report)
        self._made.append(made)
        return made

    def choose(self, setting: HintsSetting) -> None:
        """Switch to another setting. Called on the loop. Raises OperatorError if this system cannot; then nothing
        changes.
        """
        if setting == self._setting:
            return
        self._make = choose_hints(setting)
        self._setting = setting
        for made in self._made:
            made.exchange(self._make, f"hints: {setting} in wakeful.yaml")


class SwitchedHints:
    """Implements `Hints` by another implementation, which can be exchanged while the daemon runs."""

    def __init__(self, make: MakeHints, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        self._loop = loop
        self._report = report
        # Held while folders are added, so that no thread adds one to a watcher that is being closed.
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
        """Replace the watcher, in this order: watch with the new one, report that everything must be looked at, close
        the old one.
        """
        with self._lock:
            old, self._current = self._current, make(self._loop, self._report)
            refused = self._current.arm(self._armed)
            self._armed.difference_update(refused)
        # The source must know which folders are no longer watched.
        self._report((Lost(why), *(Gone(folder) for folder in refused)))
        old.close()

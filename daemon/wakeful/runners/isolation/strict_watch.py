"""Watches whether runs can be isolated strictly on this machine, as long as somebody asks for it,
and reports when that changes.

Wiring constructs it and has it look before specs are taken in, so that nothing strict starts where it cannot; the
daemon keeps it beside everything else: a session that sleeps for want of bubblewrap wakes by itself when that is
installed. Where nobody says strict, nothing is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from wakeful.core.observations import StrictnessSeen
from wakeful.core.spec.session import SessionSpec
from wakeful.runners.isolation.bubblewrap import find_obstacle

LOOK_SECONDS = 10.0


class StrictnessWatch:
    def __init__(
        self, report: Callable[[StrictnessSeen], None], list_specs: Callable[[], Iterable[SessionSpec | None]]
    ) -> None:
        self._report = report
        self._list_specs = list_specs
        self._is_tried = False
        self._words: str | None = None

    def look(self, coming: Iterable[SessionSpec]) -> None:
        """Blocks for some milliseconds, the first time that one of these, or of those there are, is strict."""
        if not self._is_tried and _is_needed((*coming, *self._list_specs())):
            self._take(find_obstacle())

    async def keep(self) -> None:
        """Try again and again while it cannot be had, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._words is not None and _is_needed(self._list_specs()):
                self._take(await asyncio.to_thread(find_obstacle))

    def _take(self, words: str | None) -> None:
        self._is_tried = True
        if words != self._words:
            self._words = words
            self._report(StrictnessSeen(words))


def _is_needed(specs: Iterable[SessionSpec | None]) -> bool:
    return any(spec is not None and spec.confinement.level == "strict" for spec in specs)

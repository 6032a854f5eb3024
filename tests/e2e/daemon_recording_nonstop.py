"""Run a daemon that records without pause from the first note on: `daemon_recording_nonstop.py RULE daemon …`.

Each note that is on disk is followed by another. The next one is decided before the last is taken in, so at no moment
is everything on disk. RULE `so_far` is the daemon as it is. With `all`, its watchdog waits until nothing is on its way
to disk, as it did before.
"""

from __future__ import annotations

import asyncio
import sys

from wakeful.cli import main
from wakeful.core.calls.call_types import Note
from wakeful.core.deciding.decision import Entry
from wakeful.core.record.events import NoteAdded
from wakeful.service.reactor import Reactor

_take_recorded = Reactor._take_recorded


def follow_notes(self: Reactor, touched: list[str], entries: list[Entry]) -> None:
    for entry in entries:
        if isinstance(entry.event, NoteAdded) and not self._is_closed:
            asyncio.ensure_future(
                self.submit(Note(name=self.core.state.get(entry.session).name, text="more"), author="person:busy")
            )
    _take_recorded(self, touched, entries)


async def wait_for_all(self: Reactor) -> None:
    while self._pending:
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    Reactor._take_recorded = follow_notes  # type: ignore[method-assign]
    if sys.argv.pop(1) == "all":
        Reactor.recorded_so_far = wait_for_all  # type: ignore[method-assign]
    main()

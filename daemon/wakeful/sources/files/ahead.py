"""What lies in the folders of thousands of targets, found by another process while the daemon still takes in its specs.

Owned by the file source, which arms the folders before it asks: what is found here is as good as a look of that moment. A
change that comes later is reported, so all of it is dropped before any report is taken in. Each folder is taken once, on the
loop, by a first look; whoever finds nothing here lists by himself.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from wakeful.sources.files.entry import LOOP_ENTRIES
from wakeful.sources.files.folder import Listing
from wakeful.sources.files.reader_process import WORTH_ASKING, Reader, ReaderGone


class Ahead:
    def __init__(self) -> None:
        self._reader = Reader()
        self._is_started = False
        self._waiting: dict[str, None] = {}
        self._listings: Generator[tuple[str, Listing | None]] | None = None
        self._found: dict[str, Listing | None] = {}

    def start(self, targets: int) -> None:
        """Have the process ready where an earlier daemon knew so many targets: it begins while others are read."""
        if targets >= WORTH_ASKING:
            self._is_started = True
            self._reader.start()

    @property
    def is_started(self) -> bool:
        return self._is_started

    def ask(self, folders: Sequence[str]) -> None:
        """These are armed. One that holds more than a look on the loop may list is left to that look. Asked once."""
        if self._listings is not None:
            return
        self._waiting = dict.fromkeys(folders)
        self._listings = self._reader.survey(folders, LOOP_ENTRIES)

    def take(self, folder: str) -> Listing | None:
        if self._listings is None or folder not in self._waiting:
            return None
        del self._waiting[folder]
        try:
            while folder not in self._found:
                listed, listing = next(self._listings)
                self._found[listed] = listing
        except (ReaderGone, StopIteration):
            self.drop()
            return None
        listing = self._found.pop(folder)
        if not self._waiting:
            self.drop()
        return listing

    def drop(self) -> None:
        """What was found may no longer be so, or nobody asks any more."""
        if not self._is_started:
            return
        self._is_started = False
        self._waiting, self._found = {}, {}
        if self._listings is not None:
            self._listings.close()
            self._listings = None
        self._reader.close()

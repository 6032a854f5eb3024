"""The stream of a follower: records as they become durable, the text of answers in progress, and the reasons why
sessions wait.

Only the records are in the log. Text is read from `LiveWords` by position, so a stalled follower costs nothing. The
reason why a session waits is read from the core every `ASKED_EVERY_SECONDS`, for sessions that are followed by name.
Used on the loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import NamedTuple

from wakeful.api.contract import FollowLine, LiveLine, RecordFilter, Service
from wakeful.api.live_answers import Said
from wakeful.core.deciding.may_start import STARTING, find_queue_reason
from wakeful.core.record.state import Session
from wakeful.eventlog.contract import LogReader, Record

# The most records, and bytes of records, that a stalled follower keeps in memory. Further records stay in the log until
# the follower reads on.
FOLLOWED_AT_ONCE = 32
FOLLOWED_BYTES = 64 * 1024
READ_AT_ONCE_BYTES = 16 * 1024
# The seconds between checks why sessions wait that are followed by name, and the shortest wait that is reported.
ASKED_EVERY_SECONDS = 0.25
WORTH_TELLING_SECONDS = 0.4


class LiveFollower:
    """Reads the live lines of one follower. `heard` is set whenever there may be new lines."""

    def __init__(self, service: Service, names: set[str] | None, heard: asyncio.Event) -> None:
        self._service = service
        self._words = service.live_words
        self._names = names
        self._heard = heard
        self._position = self._words.position
        # By name of the session: the reason why it waits, since when, and whether that was reported.
        self._waiting: dict[str, tuple[str, float, bool]] = {}
        self._words.listeners.add(heard)
        # There may already be text of a turn in progress.
        heard.set()

    async def wait(self) -> None:
        """Wait until there may be new lines."""
        if self._names is None:
            await self._heard.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASKED_EVERY_SECONDS):
                await self._heard.wait()

    def read(self) -> list[LiveLine]:
        lines = [
            LiveLine(name, 0, Said(turn=0, attempt=0, kind="waits", text=words)) for name, words in self._find_waiting()
        ]
        before = self._position
        self._position, pieces, is_lost = self._words.read_after(before, READ_AT_ONCE_BYTES)
        if self._position > before:
            # There may be more text to read.
            self._heard.set()
        if is_lost:
            lines.append(LiveLine("", 0, Said(turn=0, attempt=0, kind="lost")))
        for piece in pieces:
            session = self._service.core.state.sessions.get(piece.session)
            if session is not None and (self._names is None or session.name in self._names):
                lines.append(LiveLine(session.name, piece.run, piece.said))
        return lines

    def _find_waiting(self) -> Iterator[tuple[str, str]]:
        now = monotonic()
        for name in sorted(self._names or ()):
            words = self._find_words(name)
            known, since, is_told = self._waiting.get(name, (None, now, False))
            if words is None:
                self._waiting.pop(name, None)
            elif words != known:
                self._waiting[name] = words, now, False
            elif not is_told and now - since >= WORTH_TELLING_SECONDS:
                self._waiting[name] = words, since, True
                yield name, words

    def _find_words(self, name: str) -> str | None:
        """Return the reason why a run does not start yet. None if there is no such reason, or no run is due."""
        core = self._service.core
        session_id = core.state.ids.get(name)
        session = core.state.get(session_id) if session_id is not None else None
        if session is None:
            return None
        if session.run is not None:
            return f"the end of run {session.run.run}" if _is_asked_again(session) else None
        queue = find_queue_reason(core, session, self._service.moment()) if session.wake is not None else None
        return queue.words if queue is not None and queue.words != STARTING else None


def _is_asked_again(session: Session) -> bool:
    """Is there a question that arrived after the run under way started, and that it will not read?"""
    assert session.run is not None
    last = int(session.run.versions.get("message", "0"))
    return any(one.asker is not None and one.position > last for one in session.list_unread())


class RecordPage(NamedTuple):
    """The records after a position, each as a line. Records of sessions that no longer exist are left out.

    `reached` is the position of the last record that was read."""

    reached: int
    lines: tuple[FollowLine, ...]
    has_more: bool


class RecordPages:
    """Pages of records that followers share. All followers wake at once, and most of them want the same records.

    A page is cached for one turn of the loop, and only while the log has no newer record. So it equals a fresh read."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # The keys are the position before the page, and the newest position of the log.
        self._kept: dict[tuple[int, int], RecordPage] = {}

    def read(self, position: int) -> RecordPage:
        newest = self._service.log.position()
        page = self._kept.get((position, newest))
        if page is None:
            if not self._kept:
                asyncio.get_running_loop().call_soon(self._kept.clear)
            page = self._kept[position, newest] = self._read(position, newest)
        return page

    def _read(self, position: int, newest: int) -> RecordPage:
        sessions = self._service.core.state.sessions
        reached, records = read_placed(self._service.log, position)
        known = [(at, record) for at, record in records if record.session in sessions]
        lines = tuple(FollowLine(sessions[record.session].name, record, at) for at, record in known)
        return RecordPage(reached, lines, has_more=reached < newest)


async def follow_records(
    service: Service,
    pages: RecordPages,
    listeners: set[asyncio.Event],
    names: set[str] | None,
    *,
    is_live: bool,
    after: int | None = None,
    is_wanted: RecordFilter | None = None,
    pause_seconds: float = 0.0,
) -> AsyncIterator[list[FollowLine | LiveLine]]:
    """Yield the records of these sessions (None for all) as they become durable. `listeners` are set when there are new
    records.

    - `is_live`: also yield the text of answers in progress.
    - `after`: the position to begin after, instead of the newest.
    - `is_wanted`: yield only these records.
    - `pause_seconds`: wait this long for more records before each list.
    """
    position = service.log.position() if after is None else after
    heard = asyncio.Event()
    listeners.add(heard)
    if after is not None:
        heard.set()
    live = LiveFollower(service, names, heard) if is_live else None

    def choose(page: RecordPage) -> Iterator[FollowLine]:
        for line in page.lines:
            session = service.core.state.sessions.get(line.record.session)
            if (
                session is not None
                and (names is None or session.name in names)
                and (is_wanted is None or is_wanted(session, line.record))
            ):
                yield line

    try:
        while True:
            await (heard.wait() if live is None else live.wait())
            if pause_seconds:
                await asyncio.sleep(pause_seconds)
            heard.clear()
            page = pages.read(position)
            position = page.reached
            found: list[FollowLine | LiveLine] = list(choose(page))
            if page.has_more:
                heard.set()
                # Let other work run before the next page, and let a cancellation arrive. Otherwise a follower whose
                # client has left would read the whole log.
                await asyncio.sleep(0)
            del page
            found += live.read() if live is not None else ()
            # Keep no reference to the lines while they are sent, so that their memory can be freed.
            batches = [found] if found else []
            del found
            while batches:
                yield batches.pop()
    finally:
        listeners.discard(heard)


class Placed(NamedTuple):
    """A record and its position in the order of all sessions."""

    position: int
    record: Record


def read_placed(log: LogReader, position: int) -> tuple[int, list[Placed]]:
    """Read the next records with their positions. Also returns the position that was reached. Imported records leave
    gaps between the positions. If there are gaps, the records are read one by one."""
    reached, records = log.read_after(position, FOLLOWED_AT_ONCE, most_bytes=FOLLOWED_BYTES)
    if reached - position == len(records):
        return reached, [Placed(*one) for one in enumerate(records, position + 1)]
    placed: list[Placed] = []
    while position < reached:
        position, found = log.read_after(position, 1)
        if not found:
            break
        placed.append(Placed(position, found[0]))
        # Newer records may have been added meanwhile. They belong to the next page.
        if len(placed) == len(records):
            break
    return reached, placed

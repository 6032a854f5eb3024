"""The stream of a follower: records as they become durable, words in flight between them,
and the reasons why sessions wait.

The last two are no records. Words are read from `LiveWords` by position, so that a follower which does not read costs
nothing; what a session waits for is asked of the core now and then. One for each follower that wants it,
on the loop alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import NamedTuple

from wakeful.api.live_words import Said
from wakeful.api.service import FollowLine, LiveLine, RecordFilter, Service
from wakeful.core.deciding.may_start import STARTING, find_queue
from wakeful.core.record.state import Session
from wakeful.eventlog.contract import LogReader, Record

# A follower that does not read keeps so many records in memory, and no more:
# the rest stays in the log until it reads on.
FOLLOWED_AT_ONCE = 32
FOLLOWED_BYTES = 64 * 1024
READ_AT_ONCE_BYTES = 16 * 1024
# How often the sessions that somebody follows by name are asked what they wait for,
# and how long they wait before that is told.
ASKED_EVERY_SECONDS = 0.25
WORTH_TELLING_SECONDS = 0.4


class LiveFollower:
    """`heard` is set whenever there may be something to tell."""

    def __init__(self, service: Service, names: set[str] | None, heard: asyncio.Event) -> None:
        self._service = service
        self._words = service.live_words
        self._names = names
        self._heard = heard
        self._position = self._words.position
        # Session -> what it waits for, since when, and whether that was told.
        self._waiting: dict[str, tuple[str, float, bool]] = {}
        self._words.listeners.add(heard)
        # Words of a turn under way are told at once.
        heard.set()

    async def wait(self) -> None:
        """Wait until there may be something to tell."""
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
            # There may be more.
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
        """The reason why a run does not start yet; None if there is no such reason, or nothing is to run."""
        core = self._service.core
        session_id = core.state.ids.get(name)
        session = core.state.get(session_id) if session_id is not None else None
        if session is None:
            return None
        if session.run is not None:
            return f"the end of run {session.run.run}" if _is_asked_again(session) else None
        queue = find_queue(core, session, self._service.moment()) if session.wake is not None else None
        return queue.words if queue is not None and queue.words != STARTING else None


def _is_asked_again(session: Session) -> bool:
    """Does a question wait that the run under way has not read?"""
    assert session.run is not None
    last = int(session.run.versions.get("message", "0"))
    return any(one.asker is not None and one.position > last for one in session.list_unread())


class RecordPage(NamedTuple):
    """The records after a position, each as a line; those of sessions that are not here any more are left out.

    `reached` is the position behind them."""

    reached: int
    lines: tuple[FollowLine, ...]
    has_more: bool


class RecordPages:
    """Pages of records that followers share: all of them wake at once, and most of them want the same records.

    A page is kept for one round of the loop, and only while the log has no newer record: it is what a read of one's own
    would give."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # By the position before it, and that of the log's newest record.
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
    """Records as they become durable, of these sessions or of all; `listeners` are set when there are new ones.

    `is_live`: and words between them. `after`: the position to begin after, instead of the present one. `is_wanted`:
    only these records. `pause_seconds`: how long to wait for more of them.
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
                # Others have their turn before the next page, and whoever ends this is heard: a reader that left would
                # read all.
                await asyncio.sleep(0)
            del page
            found += live.read() if live is not None else ()
            # None is held here while it is sent.
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
    """The next records with their positions, and the position after them. Imported records leave gaps between the
    positions; then they are read one by one."""
    reached, records = log.read_after(position, FOLLOWED_AT_ONCE, most_bytes=FOLLOWED_BYTES)
    if reached - position == len(records):
        return reached, [Placed(*one) for one in enumerate(records, position + 1)]
    placed: list[Placed] = []
    while position < reached:
        position, found = log.read_after(position, 1)
        if not found:
            break
        placed.append(Placed(position, found[0]))
        # A page may have been followed by newer records: those are of the next page.
        if len(placed) == len(records):
            break
    return reached, placed

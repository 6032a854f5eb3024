"""The feed behind `GET /live`: the changes of all sessions, encoded once for all streams.

A batch has a summary of the records that became durable, and the rows that changed. The feed encodes a batch once and
keeps the latest batches, up to `KEPT_BYTES`. Each stream reads batches by number, at its own speed. A stream that is
too far behind gets a snapshot instead, so a stalled reader uses almost no memory. The feed runs while it has readers,
and for a minute after the last one. Used on the loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.api.contract import Service
from wakeful.api.day_costs import DayCosts
from wakeful.api.event_stream import write_event
from wakeful.api.live_answers import Piece
from wakeful.api.presence import Presence, Present
from wakeful.core.record.events import RunFinished
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record
from wakeful.views.narration import narrate, tell
from wakeful.views.session_rows import Round, Rows
from wakeful.views.times import show_time

# Seconds that a batch waits for more changes, so that a burst of records is one batch. During this pause, the loop is
# free to start the run that the first record is about. Encoding rows and serving many streams would delay the start.
BATCH_SECONDS = 0.1
RECORDS_AT_ONCE = 512
READ_AT_ONCE_BYTES = 512 * 1024
WORDS_AT_ONCE_BYTES = 64 * 1024
# The most records that may wait. If there are more, every stream gets a snapshot instead.
LARGEST_GAP = 5_000
# The most bytes of batches that are kept, for streams that read slowly or reconnect.
KEPT_BYTES = 2_000_000
# Seconds that the feed runs without readers, so that a browser that lost its connection can continue.
LINGER_SECONDS = 60.0
# The most rows that are checked per batch: among the rows that can change without a record, and among all others.
RESTLESS_AT_ONCE = 200
OTHERS_AT_ONCE = 20
ROWS_AT_ONCE = 500
LONGEST_WORDS = 300
_PART_ROWS = 128

# Is a stream about the session with this id? None if it is about all sessions.
Sees = Callable[[str], bool] | None


class Tagged(Struct, frozen=True, gc=False):
    """One encoded value, and the id of the session that it is about."""

    session: str
    data: bytes


class Batch(Struct, frozen=True, kw_only=True):
    """One encoded event of the feed. `before` and `position` are the log positions before and after its records.

    The other fields serve streams that are about some sessions only:

    - `records`, `rows`, `gone`: the parts of a batch of changes.
    - `session`: the only session that the batch is about.
    - `people`: everyone present. `moved`: the sessions whose people changed."""

    event_id: str
    before: int
    position: int
    data: bytes
    records: tuple[Tagged, ...] = ()
    rows: tuple[Tagged, ...] = ()
    gone: tuple[str, ...] = ()
    session: str | None = None
    people: tuple[Tagged, ...] | None = None
    moved: frozenset[str] = frozenset()

    def write(self, sees: Sees) -> bytes | None:
        """Write the event for a stream. None if no part of the event is about the stream's sessions."""
        if sees is None:
            return self.data
        if self.session is not None:
            return self.data if sees(self.session) else None
        if self.people is not None:
            if not any(map(sees, self.moved)):
                return None
            return write_event("presence", _write_people(self.people, sees), self.event_id)
        records = [one for one in self.records if sees(one.session)]
        rows = [one for one in self.rows if sees(one.session)]
        gone = [one for one in self.gone if sees(one)]
        if not records and not rows and not gone:
            return None
        return write_event("changes", _write_changes(self.position, records, rows, gone), self.event_id)


class LiveFeed:
    """The feed. `presence` has the people who are present."""

    def __init__(self, service: Service, rows: Rows, day: DayCosts, presence: Presence) -> None:
        self._presence = presence
        self._service = service
        self._rows = rows
        self._day = day
        self._making: asyncio.Task[None] | None = None
        # The error that ended the feed. Its streams raise it, and the next stream starts the feed again.
        self._failure: Exception | None = None
        self._readers: set[asyncio.Event] = set()
        self._left_at = 0.0
        self._heard = asyncio.Event()
        self._forget()

    def _forget(self) -> None:
        """Reset the feed. Event ids from before the reset are unknown from now on."""
        self._life = secrets.token_hex(4)
        self._is_ready = False
        self._batches: deque[Batch] = deque()
        # The number of the first batch that is kept, and the size of all kept batches.
        self._first = 1
        self._kept_bytes = 0
        self._begun_at = self._position = 0
        self._words_position = 0
        # The rows as they were last sent, by session.
        self._told: dict[str, bytes] = {}
        # The sessions whose row can change without a record, and the sessions that are still to be checked.
        self._restless: set[str] = set()
        self._to_look: deque[str] = deque()
        self._others: Iterator[str] = iter(())
        self._generation = -1
        # The presence as it was last sent.
        self._presence_version = self._presence.version
        self._told_people = frozenset(self._find_people())

    @property
    def _end(self) -> int:
        return self._first + len(self._batches)

    # -- streams ------------------------------------------------------------------------------

    async def stream(self, after: str | None, sees: Sees = None) -> AsyncIterator[bytes]:
        """Yield the events for one reader. If the feed still has them, these are the events after an event id or a log
        position. Otherwise they are a snapshot and the events after it."""
        heard = asyncio.Event()
        self._readers.add(heard)
        try:
            self._begin()
            while not self._is_ready:
                await self._wait(heard)
            number = self._find_number(after) if after is not None else None
            while True:
                if not self._is_ready:
                    await self._wait(heard)
                elif number is None or number < self._first:
                    number = self._end
                    for part in self._write_snapshot(sees):
                        yield part
                elif number < self._end:
                    text = self._batches[number - self._first].write(sees)
                    number += 1
                    if text is not None:
                        yield text
                else:
                    await self._wait(heard)
        finally:
            self._readers.discard(heard)
            self._left_at = monotonic()
            self._heard.set()

    async def _wait(self, heard: asyncio.Event) -> None:
        heard.clear()
        await heard.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """End the feed, because the daemon stops."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait((self._making,))

    def _find_number(self, after: str) -> int | None:
        """Find the number of the first batch after an event id or a log position. None if the feed cannot continue
        there."""
        life, mark, number = after.rpartition("-")
        if not number.isascii() or not number.isdigit() or len(number) > 18:
            return None
        if mark:
            is_known = life == self._life and self._first <= int(number) + 1 <= self._end
            return int(number) + 1 if is_known else None
        position = int(number)
        # At the position where the feed began, the client's list of rows may be older than the feed's.
        if not self._begun_at < position <= self._position:
            return None
        for found, batch in enumerate(self._batches, self._first):
            if batch.position > position or batch.before >= position:
                # Batches before the first kept batch were dropped. They may have had records after the position.
                return None if found == self._first > 1 and batch.before > position else found
        return self._end

    def _write_snapshot(self, sees: Sees) -> Iterator[bytes]:
        """Yield the rows as of the latest batch, in parts, so that all streams share the bytes of each row."""
        rows = [row for session_id, row in self._told.items() if sees is None or sees(session_id)]
        people = _write_people(self._find_people(), sees)
        begin = f"id: {self._life}-{self._end - 1}\nevent: snapshot\ndata: "
        yield b'%b{"position":%d,"sessions":[' % (begin.encode(), self._position)
        for start in range(0, len(rows), _PART_ROWS):
            yield (b"," if start else b"") + b",".join(rows[start : start + _PART_ROWS])
        yield b"],%b\n\n" % people.removeprefix(b"{")
        yield from self._write_words_so_far(sees)

    def _write_words_so_far(self, sees: Sees) -> Iterator[bytes]:
        """Yield the text so far of all turns in progress, for a reader that starts in the middle of a turn."""
        for piece in self._service.live_words.list_open(self._words_position):
            if sees is None or sees(piece.session):
                yield write_event("words", self._encode_words(piece))

    # -- batches ------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._making is None:
            self._forget()
            self._failure = None
            self._making = asyncio.create_task(self._follow(), name="live feed")

    async def _follow(self) -> None:
        """Make batches until there was no reader for `LINGER_SECONDS`."""
        words, self._heard = self._service.live_words.listeners, asyncio.Event()
        try:
            with self._service.listen(self._heard), self._presence.listen(self._heard):
                words.add(self._heard)
                await self._prepare()
                while self._readers or monotonic() - self._left_at < LINGER_SECONDS:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(None if self._readers else LINGER_SECONDS):
                            await self._heard.wait()
                    await asyncio.sleep(BATCH_SECONDS)
                    self._heard.clear()
                    await self._make_batch()
        except Exception as error:  # Every stream raises it, so no stream waits for a feed that has ended.
            self._failure = error
        finally:
            words.discard(self._heard)
            self._making = None
            self._tell_readers()

    async def _prepare(self) -> None:
        """Encode every row once, in slices, so that other work on the loop runs between the slices."""
        service = self._service
        await self._day.catch_up(service.log, service.moment().wall)
        self._begun_at = self._position = service.log.position()
        self._words_position = service.live_words.position
        sessions = list(service.core.state.sessions)
        for start in range(0, len(sessions), ROWS_AT_ONCE):
            self._find_rows(self._begin_round(), sessions[start : start + ROWS_AT_ONCE])
            await asyncio.sleep(0)
        self._is_ready = True
        # A row may have changed since it was encoded.
        self._heard.set()
        self._tell_readers()

    async def _make_batch(self) -> None:
        log, before = self._service.log, self._position
        if log.position() - before > LARGEST_GAP:
            await self._skip()
            return
        self._position, records = log.read_after(before, RECORDS_AT_ONCE, most_bytes=READ_AT_ONCE_BYTES)
        if len(records) == RECORDS_AT_ONCE or self._position < log.position():
            self._heard.set()
        if any(record.kind == "run_finished" for record in records):
            await self._day.catch_up(log, self._service.moment().wall)
        told = tuple(self._tell(records))
        rows = tuple(self._find_changed_rows({record.session for record in records}))
        gone = tuple(self._find_gone())
        if told or rows or gone:
            changes = _write_changes(self._position, told, rows, gone)
            self._put("changes", changes, before=before, records=told, rows=rows, gone=gone)
        self._pass_words_on()
        self._pass_people_on()

    def _pass_people_on(self) -> None:
        if self._presence.version == self._presence_version:
            return
        self._presence_version = self._presence.version
        people = tuple(self._find_people())
        told, self._told_people = self._told_people, frozenset(people)
        moved = frozenset(one.session for one in told ^ self._told_people)
        if moved:
            self._put("presence", _write_people(people, None), people=people, moved=moved)

    def _find_people(self) -> Iterator[Tagged]:
        sessions = self._service.core.state.sessions
        for one in self._presence.list_present():
            if one.session in sessions:
                yield Tagged(one.session, msgspec.json.encode(view_present(one, sessions[one.session].name)))

    async def _skip(self) -> None:
        """Start again with a snapshot for every stream, because too many records wait."""
        end = self._end
        self._forget()
        # The numbers of batches continue after a gap, so that every stream is behind the first batch and gets a
        # snapshot.
        self._first = end + 1
        await self._prepare()

    def _put(self, event: str, data: bytes, before: int | None = None, **parts: Any) -> None:
        event_id = f"{self._life}-{self._end}"
        text = write_event(event, data, event_id)
        begin = self._position if before is None else before
        self._batches.append(Batch(event_id=event_id, before=begin, position=self._position, data=text, **parts))
        self._kept_bytes += len(text)
        while self._kept_bytes > KEPT_BYTES and len(self._batches) > 1:
            self._kept_bytes -= len(self._batches.popleft().data)
            self._first += 1
        self._tell_readers()

    def _tell_readers(self) -> None:
        for heard in self._readers:
            heard.set()

    # -- records, rows and words --------------------------------------------------------------

    def _tell(self, records: Iterable[Record]) -> Iterator[Tagged]:
        for record in records:
            session = self._service.core.state.sessions.get(record.session)
            if session is not None:
                yield Tagged(record.session, msgspec.json.encode(view_brief(record, session.name)))

    def _begin_round(self) -> Round:
        return self._rows.begin(self._service.core, self._service.moment())

    def _find_changed_rows(self, recorded: set[str]) -> Iterator[Tagged]:
        """Find the rows that differ from the rows last sent. Checks the sessions with new records, and some of the
        sessions whose rows can change without a record. Also checks a few other sessions in turn, in case a change was
        missed."""
        now, known = self._begin_round(), self._service.core.state.sessions
        if self._rows.generation != self._generation:
            # Settings, agents or secrets have changed, so any row may have changed.
            self._generation = self._rows.generation
            self._to_look = deque(known)
        elif not self._to_look:
            self._to_look = deque(self._restless | now.restless)
        wanted = list(recorded)
        wanted += (self._to_look.popleft() for _ in range(min(len(self._to_look), RESTLESS_AT_ONCE)))
        others = list(islice(self._others, OTHERS_AT_ONCE))
        if len(others) < OTHERS_AT_ONCE:
            self._others = iter(list(known))
        if len(known) > len(self._told):
            wanted += known.keys() - self._told.keys()
        if self._to_look:
            self._heard.set()
        return self._find_rows(now, dict.fromkeys((*wanted, *others)))

    def _find_rows(self, now: Round, session_ids: Iterable[str]) -> Iterator[Tagged]:
        known = self._service.core.state.sessions
        found = []
        for session_id in session_ids:
            session = known.get(session_id)
            if session is None:
                continue
            row = now.encode(session).live
            (self._restless.discard if now.is_quiet(session) else self._restless.add)(session_id)
            if self._told.get(session_id) != row:
                self._told[session_id] = row
                found.append(Tagged(session_id, row))
        return iter(found)

    def _find_gone(self) -> Iterator[str]:
        known = self._service.core.state.sessions
        if len(known) >= len(self._told):
            return
        for session_id in self._told.keys() - known.keys():
            del self._told[session_id]
            yield session_id

    def _pass_words_on(self) -> None:
        before = self._words_position
        self._words_position, pieces, is_lost = self._service.live_words.read_after(before, WORDS_AT_ONCE_BYTES)
        if self._words_position > before:
            # There may be more text to read.
            self._heard.set()
        if is_lost:
            self._put("words", msgspec.json.encode({"session": None, "run": None, "kind": "lost", "text": ""}))
        for piece in pieces:
            self._put("words", self._encode_words(piece), session=piece.session)

    def _encode_words(self, piece: Piece) -> bytes:
        session = self._service.core.state.sessions.get(piece.session)
        said = msgspec.structs.asdict(piece.said)
        name = session.name if session is not None else None
        return msgspec.json.encode({"session": name, "id": piece.session, "run": piece.run, **said})


def view_present(present: Present, name: str) -> dict[str, Any]:
    """View a present person, with the session that they look at or write to, by its current name."""
    return {
        "person": present.person,
        "session": name,
        "id": present.session,
        "doing": present.doing,
        "since": show_time(present.since),
    }


def _write_people(people: Iterable[Tagged], sees: Sees) -> bytes:
    return b'{"people":[%b]}' % b",".join([one.data for one in people if sees is None or sees(one.session)])


def view_brief(record: Record, name: str) -> dict[str, Any]:
    """Summarise a record: its fields without the payload, and one line of text."""
    event = decode(record.kind, record.payload) if record.payload is not None else None
    words = "damaged" if record.is_damaged else "erased" if event is None else narrate(event) or tell(event)
    return {
        "session": name,
        "id": record.session,
        "seq": record.seq,
        "at": show_time(record.at),
        "kind": record.kind,
        "author": record.author,
        "run": record.run,
        "parent": record.parent,
        "words": words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1]}…",
        "outcome": event.outcome if isinstance(event, RunFinished) else None,
    }


def _write_changes(position: int, records: Iterable[Tagged], rows: Iterable[Tagged], gone: Iterable[str]) -> bytes:
    return b'{"position":%d,"records":[%b],"rows":[%b],"gone":%b}' % (
        position,
        b",".join([one.data for one in records]),
        b",".join([one.data for one in rows]),
        msgspec.json.encode(tuple(gone)),
    )

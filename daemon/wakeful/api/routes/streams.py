"""The streams: `GET /follow`, every record as it becomes durable, and `GET /live`, the changes that a dashboard shows.

Both are server-sent events, and can continue from a position. `follow` can also send lines of JSON, which the command
line reads. Records are filtered here, by session, tag, kind, author, failures and start time. So a remote reader is not
sent records that it would discard.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import FollowLine, LiveLine, RecordFilter, Service, find_named
from wakeful.api.event_stream import answer_events, wants_events, write_event
from wakeful.api.gate.callers import VisibleSessions
from wakeful.api.live_feed import LiveFeed, Sees
from wakeful.api.presence import Presence
from wakeful.api.requests import (
    Handlers,
    answer_lines,
    caller_of,
    read_bound,
    read_digits,
    read_kinds,
    read_number,
    service_of,
    visible_to,
)
from wakeful.core.record.state import Session
from wakeful.core.spec.session import TEMPLATE_MARK, find_template
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.views.narration import narrate, tell
from wakeful.views.records import encode_line, view_record
from wakeful.views.session_page import DAEMON
from wakeful.views.session_rows import FAILURES

_PART_BYTES = 64 * 1024
# Seconds that an event waits for more events. A saved file makes four records within some 20 ms. Sending each record to
# many streams separately would delay the run that has just begun. Lines of JSON are sent at once, because programs wait
# for them.
TOGETHER_SECONDS = 0.1
# The kinds of hold that mean that a session's runs went wrong.
_FAILED_HOLDS = ("failed", "crashing", "loop")


async def read_live(request: Request) -> Response:
    """GET /live?after=…&name=…: a snapshot, or the events since `after`, and then each new event."""
    feed: LiveFeed = request.app.state.feed
    service = service_of(request)
    names = request.query_params.getlist("name")
    # These are ids, so that a stream goes on when its session is renamed.
    chosen = {find_named(service, name).id for name in names}
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    visible = visible_to(request)
    sees: Sees = chosen.__contains__ if names else None
    if caller_of(request).member is not None:
        # The role is checked again for every batch, because it may be taken away while the stream is open.
        sees = visible.sees if not names else lambda one: one in chosen and visible.sees(one)
    return answer_events(_hold_presence(feed.stream(after, sees), request, chosen), request)


async def _hold_presence(lines: AsyncIterator[bytes], request: Request, ids: set[str]) -> AsyncIterator[bytes]:
    """Pass the lines on. While the stream lasts, the caller counts as looking at the sessions `ids`."""
    presence: Presence = request.app.state.presence
    caller, wall = caller_of(request), service_of(request).moment().wall
    with ExitStack() as held:
        for session_id in ids if caller.run is None else ():
            held.enter_context(presence.hold(caller.shown_name, session_id, wall))
        async with aclosing(cast("Any", lines)):
            async for line in lines:
                yield line


def _write_lines(lines: list[FollowLine | LiveLine], *, with_words: bool, as_events: bool) -> bytes:
    """Join the lines, as lines of JSON or as events. The line of a record is encoded once for all streams."""
    form = with_words, as_events
    texts: list[bytes] = []
    for line in lines:
        text = line.written.get(form) if isinstance(line, FollowLine) else None
        if text is None:
            text = (_write_event if as_events else _line_of_follow)(line, with_words)
        if isinstance(line, FollowLine):
            line.written[form] = text
        texts.append(text)
    return b"".join(texts)


def _line_of_follow(line: FollowLine | LiveLine, with_words: bool) -> bytes:
    """Encode a line with the name of its session. `words` is null for a routine record of the daemon itself."""
    if isinstance(line, LiveLine):
        return (
            msgspec.json.encode(
                {"session": line.session, "live": {"run": line.run or None, **msgspec.structs.asdict(line.said)}}
            )
            + b"\n"
        )
    record = line.record
    if not with_words:
        return encode_line(record, line.session)
    event = decode(record.kind, record.payload) if record.payload is not None else None
    words = (
        "damaged"
        if record.is_damaged
        else "erased"
        if event is None
        else narrate(event) or (tell(event) if record.author != DAEMON else None)
    )
    return msgspec.json.encode({"session": line.session, **view_record(record), "words": words}) + b"\n"


async def follow(request: Request) -> Response:
    """GET /follow?name=…&after=…: records as they become durable, of these sessions or of all."""
    service = service_of(request)
    is_live, with_words = (request.query_params.get(name) == "true" for name in ("live", "words"))
    as_events = wants_events(request)
    names, is_wanted = read_filter(request, service)
    after = _read_after(request, service)
    since = read_bound(request, service, "since")
    if since is not None and after is None:
        after = await asyncio.to_thread(find_position_before, service.log, since)
    lines = service.follow(
        names,
        # Text in progress belongs to no record, so a filter of records leaves it out.
        is_live=is_live and is_wanted is None,
        after=after,
        is_wanted=is_wanted,
        pause_seconds=TOGETHER_SECONDS if as_events else 0.0,
    )
    if caller_of(request).member is not None:
        lines = _leave_out(lines, visible_to(request))
    # Subscribe before the headers are sent. So a client that acts after it has received the headers misses no record.
    first = asyncio.ensure_future(cast("Any", anext(lines)))
    await asyncio.sleep(0)
    write = partial(_write_lines, with_words=with_words, as_events=as_events)
    ids = {service.core.state.ids[name] for name in names or ()}
    stream = _hold_presence(_stream_follow(lines, first, write), request, ids)
    return answer_events(stream, request) if as_events else answer_lines(stream)


async def _leave_out(
    batches: AsyncIterator[list[FollowLine | LiveLine]], visible: VisibleSessions
) -> AsyncIterator[list[FollowLine | LiveLine]]:
    """Pass on the lines of the sessions that the caller may see at that moment."""
    async with aclosing(cast("Any", batches)):
        async for lines in batches:
            seen = [line for line in lines if _is_seen(line, visible)]
            if seen:
                yield seen


def _is_seen(line: FollowLine | LiveLine, visible: VisibleSessions) -> bool:
    if isinstance(line, FollowLine):
        return visible.sees(line.record.session)
    # A line without a session reports that text was lost.
    return not line.session or visible.sees_name(line.session)


def _read_after(request: Request, service: Service) -> int | None:
    """Read the position to continue after. `Last-Event-ID`, which a reconnecting browser sends, overrides `after`.

    Raises CallerError if the position is not in this log.
    """
    last = request.headers.get("last-event-id")
    after = read_number(request, "after") if last is None else read_digits("Last-Event-ID", last)
    newest = service.log.position()
    if after is not None and after > newest:
        raise CallerError(
            f"position {after} is not in this log, whose newest is {newest}: the log was restored, or it is another "
            "one; start again without a position"
        )
    return after


def _write_event(line: FollowLine | LiveLine, with_words: bool) -> bytes:
    """Encode a line as an event: `record`, or `words` for text in progress. `words` has no id, because a stream cannot
    continue from it."""
    data = _line_of_follow(line, with_words).rstrip(b"\n")
    if isinstance(line, LiveLine):
        return write_event("words", data)
    return write_event("record", data, str(line.position))


async def _stream_follow(
    batches: AsyncIterator[list[FollowLine | LiveLine]],
    first: asyncio.Future[list[FollowLine | LiveLine]],
    write: Callable[[list[FollowLine | LiveLine]], bytes],
) -> AsyncIterator[bytes]:
    async with aclosing(cast("Any", batches)):
        following: Awaitable[list[FollowLine | LiveLine]] = first
        del first
        try:
            while True:
                text = write(await following)
                # For a stalled reader, only the text of one page stays in memory here. The awaited future would also
                # keep the records of the page, so it is deleted.
                del following
                for start in range(0, len(text), _PART_BYTES):
                    yield text[start : start + _PART_BYTES]
                following = anext(batches)
        except StopAsyncIteration:
            return


def read_filter(request: Request, service: Service) -> tuple[set[str] | None, RecordFilter | None]:
    """Read the query of a request. Returns two values:

    - the sessions that the request names one by one, or None for all sessions;
    - a filter for their records, or None if every record is wanted.
    """
    query = request.query_params
    patterns = tuple(query.getlist("match"))
    names = {find_named(service, one).name for one in query.getlist("name")}
    wanted = RecordConditions(
        names=frozenset(names) if patterns else frozenset(),
        patterns=patterns,
        tags=frozenset(query.getlist("tag")),
        kinds=read_kinds(request),
        author=query.get("author"),
        is_failed=query.get("failed") == "true",
        since=read_bound(request, service, "since"),
    )
    return (names or None) if not patterns else None, None if wanted == _EVERYTHING else wanted.has


@dataclass(frozen=True, slots=True)
class RecordConditions:
    """The conditions of a request. A record must meet all of them. An empty or None field is not a condition.

    A pattern is a template (`ticket@`) or a shell pattern. It also matches sessions that are created later."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    kinds: tuple[str, ...] | None = None
    author: str | None = None
    is_failed: bool = False
    since: int | None = None

    def has(self, session: Session, record: Record) -> bool:
        return (
            (self.kinds is None or record.kind in self.kinds)
            and (self.author is None or record.author == self.author)
            and (self.since is None or record.at >= self.since)
            and (not self.patterns or session.name in self.names or self._is_meant(session.name))
            and (not self.tags or (session.spec is not None and not self.tags.isdisjoint(session.spec.tags)))
            and (not self.is_failed or _is_failure(record))
        )

    def _is_meant(self, name: str) -> bool:
        return any(
            find_template(name) == one if one.endswith(TEMPLATE_MARK) else fnmatchcase(name, one)
            for one in self.patterns
        )


_EVERYTHING = RecordConditions()


def _is_failure(record: Record) -> bool:
    """Does the record report a run that failed or was lost (even if it is retried), or a session that sleeps because
    its runs went wrong?"""
    if record.payload is None or record.kind not in ("run_finished", "session_slept"):
        return False
    payload: dict[str, Any] = json.loads(record.payload)
    if record.kind == "run_finished":
        return payload["outcome"] in FAILURES
    return payload["hold"]["kind"] in _FAILED_HOLDS


def find_position_before(log: LogReader, since: int) -> int:
    """Find the position before the first record written at `since` or later. Blocking: a few dozen short reads.

    This is a binary search, because time normally grows with the position. If the clock was once set back, older
    records may follow the result. The filter of the stream drops them.
    """
    low, high = 0, log.position()
    while low < high:
        middle = (low + high) // 2
        _, records = log.read_after(middle, 1)
        if not records or records[0].at >= since:
            high = middle
        else:
            low = middle + 1
    return low


HANDLERS: Handlers = {
    "GET /follow": follow,
    "GET /live": read_live,
}

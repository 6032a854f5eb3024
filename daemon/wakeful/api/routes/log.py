"""The routes of `log`, `history`, `search` and `export`: the records of one session, a search in the logs of all
sessions, and the logs as lines for other tools.

Records are read in pages off the loop, so that reading or searching a million records does not delay the daemon. The
log's own index finds the words of a search. An export ends at the newest record at the time of the request. So it ends
even if the log goes on growing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service, find_named
from wakeful.api.requests import (
    LINES,
    Handlers,
    answer_lines,
    find_session,
    read_bound,
    read_cursor,
    read_kinds,
    read_limit,
    read_number,
    service_of,
    visible_to,
    write_next,
)
from wakeful.core.record.events import Outcome, RunFinished
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record, Span
from wakeful.history.positions import StateHashes, list_origins
from wakeful.views.narration import narrate, tell, tell_price
from wakeful.views.records import encode_export, encode_find, matches, split_words, view_record

PAGE = 500
# The most records of `last`. Its answer must fit in memory. A range (from, to) is streamed, and has no limit.
MOST_LAST = 10_000
_OUTCOMES = get_args(Outcome)
FOUND = 20
# The most results of a search. A caller who needs more uses `export`.
MOST_FOUND = 1_000
# The number of records of an export that are read at once.
EXPORT_PAGE = 1_000
FORMATS = ("jsonl",)


async def read_log(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    bounds: dict[str, Any] = {
        "to_seq": read_number(request, "to"),
        "since": read_bound(request, service, "since"),
        "until": read_bound(request, service, "until"),
        "kinds": _read_outcome_kinds(request),
        "run": read_number(request, "run"),
        "author": request.query_params.get("author"),
    }
    first, last = read_number(request, "from") or 1, read_number(request, "last")
    with_words = request.query_params.get("words") == "true"
    if last is not None and last > MOST_LAST:
        raise CallerError(
            f"last={last}: at most {MOST_LAST} at once; ask for more by seq (from, to) or by time (since, until)"
        )
    archived = await asyncio.to_thread(service.log.archived, session.id)
    wanted = UnindexedConditions(request.query_params.get("outcome"), request.query_params.get("text"))
    telling = LineFormat(
        with_words, archived, session.name, wanted, with_states=request.query_params.get("states") == "true"
    )
    limit, cursor = read_limit(request, MOST_LAST), read_cursor(request, int)
    if limit is not None or cursor is not None:
        if last is not None or request.query_params.get("past") == "true":
            raise CallerError("limit and cursor page from the beginning: leave last and past out")
        start = max(first, cursor or 1)
        lines, after = await asyncio.to_thread(
            _read_limited, service, session.id, start, limit or MOST_LAST, bounds, telling
        )
        headers = write_next(request, after) if after is not None else {}
        return Response(lines, media_type=LINES, headers=headers)
    if request.query_params.get("past") == "true":
        return answer_lines(_stream_past(service, session, bounds, telling))
    if last is None:
        return answer_lines(_stream_log(service, session.id, first, bounds, telling))
    return Response(
        await asyncio.to_thread(_read_newest, service, session.id, first, last, bounds, telling), media_type=LINES
    )


def _read_outcome_kinds(request: Request) -> tuple[str, ...] | None:
    """Read the kinds of record in the query. With `outcome`, the only kind is `run_finished`, because only it has an
    outcome."""
    kinds, outcome = read_kinds(request), request.query_params.get("outcome")
    if outcome is None:
        return kinds
    if outcome not in _OUTCOMES:
        raise CallerError(f"there is no outcome {outcome!r}; expected one of {', '.join(_OUTCOMES)}")
    if kinds is not None and "run_finished" not in kinds:
        raise CallerError(f"only run_finished has an outcome, and {', '.join(kinds)} was asked for; leave the kind out")
    return ("run_finished",)


class UnindexedConditions(NamedTuple):
    """The conditions that the log itself cannot check. Records that do not meet them are left out.

    `outcome`: the outcome of the run. `text`: a text that the record contains.
    """

    outcome: str | None = None
    text: str | None = None

    def holds(self, record: Record, telling: LineFormat) -> bool:
        if self.outcome is not None:
            event = decode(record.kind, record.payload) if record.payload is not None else None
            if not isinstance(event, RunFinished) or event.outcome != self.outcome:
                return False
        return self.text is None or matches(record, _say(record, telling), self.text)


class LineFormat(NamedTuple):
    """The form of the lines.

    - `words`: add the text for people.
    - `archived`: the records whose payloads are in a bundle.
    - `of`: the id of the session, if it is not the requested session but an origin of that session.
    """

    words: bool
    archived: Span | None
    name: str
    wanted: UnindexedConditions = UnindexedConditions()
    with_states: bool = False
    of: str | None = None


async def _stream_past(
    service: Service, session: Session, bounds: dict[str, Any], telling: LineFormat
) -> AsyncIterator[bytes]:
    """Yield the records of the sessions that this session came from, oldest first, then its own records. Lines of the
    former sessions have the id of their session."""
    for origin in reversed(await asyncio.to_thread(list_origins, service.log, session)):
        last = min(one for one in (origin.last, bounds["to_seq"]) if one is not None)
        async for lines in _stream_log(
            service, origin.session, 1, {**bounds, "to_seq": last}, telling._replace(of=origin.session)
        ):
            yield lines
    async for lines in _stream_log(service, session.id, 1, bounds, telling):
        yield lines


def _read_newest(
    service: Service, session_id: str, first: int, last: int, bounds: dict[str, Any], telling: LineFormat
) -> bytes:
    records = service.log.read(session_id, from_seq=first, newest_first=True, **bounds)
    newest = list(islice((record for record in records if telling.wanted.holds(record, telling)), last))
    hashes = _start_hashes(service, session_id, telling)
    return b"".join(_encode(record, telling, hashes) for record in reversed(newest))


def _read_limited(
    service: Service, session_id: str, first: int, limit: int, bounds: dict[str, Any], telling: LineFormat
) -> tuple[bytes, int | None]:
    """Read a page of lines. Also returns the seq where the next page begins, or None after the last page."""
    records = service.log.read(session_id, from_seq=first, **bounds)
    page = list(islice((record for record in records if telling.wanted.holds(record, telling)), limit + 1))
    after = page.pop().seq if len(page) > limit else None
    hashes = _start_hashes(service, session_id, telling)
    return b"".join(_encode(record, telling, hashes) for record in page), after


async def _stream_log(
    service: Service, session_id: str, first: int, bounds: dict[str, Any], telling: LineFormat
) -> AsyncIterator[bytes]:
    hashes = _start_hashes(service, session_id, telling)
    while True:
        lines, after = await asyncio.to_thread(_read_page, service, session_id, first, bounds, telling, hashes)
        if lines:
            yield lines
        if after is None:
            return
        first = after


def _read_page(
    service: Service,
    session_id: str,
    first: int,
    bounds: dict[str, Any],
    telling: LineFormat,
    hashes: StateHashes | None,
) -> tuple[bytes, int | None]:
    """Read the lines of a page of records. Also returns the seq where the next page begins, or None after the last
    page."""
    page = list(service.log.read(session_id, from_seq=first, limit=PAGE, **bounds))
    wanted: Iterator[Record] = (record for record in page if telling.wanted.holds(record, telling))
    return b"".join(_encode(record, telling, hashes) for record in wanted), page[-1].seq + 1 if len(
        page
    ) == PAGE else None


def _start_hashes(service: Service, session_id: str, telling: LineFormat) -> StateHashes | None:
    return StateHashes(service.log, session_id) if telling.with_states else None


def _encode(record: Record, telling: LineFormat, hashes: StateHashes | None) -> bytes:
    """Encode a record as a line. It has `words` and `state_hash` only if they were requested."""
    view = view_record(record)
    if hashes is not None:
        view["state_hash"] = hashes.at(record.seq)
    if telling.words:
        view["words"] = _say(record, telling)
    if telling.of is not None:
        view = {"session": telling.of, **view}
    return msgspec.json.encode(view) + b"\n"


def _say(record: Record, telling: LineFormat) -> str:
    """Describe a record for people. Never empty."""
    event = decode(record.kind, record.payload) if record.payload is not None else None
    return f"{narrate(event) or tell(event)}{tell_price(event)}" if event is not None else _say_missing(record, telling)


def _say_missing(record: Record, telling: LineFormat) -> str:
    if record.is_damaged:
        return "damaged: its payload is not the one that was recorded"
    span = telling.archived
    is_archived = span is not None and span.first <= record.seq <= span.last and telling.of is None
    return f"archived; `wakeful load {telling.name}` brings it back" if is_archived else "erased"


async def search(request: Request) -> Response:
    service = service_of(request)
    text, name = request.query_params.get("text", ""), request.query_params.get("name")
    if not any(sign.isalnum() for sign in text):
        raise CallerError(f"nothing to search for in {text!r}; give at least one word")
    limit = read_number(request, "last") or FOUND
    if limit > MOST_FOUND:
        raise CallerError(
            f"last={limit}: a search finds at most {MOST_FOUND}; narrow it by name, kind or time, "
            "or use `wakeful export`"
        )
    bounds: dict[str, Any] = {
        "session": None,
        "since": read_bound(request, service, "since"),
        "until": read_bound(request, service, "until"),
        "kinds": read_kinds(request),
        "author": request.query_params.get("author"),
    }
    session = find_named(service, name) if name is not None else None
    ids = visible_to(request).list_ids() if session is None else None
    page, cursor = read_limit(request, MOST_FOUND), read_cursor(request, Place)
    if page is not None or cursor is not None:
        return await _answer_page(request, service, text, page or FOUND, cursor, bounds, session, ids)
    return answer_lines(_answer(service, text, limit, bounds, session, ids))


class Place(NamedTuple):
    """The beginning of a page: the results up to the time `until`, without the first `skipped`."""

    until: int
    skipped: int


async def _answer_page(
    request: Request,
    service: Service,
    text: str,
    limit: int,
    place: Place | None,
    bounds: dict[str, Any],
    session: Session | None,
    ids: frozenset[str] | None,
) -> Response:
    """Answer one page. The first page fixes `until`, so that newer records do not shift results to the next page."""
    until, skipped = place or Place(bounds["until"] or service.moment().wall, 0)
    if skipped > MOST_FOUND:
        raise CallerError(f"a search finds at most {MOST_FOUND} in all; narrow it, or use `wakeful export`")
    most = skipped + limit + 1
    found = await asyncio.to_thread(_search, service, text, most, {**bounds, "until": until}, session, ids)
    lines = found.splitlines(keepends=True)[skipped:]
    is_more = len(lines) > limit and skipped + limit <= MOST_FOUND
    headers = write_next(request, Place(until, skipped + limit)) if is_more else {}
    return Response(b"".join(lines[:limit]), media_type=LINES, headers=headers)


async def _answer(
    service: Service,
    text: str,
    limit: int,
    bounds: dict[str, Any],
    session: Session | None,
    ids: frozenset[str] | None,
) -> AsyncIterator[bytes]:
    """Yield the results. They are streamed so that the headers are sent at once. The first search of a long log builds
    the index of the log, which takes half a minute for a million records."""
    yield await asyncio.to_thread(_search, service, text, limit, bounds, session, ids)


def _search(
    service: Service,
    text: str,
    limit: int,
    bounds: dict[str, Any],
    session: Session | None,
    ids: frozenset[str] | None,
) -> bytes:
    """Search the log. A search of one session includes the records that it was forked or loaded with.

    `ids` are the sessions that the caller may see, or None for all.
    """
    sessions, words = service.core.state.sessions, split_words(text)
    if session is None and ids is not None:
        # Search each session separately, so that results of hidden sessions do not use up the limit.
        found = [
            record
            for one in sorted(ids)
            for record in service.log.search(text, limit=limit, **{**bounds, "session": one})
        ]
        found.sort(key=lambda record: record.at, reverse=True)
    elif session is None:
        found = service.log.search(text, limit=limit, **bounds)
    else:
        pasts = {one.session: one.last for one in list_origins(service.log, session)}
        found = service.log.search(text, limit=limit, **{**bounds, "session": session.id})
        for past, last in pasts.items():
            records = service.log.search(text, limit=limit, **{**bounds, "session": past})
            found += [record for record in records if last is None or record.seq <= last]
    # Loaded records that belong to no session here get the name of the session that was opened when they were loaded.
    named = {
        one.lineage.origin.session: f"{one.name}, before it was loaded"
        for one in sessions.values()
        if one.lineage.origin is not None and one.lineage.origin.session not in sessions
    }
    return b"".join(
        encode_find(
            record,
            sessions[record.session].name if record.session in sessions else named.get(record.session, record.session),
            words,
        )
        for record in found[:limit]
    )


@dataclass(frozen=True, slots=True)
class ExportBounds:
    """The bounds of an export, each inclusive. None means no bound. `ids` are the ids of the sessions.

    `is_loaded`: include the histories that came with loaded bundles."""

    ids: frozenset[str] | None
    kinds: tuple[str, ...] | None
    since: int | None
    until: int | None
    is_loaded: bool = False

    def has(self, record: Record) -> bool:
        return (
            (self.ids is None or record.session in self.ids)
            and (self.kinds is None or record.kind in self.kinds)
            and (self.since is None or record.at >= self.since)
            and (self.until is None or record.at <= self.until)
        )


async def export(request: Request) -> Response:
    service = service_of(request)
    form = request.query_params.get("format", FORMATS[0])
    if form not in FORMATS:
        raise CallerError(f"there is no format {form!r}; expected {' or '.join(FORMATS)}")
    names = request.query_params.getlist("name")
    ids = frozenset(find_named(service, name).id for name in names) if names else visible_to(request).list_ids()
    is_loaded = request.query_params.get("loaded") == "true"
    wanted = ExportBounds(
        ids,
        read_kinds(request),
        read_bound(request, service, "since"),
        read_bound(request, service, "until"),
        is_loaded,
    )
    # For one session, its own index is used, so that the records of other sessions are not read. The order is the same.
    pages = (
        _pages_of_one(service, next(iter(ids)), wanted)
        if ids is not None and len(ids) == 1
        else _pages_of_all(service, wanted)
    )
    return answer_lines(_stream_export(service, pages))


async def _stream_export(service: Service, pages: Iterator[list[Record]]) -> AsyncIterator[bytes]:
    while (lines := await asyncio.to_thread(_encode_next, service, pages)) is not None:
        if lines:
            yield lines


def _encode_next(service: Service, pages: Iterator[list[Record]]) -> bytes | None:
    page = next(pages, None)
    if page is None:
        return None
    sessions = service.core.state.sessions
    # A loaded history that serves only as the past of forks is not a session here. It has an id but no name.
    return b"".join(
        encode_export(record, sessions[record.session].name if record.session in sessions else None) for record in page
    )


def _pages_of_all(service: Service, wanted: ExportBounds) -> Iterator[list[Record]]:
    position, end = 0, service.log.position()
    while position < end:
        position, records = service.log.read_after(
            position, min(EXPORT_PAGE, end - position), imported=wanted.is_loaded
        )
        if not records:
            return
        yield [record for record in records if wanted.has(record)]


def _pages_of_one(service: Service, session_id: str, wanted: ExportBounds) -> Iterator[list[Record]]:
    first, head = 1, service.log.head(session_id).seq
    while first <= head:
        found = service.log.read(
            session_id,
            from_seq=first,
            to_seq=head,
            limit=EXPORT_PAGE,
            since=wanted.since,
            until=wanted.until,
            kinds=wanted.kinds,
        )
        page = list(found)
        if not page:
            return
        yield page
        first = page[-1].seq + 1


HANDLERS: Handlers = {
    "GET /sessions/{name}/log": read_log,
    "GET /search": search,
    "GET /export": export,
}

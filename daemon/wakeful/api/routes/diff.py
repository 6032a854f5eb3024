"""The route of `diff`: compares two sides, each NAME or NAME@POSITION, off the loop. With `contents=true`, it also
compares the contents of their files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service, find_named
from wakeful.api.problems import Forbidden
from wakeful.api.requests import Handlers, answer_json, service_of, visible_to
from wakeful.core.record.events import RunFinished, SessionMerged
from wakeful.core.record.knowledge import close_lineage
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.history.positions import fold_position
from wakeful.run_files.files_at_positions import Files, Wrote, compare_positions, read_files, read_found
from wakeful.views.differences import compare

# The most runs that are listed between the two sides. The versions of both sides are exact in any case.
MOST_RUNS = 1_000
WRITES = ("run_finished", "session_merged")


async def read_diff(request: Request) -> Response:
    service = service_of(request)
    sides = [find_side(service, request.query_params.get(side), side) for side in ("a", "b")]
    visible = visible_to(request)
    unseen = next((one for one, _ in sides if not visible.sees(one.id)), None)
    if unseen is not None:
        raise Forbidden(
            f"you have no role in a session called {unseen.name!r}; `wakeful list` shows the sessions you may see"
        )
    with_contents = request.query_params.get("contents") == "true"
    return answer_json(await asyncio.to_thread(_compare, service, sides, service.moment().wall, with_contents))


def find_side(service: Service, text: str | None, side: str) -> tuple[Session, str | None]:
    """Find the session that a side names, and the position after the last `@`.

    A session's name may itself contain an `@`. If the whole text is a name, it counts as the name.
    """
    if not text:
        raise CallerError(f"{side} is missing; expected NAME or NAME@POSITION, such as payroll@12")
    name, mark, position = text.rpartition("@")
    if text in service.core.state.ids or not mark:
        return find_named(service, text), None
    return find_named(service, name), position


def _compare(
    service: Service, sides: list[tuple[Session, str | None]], now: int, with_contents: bool
) -> dict[str, Any]:
    log = service.log
    a, b = (session if position is None else fold_position(log, session, position, now) for session, position in sides)
    runs: list[RunFinished] = []
    if a.id == b.id:
        first, last = sorted((a.seq, b.seq))
        records = log.read(a.id, from_seq=first + 1, to_seq=last, kinds=("run_finished",), limit=MOST_RUNS)
        events = (decode(record.kind, record.payload) for record in records if record.payload is not None)
        runs = [event for event in events if isinstance(event, RunFinished)]
    times = [next((record.at for record in log.read(one.id, from_seq=one.seq, limit=1)), None) for one in (a, b)]
    found = compare(a, b, runs, (times[0], times[1]))
    return found | {"contents": _compare_contents(service, a, b)} if with_contents else found


def _compare_contents(service: Service, a: Session, b: Session) -> dict[str, Any]:
    """Compare the files of both sides. `known` is True for a side if the files of any run are recorded there. If it is
    False for one side, nothing can be compared."""
    files = [read_files(service.blobs, _list_writes(service.log, one)) for one in (a, b)]
    if a.id == b.id and files.count(None) == 1:
        # One side is before any run. Its files are the files that the first run found.
        early = files.index(None)
        files[early] = _read_first(service, (a, b)[1 - early])
    known = [one is not None for one in files]
    compared = (
        compare_positions(service.blobs, files[0] or {}, files[1] or {}) if all(known) else {"files": [], "left_out": 0}
    )
    return {"known": {"a": known[0], "b": known[1]}, **compared}


def _list_writes(log: LogReader, session: Session, *, newest_first: bool = True) -> Iterator[Wrote]:
    """Yield the records of files in the history that led to this state. Branches that a rewind left do not count."""
    line = close_lineage(session.lineage.line, session.id, session.seq)
    for stretch in reversed(line) if newest_first else line:
        for record in log.read(
            stretch.session, from_seq=stretch.first, to_seq=stretch.last, kinds=WRITES, newest_first=newest_first
        ):
            match decode(record.kind, record.payload) if record.payload is not None else None:
                case RunFinished(files=str() as files):
                    yield Wrote(files)
                case SessionMerged(record=str() as files):
                    yield Wrote(files, is_merge=True)
                case _:
                    continue


def _read_first(service: Service, later: Session) -> Files | None:
    first = next((one for one in _list_writes(service.log, later, newest_first=False) if not one.is_merge), None)
    return read_found(service.blobs, first) if first is not None else None


HANDLERS: Handlers = {
    "GET /diff": read_diff,
}

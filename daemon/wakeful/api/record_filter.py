"""The record filter of `GET /follow`: sessions, tags, kinds of record, author, failures only, start time.

The filter runs in the daemon, so that a remote reader is not sent records that it would discard.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from starlette.requests import Request

from wakeful.api.requests import read_bound, read_kinds
from wakeful.api.service import RecordFilter, Service, find_named
from wakeful.core.record.state import Session
from wakeful.core.spec.session import TEMPLATE_MARK, find_template
from wakeful.eventlog.contract import LogReader, Record
from wakeful.views.session_rows import FAILURES

# The kinds of hold that mean that a session's runs went wrong.
_FAILED_HOLDS = ("failed", "crashing", "loop")


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
    """The conditions of a request. A record must meet all of them; an empty or None field is not a condition.

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

    A binary search, because time normally grows with the position. If the clock was once set back, older records may
    follow the result; the filter drops them.
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

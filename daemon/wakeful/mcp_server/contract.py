"""The interface through which the MCP server reaches the daemon, and the rights of one client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from wakeful.errors import CallerError, OperatorError

LINES = "application/jsonl"


class DaemonRefused(CallerError):
    """The daemon answered with an error. The message is the daemon's own."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class DaemonAway(OperatorError):
    """No daemon answers, or it went away before it answered."""


class Reply(NamedTuple):
    """An answer of the daemon. The names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def decode(self) -> Any:
        """Decode the answer: a document, or a list if the answer is lines of JSON."""
        if self.headers.get("content-type", "").startswith(LINES):
            return [json.loads(line) for line in self.body.split(b"\n") if line]
        return json.loads(self.body)


class Daemon(Protocol):
    """The routes of one daemon, for one caller. Raises DaemonRefused and DaemonAway."""

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Reply: ...

    def follow(self, names: Sequence[str]) -> AbstractAsyncContextManager[AsyncIterator[dict[str, Any]]]:
        """Yield the future records of these sessions, or of all. The context is entered when the daemon has begun to
        follow, so that none is missed."""
        ...


class Reach(NamedTuple):
    """The connection to the daemon for one MCP client, with the rights of its caller.

    `own` is the session of the calling run, or None if the caller is not a run. `only` has the verbs that are offered,
    or is None for all."""

    daemon: Daemon
    own: str | None = None
    allows_dangerous: bool = False
    only: frozenset[str] | None = None

    def offers(self, verb: str) -> bool:
        return self.only is None or verb in self.only


def read_refusal(body: bytes, status: int) -> str:
    """Read the message of an error answer: a problem document, or the older `{error: words}`."""
    try:
        found = json.loads(body)
        return str(found.get("detail") or found.get("error") or found["title"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"the daemon answered {status}: {body[:200].decode(errors='replace')}"


def encode_query(query: Mapping[str, Any] | None) -> str:
    """Encode a query, with its question mark. Values that are None, False or empty lists are left out."""
    given = {
        name: "true" if value is True else value
        for name, value in (query or {}).items()
        if value is not None and value is not False and value != []
    }
    return f"?{urlencode(given, doseq=True, quote_via=quote)}" if given else ""

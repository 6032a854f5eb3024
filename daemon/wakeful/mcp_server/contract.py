"""The interface through which the MCP server reaches the daemon, and the rights of one client.

This is a separate module because the daemon and the command line import it without the `mcp` package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from wakeful.client.async_client import Reply


class Daemon(Protocol):
    """The routes of one daemon, for one caller. Its methods raise DaemonRefused and DaemonUnreachable."""

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
        follow, so that no record is missed."""
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

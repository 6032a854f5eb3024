"""Reports changes of resources to MCP clients, by following the records of their sessions.

After a report, the client reads the resource again. So the reports of one burst are joined, and after a restart of the
daemon every watched resource is reported as changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from wakeful.client.refusals import DaemonRefused, DaemonUnreachable
from wakeful.mcp_server.contract import Daemon
from wakeful.mcp_server.resources import LIST_KINDS, Address, find_changed

# Seconds in which the changes of a burst are joined to one report.
JOINED_SECONDS = 0.1
# The pause before the daemon is tried again during its restart. It doubles each time.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0

# Reports the addresses that changed. The flag is True if the list of sessions changed, too.
Report = Callable[[set[Address], bool], Awaitable[None]]


class Watch:
    """The resources that one client watches. `with_list`: also watch the list of sessions, by following all of them."""

    def __init__(self, daemon: Daemon, watched: frozenset[Address], *, with_list: bool = False) -> None:
        self._daemon = daemon
        self._watched = watched
        self._with_list = with_list
        self._names = [] if with_list else sorted({one.name for one in watched})

    async def run(self, report: Report, begun: asyncio.Future[None]) -> None:
        """Report changes until cancelled. `begun` is completed when no later change can be missed. If the daemon
        refuses or does not answer at the start, `begun` gets that error."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async with self._daemon.follow(self._names) as following:
                    if not begun.done():
                        begun.set_result(None)
                    else:
                        await report(set(self._watched), self._with_list)
                    pause = FIRST_PAUSE_SECONDS
                    await self._report_changes(following, report)
            except (DaemonUnreachable, DaemonRefused) as error:
                if not begun.done():
                    begun.set_exception(error)
                    return
                if isinstance(error, DaemonRefused):
                    # A session was renamed or no longer exists. The client reads it again, and gets the error.
                    await report(set(self._watched), self._with_list)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _report_changes(self, following: AsyncIterator[dict[str, Any]], report: Report) -> None:
        """Read records as they arrive, and report the changes of each burst together. Returns when the stream ends."""
        news = News()
        coming: asyncio.Future[dict[str, Any]] | None = None
        now = asyncio.get_running_loop().time
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(following))
                left = None if news.due is None else max(news.due - now(), 0)
                done, _ = await asyncio.wait((coming,), timeout=left)
                if news.due is not None and now() >= news.due:
                    await report(news.changed, news.is_list_changed)
                    news = News()
                if not done:
                    continue
                try:
                    record = coming.result()
                except StopAsyncIteration:
                    return
                finally:
                    coming = None
                news.changed.update(find_changed(record, self._watched))
                news.is_list_changed |= self._with_list and record["kind"] in LIST_KINDS
                if news.due is None and (news.changed or news.is_list_changed):
                    news.due = now() + JOINED_SECONDS
        finally:
            if coming is not None:
                coming.cancel()


class News:
    """Changes that are not reported yet. `due` is the time of their report, by the clock of the loop."""

    def __init__(self) -> None:
        self.changed: set[Address] = set()
        self.is_list_changed = False
        self.due: float | None = None

"""The tools that an agent's last run offered to its model, and the MCP servers that were down. Both come from the
recorded requests.

`show`, `why` and `context` use this module. The next run uses it, too: for ten minutes, runs do not wait for a server
that was too slow to start. Blocking: the log is read.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.agents.turns import DownServer
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec, McpServer
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader

# After a server was too slow to start, runs do not wait for it for this long.
SLOW_MICROSECONDS = 10 * 60 * 1_000_000
# The most requests that are searched for a request with tools. Usually only the first request of a run has tools.
_MOST_REQUESTS = 1_000
_MOST_RUNS = 20


def list_down(log: LogReader, session: Session) -> tuple[DownServer, ...]:
    """List the servers that were down when the newest run last recorded its tools."""
    event, _ = read_offered(log, session)
    newest = session.run or session.last_run
    return event.servers_down if event is not None and newest is not None and event.run == newest.run else ()


def find_slow_servers(log: LogReader, session: Session, agent: AgentSpec, now: int) -> tuple[DownServer, ...]:
    """Find the servers that were too slow for a recent run, and whose declaration has not changed since."""
    event, at = read_offered(log, session)
    slow = (
        [replace(one, since=one.since or at) for one in event.servers_down if one.is_slow] if event is not None else []
    )
    fresh = [one for one in slow if one.since is not None and now - one.since < SLOW_MICROSECONDS]
    if not fresh or event is None:
        return ()
    before = _read_servers(log, session, event.run)
    present = {server.name: server for server in agent.mcp}
    return tuple(one for one in fresh if one.name in present and before.get(one.name) == present[one.name])


def read_offered(log: LogReader, session: Session) -> tuple[ev.TurnRequested | None, int]:
    """Find the last request that recorded the tools of its run, and its time. None if there is none.

    The tools of MCP servers are only known once a run has started.
    """
    for record in log.read(session.id, kinds=("turn_requested",), newest_first=True, limit=_MOST_REQUESTS):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.TurnRequested(tools=tools, sub=None) as event if tools:
                return event, record.at
    return None, 0


def _read_servers(log: LogReader, session: Session, run: int) -> dict[str, McpServer]:
    """Read the MCP servers of an earlier run, as they were declared at that time."""
    for record in log.read(session.id, kinds=("run_started",), newest_first=True, limit=_MOST_RUNS):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.RunStarted(run=number, agent=AgentSpec() as agent) if number == run:
                return {server.name: server for server in agent.mcp}
    return {}

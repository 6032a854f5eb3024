"""The tools of an agent's last run as its requests recorded them, and the MCP servers it had to do without: for people
who ask, and for the next run.

Blocks: the log is read. A server that did not start in its time is not waited for again by the runs of the next
minutes.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.agents.turns import DownServer
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec, McpServer
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader

# For so long a server that was too slow is not waited for.
SLOW_MICROSECONDS = 10 * 60 * 1_000_000
# The first record of a run has the definitions of its tools.
_MOST_REQUESTS = 1_000
_MOST_RUNS = 20


def list_down(log: LogReader, session: Session) -> tuple[DownServer, ...]:
    """The servers that its newest run was without when it last told its tools."""
    event, _ = read_offered(log, session)
    newest = session.run or session.last_run
    return event.servers_down if event is not None and newest is not None and event.run == newest.run else ()


def find_slow_servers(log: LogReader, session: Session, agent: AgentSpec, now: int) -> tuple[DownServer, ...]:
    """The servers that a run waited for in vain a moment ago, and whose declaration is the same."""
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
    """The last request that told the tools of its run, and its moment; None before the first.

    Those of MCP servers are known when a run starts.
    """
    for record in log.read(session.id, kinds=("turn_requested",), newest_first=True, limit=_MOST_REQUESTS):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.TurnRequested(tools=tools, sub=None) as event if tools:
                return event, record.at
    return None, 0


def _read_servers(log: LogReader, session: Session, run: int) -> dict[str, McpServer]:
    """The servers of an earlier run, as they were declared."""
    for record in log.read(session.id, kinds=("run_started",), newest_first=True, limit=_MOST_RUNS):
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.RunStarted(run=number, agent=AgentSpec() as agent) if number == run:
                return {server.name: server for server in agent.mcp}
    return {}

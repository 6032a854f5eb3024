"""The one client of the control socket: HTTP/1.1 with JSON, over a UNIX socket, or over TCP with a token.

`wire` has the bytes of requests and answers, and `refusals` every way in which an answer does not come. Two transports
use both, because they need opposite things:

- `async_client` keeps its connections open, and has several requests under way. Agents and the MCP server use it.
- `sync_transport` has one request a connection. The command line uses it: importing asyncio takes longer than the
  daemon takes to answer `wakeful list`.

Both are written by hand. httpx comes only with the extra `agents`, http.client takes longer to import than the daemon
takes to answer a command, and a general client takes five times as long for each step of an agent.
"""

"""The one client of the control socket: HTTP/1.1 with JSON, over a UNIX socket, or over TCP with a token.

`wire` encodes requests and parses answers. `refusals` has the errors of a request that gets no answer. Two transports
use both:

- `async_client` keeps connections open, and may have several requests under way. Agents and the MCP server use it.
- `sync_transport` opens one connection per request. The command line uses it, because importing asyncio takes longer
  than the daemon takes to answer `wakeful list`.

Both transports are written by hand, for three reasons. httpx comes only with the extra `agents`. Importing http.client
takes longer than the daemon takes to answer a command. A general client takes five times as long for each step of an
agent.
"""

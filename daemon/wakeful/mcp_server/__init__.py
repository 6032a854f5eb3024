"""The MCP server: the verbs as tools, and sessions as resources, for coding agents and other clients of MCP.

`tools` makes tools from the table of verbs, `resources` gives sessions addresses and reports their changes, `runs`
follows a run to its end, also for a client that polls, and `server` joins them with the `mcp` package. `transports`
serves clients over standard input and output, or over HTTP inside the daemon. They reach the daemon by `contract`.

Only this package and `agents` import `mcp`, because the import takes seconds. `wakeful mcp` runs in its own process.
"""

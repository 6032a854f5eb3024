"""The MCP server: the verbs as tools, and sessions as resources, for coding agents and other clients of MCP.

`tools` makes tools from the table of verbs. `resources` gives sessions addresses and reports their changes. `runs`
follows a run to its end, also for a client that polls. `server` joins these three with the `mcp` package. `transports`
serves clients over standard input and output, or over HTTP inside the daemon. `contract` has the interface through
which all of them reach the daemon.

Only this package and `agents` import `mcp`, because the import takes seconds. `wakeful mcp` runs in its own process.
"""

"""The MCP server: the verbs as tools, and sessions as resources, for coding agents and other clients of MCP.

`tools` makes tools from the table of verbs, `resources` gives sessions addresses, `run_wait` follows a run to its end,
`deferred_runs` is the tasks extension, `subscriptions` reports changes, `server` joins them with the `mcp` package.
`stdio` serves a client over standard input and output, and reaches the daemon by `client/async_client.py`. `http`
serves clients inside the daemon.

Only this package and `agents` import `mcp`, because the import takes seconds. `wakeful mcp` runs in its own process.
"""

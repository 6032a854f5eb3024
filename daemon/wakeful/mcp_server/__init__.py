"""The MCP server: the verbs as tools, and sessions as resources, for coding agents and other clients of MCP.

`tools` makes tools of the table of verbs, `resources` makes addresses of sessions, `run_wait` follows a run to its end,
`deferred_runs` is the tasks extension, `subscriptions` reports changes, `server` joins them with the `mcp` package.
`stdio` serves a client over standard input and output, and reaches the daemon by `client/async_client.py`.

Only this package and `agents` import `mcp`, which takes seconds: `wakeful mcp` does so in a process of its own.
"""

"""What a model may do in a session: its bound files, what the session knows, and, where declared,
a shell and MCP servers."""

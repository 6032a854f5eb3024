"""The tools of a model: its bound files, the session's knowledge, and, where declared, a shell and MCP servers."""

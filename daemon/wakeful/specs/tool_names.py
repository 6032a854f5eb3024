"""The names of tools in an agent's file and in a session's: which there are, and what is wrong with another.

Called by build and agents, which know where a name stands. Whether an MCP server is declared is theirs to say; here is only how it is written.
"""

from __future__ import annotations

import re

from wakeful.core.spec.agent import MCP_TOOL_PREFIX, TOOLS
from wakeful.specs.translate import find_nearest
from wakeful.specs.yaml_text import shorten

SERVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MCP_TOOL = re.compile(rf"{MCP_TOOL_PREFIX}({SERVER_NAME.pattern})(/[A-Za-z0-9_.-]{{1,128}})?")


def find_tool_problem(name: str) -> str | None:
    """Why no tool is called this, or None."""
    if name in TOOLS or _MCP_TOOL.fullmatch(name):
        return None
    if name.startswith(MCP_TOOL_PREFIX):
        return f"'{shorten(name)}' names no tool of a server; write mcp:SERVER for all of them, or mcp:SERVER/TOOL"
    nearest = find_nearest(name, TOOLS)
    advice = f"did you mean '{nearest}'?" if nearest else f"expected one of {', '.join(TOOLS)}, or mcp:SERVER"
    return f"there is no tool '{shorten(name)}'; {advice}"


def find_server(name: str) -> str | None:
    """The server a tool's name belongs to; None for tools of our own."""
    found = _MCP_TOOL.fullmatch(name)
    return found[1] if found is not None else None

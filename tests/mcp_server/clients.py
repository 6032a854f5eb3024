"""A real daemon, with the official MCP client connected to `wakeful mcp`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from e2e.box import WAKEFUL, Box

# Both revisions of the protocol that the package speaks: the older one with a handshake, and the newer one without.
# `make test-long` tests clients of the older one.
MODES = (pytest.param("legacy", marks=pytest.mark.long), "auto")


def declare(box: Box, name: str = "pay", command: str = "true", more: str = "") -> None:
    """Declare a session that runs only on request."""
    words = json.dumps(["sh", "-c", command])
    box.spec(name, f"objective: Do it.\nrun: {{command: {words}, retries: 0, grace: 1s}}\n{more}")


@asynccontextmanager
async def open_client(
    box: Box, *words: str, mode: str = "auto", env: dict[str, str] | None = None, **keys: Any
) -> AsyncIterator[Client]:
    """Start `wakeful mcp` as a coding agent does, and yield a client."""
    program = StdioServerParameters(
        command=WAKEFUL, args=["mcp", *words], env=box.environment() | (env or {}), cwd=box.folder
    )
    async with Client(program, mode=mode, **keys) as client:
        yield client


def say(result: Any) -> str:
    """Return the text of a result."""
    return "\n".join(part.text for part in result.content)

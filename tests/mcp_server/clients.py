"""A real daemon, and the official client of MCP in front of `wakeful mcp`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from e2e.box import WAKEFUL, Box

# Both revisions that the package speaks: with the handshake of before, and without one.
# Clients of the protocol of before are tried by `make test-long`.
MODES = (pytest.param("legacy", marks=pytest.mark.long), "auto")


def declare(box: Box, name: str = "pay", command: str = "true", more: str = "") -> None:
    """A session that runs only when somebody asks for it."""
    words = json.dumps(["sh", "-c", command])
    box.spec(name, f"objective: Do it.\nrun: {{command: {words}, retries: 0, grace: 1s}}\n{more}")


@asynccontextmanager
async def open_client(
    box: Box, *words: str, mode: str = "auto", env: dict[str, str] | None = None, **keys: Any
) -> AsyncIterator[Client]:
    """`wakeful mcp` as a coding agent starts it."""
    program = StdioServerParameters(
        command=WAKEFUL, args=["mcp", *words], env=box.environment() | (env or {}), cwd=box.folder
    )
    async with Client(program, mode=mode, **keys) as client:
        yield client


def say(result: Any) -> str:
    """The text of a result."""
    return "\n".join(part.text for part in result.content)

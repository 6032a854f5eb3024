"""Orders an external agent's reports of its tool calls as the log needs them: a call with arguments, then its result.

Programs report a call in pieces. The first report may lack the title or the input, which follow in later updates. Some
programs send them only with a request for permission, some report a call only at its end. A call is recorded as soon as
it may have an effect, and at the latest when the program reports its end. Used by external_agent.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from acp import schema
from msgspec import Struct

from wakeful.agents.acp.session_server import find_own_tool
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import ToolCall
from wakeful.text.unicode import make_sendable, tell_sendable

# Our tool name for each kind of the protocol. A call of any other kind needs a person's permission, unless it calls a
# tool of our server.
TOOL_OF_KIND = {
    "read": "read",
    "search": "search",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "execute": "shell",
}
UNKNOWN_TOOL = "other"
_LONGEST_ARGUMENTS = 10_000
_LONGEST_RESULT = 4_000


class ReportedCall(Struct):
    """One call, as far as the program has reported it."""

    id: str
    title: str = ""
    kind: str | None = None
    input: Any = None
    text: str = ""
    places: tuple[str, ...] = ()
    # The name of the tool, if the program reports it in addition to the title.
    name: str | None = None
    is_recorded: bool = False
    is_over: bool = False

    @property
    def tool(self) -> str:
        known = TOOL_OF_KIND.get(self.kind or "", UNKNOWN_TOOL)
        if known != UNKNOWN_TOOL:
            return known
        # Names are compared as a whole, because a title may contain text of a model.
        return find_own_tool(self.name) or find_own_tool(self.title) or UNKNOWN_TOOL

    def learn(self, update: Any) -> None:
        """Take an update. Fields that it leaves out keep their values."""
        self.title = make_sendable(update.title or self.title)
        self.kind = update.kind or self.kind
        self.name = _find_name(update) or self.name
        self.input = update.raw_input or self.input
        self.text = tell_sendable("\n".join(find_texts(update))) or self.text
        self.places = tuple(dict.fromkeys((*self.places, *_find_places(update))))


class ReportedCalls:
    """All calls of one prompt. `record` records a step. Updates come in order and are recorded one after the other."""

    def __init__(self, record: Callable[[work.PostedStep], Awaitable[None]], say: Callable[[str], None]) -> None:
        self._record = record
        self._say = say
        self._calls: dict[str, ReportedCall] = {}
        # The library handles each message in a task of its own. The lock is fair, so it keeps their order.
        self._turn = asyncio.Lock()

    def learn(self, update: Any) -> ReportedCall:
        told = self._calls.setdefault(update.tool_call_id, ReportedCall(update.tool_call_id))
        told.learn(update)
        return told

    async def take(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> None:
        told = self.learn(update)
        if update.status in ("in_progress", "completed", "failed"):
            await self.begin(told)
        if update.status in ("completed", "failed"):
            await self._end(told, is_error=update.status == "failed")

    async def begin(self, told: ReportedCall) -> None:
        """Record a call before it takes effect, if the program asks or reports before that. Idempotent."""
        async with self._turn:
            if told.is_recorded:
                return
            told.is_recorded = True
            self._say(f"\n[{told.title or told.id}]\n")
            arguments = json.dumps({"title": told.title, "input": told.input}, default=str)[:_LONGEST_ARGUMENTS]
            await self._record(work.CallTool(call=ToolCall(id=told.id, name=told.tool, arguments=arguments)))

    async def conclude(self) -> None:
        """When the prompt is over, end every recorded call whose end the program did not report."""
        for told in list(self._calls.values()):
            if told.is_recorded:
                await self._end(told, is_error=True, how="the program did not report its end")
        async with self._turn:
            # When this task gets the lock, all steps that were under way are on record.
            return

    async def _end(self, told: ReportedCall, *, is_error: bool, how: str | None = None) -> None:
        async with self._turn:
            if told.is_over:
                return
            told.is_over = True
            words = f"{told.title or told.id}: {how or ('failed' if is_error else 'completed')}"
            text = f"{words}\n{told.text}"[:_LONGEST_RESULT] if told.text else words
            await self._record(work.ReturnTool(call=told.id, name=told.tool, text=text, is_error=is_error))


def find_texts(update: Any) -> Iterator[str]:
    """Yield the texts of a call's result, as the program shows it."""
    for part in update.content or ():
        match part:
            case schema.ContentToolCallContent(content=schema.TextContentBlock(text=text)):
                yield text


def _find_name(update: Any) -> str | None:
    """Read the name of the tool, as Claude Code reports it. Newer programs may do so too."""
    told = (update.field_meta or {}).get("claudeCode")
    name = told.get("toolName") if isinstance(told, dict) else None
    return name if isinstance(name, str) else None


def _find_places(update: Any) -> Iterator[str]:
    """Yield the paths that an update names, and the paths of the diffs that it contains."""
    yield from (location.path for location in update.locations or ())
    yield from (part.path for part in update.content or () if isinstance(part, schema.FileEditToolCallContent))

"""All tools of one run: which there are, which of them the policies let through,
and how a model's call becomes a result.

The loop asks `policy_of` first (allow, ask, deny), records its intention, then hands the call to `carry_out`; a look is
handed over while that is on its way. What a model wrote may be no JSON, name no tool, or name one that is denied: each
of these is a result with words, like everything else that it can cause.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from wakeful.agents.contract import Tool, ToolOffer, ToolResult
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.files import Before, FileTools, NestedRules
from wakeful.agents.tools.knowledge import KnowledgeTools
from wakeful.agents.tools.mcp import McpTools
from wakeful.agents.tools.pages import Redact, ResultPages, redact_nothing
from wakeful.agents.tools.search import SearchTool
from wakeful.agents.tools.tool import ResultLimit, say_parameters
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents.turns import DownServer, ToolCall, WroteFile
from wakeful.core.spec.agent import ToolPolicy
from wakeful.text.unicode import find_lone_half

# The policies where the spec declares none. A tool that reaches no further than the bindings is allowed. A shell is
# denied until somebody declares it.
DEFAULT_POLICIES: Mapping[str, ToolPolicy] = {
    "read": "allow",
    "list": "allow",
    "search": "allow",
    "diff": "allow",
    "write": "allow",
    "edit": "allow",
    "remember": "allow",
    "recall": "allow",
    "history": "allow",
    "send": "allow",
    "hand_off": "allow",
    "skill": "allow",
    # Where the session declares hosts for it.
    "fetch": "allow",
    "todo": "allow",
    "delegate": "allow",
    "shell": "deny",
}


class ToolSet(Protocol):
    """Some tools that belong together."""

    def list_tools(self) -> Iterable[Tool]: ...


class ToolBox:
    """`tools` are those that may be called at all; the rest was never offered."""

    def __init__(
        self,
        tools: Iterable[Tool],
        policies: Mapping[str, ToolPolicy],
        written: dict[str, list[WroteFile]],
        pages: ResultPages | None = None,
        rules: NestedRules | None = None,
        servers: McpTools | None = None,
    ) -> None:
        self._own = tuple(tools)
        self._declared = {**DEFAULT_POLICIES, **policies}
        self._servers = servers
        self._revision: int | None = None
        self._written = written
        self._pages = pages
        self._rules = rules
        self._take_stock()

    def _take_stock(self) -> None:
        """The tools as they are now: ours stay, those of servers come and go."""
        more = tuple(self._servers.list_tools()) if self._servers is not None else ()
        self._revision = self._servers.revision if self._servers is not None else None
        self._policies = {
            **self._declared,
            **(self._servers.find_policies(self._declared) if self._servers is not None else {}),
        }
        self.tools: dict[str, Tool] = {
            tool.offer.name: tool
            for tool in (*self._own, *more)
            if self._policies.get(tool.offer.name, "deny") != "deny"
        }

    async def refresh(self) -> bool:
        """Ask before each request: are there other tools than before, or other servers down?"""
        if self._servers is None:
            return False
        await self._servers.refresh()
        if self._servers.revision == self._revision:
            return False
        self._take_stock()
        return True

    @property
    def servers_down(self) -> tuple[DownServer, ...]:
        """MCP servers that are not there, and why."""
        return self._servers.down if self._servers is not None else ()

    @property
    def offers(self) -> tuple[ToolOffer, ...]:
        return tuple(tool.offer for tool in self.tools.values())

    def policy_of(self, name: str) -> ToolPolicy:
        """The policy of a tool. An unknown tool is denied."""
        return self._policies.get(name, "deny") if name in self.tools else "deny"

    def is_look(self, name: str) -> bool:
        return name in self.tools and self.tools[name].is_look

    def fit(self, most_bytes: int) -> None:
        """From now on a result brings at most so much."""
        if self._pages is not None:
            self._pages.limit.most_bytes = most_bytes

    def tell_rules_again(self) -> None:
        """The conversation was made shorter: rules that were told in it may be gone."""
        if self._rules is not None:
            self._rules.forget()

    def take_written(self, call_id: str) -> tuple[WroteFile, ...]:
        """The files this call wrote, in order. They are returned once, since a model may use the same call id again."""
        return tuple(self._written.pop(call_id, ()))

    async def carry_out(self, call: ToolCall) -> ToolResult:
        tool = self.tools.get(call.name)
        if tool is None:
            return ToolResult(self._say_unknown(call.name), is_error=True)
        arguments = read_arguments(call, tool.offer)
        if isinstance(arguments, ToolResult):
            return arguments
        result = await tool.carry_out(arguments, call.id)
        return result if self._pages is None else await self._pages.show(result)

    def _say_unknown(self, name: str) -> str:
        if self._policies.get(name) == "deny":
            return f"{name[:100]} is not allowed in this session; the tools are {', '.join(self.tools)}"
        near = difflib.get_close_matches(name, self.tools, 1)
        return f"there is no tool {name[:100]!r}" + (
            f"; did you mean {near[0]}?" if near else f"; the tools are {', '.join(self.tools)}"
        )


def read_arguments(call: ToolCall, offer: ToolOffer) -> dict[str, Any] | ToolResult:
    """Read the arguments that a model wrote as JSON. Some models write nothing at all for an empty object."""
    if (half := find_lone_half(call.arguments)) is not None:
        return ToolResult(
            f"{call.name}: the arguments hold half of a character (a lone surrogate) in {half[:100]!r}; nothing was "
            "done: write whole characters",
            is_error=True,
        )
    try:
        found = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        return ToolResult(
            f"{call.name}: the arguments are not JSON ({error}); it takes an object with {say_parameters(offer)}",
            is_error=True,
        )
    if not isinstance(found, dict):
        return ToolResult(
            f"{call.name}: the arguments are a JSON {type(found).__name__}; "
            f"it takes an object with {say_parameters(offer)}",
            is_error=True,
        )
    return found


def make_tools(
    bounds: Bounds,
    policies: Mapping[str, ToolPolicy],
    link: DaemonClient,
    *,
    session: str,
    run_id: str,
    kept: str | None = None,
    before: Before | None = None,
    limit: ResultLimit | None = None,
    redact: Redact = redact_nothing,
    rules: NestedRules | None = None,
    more: Iterable[ToolSet] = (),
    servers: McpTools | None = None,
) -> ToolBox:
    """The tools every agent has, and `more` where its session or its role declares some.

    `kept`: the hand-off that hand_off changes in part. `rules` tells those of the folders it works in.
    """
    limit = limit or ResultLimit()
    files = FileTools(bounds, before, limit, redact, rules)
    sets: tuple[ToolSet, ...] = (files, SearchTool(bounds, redact), KnowledgeTools(link, session, run_id, kept), *more)
    return ToolBox(
        (tool for one in sets for tool in one.list_tools()),
        policies,
        files.written,
        ResultPages(bounds, limit, redact),
        rules,
        servers,
    )

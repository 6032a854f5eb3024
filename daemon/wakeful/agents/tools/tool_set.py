"""All tools of one run: which ones exist, which ones the policies allow, and how a model's call becomes a result.

The loop asks `policy_of` first (allow, ask, deny), records the call, then calls `carry_out`. A look starts while the
record is being written. Every error that a model can cause is a result with a message: arguments that are not JSON, an
unknown tool, a denied tool.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from wakeful.agents.contract import Tool, ToolOffer, ToolResult
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.files import Before, FileTools, NestedRules
from wakeful.agents.tools.knowledge_tools import KnowledgeTools
from wakeful.agents.tools.mcp import McpTools
from wakeful.agents.tools.result_pages import Redact, ResultPages, redact_nothing
from wakeful.agents.tools.search import SearchTool
from wakeful.agents.tools.tool import ResultLimit, say_parameters
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents.turns import DownServer, ToolCall, WroteFile
from wakeful.core.spec.agent import ToolPolicy
from wakeful.text.unicode import find_lone_half

# The policies of tools for which the spec declares none. A tool that reaches no further than the bindings is allowed. A
# shell is denied until a spec allows it.
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
    # Only offered if the session declares hosts.
    "fetch": "allow",
    "todo": "allow",
    "delegate": "allow",
    "shell": "deny",
}


class ToolSet(Protocol):
    """A group of tools that belong together."""

    def list_tools(self) -> Iterable[Tool]: ...


class ToolBox:
    """The tools of one run. Tools that are denied are neither offered nor called."""

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
        """Update the list of tools. Our own stay, those of servers may change."""
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
        """Update the tools of servers. True if tools changed or other servers are down. Called before each request."""
        if self._servers is None:
            return False
        await self._servers.refresh()
        if self._servers.revision == self._revision:
            return False
        self._take_stock()
        return True

    @property
    def servers_down(self) -> tuple[DownServer, ...]:
        """The MCP servers that are down, with the reasons."""
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
        """Set the largest result for all further calls."""
        if self._pages is not None:
            self._pages.limit.most_bytes = most_bytes

    def tell_rules_again(self) -> None:
        """Show rules of folders again from now on. Called after a compression, which may have removed them."""
        if self._rules is not None:
            self._rules.forget()

    def take_written(self, call_id: str) -> tuple[WroteFile, ...]:
        """Return the files that this call wrote, in order.

        They are returned only once, because a model may reuse a call id.
        """
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
    """Parse the arguments that a model wrote as JSON. Some models write nothing for an empty object.

    Returns an error result if they are not a JSON object.
    """
    if (half := find_lone_half(call.arguments)) is not None:
        return ToolResult(
            f"{call.name}: the arguments have half of a character (a lone surrogate) in {half[:100]!r}; nothing was "
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
    """Make the tools that every agent has, and `more`, which belong to its session or role.

    `kept` is the hand-off whose parts `hand_off` changes. `rules` adds the rules of folders to results.
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

"""A tool as the loop knows it, made of a struct of arguments and a coroutine: the schema,
the check and the bound of its result.

One struct gives a tool both what the model is told and what its arguments are held against, so the two cannot differ.
An error that a model can cause (wrong types, a file that is not there, a daemon that says no) ends as a result that the
model can read. A defect of ours is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ToolOffer, ToolResult
from wakeful.errors import CallerError, OperatorError
from wakeful.text.unicode import tell_sendable

# The part of a result that the model is shown at once: some 12,000 tokens. The rest is paged.
RESULT_BYTES = 48 * 1024
# The most bytes of a result that are kept to be paged.
KEPT_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 8 * 1024
_LEAST_BYTES = 2_048
_RESULT_SHARE = 0.25
# Few, so that digits and marks fit as well.
_BYTES_PER_TOKEN = 2.5


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool. A misspelt argument is refused, or the model would believe that it counted."""


Given = TypeVar("Given", bound=Arguments)


class CheckedTool(Generic[Given]):
    """`act` gets the arguments as a value and the id of the call, which makes a call of the daemon safe to repeat."""

    def __init__(
        self,
        name: str,
        description: str,
        kind: type[Given],
        act: Callable[[Given, str], Awaitable[str | ToolResult]],
        *,
        is_look: bool = False,
    ) -> None:
        self._offer = ToolOffer(name=name, description=description, parameters=_describe(kind))
        self._kind = kind
        self._act = act
        self.is_look = is_look

    @property
    def offer(self) -> ToolOffer:
        return self._offer

    async def carry_out(self, arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        try:
            given = msgspec.convert(dict(arguments), self._kind)
        except msgspec.ValidationError as error:
            return ToolResult(f"{self._offer.name}: {error}; it takes {say_parameters(self._offer)}", is_error=True)
        try:
            result = await self._act(given, call_id)
            return ToolResult(tell_sendable(result)) if isinstance(result, str) else result
        except (CallerError, OperatorError) as error:
            return ToolResult(tell_sendable(f"{self._offer.name}: {error}"), is_error=True)
        except OSError as error:
            # As the kernel said it: no such file, no space, not permitted by the run's isolation.
            where = f"{error.filename}: " if isinstance(error.filename, str) else ""
            return ToolResult(tell_sendable(f"{self._offer.name}: {where}{error.strerror or error}"), is_error=True)


def say_parameters(offer: ToolOffer) -> str:
    """The arguments in words, the optional ones in brackets: `path: string, [offset: integer]`."""
    required = set(offer.parameters.get("required", ()))
    pairs = ((name, _say_type(schema)) for name, schema in offer.parameters.get("properties", {}).items())
    return (
        ", ".join(f"{name}: {kind}" if name in required else f"[{name}: {kind}]" for name, kind in pairs)
        or "no arguments"
    )


class ResultLimit:
    """The largest result of one call of a run's tools, in bytes.

    It shrinks when a provider takes less than was said.
    """

    def __init__(self, most_bytes: int = RESULT_BYTES) -> None:
        self.most_bytes = most_bytes


def find_result_bytes(compress_at: int) -> int:
    """The largest result for a model of this size: a quarter of its request, and at least a small page."""
    return max(_LEAST_BYTES, min(RESULT_BYTES, int(compress_at * _RESULT_SHARE * _BYTES_PER_TOKEN)))


def bound_text(text: str, most: int = RESULT_BYTES) -> str:
    """Text that can be sent, of at most so many bytes: beginning and end, and between them how much is missing.

    A text that goes on elsewhere says so itself.
    """
    content = tell_sendable(text).encode()
    if len(content) <= most:
        return content.decode()
    tail = min(_TAIL_BYTES, most // 4)
    head = most - tail
    start, end = content[:head].decode(errors="ignore"), content[-tail:].decode(errors="ignore")
    return f"{start}\n[cut: {len(content) - most} bytes are missing here; ask for less at once]\n{end}"


def _describe(kind: type[Arguments]) -> dict[str, Any]:
    """A plain object schema: no references and no titles, which some providers refuse and others count as tokens."""
    schema, *_ = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")[1].values()
    schema = {name: value for name, value in schema.items() if name not in ("title", "description")}
    return {"type": "object", "properties": {}, **schema}


def _say_type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_say_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    kind = schema.get("type", "anything")
    return f"list of {_say_type(schema['items'])}" if kind == "array" and "items" in schema else str(kind)

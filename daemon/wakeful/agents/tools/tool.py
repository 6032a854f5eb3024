"""Makes a tool from a struct of arguments and a coroutine: its schema, the check of arguments, and the size of results.

The struct gives both the schema for the model and the check of the arguments, so the two cannot differ. An error that a
model can cause (wrong types, a missing file, a refusal of the daemon) becomes a result that the model can read. A
defect of ours is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ToolOffer, ToolResult
from wakeful.errors import CallerError, OperatorError
from wakeful.text.unicode import tell_sendable

# The most bytes of a result that the model is shown at once, about 12,000 tokens. The rest is paged.
RESULT_BYTES = 48 * 1024
# The most bytes of a result that are kept to be paged.
KEPT_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 8 * 1024
_LEAST_BYTES = 2_048
_RESULT_SHARE = 0.25
# The assumed bytes of a token. It is low, so that texts of digits and punctuation fit as well.
_BYTES_PER_TOKEN = 2.5


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool.

    A misspelt argument is refused: otherwise the model would believe that it had an effect.
    """


Given = TypeVar("Given", bound=Arguments)


class CheckedTool(Generic[Given]):
    """A tool with checked arguments.

    `act` gets the arguments as a struct, and the id of the call, from which it can make an idempotency key.
    """

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
            # The message of the kernel: no such file, no space, not permitted by the run's isolation.
            where = f"{error.filename}: " if isinstance(error.filename, str) else ""
            return ToolResult(tell_sendable(f"{self._offer.name}: {where}{error.strerror or error}"), is_error=True)


def say_parameters(offer: ToolOffer) -> str:
    """Describe the arguments, the optional ones in brackets: `path: string, [offset: integer]`."""
    required = set(offer.parameters.get("required", ()))
    pairs = ((name, _say_type(schema)) for name, schema in offer.parameters.get("properties", {}).items())
    return (
        ", ".join(f"{name}: {kind}" if name in required else f"[{name}: {kind}]" for name, kind in pairs)
        or "no arguments"
    )


class ResultLimit:
    """The largest result of one call, in bytes. It shrinks if a provider refuses a request as too long."""

    def __init__(self, most_bytes: int = RESULT_BYTES) -> None:
        self.most_bytes = most_bytes


def find_result_bytes(compress_at: int) -> int:
    """Return the largest result for a model: a quarter of its largest request, but at least a small page."""
    return max(_LEAST_BYTES, min(RESULT_BYTES, int(compress_at * _RESULT_SHARE * _BYTES_PER_TOKEN)))


def bound_text(text: str, most: int = RESULT_BYTES) -> str:
    """Cut a text to about `most` bytes: its beginning and end, and between them a note on how much is missing."""
    content = tell_sendable(text).encode()
    if len(content) <= most:
        return content.decode()
    tail = min(_TAIL_BYTES, most // 4)
    head = most - tail
    start, end = content[:head].decode(errors="ignore"), content[-tail:].decode(errors="ignore")
    return f"{start}\n[cut: {len(content) - most} bytes are missing here; ask for less at once]\n{end}"


def _describe(kind: type[Arguments]) -> dict[str, Any]:
    """Make a plain object schema, without references and titles: some providers refuse these or charge for them."""
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

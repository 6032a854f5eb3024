"""One turn of an agent as values: the text sent to a model, its answer, and the results of its tools.

The log holds these values, the daemon and the agent process exchange them, and a conversation is rebuilt from them.
They do not depend on a provider, except `raw`, which is sent back only to the provider that it came from.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

# The reasons why a model stopped: it is done, it waits for tools, it reached its limit, or it refused.
StopReason = Literal["done", "calls", "length", "refused"]

# The purpose of a turn: the session's work, or a summary of its conversation.
Purpose = Literal["work", "summary"]

# The tool that gives a sub-agent a piece of work. A run that continues another run also continues this work.
DELEGATE = "delegate"
INTERRUPTED = (
    "interrupted, effect unknown: this call had begun when the run was cut short; "
    "look whether it took effect before you repeat it"
)


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call of a tool. `arguments` is JSON text as the model wrote it, and may be invalid."""

    id: str
    name: str
    arguments: str


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool as it is described to a model. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any] = {}


class DownServer(Struct, frozen=True, kw_only=True):
    """An MCP server that cannot be reached, and why.

    `is_slow`: it did not start in time, so the next runs do not wait for it again.
    """

    name: str
    words: str
    is_slow: bool = False
    # The time when an earlier run last waited for this server, if one did.
    since: int | None = None


class SubWork(Struct, frozen=True, kw_only=True):
    """A piece of work that the agent of a run gave to a sub-agent: the call of `delegate`, and the name of the
    sub-agent that answers it."""

    call: str
    agent: str


class TokenUsage(Struct, frozen=True, kw_only=True):
    """The tokens of a request, as the provider counted them.

    `input` includes the tokens that the provider read from its cache (`cached`) or stored there (`cache_written`).

    `is_estimated`: the provider reported no number, or only one of the two, and our estimate takes its place."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    is_estimated: bool = False

    @property
    def total(self) -> int:
        return self.input + self.output


def name_actor(run: int, sub: SubWork | None) -> str:
    """Name the run whose agent acts, or the sub-agent in that run."""
    return f"run {run}" if sub is None else f"run {run}, sub-agent {sub.agent}"


class SubSpent(Struct, frozen=True, kw_only=True):
    """The cost of one sub-agent in a run. The figures of the run include it."""

    tokens: int = 0
    estimated_tokens: int = 0
    usd: float = 0.0


class Asked(Struct, frozen=True, kw_only=True, tag_field="kind", tag="asked"):
    """A text that a run, a person or a session sends to the model."""

    text: str


class Answered(Struct, frozen=True, kw_only=True, tag_field="kind", tag="answered"):
    """The answer of a model.

    `raw` is the answer part by part (agents/models/recorded_answer.py): signatures of thoughts, ids of items.
    """

    model: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason = "done"
    raw: str | None = None

    @property
    def words(self) -> str:
        """Return the text of the answer. If it has none, name the tools that it calls."""
        return self.text or f"[calls {', '.join(call.name for call in self.calls)}]"


class WroteFile(Struct, frozen=True, kw_only=True):
    """A file that one call wrote. `base` and `digest` are the digests of its content before and after the call, as
    looks compute them. `base` is None if the file did not exist."""

    path: str
    base: str | None = None
    digest: str


class Image(Struct, frozen=True, kw_only=True):
    """An image that a tool returned. Its content is a blob, and the record holds the blob's address."""

    media_type: str
    address: str
    size_bytes: int


class Returned(Struct, frozen=True, kw_only=True, tag_field="kind", tag="returned"):
    """The result of one tool call."""

    call: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


# A conversation with a model: begins with `Asked`; each call of an `Answered` has its `Returned` before the next one.
Entry = Asked | Answered | Returned

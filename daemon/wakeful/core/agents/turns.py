"""One turn of an agent as values: what a model was asked, what it answered, what its tools brought.

The same values stand in the log, travel between the daemon and the process that thinks, and are what a conversation is
rebuilt from. Nothing here belongs to one provider but `raw`, which only the provider it came from needs back.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

# Why a model stopped: it is done, it waits for tools, it ran into its limit, it would not.
StopReason = Literal["done", "calls", "length", "refused"]

# The purpose of a turn: the session's work, or a summary of its conversation.
Purpose = Literal["work", "summary"]

# The tool that gives another agent a piece of work. A run that goes on takes the work up where it stood.
DELEGATE = "delegate"
INTERRUPTED = (
    "interrupted, effect unknown: this call had begun when the run was cut short; "
    "look whether it took effect before you repeat it"
)


class ToolCall(Struct, frozen=True, kw_only=True):
    """`arguments` is JSON text, as the model wrote it: it may be wrong."""

    id: str
    name: str
    arguments: str


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any] = {}


class DownServer(Struct, frozen=True, kw_only=True):
    """An MCP server that is not there, and why.

    `is_slow`: it did not start in its time, which the next runs need not wait for again.
    """

    name: str
    words: str
    is_slow: bool = False
    # When it was last waited for, where that was an earlier run.
    since: int | None = None


class SubWork(Struct, frozen=True, kw_only=True):
    """A piece of work that the agent of a run gave to another agent: the call of `delegate` that it answers,
    and who does it."""

    call: str
    agent: str


class TokenUsage(Struct, frozen=True, kw_only=True):
    """As the provider counted it.

    `input` includes what it read from its cache (`cached`) and what it put there (`cache_written`).

    `is_estimated`: the provider told no number, or only one of both, and ours stands in its place."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    is_estimated: bool = False

    @property
    def total(self) -> int:
        return self.input + self.output


def name_actor(run: int, sub: SubWork | None) -> str:
    """The run whose agent does something, or the sub-agent in it."""
    return f"run {run}" if sub is None else f"run {run}, sub-agent {sub.agent}"


class SubSpent(Struct, frozen=True, kw_only=True):
    """The cost of one sub-agent in a run. The figures of the run include it."""

    tokens: int = 0
    estimated_tokens: int = 0
    usd: float = 0.0


class Asked(Struct, frozen=True, kw_only=True, tag_field="kind", tag="asked"):
    """A text that a run, a person or a session puts to the model."""

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
        """The text of the answer; if it has none, the names of the tools it calls."""
        return self.text or f"[calls {', '.join(call.name for call in self.calls)}]"


class WroteFile(Struct, frozen=True, kw_only=True):
    """A file as one call left it, and as it found it: contents by the digests that looks know them by.

    No base: it was not there.
    """

    path: str
    base: str | None = None
    digest: str


class Image(Struct, frozen=True, kw_only=True):
    """An image that a tool brought: the record names it by its content, which is a blob."""

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

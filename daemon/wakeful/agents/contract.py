"""The interfaces between the parts of the thinking process: a model, its tools, and the daemon that records each step.

The loop (loop.py) knows only these interfaces: only the folder models/ knows the wire format of a provider.
The core defines the values of a turn, because the log holds them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from wakeful.core.agents.steps import Around
from wakeful.core.agents.tokens import complete_usage
from wakeful.core.agents.turns import Answered, Entry, TokenUsage
from wakeful.core.spec.agent import ModelSettings
from wakeful.errors import OperatorError

# The kind of a fault decides what to do: `key` and `refused` mend themselves never, `busy`, `unreached`, `network` and
# `garbage` may in a moment, `too_long` is for whoever assembles the context. An `unreached` provider was sent nothing;
# after `network` nobody knows what it has done.
FaultKind = Literal["key", "busy", "unreached", "network", "garbage", "too_long", "refused"]


class ProviderFault(OperatorError):
    """A request that brought no answer.

    `retry_after` is the provider's own word, in seconds; `useless` is an answer that came and was paid for.
    """

    def __init__(
        self,
        kind: FaultKind,
        words: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        useless: ModelAnswer | None = None,
    ) -> None:
        super().__init__(words)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after
        self.useless = useless

    def count(self, input_tokens: int) -> TokenUsage | None:
        """The usage of a request that was answered. None where nothing is known of it."""
        return (
            complete_usage(self.useless.usage, input_tokens, self.useless.answered)
            if self.useless is not None
            else None
        )


class ToolOffer(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request.

    `instructions` are the rules of whoever set this up; everything in `entries` is conversation and data.
    """

    instructions: str
    entries: Sequence[Entry]
    tools: tuple[ToolOffer, ...] = ()
    settings: ModelSettings = ModelSettings()
    # The contents of images that entries name, by address. An image that is gone is told in words.
    images: Mapping[str, bytes] = {}


class ModelAnswer(Struct, frozen=True, kw_only=True):
    answered: Answered
    usage: TokenUsage


# The kinds of words of a model: its answer, its thoughts, the name of a tool whose call it begins to write.
WordKind = Literal["text", "thinking", "call"]


class Say(Protocol):
    """Gets the words of a model as they come."""

    def __call__(self, text: str, kind: WordKind = "text") -> None: ...


class Hearing(Protocol):
    """Takes the words of a run's answers as they come."""

    def begin(self, turn: int) -> Say:
        """For the answer to one request of a turn."""
        ...

    async def settle(self) -> None:
        """Return when what must be told before the answer is recorded was told, or cannot be in a moment."""


class Model(Protocol):
    """One model at one provider."""

    @property
    def name(self) -> str: ...

    async def answer(self, request: ModelRequest, say: Say, recorded: Awaitable[object] | None = None) -> ModelAnswer:
        """`say` gets the words as they come. Raises ProviderFault, and nothing else that a provider can cause.

        `recorded`: the request is made ready at once, and nothing of it is sent before this is done;
        should it fail, nothing is sent at all."""


class ToolResult(Struct, frozen=True):
    """The result of a call, as the model is told it.

    The model reads an error, and mends it. `images` are contents of files that `image.describe_image` knows.

    `around` goes to the daemon with a page of a text: it finds secrets that reach across the page's ends when the
    result is recorded."""

    text: str
    is_error: bool = False
    images: tuple[bytes, ...] = ()
    around: Around | None = None


class Tool(Protocol):
    """One thing a model may do. `carry_out` is called after its intention is on record, and never twice for one call.

    A look changes nothing that anybody could observe. The loop begins a look while its record is still being written.
    The result of the look counts when that record is on disk."""

    @property
    def offer(self) -> ToolOffer: ...

    @property
    def is_look(self) -> bool: ...

    async def carry_out(self, arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        """Carry out a call; `arguments` fit the offer's schema. A failure is a result; a defect of ours is raised."""

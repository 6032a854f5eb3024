"""The interfaces between the parts of the thinking process: a model, its tools, and the daemon that records each step.

The loop (loop.py) knows only these interfaces: only the folder models/ knows the wire format of a provider.
The core defines the values of a turn, because the log holds them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from wakeful.core.agents.model_text import complete_usage
from wakeful.core.agents.steps import SurroundingText
from wakeful.core.agents.turns import Answered, Entry, TokenUsage
from wakeful.core.spec.agent import ModelSettings
from wakeful.errors import OperatorError

# The kinds of faults, which decide what to do:
# - `key`, `refused`: another try does not help.
# - `busy`, `unreached`, `network`, `garbage`: another try may help. Nothing was sent to an `unreached` provider. After
#   `network` it is unknown whether the provider worked on the request.
# - `too_long`: the conversation must be made shorter.
FaultKind = Literal["key", "busy", "unreached", "network", "garbage", "too_long", "refused"]


class ProviderFault(OperatorError):
    """A request without a usable answer.

    `retry_after` is the number of seconds that the provider asked for. `useless` is an answer that cannot be used, but
    was paid for.
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
        """Return the usage of a request that got a useless answer. None if there was no answer."""
        return (
            complete_usage(self.useless.usage, input_tokens, self.useless.answered)
            if self.useless is not None
            else None
        )


class ToolOffer(Struct, frozen=True, kw_only=True):
    """The description of a tool for a model. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request to a model.

    `instructions` come from wakeful and the authors of the session. `entries` are the conversation, and are data.
    """

    instructions: str
    entries: Sequence[Entry]
    tools: tuple[ToolOffer, ...] = ()
    settings: ModelSettings = ModelSettings()
    # The contents of images that entries name, by address. For an image that is missing here, a text is sent.
    images: Mapping[str, bytes] = {}


class ModelAnswer(Struct, frozen=True, kw_only=True):
    answered: Answered
    usage: TokenUsage


# The kinds of streamed text: the answer, the thoughts, the name of a tool whose call the model begins to write.
WordKind = Literal["text", "thinking", "call"]


class Say(Protocol):
    """Receives the text of an answer while the model writes it."""

    def __call__(self, text: str, kind: WordKind = "text") -> None: ...


class Hearing(Protocol):
    """Receives the text of all answers of a run while the model writes them."""

    def begin(self, turn: int) -> Say:
        """Return the receiver for the answer to one request of a turn."""
        ...

    async def settle(self) -> None:
        """Wait a moment for the post of the text that followers must see before the answer is recorded."""


class Model(Protocol):
    """One model at one provider."""

    @property
    def name(self) -> str: ...

    async def answer(self, request: ModelRequest, say: Say, recorded: Awaitable[object] | None = None) -> ModelAnswer:
        """Send a request and return the answer. `say` receives the text as it comes.

        Raises ProviderFault for every error that a provider can cause. The request is prepared at once, but sent only
        when `recorded` is done. If `recorded` fails, nothing is sent.
        """


class ToolResult(Struct, frozen=True):
    """The result of a call, as the model gets it. The model also reads errors, so that it can correct the call.

    `images` are contents of files that `image.find_image` recognises. `around` is the text around a page. The daemon
    uses it to find secrets that cross an end of the page.
    """

    text: str
    is_error: bool = False
    images: tuple[bytes, ...] = ()
    around: SurroundingText | None = None


class Tool(Protocol):
    """A tool of a model. `carry_out` is called after the call is on record, and never twice for one call.

    A look is a tool without observable effects. The loop starts a look while the record of the call is still being
    written. The model gets the result when that record is on disk.
    """

    @property
    def offer(self) -> ToolOffer: ...

    @property
    def is_look(self) -> bool: ...

    async def carry_out(self, arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        """Carry out a call. `arguments` match the offer's schema. A failure is a result; only defects are raised."""

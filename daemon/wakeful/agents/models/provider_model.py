"""Models of real providers, as `Model` of contract.py: our values in, one request, our values out.

run_setup.py makes them with `make_model`. The loop asks for answers and never sees a wire format. One object serves one
conversation at a time and caches its encoded form. Keys and addresses come only from the spec and its secrets, so two
agents never use each other's. This module does not retry, store or count money.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from wakeful.agents.contract import Model, ModelAnswer, ModelRequest, ProviderFault, Say
from wakeful.agents.models.anthropic import Anthropic
from wakeful.agents.models.encoded_conversation import Conversation
from wakeful.agents.models.google import Google
from wakeful.agents.models.openai_completions import OpenAICompletions
from wakeful.agents.models.openai_responses import OpenAIResponses
from wakeful.agents.models.provider_errors import Trouble
from wakeful.agents.models.recorded_answer import RecordedAnswer, make_ids_distinct, make_parts_sendable, write_raw
from wakeful.agents.models.wire_format import CompleteAnswer, Endpoint, Reason, WireFormat
from wakeful.core.agents.turns import Answered, StopReason, ToolCall
from wakeful.core.spec.agent import DEFAULT_SILENCE_SECONDS, ModelSettings, ModelSpec, Provider
from wakeful.errors import OperatorError, WakefulError
from wakeful.system.installation import NotInstalled, advise_agents

try:
    from wakeful.agents.models.http_stream import Exchange
except ModuleNotFoundError as missing:
    _MISSING: ModuleNotFoundError | None = missing
else:
    _MISSING = None

# The key sent if none is set. Endpoints that need no key ignore it.
_NO_KEY = "none"

# The addresses of the providers. OpenAI's includes the version. For the others the wire format adds it.
ADDRESSES: dict[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "openai-chat": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com",
}
FORMATS: dict[Provider, Callable[[Endpoint], WireFormat]] = {
    "anthropic": Anthropic,
    "openai": OpenAIResponses,
    "openai-chat": lambda endpoint: OpenAICompletions(endpoint, is_local=False),
    "openai-compatible": lambda endpoint: OpenAICompletions(endpoint, is_local=True),
    "google": Google,
}


def make_model(
    spec: ModelSpec,
    key: str | None,
    silence_seconds: float = DEFAULT_SILENCE_SECONDS,
    exchange: Exchange | None = None,
) -> Model:
    """Make a model. Nothing is sent yet. `key` is the value of the secret.

    `exchange` has the connections to the provider. With None the model gets connections of its own.
    """
    if _MISSING is not None:
        raise NotInstalled(f"{spec.name}: the libraries for models are not installed ({_MISSING}); {advise_agents()}")
    if key is None and spec.base_url is None:
        raise ProviderFault("key", f"needs a key: {spec.name} does not answer without one; name a secret under `key`")
    if key is not None and not (key.isascii() and key.isprintable()):
        # Refuse here, because the HTTP client would quote the key in its error.
        raise ProviderFault(
            "key", f"{spec.name}: its key has characters that a request cannot have, such as a line break; set it again"
        )
    address = spec.base_url or ADDRESSES.get(spec.provider)
    if address is None:
        raise OperatorError(f"{spec.name}: an OpenAI-compatible endpoint has no default address; set its base_url")
    endpoint = Endpoint(spec.model, address.rstrip("/"), key or _NO_KEY)
    return _ProviderModel(spec, key, endpoint, exchange or Exchange(silence_seconds))


class _ProviderModel:
    def __init__(self, spec: ModelSpec, key: str | None, endpoint: Endpoint, exchange: Exchange) -> None:
        self._spec = spec
        self._key = key
        self._address = endpoint.address
        self._exchange = exchange
        self._format = FORMATS[spec.provider](endpoint)
        self._conversation = Conversation(spec.provider)

    @property
    def name(self) -> str:
        return self._spec.name

    def __repr__(self) -> str:
        return f"<model {self.name}>"

    async def answer(self, request: ModelRequest, say: Say, recorded: Awaitable[object] | None = None) -> ModelAnswer:
        shown = request.images if _takes_images(self._spec, request.settings) else None
        turns = self._conversation.tell(request.entries, shown)
        post = self._format.write_post(request, turns)
        listener = self._format.listen(say)
        try:
            async with contextlib.aclosing(self._exchange.send(post, recorded)) as events:
                async for data in events:
                    listener.take(data)
        except WakefulError:
            raise
        except Trouble as trouble:
            raise trouble.tell(self.name, self._key) from None
        except Exception as error:
            # The request could not be recorded, or the HTTP client has a defect.
            lost = Trouble("network", "could not be asked", f"{type(error).__name__}: {error}")
            raise lost.tell(self.name, self._key) from None
        return self._make_answer(listener.end())

    def _make_answer(self, heard: CompleteAnswer) -> ModelAnswer:
        parts = make_ids_distinct(make_parts_sendable(heard.parts), self._conversation.call_ids)
        answer = RecordedAnswer(parts=parts, provider_url=self._address)
        calls = tuple(ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=call.text) for call in answer.calls)
        stop = _find_stop(heard.reason, bool(calls))
        answered = Answered(model=self.name, text=answer.text, calls=calls, stop=stop, raw=write_raw(answer))
        made = ModelAnswer(answered=answered, usage=heard.usage)
        if heard.reason is None:
            raise ProviderFault("garbage", f"{self.name} stopped in the middle of its answer", useless=made)
        if stop == "done" and not answer.text.strip():
            raise ProviderFault("garbage", f"{self.name} sent an empty answer", useless=made)
        return made


def _takes_images(spec: ModelSpec, settings: ModelSettings) -> bool:
    """Does the model accept images? The agent's settings decide. By default, all models of the known providers do."""
    return settings.images if settings.images is not None else spec.provider != "openai-compatible"


def _find_stop(reason: Reason, has_calls: bool) -> StopReason:
    if reason in ("length", "refused"):
        return reason
    return "calls" if has_calls else "done"

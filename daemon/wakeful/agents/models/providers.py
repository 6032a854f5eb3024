"""A model of the providers' library for each provider we know: its client, its address, its key.
provider_model.py constructs through here.

Each provider's SDK is imported when a model of it is first made: they take half a second each. Nothing is read from the
environment: keys and addresses come from the spec, so that two agents in one place never use each other's.
The clients retry nothing, since whoever records each attempt does, and give up on a silent peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestParameters, get_user_agent

from wakeful.agents.models.encoded_opening import Opening, OpeningClient
from wakeful.core.spec.agent import ModelSpec, Provider
from wakeful.errors import OperatorError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CONNECT_SECONDS = 10.0

# SDKs insist on a key; an endpoint that asks for none does not look at it.
_NO_KEY = "none"

# Arguments that the SDK itself uses or has no default for. All other arguments belong to a request's body.
_OF_THE_CALL = ("model", "stream", "timeout", "extra_headers", "extra_query")

# As each SDK takes its base: OpenAI's wants the version in it, the others add their own.
ADDRESSES: dict[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "openai-chat": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com",
}


def make_library_model(
    spec: ModelSpec, key: str | None, opening: Opening, silence_seconds: float
) -> tuple[LibraryModel, OpeningClient]:
    """The model, and the HTTP client that it speaks through. A peer that says nothing for so long is given up."""
    address = spec.base_url or ADDRESSES.get(spec.provider)
    if address is None:
        raise OperatorError(
            f"{spec.name}: an OpenAI-compatible endpoint has no address of its own; say where it is: base_url"
        )
    timeout = httpx2.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds), pool=CONNECT_SECONDS)
    client = OpeningClient(opening, timeout=timeout, headers={"User-Agent": get_user_agent()})
    return _MAKERS[spec.provider](spec.model, address, key or _NO_KEY, client), client


class _RemembersParameters(LibraryModel):
    """The base of each model: the parameters that the library made of the last request's are used again.

    The library rewrites the schemas of all tools for each request, which takes 1.5 ms with ours. The same parameters
    come out the same, and provider_model.py passes the same object as long as they are the same.
    """

    _last: tuple[ModelRequestParameters, ModelRequestParameters] | None = None

    def customize_request_parameters(self, model_request_parameters: ModelRequestParameters) -> ModelRequestParameters:
        if self._last is None or self._last[0] is not model_request_parameters:
            self._last = model_request_parameters, super().customize_request_parameters(model_request_parameters)
        return self._last[1]


def _make_anthropic(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    class Anthropic(_RemembersParameters, AnthropicModel):
        pass

    client = AsyncAnthropic(api_key=key, base_url=address, max_retries=0, timeout=http.timeout, http_client=http)
    return Anthropic(model, provider=AnthropicProvider(anthropic_client=client))


def _make_openai_client(address: str, key: str, http: OpeningClient) -> AsyncOpenAI:
    """A client of OpenAI's SDK that sends the conversation, tools and settings as they are given.

    As arguments of `create` the SDK would walk every message, every schema and every setting in search of fields to
    rename, of which there are none: 0.5 ms a message, 3 ms for our tools, and 0.4 ms for the rest. It does not walk
    what is given as `extra_body`.
    """
    from openai import AsyncOpenAI
    from openai.resources.chat import AsyncChat, AsyncCompletions
    from openai.resources.responses import AsyncResponses

    class Completions(AsyncCompletions):
        async def create(self, *, extra_body: Any = None, **given: Any) -> Any:
            return await super().create(messages=[], **_move_to_body(given, extra_body))

    class Responses(AsyncResponses):
        async def create(self, *, extra_body: Any = None, **given: Any) -> Any:
            return await super().create(input=[], **_move_to_body(given, extra_body))

    class Root(AsyncChat):
        @cached_property
        def completions(self) -> AsyncCompletions:
            return Completions(client)

    class Client(AsyncOpenAI):
        @cached_property
        def chat(self) -> AsyncChat:
            return Root(self)

        @cached_property
        def responses(self) -> AsyncResponses:
            return Responses(self)

    client = Client(api_key=key, base_url=address, max_retries=0, timeout=http.timeout, http_client=http)
    # Read from the environment where they are not given, and None does not count as given.
    client.organization = client.project = None
    return client


def _move_to_body(given: Mapping[str, Any], extra_body: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of the SDK's call, with all that a request's body is made of moved to `extra_body`."""
    from openai import NotGiven, Omit

    body = {
        name: value
        for name, value in given.items()
        if name not in _OF_THE_CALL and not isinstance(value, NotGiven | Omit)
    }
    of_the_call = {name: given[name] for name in _OF_THE_CALL if name in given}
    return {**of_the_call, "extra_body": {**body, **(extra_body or {})}}


def _make_openai(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class OpenAIResponses(_RemembersParameters, OpenAIResponsesModel):
        pass

    return OpenAIResponses(model, provider=OpenAIProvider(openai_client=_make_openai_client(address, key, http)))


def _make_openai_completions(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class OpenAICompletions(_RemembersParameters, OpenAIChatModel):
        pass

    return OpenAICompletions(model, provider=OpenAIProvider(openai_client=_make_openai_client(address, key, http)))


def _make_openai_compatible(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    class OpenAICompatible(_RemembersParameters, OpenAIChatModel):
        pass

    # Ollama, vLLM and llama.cpp know the older name of the limit, and some of them no other.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    provider = OpenAICompatibleProvider(
        "openai-compatible", openai_client=_make_openai_client(address, key, http), profile=profile
    )
    return OpenAICompatible(model, provider=provider)


def _make_google(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from google.genai.types import HttpRetryOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    class Google(_RemembersParameters, GoogleModel):
        pass

    once = HttpRetryOptions(attempts=1)
    return Google(model, provider=GoogleProvider(api_key=key, base_url=address, http_client=http, retry_options=once))


_MAKERS: dict[Provider, Callable[[str, str, str, OpeningClient], LibraryModel]] = {
    "anthropic": _make_anthropic,
    "openai": _make_openai,
    "openai-chat": _make_openai_completions,
    "openai-compatible": _make_openai_compatible,
    "google": _make_google,
}

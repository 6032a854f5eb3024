"""A model of the providers' library for each provider we know: its client, its address, its key.
models.py constructs through here.

Each provider's SDK is imported when a model of it is first made: they take half a second each. Nothing is read from the
environment: keys and addresses come from the spec, so that two agents in one place never use each other's.
The clients retry nothing, since whoever records each attempt does, and give up on a silent peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestParameters, get_user_agent

from wakeful.agents.encoded_opening import Opening, OpeningClient
from wakeful.core.spec.agent import ModelSpec, Provider
from wakeful.errors import OperatorError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CONNECT_SECONDS = 10.0

# SDKs insist on a key; an endpoint that asks for none does not look at it.
_NO_KEY = "none"

# What the SDK itself goes by, or has no default for; the rest of what it is given is a request's body.
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
    model = _MAKERS[spec.provider](spec.model, address, key or _NO_KEY, client)
    model.customize_request_parameters = _keep_last(model.customize_request_parameters)  # type: ignore[method-assign]
    return model, client


def _keep_last(
    customise: Callable[[ModelRequestParameters], ModelRequestParameters],
) -> Callable[[ModelRequestParameters], ModelRequestParameters]:
    """The library rewrites the schemas of all tools for each request, 1.5 ms of ours: those of the same request
    parameters come out the same."""
    kept: tuple[ModelRequestParameters, ModelRequestParameters] | None = None

    def recall(parameters: ModelRequestParameters) -> ModelRequestParameters:
        nonlocal kept
        if kept is None or kept[0] is not parameters:
            kept = parameters, customise(parameters)
        return kept[1]

    return recall


def _make_anthropic(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(api_key=key, base_url=address, max_retries=0, timeout=http.timeout, http_client=http)
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


def _openai_client(address: str, key: str, http: OpeningClient) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key, base_url=address, max_retries=0, timeout=http.timeout, http_client=http)
    # Read from the environment where they are not given, and None does not count as given.
    client.organization = client.project = None
    client.chat.completions.create = _as_given(client.chat.completions.create, "messages")  # type: ignore[method-assign]
    client.responses.create = _as_given(client.responses.create, "input")  # type: ignore[method-assign]
    return client


def _as_given(create: Callable[..., Any], field: str) -> Callable[..., Any]:
    """Hand what is to be sent to the SDK as extra body: it then sends it as it is.

    As arguments it would walk every message, every schema and every setting in search of fields to rename, of which
    there are none: 0.5 ms a message, 3 ms for our tools, and 0.4 ms for the rest.
    """
    from openai import NotGiven, Omit

    async def send(*, extra_body: Mapping[str, Any] | None = None, **given: Any) -> Any:
        to_the_sdk = {name: given.pop(name) for name in _OF_THE_CALL if name in given}
        as_is = {name: value for name, value in given.items() if not isinstance(value, NotGiven | Omit)}
        return await create(**{field: []}, **to_the_sdk, extra_body={**as_is, **(extra_body or {})})

    return send


def _make_openai(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIResponsesModel(model, provider=OpenAIProvider(openai_client=_openai_client(address, key, http)))


def _make_openai_completions(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=_openai_client(address, key, http)))


def _make_openai_compatible(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # Ollama, vLLM and llama.cpp know the older name of the limit, and some of them no other.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    provider = OpenAICompatibleProvider(
        "openai-compatible", openai_client=_openai_client(address, key, http), profile=profile
    )
    return OpenAIChatModel(model, provider=provider)


def _make_google(model: str, address: str, key: str, http: OpeningClient) -> LibraryModel:
    from google.genai.types import HttpRetryOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    once = HttpRetryOptions(attempts=1)
    return GoogleModel(
        model, provider=GoogleProvider(api_key=key, base_url=address, http_client=http, retry_options=once)
    )


_MAKERS: dict[Provider, Callable[[str, str, str, OpeningClient], LibraryModel]] = {
    "anthropic": _make_anthropic,
    "openai": _make_openai,
    "openai-chat": _make_openai_completions,
    "openai-compatible": _make_openai_compatible,
    "google": _make_google,
}

"""A model of the library for each of our providers.

It records the request that the library sends for one answer, and the library's reading of a stream.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any, cast

import httpx2
from anthropic import AsyncAnthropic
from google.genai.types import HttpRetryOptions
from openai import AsyncOpenAI
from pydantic_ai import messages as library
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings as LibrarySettings
from pydantic_ai.tools import ToolDefinition

from agents.pydantic_ai_reference.transcript import Transcript
from wakeful.agents.contract import ModelRequest, Say
from wakeful.core.agents.turns import StopReason, TokenUsage
from wakeful.core.spec.agent import Effort, ModelSettings
from wakeful.text.unicode import make_sendable

KEY = "sk-scripted-1234567890"
_THINKING_SHARES: dict[Effort, float] = {"low": 0.25, "medium": 0.5, "high": 0.75}
_LEAST_THINKING = 1_024


class Sent(Exception):
    """The request that a model was about to send."""

    def __init__(self, request: httpx2.Request) -> None:
        super().__init__(str(request.url))
        self.url = str(request.url)
        self.headers = dict(request.headers)
        self.body: dict[str, Any] = json.loads(request.content)


class _Recorder(httpx2.AsyncBaseTransport):
    """A transport that sends nothing and keeps the request."""

    sent: Sent | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.sent = Sent(request)
        raise httpx2.ConnectError("recorded")


def make_library_model(ours: str, name: str, address: str, http: httpx2.AsyncClient) -> Model[Any]:
    match ours:
        case "anthropic":
            claude = AsyncAnthropic(api_key=KEY, base_url=address, max_retries=0, http_client=http)
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=claude))
        case "google":
            once = HttpRetryOptions(attempts=1)
            provider = GoogleProvider(api_key=KEY, base_url=address, http_client=http, retry_options=once)
            return GoogleModel(name, provider=provider)
    client = AsyncOpenAI(api_key=KEY, base_url=address, max_retries=0, http_client=http)
    client.organization = client.project = None
    match ours:
        case "openai":
            return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client))
        case "openai-chat":
            return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
        case _:
            profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
            compatible = OpenAICompatibleProvider("openai-compatible", openai_client=client, profile=profile)
            return OpenAIChatModel(name, provider=compatible)


async def record(ours: str, name: str, address: str, request: ModelRequest) -> Sent:
    """Return the request that the library sends for ours."""
    recorder = _Recorder()
    async with httpx2.AsyncClient(transport=recorder) as http:
        model = make_library_model(ours, name, address, http)
        try:
            async with _stream(model, ours, request):
                pass
        except Exception:
            if recorder.sent is None:
                raise
    assert recorder.sent is not None
    return recorder.sent


class Heard:
    """The library's reading of an answer, in our values."""

    def __init__(self, response: library.ModelResponse) -> None:
        self.text = "".join(part.content for part in response.parts if isinstance(part, library.TextPart))
        self.thoughts = [part for part in response.parts if isinstance(part, library.ThinkingPart)]
        self.calls = [part for part in response.parts if isinstance(part, library.ToolCallPart)]
        self.stop = _stop_of(response.finish_reason, bool(self.calls))
        self.usage = _usage_of(response.usage)
        self.raw: list[dict[str, Any]] = json.loads(library.ModelMessagesTypeAdapter.dump_json([response]))


async def hear(
    ours: str,
    name: str,
    address: str,
    request: ModelRequest,
    say: Say,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> Heard:
    """Return the library's reading of the answer that the provider gives."""
    async with httpx2.AsyncClient(timeout=60, transport=transport) as http:
        model = make_library_model(ours, name, address, http)
        async with _stream(model, ours, request) as stream:
            async for event in stream:
                match event:
                    case library.PartStartEvent(part=library.TextPart(content=text)) if text:
                        say(text)
                    case library.PartDeltaEvent(delta=library.TextPartDelta(content_delta=text)) if text:
                        say(text)
                    case library.PartStartEvent(part=library.ThinkingPart(content=text)) if text:
                        say(text, "thinking")
                    case library.PartDeltaEvent(delta=library.ThinkingPartDelta(content_delta=text)) if text:
                        say(text, "thinking")
                    case library.PartStartEvent(part=library.ToolCallPart(tool_name=called)) if called:
                        say(called, "call")
            return Heard(stream.get())


def _stream(model: Model[Any], ours: str, request: ModelRequest) -> Any:
    takes = request.settings.images if request.settings.images is not None else ours != "openai-compatible"
    messages = Transcript(ours).tell(request.entries, request.images if takes else None)
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=offer.name,
                description=make_sendable(offer.description),
                parameters_json_schema=dict(offer.parameters),
            )
            for offer in request.tools
        ],
        instruction_parts=[library.InstructionPart(make_sendable(request.instructions))]
        if request.instructions
        else [],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.request_stream(messages, _settings_of(request.settings, ours, model, messages), parameters)


def _settings_of(
    settings: ModelSettings, ours: str, model: Model[Any], messages: Sequence[library.ModelMessage]
) -> LibrarySettings:
    told: dict[str, Any] = {"max_tokens": settings.max_output_tokens}
    if settings.temperature is not None and not model.profile.get("anthropic_disallows_sampling_settings"):
        told["temperature"] = settings.temperature
    match ours:
        case "anthropic":
            told["cache"] = True
        case "openai":
            told["openai_store"] = False
    if settings.effort is None:
        return cast(LibrarySettings, told)
    if ours != "anthropic" or model.profile.get("anthropic_supports_adaptive_thinking"):
        told["thinking"] = settings.effort
    elif (
        budget := int(settings.max_output_tokens * _THINKING_SHARES[settings.effort])
    ) >= _LEAST_THINKING and _may_think(messages):
        told["anthropic_thinking"] = {"type": "enabled", "budget_tokens": budget}
        told.pop("temperature", None)
    return cast(LibrarySettings, told)


def _may_think(messages: Sequence[library.ModelMessage]) -> bool:
    match messages:
        case [*_, library.ModelResponse(parts=parts), library.ModelRequest(parts=[library.ToolReturnPart(), *_])]:
            return any(isinstance(part, library.ThinkingPart) for part in parts)
        case _:
            return True


def _stop_of(reason: str | None, has_calls: bool) -> StopReason:
    match reason:
        case "length":
            return "length"
        case "content_filter":
            return "refused"
        case _:
            return "calls" if has_calls else "done"


def _usage_of(usage: Any) -> TokenUsage:
    return TokenUsage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.cache_read_tokens,
        cache_written=usage.cache_write_tokens,
    )

"""Models of real providers behind the contract of contract.py:
the adapter between our values and the providers' library.

The loop makes one with `make_model` and asks it for answers; it never sees the library. We use the library's models,
which know the wire formats, and none of its loops: ours records every step. One object speaks for one conversation at a
time and keeps what it converted of it. Nothing here retries, stores or counts money.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, cast

from wakeful.agents.contract import Model, ModelAnswer, ModelRequest, ProviderFault, Say, ToolOffer
from wakeful.core.agents.turns import Answered, StopReason, TokenUsage, ToolCall
from wakeful.core.spec.agent import DEFAULT_SILENCE_SECONDS, Effort, ModelSettings, ModelSpec
from wakeful.errors import WakefulError
from wakeful.system.installation import NotInstalled, advise_agents
from wakeful.text.unicode import SendablePieces, find_lone_half, has_lone_half, make_sendable

try:
    from pydantic_ai import messages as library
    from pydantic_ai.models import Model as LibraryModel
    from pydantic_ai.models import ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings as LibrarySettings
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.usage import RequestUsage

    from wakeful.agents.models.encoded_opening import Opening, OpeningClient
    from wakeful.agents.models.provider_errors import fault_of
    from wakeful.agents.models.providers import make_library_model
    from wakeful.agents.models.transcript import Transcript, change, write_raw
except ModuleNotFoundError as missing:
    _MISSING: ModuleNotFoundError | None = missing
else:
    _MISSING = None

# The share of an answer's tokens that is for thoughts, where a model is told a number.
_THINKING_SHARES: dict[Effort, float] = {"low": 0.25, "medium": 0.5, "high": 0.75}
# The smallest number of thinking tokens that Anthropic accepts.
_LEAST_THINKING = 1_024


def make_model(spec: ModelSpec, key: str | None, silence_seconds: float = DEFAULT_SILENCE_SECONDS) -> Model:
    """Make ready to speak with a model; nothing is sent yet. `key` is the secret itself."""
    if _MISSING is not None:
        raise _not_installed(spec, _MISSING)
    if key is None and spec.base_url is None:
        raise ProviderFault("key", f"needs a key: {spec.name} answers nobody without one; name a secret under `key`")
    try:
        opening = Opening(spec.provider)
        library_model, client = make_library_model(spec, key, opening, silence_seconds)
        return _ProviderModel(spec, key, library_model, opening, client)
    except ImportError as missing:
        raise _not_installed(spec, missing) from None


def _not_installed(spec: ModelSpec, missing: ImportError) -> NotInstalled:
    return NotInstalled(
        f"{spec.name}: the libraries that speak with models are not installed ({missing}); {advise_agents()}"
    )


class _ProviderModel:
    def __init__(
        self, spec: ModelSpec, key: str | None, library_model: LibraryModel, opening: Opening, client: OpeningClient
    ) -> None:
        self._spec = spec
        self._client = client
        self._key = key
        self._library_model = library_model
        self._opening = opening
        self._transcript = Transcript(spec.provider)
        # The last ones told, and what they were made of.
        self._told: tuple[tuple[ToolOffer, ...], str] | None = None
        self._parameters = ModelRequestParameters()

    @property
    def name(self) -> str:
        return self._spec.name

    def __repr__(self) -> str:
        return f"<model {self.name}>"

    async def answer(self, request: ModelRequest, say: Say, recorded: Awaitable[object] | None = None) -> ModelAnswer:
        messages = self._transcript.tell(
            request.entries, request.images if _takes_images(self._spec, request.settings) else None
        )
        settings = _settings_of(request.settings, self._spec, self._library_model, messages)
        new = self._opening.rest_of(messages, bool(request.instructions), recorded)
        try:
            async with self._library_model.request_stream(new, settings, self._parameters_of(request)) as stream:
                await _listen(stream, say)
                response = stream.get()
            return self._answer_of(response)
        except WakefulError:
            raise
        except Exception as error:  # Every provider has its own ways to fail; each has a kind.
            raise fault_of(error, self.name, self._key) from None
        finally:
            await self._client.release()

    def _parameters_of(self, request: ModelRequest) -> ModelRequestParameters:
        """The same object as long as they are the same: what the library makes of it is then kept (providers.py)."""
        told = request.tools, request.instructions
        if told != self._told:
            self._told = told
            self._parameters = ModelRequestParameters(
                function_tools=[_definition_of(offer) for offer in request.tools],
                instruction_parts=[library.InstructionPart(make_sendable(request.instructions))]
                if request.instructions
                else [],
            )
        return self._parameters

    def _answer_of(self, response: library.ModelResponse) -> ModelAnswer:
        response = _with_distinct_ids(_make_response_sendable(response), self._transcript.call_ids)
        calls = tuple(
            ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments_of(part))
            for part in response.parts
            if isinstance(part, library.ToolCallPart)
        )
        text = "".join(part.content for part in response.parts if isinstance(part, library.TextPart))
        stop = _stop_of(response.finish_reason, bool(calls))
        answered = Answered(model=self.name, text=text, calls=calls, stop=stop, raw=write_raw(response))
        answer = ModelAnswer(answered=answered, usage=_usage_of(response.usage))
        if not _is_whole(response, self._spec):
            raise ProviderFault("garbage", f"{self.name} broke off in the middle of its answer", useless=answer)
        if stop == "done" and not text.strip():
            raise ProviderFault("garbage", f"{self.name} answered with nothing at all", useless=answer)
        return answer


def _takes_images(spec: ModelSpec, settings: ModelSettings) -> bool:
    """As its agent says; else the providers' own models do, and of one's own endpoint nobody knows."""
    return settings.images if settings.images is not None else spec.provider != "openai-compatible"


def _is_whole(response: library.ModelResponse, spec: ModelSpec) -> bool:
    """Tell an answer from one that a proxy cut off tidily."""
    if response.state != "complete" or response.finish_reason in (None, "error"):
        return False
    # The library takes a stream of completions without an end for one that is done;
    # what the server itself said is among the details.
    is_certain = spec.provider not in ("openai-chat", "openai-compatible") or response.finish_reason != "stop"
    return is_certain or "finish_reason" in (response.provider_details or {})


async def _listen(stream: StreamedResponse, say: Say) -> None:
    pieces, thoughts = SendablePieces(), SendablePieces()
    async for event in stream:
        match event:
            case library.PartStartEvent(part=library.TextPart(content=text)) if text:
                say(pieces.take(text))
            case library.PartDeltaEvent(delta=library.TextPartDelta(content_delta=text)) if text:
                say(pieces.take(text))
            case library.PartStartEvent(part=library.ThinkingPart(content=text)) if text:
                say(thoughts.take(text), "thinking")
            case library.PartDeltaEvent(delta=library.ThinkingPartDelta(content_delta=text)) if text:
                say(thoughts.take(text), "thinking")
            case library.PartStartEvent(part=library.ToolCallPart(tool_name=name)) if name:
                say(make_sendable(name), "call")
    if rest := pieces.end():
        say(rest)


def _make_response_sendable(response: library.ModelResponse) -> library.ModelResponse:
    """An answer that can be recorded and told again.

    A thought with a lone half is left out: its signature fits no other text.
    """
    parts: list[library.ModelResponsePart] = []
    for part in response.parts:
        match part:
            case library.TextPart(content=text):
                parts.append(change(part, content=make_sendable(text)))
            case library.ThinkingPart(content=text):
                parts += [] if has_lone_half(text) else [change(part, content=make_sendable(text))]
            case library.ToolCallPart():
                parts.append(_make_call_sendable(part))
            case _:
                parts.append(part)
    return change(response, parts=parts)


def _make_call_sendable(part: library.ToolCallPart) -> library.ToolCallPart:
    return change(
        part,
        tool_name=make_sendable(part.tool_name).replace("\\", "_"),
        tool_call_id=make_sendable(part.tool_call_id),
        args=_write_arguments(part),
    )


def _write_arguments(part: library.ToolCallPart) -> str | dict[str, Any] | None:
    """As the library has them, unless that holds a half: then as JSON text, in which it is an escape."""
    match part.args:
        case str(text):
            return make_sendable(text)
        case dict(found):
            return text if find_lone_half(text := json.dumps(found)) else found
        case None:
            return None


def _settings_of(
    settings: ModelSettings, spec: ModelSpec, library_model: LibraryModel, messages: Sequence[library.ModelMessage]
) -> LibrarySettings:
    """Ours as the library's. It leaves effort out itself where a model has no such setting."""
    told: dict[str, Any] = {"max_tokens": settings.max_output_tokens}
    if settings.temperature is not None and not library_model.profile.get("anthropic_disallows_sampling_settings"):
        told["temperature"] = settings.temperature
    match spec.provider:
        case "anthropic":
            # A long conversation is paid for anew with each request unless the provider keeps what it read;
            # the others do so unasked.
            told["cache"] = True
        case "openai":
            # The log is the only copy: no conversation is kept at the provider's.
            told["openai_store"] = False
    if settings.effort is None:
        return cast(LibrarySettings, told)
    if spec.provider != "anthropic" or library_model.profile.get("anthropic_supports_adaptive_thinking"):
        told["thinking"] = settings.effort
    elif (
        budget := int(settings.max_output_tokens * _THINKING_SHARES[settings.effort])
    ) >= _LEAST_THINKING and _may_think(messages):
        # Claude models that take no effort take a number of tokens, which must fit into the answer's,
        # and then no temperature.
        told["anthropic_thinking"] = {"type": "enabled", "budget_tokens": budget}
        told.pop("temperature", None)
    return cast(LibrarySettings, told)


def _may_think(messages: Sequence[library.ModelMessage]) -> bool:
    """Tell whether a Claude model that thinks by budget may here:
    it refuses to go on from calls that no thought of its own led to."""
    match messages:
        case [*_, library.ModelResponse(parts=parts), library.ModelRequest(parts=[library.ToolReturnPart(), *_])]:
            return any(isinstance(part, library.ThinkingPart) for part in parts)
        case _:
            return True


def _definition_of(offer: ToolOffer) -> ToolDefinition:
    return ToolDefinition(
        name=offer.name, description=make_sendable(offer.description), parameters_json_schema=dict(offer.parameters)
    )


def _arguments_of(part: library.ToolCallPart) -> str:
    """As the model wrote it; some providers hand objects over, and some nothing for no arguments."""
    if isinstance(part.args, str):
        return part.args or "{}"
    return part.args_as_json_str()


def _with_distinct_ids(response: library.ModelResponse, taken: set[str]) -> library.ModelResponse:
    """Local servers number calls from nought in each answer, or not at all; a call of ours is known by its id alone."""
    seen: set[str] = set()
    parts = []
    for part in response.parts:
        if isinstance(part, library.ToolCallPart):
            if not part.tool_call_id or part.tool_call_id in taken or part.tool_call_id in seen:
                part = replace(part, tool_call_id=f"call_{uuid.uuid4().hex[:24]}")
            seen.add(part.tool_call_id)
        parts.append(part)
    return change(response, parts=parts)


def _stop_of(reason: str | None, has_calls: bool) -> StopReason:
    match reason:
        case "length":
            return "length"
        case "content_filter":
            return "refused"
        case _:
            return "calls" if has_calls else "done"


def _usage_of(usage: RequestUsage) -> TokenUsage:
    return TokenUsage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.cache_read_tokens,
        cache_written=usage.cache_write_tokens,
    )

"""Our requests are compared with those of pydantic-ai and the providers' own clients, for random conversations.

Address and JSON must be equal. `alike` below names the keys in which we differ on purpose, with the reasons.
"""

from __future__ import annotations

import asyncio
import base64
import json
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import messages as library

from agents.pydantic_ai_reference import models as beside
from agents.scripted_models import ADD, KEY, PROVIDERS
from agents.test_images import PNG
from wakeful.agents.contract import ModelRequest, ToolOffer
from wakeful.agents.models.encoded_conversation import Conversation, legal_id
from wakeful.agents.models.provider_model import FORMATS
from wakeful.agents.models.wire_format import Endpoint
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.files import FileTools
from wakeful.core.agents.turns import Answered, Asked, Entry, Image, Returned, ToolCall
from wakeful.core.spec.agent import ModelSettings
from wakeful.settings import read_known_prices

# Run by `make test-long`, because the libraries take seconds to import.
pytestmark = pytest.mark.long

ADDRESS = "http://provider.example/base"
# For each provider, models that differ in the settings that they accept.
NAMES = {
    "anthropic": ("claude-sonnet-5", "claude-opus-4-6", "claude-haiku-4-5", "claude-opus-4-5", "claude-opus-5-5"),
    "openai": ("gpt-5", "gpt-4o", "gpt-5.6-sol", "gpt-5.1", "gpt-5-pro"),
    "openai-chat": ("gpt-5", "gpt-4o", "gpt-5.4"),
    "openai-compatible": ("llama", "deepseek-reasoner"),
    "google": ("gemini-3-pro", "gemini-2.5-flash", "gemini-2.0-flash", "gemini-3-pro-preview"),
}
SYSTEMS = {"openai-chat": "openai"}
IMAGES = {"blake2b-0": PNG, "blake2b-1": PNG + b"\0"}
FILES = tuple(tool.offer for tool in FileTools(Bounds.build("/srv", ("**",), ("**",), "/srv")).list_tools())
ODD = ToolOffer(
    name="odd",
    description="Odd \ud800.",
    parameters={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Odd",
        "type": "object",
        "properties": {
            "kind": {"const": "a", "title": "Kind"},
            "when": {"type": "string", "format": "date-time", "description": "When."},
            "where": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}},
            "all": {"type": "array", "items": {"type": "string", "format": "uri"}, "maxItems": 3},
            "any": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}], "default": None},
        },
    },
)
NOTHING = ToolOffer(name="nothing", description="", parameters={"type": "object"})

texts = st.one_of(
    st.sampled_from(["", "  ", "One.", "\ud83d", "\ud83d\ude00 Ünï\n日本", '"quoted" \\ <b>&', "<think>"]),
    st.text(max_size=12),
)
call_ids = st.one_of(
    st.sampled_from(["call_1", "c1", "call|fc:1/ä " + "x" * 90]), st.text("abc-_1", min_size=1, max_size=8)
)
arguments = st.one_of(
    st.sampled_from(["", "{}", '{"a": 1, ', "[1]", "null", '{"a": "\\ud83d"}', '{"b" : 2.50, "a":[1, {"c": "ü"}]}']),
    st.dictionaries(st.sampled_from("abc"), st.integers() | st.booleans() | st.none(), max_size=2).map(json.dumps),
)
signatures = st.sampled_from(["c2lnbmVk", "c2lnbmVkK+/=", "YQ=="])


@st.composite
def raw_parts(draw: st.DrawFn, ours: str, calls: tuple[ToolCall, ...]) -> list[library.ModelResponsePart]:
    """The parts of an answer as the library kept them in older logs: thoughts and texts, then the calls."""
    system = SYSTEMS.get(ours, ours)
    parts: list[library.ModelResponsePart] = []
    for number in range(draw(st.integers(0, 3))):
        content = draw(texts.filter(lambda text: not _is_lone(text)))
        if draw(st.booleans()):
            parts.append(_thought(draw, ours, system, content, number))
        else:
            details = {"thought_signature": draw(signatures)} if ours == "google" and draw(st.booleans()) else None
            if ours == "openai" and draw(st.booleans()):
                details = {"phase": draw(st.sampled_from(["commentary", "final_answer"]))}
            id = f"msg_{number // 2}" if ours == "openai" and draw(st.booleans()) else None
            name = system if id or details else None
            parts.append(library.TextPart(content, id=id, provider_name=name, provider_details=details))
    for number, call in enumerate(calls):
        details = {"thought_signature": draw(signatures)} if ours == "google" and draw(st.booleans()) else None
        id = f"fc_{number}" if ours == "openai" and draw(st.booleans()) else None
        name = system if id or details else None
        args = _as_object(call.arguments) if ours == "google" and draw(st.booleans()) else call.arguments
        parts.append(
            library.ToolCallPart(call.name, args, call.id, id=id, provider_name=name, provider_details=details)
        )
    return parts


def _thought(draw: st.DrawFn, ours: str, system: str, content: str, number: int) -> library.ThinkingPart:
    match ours:
        case "anthropic":
            id = draw(st.sampled_from([None, "redacted_thinking"]))
            return library.ThinkingPart("" if id else content, id=id, signature=draw(signatures), provider_name=system)
        case "openai":
            details = {"raw_content": ["all of it"]} if draw(st.integers(0, 4)) == 0 else None
            signature = draw(st.none() | signatures)
            # A thought without text needs a signature or details, otherwise it is none.
            return library.ThinkingPart(content or ("" if signature or details else "Hm."), id=f"rs_{number // 2}", signature=signature, provider_name=system, provider_details=details)  # fmt: skip
        case "google":
            return library.ThinkingPart(content, signature=draw(st.none() | signatures), provider_name=system)
        case _:
            id = draw(st.sampled_from(["reasoning", "reasoning_content", "content"]))
            return library.ThinkingPart(content, id=id, provider_name=system)


@st.composite
def conversations(draw: st.DrawFn, ours: str) -> tuple[Entry, ...]:
    """Any conversation that a log may hold.

    Its answers come from this provider and from others. Its calls are answered in any order, late, twice, or never.
    """
    entries: list[Entry] = [Asked(text=draw(texts))]
    earlier: list[ToolCall] = []
    for turn in range(draw(st.integers(0, 3))):
        entries += [Asked(text=draw(texts)) for _ in range(draw(st.integers(0, 2)))]
        ids = draw(st.lists(call_ids, max_size=3, unique=True))
        calls = tuple(
            ToolCall(
                id=f"{id}{turn}" if len(id) < 30 else id,
                name=draw(st.sampled_from(["add", "odd"])),
                arguments=draw(arguments),
            )
            for id in ids
        )
        entries.append(_answer(draw, ours, calls))
        returned = [
            Returned(
                call=call.id,
                name=call.name,
                text=draw(texts.filter(bool)),
                is_error=draw(st.booleans()),
                images=tuple(Image(media_type="image/png", address=one, size_bytes=1) for one in draw(st.lists(st.sampled_from(["blake2b-0", "blake2b-1", "blake2b-gone"]), max_size=2))),
            )
            for call in (
                *draw(st.permutations(calls)),
                *draw(st.lists(st.sampled_from((*earlier, *calls)), max_size=2) if earlier or calls else st.just([])),
            )
            if draw(st.integers(0, 3))
        ]  # fmt: skip
        earlier += calls
        entries += returned
    if isinstance(entries[-1], Answered):
        entries.append(Asked(text=draw(texts)))
    return tuple(entries)


def _answer(draw: st.DrawFn, ours: str, calls: tuple[ToolCall, ...]) -> Answered:
    # A provider gives only ids that it accepts.
    if not draw(st.booleans()) or not all(legal_id(call.id) == call.id for call in calls):
        elsewhere = draw(st.sampled_from(["elsewhere:m", *(f"{one}:m" for one in PROVIDERS)]))
        return Answered(model=elsewhere, text=draw(texts), calls=calls)
    url = draw(st.sampled_from([None, ADDRESS, f"{ADDRESS}/", "http://other.example"]))
    parts = draw(raw_parts(ours, calls))
    response = library.ModelResponse(parts=parts, provider_name=SYSTEMS.get(ours, ours), provider_url=url)
    raw = library.ModelMessagesTypeAdapter.dump_json([response]).decode()
    text = "".join(part.content for part in parts if isinstance(part, library.TextPart))
    return Answered(model=f"{ours}:m", text=text, calls=calls, raw=raw)


def _is_lone(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _as_object(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) and "\\ud" not in text else text


model_settings = st.builds(
    ModelSettings,
    temperature=st.sampled_from([None, 0.0, 0.5]),
    effort=st.sampled_from([None, "low", "medium", "high"]),
    max_output_tokens=st.sampled_from([99, 8_000]),
    images=st.sampled_from([None, True, False]),
)


@st.composite
def requests(draw: st.DrawFn, ours: str) -> ModelRequest:
    return ModelRequest(
        instructions=draw(st.sampled_from(["", "Be brief.", "Be \udfff brief."])),
        entries=draw(conversations(ours)),
        tools=draw(st.sampled_from([(), (ADD,), (ADD, ODD, NOTHING), FILES])),
        settings=draw(model_settings),
        images=IMAGES,
    )


def write_ours(ours: str, name: str, request: ModelRequest) -> tuple[str, dict[str, str], dict[str, Any]]:
    wire_format = FORMATS[ours](Endpoint(name, ADDRESS, KEY))  # type: ignore[index]
    takes = request.settings.images if request.settings.images is not None else ours != "openai-compatible"
    turns = Conversation(ours).tell(request.entries, request.images if takes else None)
    post = wire_format.write_post(request, turns)
    return post.url, {key.lower(): value for key, value in post.headers.items()}, msgspec.json.decode(post.body)


def alike(ours: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without the intended differences."""
    body = {**body}
    body["tools"] = [_alike_tool(ours, tool) for tool in body.get("tools", [])]
    match ours:
        case "anthropic":
            # Anthropic refuses an empty text block. We leave it out.
            body["messages"] = _replace(body["messages"], [{"text": "", "type": "text"}], "")
            # Some models tie thoughts to what led to them. For these, we ask that thoughts which no longer fit are left
            # out. The library asks for it after the first refusal, and sends the request again.
            if "block_binding" in body.get("thinking", {}):
                del body["thinking"]
            if body["model"] == "claude-opus-5-5" and body.get("thinking") == {"type": "adaptive"}:
                del body["thinking"]
        case "openai-chat" | "openai-compatible":
            # Once the field of thoughts is known, every message with a call has it, even empty, so that earlier
            # messages stay as they were sent. The library removes an empty one from older messages.
            for message in body["messages"]:
                for field in ("reasoning", "reasoning_content"):
                    if message.get(field) == "":
                        del message[field]
        case "google":
            # The client writes some names with underscores, and base64 in its URL-safe alphabet. Google accepts both.
            body = _rename(body)
    return body


def _alike_tool(ours: str, tool: dict[str, Any]) -> dict[str, Any]:
    match ours:
        case "anthropic":
            # We send schemas as they are written. The library leaves out titles and unfolds unions of one.
            return {**tool, "input_schema": _plain_schema(tool["input_schema"])}
        case "openai":
            return _without_strict({**tool, "parameters": _plain_schema(tool["parameters"])})
        case "google":
            return tool
        case _:
            function = tool["function"]
            return {
                **tool,
                "function": _without_strict({**function, "parameters": _plain_schema(function["parameters"])}),
            }


def _without_strict(tool: dict[str, Any]) -> dict[str, Any]:
    """Remove `strict`.

    The library asks for strict arguments if a schema allows it, and rewrites the schema. We never do.
    """
    return {key: value for key, value in tool.items() if key != "strict"}


def _plain_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain_schema(value) for key, value in schema.items() if key not in ("$schema", "title")}
    if plain.get("additionalProperties") is False:
        del plain["additionalProperties"]
    if plain.get("properties") == {}:
        del plain["properties"]
    return plain


def _replace(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    if isinstance(value, list):
        return [_replace(one, old, new) for one in value]
    return {key: _replace(one, old, new) for key, one in value.items()} if isinstance(value, dict) else value


_SPELLED = {
    "inline_data": "inlineData",
    "mime_type": "mimeType",
    "parameters_json_schema": "parametersJsonSchema",
    "include_thoughts": "includeThoughts",
    "thinking_level": "thinkingLevel",
    "thinking_budget": "thinkingBudget",
}


def _rename(value: Any) -> Any:
    if isinstance(value, list):
        return [_rename(one) for one in value]
    if not isinstance(value, dict):
        return value
    renamed = {_SPELLED.get(key, key): _rename(one) for key, one in value.items()}
    for key in ("data", "thoughtSignature"):
        if isinstance(renamed.get(key), str):
            renamed[key] = base64.urlsafe_b64decode(renamed[key].replace("+", "-").replace("/", "_") + "==").hex()
    return renamed


def compare(ours: str, name: str, request: ModelRequest) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sent = asyncio.run(beside.record(ours, name, ADDRESS, request))
    url, headers, body = write_ours(ours, name, request)
    assert url == sent.url
    assert {key: sent.headers.get(key) for key in headers if key != "anthropic-beta"} == {
        key: value for key, value in headers.items() if key != "anthropic-beta"
    }
    assert list(differences(alike(ours, body), alike(ours, sent.body))) == []


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            yield from differences(ours.get(key, "nothing"), theirs.get(key, "nothing"), f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif ours != theirs:
        yield f"{place}: {ours!r}, and the library {theirs!r}"


@pytest.mark.parametrize("ours", PROVIDERS)
def test_a_request_is_the_one_that_the_library_would_send(ours: str) -> None:
    """It holds for any conversation in a log, and for every setting."""

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(name=st.sampled_from(NAMES[ours]), request=requests(ours))
    def holds(name: str, request: ModelRequest) -> None:
        compare(ours, name, request)

    holds()


def test_a_thought_without_a_signature_is_left_out_for_anthropic() -> None:
    """No signature proves the thought, so we leave it out. The library sends it as text of the user."""
    parts = [library.ThinkingPart("Hm.", provider_name="anthropic"), library.TextPart("Yes.")]
    raw = library.ModelMessagesTypeAdapter.dump_json([library.ModelResponse(parts=parts)]).decode()
    entries = (Asked(text="One?"), Answered(model="anthropic:m", text="Yes.", raw=raw), Asked(text="Two?"))
    request = ModelRequest(instructions="", entries=entries)
    _, _, body = write_ours("anthropic", "claude-sonnet-5", request)
    sent = asyncio.run(beside.record("anthropic", "claude-sonnet-5", ADDRESS, request))
    [*_, carried, answer, asked] = sent.body["messages"]
    assert "Hm." in str(carried) and body["messages"] == [sent.body["messages"][0], answer, asked]


def test_a_thought_that_is_tied_to_its_conversation_may_be_dropped_by_anthropic() -> None:
    """A summary or other tools may change what the thought is tied to.

    Otherwise the provider would refuse the request.
    """
    parts = [library.ThinkingPart("Hm.", signature="c2ln", provider_name="anthropic"), library.TextPart("Yes.")]
    raw = library.ModelMessagesTypeAdapter.dump_json([library.ModelResponse(parts=parts)]).decode()
    entries = (Asked(text="One?"), Answered(model="anthropic:m", text="Yes.", raw=raw), Asked(text="Two?"))
    for name, binds in (("claude-opus-5-5", True), ("claude-opus-5", False)):
        _, headers, body = write_ours("anthropic", name, ModelRequest(instructions="", entries=entries))
        assert ("block_binding" in body.get("thinking", {})) == ("anthropic-beta" in headers) == binds
    assert "thinking" not in write_ours("anthropic", "claude-opus-5-5", _ask(None, None))[2]


def _list_names(ours: str) -> list[str]:
    return [name.partition(":")[2] for name in read_known_prices() if name.startswith(f"{ours.partition('-')[0]}:")]


def _ask(effort: Any, temperature: float | None) -> ModelRequest:
    return ModelRequest(
        instructions="",
        entries=(Asked(text="Hello?"),),
        tools=(ADD,),
        settings=ModelSettings(effort=effort, temperature=temperature, max_output_tokens=8_000),
    )


@pytest.mark.parametrize("ours", [one for one in PROVIDERS if one != "openai-compatible"])
def test_every_model_that_has_a_price_takes_what_the_library_thinks_it_takes(ours: str) -> None:
    """Effort, temperature, thinking and its levels follow the table of model_traits.py."""
    for name in _list_names(ours):
        for effort in (None, "low", "medium", "high"):
            compare(ours, name, _ask(effort, 0.5))


@pytest.mark.long
@pytest.mark.parametrize("ours", ["anthropic", "openai", "openai-chat", "google"])
def test_every_model_that_the_library_knows_takes_what_it_thinks_it_takes(ours: str) -> None:
    from pydantic_ai.models import KnownModelName

    known = {
        name.partition(":")[2] for name in _flatten(KnownModelName) if name.startswith(f"{ours.partition('-')[0]}:")
    }
    # Without models that make images or speech or only search, and without one that is retired and took no
    # instructions.
    names = sorted(
        one
        for one in known
        if not any(word in one for word in ("image", "audio", "realtime", "live", "search", "o1-mini", "embed", "tts"))
    )
    assert len(names) > 10
    for name in names:
        for effort in (None, "low", "medium", "high"):
            compare(ours, name, _ask(effort, 0.5))


def _flatten(kind: Any) -> list[str]:
    from typing import get_args

    kind = getattr(kind, "__value__", kind)
    return [name for one in get_args(kind) for name in ([one] if isinstance(one, str) else _flatten(one))]

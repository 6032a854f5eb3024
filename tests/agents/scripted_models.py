"""Our models, connected to the scripted provider. Every test of the model adapter starts from them."""

from __future__ import annotations

from agents.provider import Provider
from wakeful.agents.contract import Model, ModelAnswer, ModelRequest, ToolOffer, WordKind
from wakeful.agents.models.provider_model import make_model
from wakeful.core.agents.turns import Answered, Entry
from wakeful.core.spec.agent import ModelSettings, ModelSpec

KEY = "sk-scripted-1234567890"
# Our name of a provider -> the wire format of the scripted provider.
FORMATS = {
    "anthropic": "anthropic",
    "openai": "responses",
    "openai-chat": "openai",
    "openai-compatible": "openai",
    "google": "google",
}
PROVIDERS = tuple(FORMATS)
ADD = ToolOffer(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def reach(
    provider: Provider, ours: str, *, key: str | None = KEY, model: str = "scripted", silence_seconds: float = 60.0
) -> Model:
    """Make our model of a provider, with the scripted provider as its endpoint."""
    spec = ModelSpec(provider=ours, model=model, key="KEY", base_url=provider.base_url(FORMATS[ours]))  # type: ignore[arg-type]
    return make_model(spec, key, silence_seconds)


async def ask(model: Model, *entries: Entry, said: list[str] | None = None, **settings: object) -> ModelAnswer:
    """Put a conversation to a model that has one tool, `add`."""
    request = ModelRequest(instructions="Be brief.", entries=entries, tools=(ADD,), settings=ModelSettings(**settings))  # type: ignore[arg-type]
    heard = said if said is not None else []

    def say(text: str, kind: WordKind = "text") -> None:
        if kind == "text":
            heard.append(text)

    return await model.answer(request, say)


async def hear(model: Model, *entries: Entry) -> Answered:
    return (await ask(model, *entries)).answered

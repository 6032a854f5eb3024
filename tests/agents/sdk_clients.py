"""The providers' real clients, connected to the scripted provider. Every test of the wire starts from them.

The import of the SDKs takes seconds, so only tests that need a real client import this module.
"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

from agents.provider import Endpoint

FORMATS = ("openai", "responses", "anthropic", "google")
KEY = "sk-scripted"


def make_model(provider: Endpoint, format: str, *, name: str = "scripted", key: str = KEY, retries: int = 0) -> Model:
    """Make the model class of a format, with the provider as its endpoint.

    OpenAI's and Anthropic's clients retry twice and wait in between unless told not to. Google's client never retries.
    """
    base = provider.base_url(format)
    match format:
        case "openai" | "responses":
            openai = OpenAIProvider(base_url=base, api_key=key)
            openai.client.max_retries = retries
            return (OpenAIChatModel if format == "openai" else OpenAIResponsesModel)(name, provider=openai)
        case "anthropic":
            anthropic = AnthropicProvider(base_url=base, api_key=key)
            anthropic.client.max_retries = retries
            return AnthropicModel(name, provider=anthropic)
        case "google":
            return GoogleModel(name, provider=GoogleProvider(base_url=base, api_key=key))
    raise ValueError(f"no client for {format!r}; there are {FORMATS}")


def make_agent(provider: Endpoint, format: str, *, name: str = "scripted") -> Agent[None, str]:
    """Make an agent with one tool, `add`."""
    agent = Agent(make_model(provider, format, name=name), instructions="Be brief.")

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent

"""The providers' real clients, pointed at the scripted provider: what every test of the wire starts from.

Imports the SDKs, which takes seconds: only tests that need a real client import this.
"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from agents.provider import Provider

FORMATS = ("openai", "anthropic")
KEY = "sk-scripted"


def make_model(provider: Provider, format: str, key: str = KEY) -> Model:
    """Make the model class of a format, with the provider as its endpoint."""
    base = provider.base_url(format)
    match format:
        case "openai":
            return OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=base, api_key=key))
        case "anthropic":
            return AnthropicModel("scripted", provider=AnthropicProvider(base_url=base, api_key=key))
    raise ValueError(f"no client for {format!r}; there are {FORMATS}")


def make_agent(provider: Provider, format: str) -> Agent[None, str]:
    """Make an agent with one tool, `add`."""
    agent = Agent(make_model(provider, format), instructions="Be brief.")

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent

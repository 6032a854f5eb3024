"""An agent as frozen values: a role that owns sessions, and works in them one run at a time.

`specs/` parses `sessions.d/agents/<name>.yaml` into one; a run records the agent it began with, so an edited file
counts from the next wake. The conversation, facts and budget belong to the session; here is only who speaks,
with which model and tools.
"""

from __future__ import annotations

import re
from typing import Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.spec.budget import Budget

# `openai` is the responses API, `openai-chat` the older chat completions;
# `openai-compatible` speaks the latter at an address of its own.
Provider = Literal["anthropic", "openai", "openai-chat", "openai-compatible", "google"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
# A program of others, which speaks the Agent Client Protocol.
EXTERNAL = "acp"
# The secret that opens a provider where none is named; one's own endpoint needs none.
USUAL_KEYS: dict[Provider, str] = {
    "anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "openai-chat": "OPENAI_API_KEY",
    "google": "GOOGLE_API_KEY",
}  # fmt: skip
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,199}")
# Programs that start other ones; their options, and variables set for them, are words that name nobody.
_STARTER = re.compile(r"env|node|npx|bun|bunx|deno|python[\d.]*|uvx|sh|bash|run|exec")
_NO_NAME = re.compile(r"-.*|\w+=.*", re.DOTALL)
# The policy for a tool call: it is carried out, put to a person first, or refused.
ToolPolicy = Literal["allow", "ask", "deny"]
Effort = Literal["low", "medium", "high"]
FileHands = Literal["ours", "own"]

# The tools an agent can be given; more come from its MCP servers, as `mcp:<server>` or `mcp:<server>/<tool>`.
TOOLS = (
    "read", "list", "search", "write", "edit", "diff", "shell", "remember", "recall", "history", "send",
    "ask_person", "hand_off", "skill", "fetch", "todo", "delegate",
)  # fmt: skip
MCP_TOOL_PREFIX = "mcp:"

DEFAULT_MAX_OUTPUT_TOKENS = 8_192
DEFAULT_START_SECONDS = 10.0
DEFAULT_CONTEXT_TOKENS = 200_000
DEFAULT_SILENCE_SECONDS = 120.0
# Above this share of its context a conversation is compressed before the next request.
DEFAULT_COMPRESS_SHARE = 0.8


# Where each provider is reached unless `base_url` says otherwise.
PROVIDER_URLS: dict[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "openai-chat": "https://api.openai.com",
    "openai-compatible": "http://localhost",
    "google": "https://generativelanguage.googleapis.com",
}
_PORTS = {"http": 80, "https": 443}


def find_address(url: str) -> str:
    """HOST:PORT of an address that was checked when it was read."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{parts.port or _PORTS[parts.scheme]}"


class ModelSpec(Struct, frozen=True, kw_only=True):
    """One model and how it is reached. `key` names a secret; None: the endpoint asks for none."""

    provider: Provider
    model: str
    key: str | None = None
    # None: the provider's own address.
    base_url: str | None = None

    @property
    def name(self) -> str:
        """As files, records and people write it."""
        return f"{self.provider}:{self.model}"


def split_model(text: str) -> tuple[Provider, str] | None:
    """`anthropic:claude-sonnet-4-5` as provider and model; None where it is none."""
    word, colon, model = text.partition(":")
    provider = next((one for one in PROVIDERS if one == word), None)
    return (provider, model) if provider is not None and colon and _MODEL_NAME.fullmatch(model) else None


class ModelSettings(Struct, frozen=True, kw_only=True):
    temperature: float | None = None
    effort: Effort | None = None
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    # Does the model take images? None: those of the providers do, one at an address of its own does not.
    images: bool | None = None


class McpServer(Struct, frozen=True, kw_only=True):
    """Where an agent's further tools come from: a program spoken to over its standard input and output,
    or an address."""

    name: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    # A secret's name: sent as a bearer token.
    key: str | None = None
    # A server that is a program gets variables, and secrets as variables of their names.
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    # A run waits so long for its tools, and then goes on without them.
    start_seconds: float = DEFAULT_START_SECONDS


class Outside(Struct, frozen=True, kw_only=True):
    """How an external program is started and spoken to, where its own ways are not the ones wanted.

    `key` is a secret's name, handed on as a variable.
    """

    env: dict[str, str] = {}
    key: str | None = None
    # Ids as the program tells them: the way to log in that it is told to take, and the mode it works in.
    login: str | None = None
    mode: str | None = None
    # Whose hands open files: ours, by the bindings, or its own, within its isolation.
    files: FileHands = "ours"


class Skill(Struct, frozen=True, kw_only=True):
    """Instructions that a model reads when it needs them.

    `files` are those of its folder, by path, with the digest of what was read when the agent was.
    """

    name: str
    description: str
    folder: str
    files: dict[str, str] = {}


class AgentLimits(Struct, frozen=True, kw_only=True):
    """When a run that does not come to its end is stopped."""

    # Requests of one run.
    turns: int = 50
    # The same tool called with the same arguments, one after the other.
    repeats: int = 3
    # A provider may be silent for so long, before the first piece of an answer and between two pieces.
    silence_seconds: float = DEFAULT_SILENCE_SECONDS


class TokenWindow(Struct, frozen=True, kw_only=True):
    """How much a model takes in, and when a conversation is made shorter for it."""

    tokens: int = DEFAULT_CONTEXT_TOKENS
    compress_at: int = int(DEFAULT_CONTEXT_TOKENS * DEFAULT_COMPRESS_SHARE)
    # A cheaper model that writes the summaries. None: the agent's own model does.
    compress_by: ModelSpec | None = None
    # The window of a local model without such a key: its server is asked. `compress_share` is then the part of the
    # answer; None: compress_at is a number.
    is_assumed: bool = False
    compress_share: float | None = None


class AgentSpec(Struct, frozen=True, kw_only=True):
    """One agent as declared.

    Either it has models, the first of them tried first, or `acp` is an external program that has its own.
    """

    name: str
    prompt: str = ""
    models: tuple[ModelSpec, ...] = ()
    settings: ModelSettings = ModelSettings()
    tools: dict[str, ToolPolicy] = {}
    mcp: tuple[McpServer, ...] = ()
    budget: Budget | None = None
    window: TokenWindow = TokenWindow()
    limits: AgentLimits = AgentLimits()
    acp: tuple[str, ...] = ()
    outside: Outside = Outside()
    skills: tuple[Skill, ...] = ()
    # A question to a person waits so long, and is denied then. None: as long as it takes.
    ask_timeout_seconds: float | None = None
    # The agents that it may give a piece of work, by name; and those of them that there are, as they work in its runs.
    subagents: tuple[str, ...] = ()
    team: tuple[AgentSpec, ...] = ()

    @property
    def can_answer(self) -> bool:
        """Is there anybody a prompt could be put to?"""
        return bool(self.models or self.acp)

    @property
    def asks_window(self) -> bool:
        """Nobody said how much its model takes in, and the server that runs it can be asked."""
        return self.window.is_assumed and bool(self.models) and _is_local(self.models[0])

    @property
    def model_name(self) -> str:
        """The name of the model or program that answers, as records write it."""
        return self.models[0].name if self.models else f"{EXTERNAL}:{_name_program(self.acp)}" if self.acp else "nobody"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it has to reach, as HOST:PORT: its models, those of its sub-agents,
        and its servers that have an address."""
        urls = [one.base_url or PROVIDER_URLS[one.provider] for one in self._list_models()]
        urls += [server.url for server in self.mcp if server.url is not None]
        return tuple(dict.fromkeys(find_address(url) for url in urls))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of all secrets that the agent's models, fallback models and servers need,
        or its external program."""
        models, servers = self._list_models(), self.mcp
        keys = (*(one.key for one in models), *(one.key for one in servers), self.outside.key)
        named = (*(one for one in keys if one is not None), *(name for server in servers for name in server.secrets))
        return tuple(dict.fromkeys(named))

    def _list_models(self) -> tuple[ModelSpec, ...]:
        """All models that may get a request in the agent's runs."""
        summary = (self.window.compress_by,) if self.window.compress_by is not None else ()
        return (*self.models, *summary, *(model for one in self.team for model in one.models))

    def find_subagent(self, name: str) -> AgentSpec | None:
        return next((one for one in self.team if one.name == name), None)


def fit_window(agent: AgentSpec, tokens: int) -> AgentSpec:
    """The agent with a model that takes in so much, as its server told:
    conversation and answer fit into it together."""
    window = agent.window
    compress_at = (
        min(window.compress_at, int(tokens * DEFAULT_COMPRESS_SHARE))
        if window.compress_share is None
        else int(tokens * window.compress_share)
    )
    fitted = replace(window, tokens=tokens, compress_at=max(compress_at, 1), is_assumed=False)
    return replace(
        agent,
        window=fitted,
        settings=replace(
            agent.settings, max_output_tokens=min(agent.settings.max_output_tokens, find_most_output(tokens))
        ),
    )


def find_most_output(tokens: int) -> int:
    """How much of a small window an answer takes where nothing says it."""
    return max(1, min(DEFAULT_MAX_OUTPUT_TOKENS, tokens // 4))


def _name_program(words: tuple[str, ...]) -> str:
    """The name of the agent program: `node …/bin/some-agent --acp` is some-agent, since node only starts it."""
    names = [word.rpartition("/")[2] for word in words if not _NO_NAME.fullmatch(word)]
    return next((name for name in names if not _STARTER.fullmatch(name)), words[0])


def prefer_model(agent: AgentSpec, name: str) -> AgentSpec | None:
    """The same agent with this model first, as in a migrated session; None if the name is not a model's name.

    A model that the agent declares keeps its declared settings. Another model of a declared provider takes the
    settings of that provider's first model."""
    found = split_model(name)
    if found is None:
        return None
    provider, model = found
    chosen = next((one for one in agent.models if one.name == name), None)
    if chosen is None:
        near = next(
            (one for one in agent.models if one.provider == provider),
            ModelSpec(provider=provider, model=model, key=USUAL_KEYS.get(provider)),
        )
        chosen = replace(near, model=model)
    window = agent.window
    if _is_local(chosen) and window.tokens == DEFAULT_CONTEXT_TOKENS and not window.is_assumed:
        window = replace(window, is_assumed=True, compress_share=window.compress_at / window.tokens)
    return replace(
        agent,
        models=(chosen, *(one for one in agent.models if one != chosen)),
        acp=(),
        outside=Outside(),
        window=window,
    )


def _is_local(model: ModelSpec) -> bool:
    return model.provider == "openai-compatible" and model.base_url is not None

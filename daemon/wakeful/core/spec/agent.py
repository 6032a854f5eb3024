"""An agent as frozen values: a role that owns sessions, and works in them one run at a time.

`specs/` parses `sessions.d/agents/<name>.yaml` into an `AgentSpec`. A run records the agent it began with, so an edited
file counts from the next run on. The conversation and the facts belong to the session; an agent has only its role, its
models, its tools and their limits.
"""

from __future__ import annotations

import re
from typing import Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.spec.budget import Budget

# The APIs that models are reached by. `openai` is the Responses API, `openai-chat` the older Chat Completions API,
# `openai-compatible` the latter API at another address.
Provider = Literal["anthropic", "openai", "openai-chat", "openai-compatible", "google"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
# The prefix in the name of an external program that speaks the Agent Client Protocol.
EXTERNAL = "acp"
# The secret with the key of a provider, if a spec names none. `openai-compatible` needs none by default.
USUAL_KEYS: dict[Provider, str] = {
    "anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "openai-chat": "OPENAI_API_KEY",
    "google": "GOOGLE_API_KEY",
}  # fmt: skip
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,199}")
# Programs that only start another program. Options and variables in the command line are not names of agents either.
_STARTER = re.compile(r"env|node|npx|bun|bunx|deno|python[\d.]*|uvx|sh|bash|run|exec")
_NO_NAME = re.compile(r"-.*|\w+=.*", re.DOTALL)
# The policy for a tool call: it is carried out, put to a person first, or refused.
ToolPolicy = Literal["allow", "ask", "deny"]
Effort = Literal["low", "medium", "high"]
FileAccess = Literal["ours", "own"]

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
# The share of its context above which a conversation is compressed before the next request.
DEFAULT_COMPRESS_SHARE = 0.8


# The address of each provider, unless `base_url` is set.
PROVIDER_URLS: dict[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "openai-chat": "https://api.openai.com",
    "openai-compatible": "http://localhost",
    "google": "https://generativelanguage.googleapis.com",
}
_PORTS = {"http": 80, "https": 443}


def find_address(url: str) -> str:
    """Return HOST:PORT of a URL. The URL was checked when its spec was read."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{parts.port or _PORTS[parts.scheme]}"


class ModelSpec(Struct, frozen=True, kw_only=True):
    """One model and how it is reached. `key` is the name of a secret, None if the endpoint needs no key."""

    provider: Provider
    model: str
    key: str | None = None
    # None for the provider's own address.
    base_url: str | None = None

    @property
    def name(self) -> str:
        """Return the name that files, records and people use."""
        return f"{self.provider}:{self.model}"


def split_model(text: str) -> tuple[Provider, str] | None:
    """Split `anthropic:claude-sonnet-4-5` into provider and model. None if the text is not the name of a model."""
    word, colon, model = text.partition(":")
    provider = next((one for one in PROVIDERS if one == word), None)
    return (provider, model) if provider is not None and colon and _MODEL_NAME.fullmatch(model) else None


class ModelSettings(Struct, frozen=True, kw_only=True):
    temperature: float | None = None
    effort: Effort | None = None
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    # Does the model accept images? By default (None) it does, except a model of `openai-compatible`.
    images: bool | None = None


class McpServer(Struct, frozen=True, kw_only=True):
    """A source of further tools for an agent: a program that speaks over its standard input and output, or a URL."""

    name: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    # The name of a secret that is sent as a bearer token.
    key: str | None = None
    # Variables for a server that is a program, and secrets that it gets as variables of the same names.
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    # Seconds that a run waits for the server's tools. Then the run goes on without them.
    start_seconds: float = DEFAULT_START_SECONDS


class ExternalAgentSettings(Struct, frozen=True, kw_only=True):
    """Settings of an external agent program that differ from the program's own defaults.

    `key` is the name of a secret, which the program gets as a variable.
    """

    env: dict[str, str] = {}
    key: str | None = None
    # Ids that the program defines: the login method that it must use, and the mode that it works in.
    login: str | None = None
    mode: str | None = None
    # `ours`: our process opens files for the program, by the bindings. `own`: the program opens them within its
    # isolation.
    files: FileAccess = "ours"


class Skill(Struct, frozen=True, kw_only=True):
    """Instructions that a model reads when it needs them.

    `files` are the files of its folder by path, with their digests from when the agent was read.
    """

    name: str
    description: str
    folder: str
    files: dict[str, str] = {}


class AgentLimits(Struct, frozen=True, kw_only=True):
    """The limits that stop a run which does not come to an end."""

    # The most requests of one run.
    turns: int = 50
    # The most calls in a row of the same tool with the same arguments.
    repeats: int = 3
    # The longest silence of a provider, before the first piece of an answer and between two pieces.
    silence_seconds: float = DEFAULT_SILENCE_SECONDS


class TokenWindow(Struct, frozen=True, kw_only=True):
    """The context window of a model, and the size at which a conversation is compressed."""

    tokens: int = DEFAULT_CONTEXT_TOKENS
    compress_at: int = int(DEFAULT_CONTEXT_TOKENS * DEFAULT_COMPRESS_SHARE)
    # A cheaper model that writes the summaries. None if the agent's own model writes them.
    compress_by: ModelSpec | None = None
    # The spec does not set the window of a local model, so its server is asked. `compress_share` is then the part of
    # that window at which a conversation is compressed, None if `compress_at` is a fixed number.
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
    outside: ExternalAgentSettings = ExternalAgentSettings()
    skills: tuple[Skill, ...] = ()
    # Seconds until an unanswered question to a person is denied. None for no limit.
    ask_timeout_seconds: float | None = None
    # `subagents`: the names of the agents that it may give work to. `team`: those of them that exist, with the settings
    # they have in its runs.
    subagents: tuple[str, ...] = ()
    team: tuple[AgentSpec, ...] = ()

    @property
    def can_answer(self) -> bool:
        """Does the agent have a model or a program that can answer a prompt?"""
        return bool(self.models or self.acp)

    @property
    def asks_window(self) -> bool:
        """Is the window of its model not set, and can the model's server be asked?"""
        return self.window.is_assumed and bool(self.models) and _is_local(self.models[0])

    @property
    def model_name(self) -> str:
        """Return the name of the model or program that answers, as in records."""
        return self.models[0].name if self.models else f"{EXTERNAL}:{_name_program(self.acp)}" if self.acp else "nobody"

    @property
    def addresses(self) -> tuple[str, ...]:
        """List the addresses that the agent must reach, as HOST:PORT: those of its models, of its sub-agents' models,
        and of its servers with a URL."""
        urls = [one.base_url or PROVIDER_URLS[one.provider] for one in self._list_models()]
        urls += [server.url for server in self.mcp if server.url is not None]
        return tuple(dict.fromkeys(find_address(url) for url in urls))

    @property
    def secrets(self) -> tuple[str, ...]:
        """List the names of all secrets that the agent's models, fallback models and servers need,
        or its external program."""
        models, servers = self._list_models(), self.mcp
        keys = (*(one.key for one in models), *(one.key for one in servers), self.outside.key)
        named = (*(one for one in keys if one is not None), *(name for server in servers for name in server.secrets))
        return tuple(dict.fromkeys(named))

    def _list_models(self) -> tuple[ModelSpec, ...]:
        """List all models that may get a request in the agent's runs."""
        summary = (self.window.compress_by,) if self.window.compress_by is not None else ()
        return (*self.models, *summary, *(model for one in self.team for model in one.models))

    def find_subagent(self, name: str) -> AgentSpec | None:
        return next((one for one in self.team if one.name == name), None)


def fit_window(agent: AgentSpec, tokens: int) -> AgentSpec:
    """Return the agent with the window that its model's server reported. Conversation and answer fit into it
    together."""
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
    """Return the default limit of an answer for a window of this size."""
    return max(1, min(DEFAULT_MAX_OUTPUT_TOKENS, tokens // 4))


def _name_program(words: tuple[str, ...]) -> str:
    """Return the name of the agent program: some-agent for `node …/bin/some-agent --acp`, as node only starts it."""
    names = [word.rpartition("/")[2] for word in words if not _NO_NAME.fullmatch(word)]
    return next((name for name in names if not _STARTER.fullmatch(name)), words[0])


def prefer_model(agent: AgentSpec, name: str) -> AgentSpec | None:
    """Return the agent with this model first, as in a migrated session. None if the name is not a model's name.

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
        outside=ExternalAgentSettings(),
        window=window,
    )


def _is_local(model: ModelSpec) -> bool:
    return model.provider == "openai-compatible" and model.base_url is not None

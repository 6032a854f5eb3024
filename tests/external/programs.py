"""The real coding agents that `make test-acp` installs: how each is declared, as docs/agents.md tells it, but for where its model is found.

Each is pointed at the scripted provider on loopback, whose port is the only one it may connect to. What a model of theirs calls to write a file
differs, and so does what that is to their permissions: all of it stands here, and the tests know none of them by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from agents.provider import Call, Endpoint

INSTALLED = Path(__file__).parents[2] / ".acp"


class Program(Struct, frozen=True, kw_only=True):
    """One of them. `port` is one that it may listen on, for those that must."""

    name: str
    words: Callable[[str, int], tuple[str, ...]]
    settings: Callable[[Endpoint], dict[str, object]]
    write: Callable[[str, str], Call]
    # What writing a file is to our policies.
    tool: str = "edit"
    # Does it go on in its own session, or is it told anew?
    is_resumed: bool = True
    has_port: bool = False
    # Does it count the tokens of all its requests, and tell what they cost?
    has_count: bool = True
    has_cost: bool = False
    # The name under which its model knows a tool of the session's own server.
    own_tool: Callable[[str], str] | None = None

    @property
    def place(self) -> Path:
        return INSTALLED / self.name / "node_modules" / ".bin"


def _set_codex(provider: Endpoint) -> dict[str, object]:
    loop = {
        "name": "loop",
        "base_url": provider.base_url("responses"),
        "wire_api": "responses",
        "env_key": "OPENAI_API_KEY",
    }
    config = {"model": "scripted", "model_provider": "loop", "model_providers": {"loop": loop}}
    return {
        "key": "OPENAI_API_KEY",
        "login": "api-key",
        "mode": "read-only",
        "env": {"CODEX_CONFIG": json.dumps(config), "MODEL_PROVIDER": "loop"},
    }


def _set_opencode(provider: Endpoint) -> dict[str, object]:
    options = {"baseURL": provider.base_url("openai"), "apiKey": "{env:LOOP_API_KEY}"}
    loop = {
        "npm": "@ai-sdk/openai-compatible",
        "options": options,
        "models": {"scripted": {"limit": {"context": 100_000, "output": 8_000}, "cost": {"input": 3, "output": 15}}},
    }
    config = {
        "provider": {"loop": loop},
        "model": "loop/scripted",
        "permission": {"edit": "ask", "bash": "ask"},
        "autoupdate": False,
        "share": "disabled",
    }
    return {
        "key": "LOOP_API_KEY",
        "env": {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    }


CLAUDE = Program(
    name="claude",
    words=lambda folder, _: ("node", f"{folder}/claude-agent-acp"),
    settings=lambda provider: {
        "key": "ANTHROPIC_API_KEY",
        "env": {"ANTHROPIC_BASE_URL": provider.base_url("anthropic"), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    },
    write=lambda path, text: Call("Write", {"file_path": path, "content": text}),
    has_cost=True,
    own_tool=lambda tool: f"mcp__wakeful__{tool}",
)
OPENCODE = Program(
    name="opencode",
    words=lambda folder, port: (f"{folder}/opencode", "acp", "--port", str(port)),
    settings=_set_opencode,
    write=lambda path, text: Call("write", {"filePath": path, "content": text}),
    has_port=True,
    # Of the last one alone. Its config has a price.
    has_count=False,
    has_cost=True,
    own_tool=lambda tool: f"wakeful_{tool}",
)
CODEX = Program(
    name="codex",
    words=lambda folder, _: ("node", f"{folder}/codex-acp"),
    settings=_set_codex,
    # Its own sandbox cannot be made inside of ours: whatever it does, it asks to do without.
    write=lambda path, text: Call(
        "exec_command",
        {
            "cmd": f"printf '%s' '{text}' > {path}",
            "sandbox_permissions": "require_escalated",
            "justification": "to write the page",
        },
    ),
    tool="shell",
)
GEMINI = Program(
    name="gemini",
    words=lambda folder, _: ("node", f"{folder}/gemini", "--acp", "--skip-trust", "--model", "gemini-2.5-pro"),
    settings=lambda provider: {
        "key": "GEMINI_API_KEY",
        "login": "gemini-api-key",
        "files": "own",
        "env": {"GOOGLE_GEMINI_BASE_URL": provider.base_url("google")},
    },
    write=lambda path, text: Call("write_file", {"file_path": path, "content": text}),
    is_resumed=False,
)
PROGRAMS = (CLAUDE, OPENCODE, CODEX, GEMINI)

"""The real coding agents that `make test-acp` installs, and their declarations.

They follow docs/agents.md, except that each uses the scripted provider on loopback. Its port is the only one to which
the agent may connect. The agents differ in the call that writes a file, and in the permission for it. These differences
are all here, so the tests name no agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from agents.provider import Call, Endpoint

INSTALLED = Path(__file__).parents[2] / ".acp"


class Program(Struct, frozen=True, kw_only=True):
    """One agent. `port` is a port on which it may listen, for agents that need one."""

    name: str
    words: Callable[[str, int], tuple[str, ...]]
    settings: Callable[[Endpoint], dict[str, object]]
    write: Callable[[str, str], Call]
    # The tool under which our policies treat the writing of a file.
    tool: str = "edit"
    # True if it resumes its own session. Otherwise it gets our transcript.
    is_resumed: bool = True
    has_port: bool = False
    # True if it counts the tokens of all its requests, and reports their cost.
    has_count: bool = True
    has_cost: bool = False
    # The name of a tool of the session's own server, as its model sees it.
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
    # It counts the last request only. Its config has a price.
    has_count=False,
    has_cost=True,
    own_tool=lambda tool: f"wakeful_{tool}",
)
CODEX = Program(
    name="codex",
    words=lambda folder, _: ("node", f"{folder}/codex-acp"),
    settings=_set_codex,
    # Its own sandbox does not work inside of ours, so it asks to run each command without it.
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

"""Agents: the keys of a file in agents/, the refusals, and when a file is read again."""

import os
import re
from pathlib import Path

import pytest

from wakeful.core.spec.agent import (
    AgentLimits,
    AgentSpec,
    ExternalAgentSettings,
    McpServer,
    ModelSettings,
    ModelSpec,
    TokenWindow,
    prefer_model,
    split_model,
)
from wakeful.core.spec.budget import Amounts, Budget
from wakeful.specs.folder_reading import FileReading, FolderReading, read_folder
from wakeful.specs.spec_builder import Surroundings

CLAUDE = ModelSpec(provider="anthropic", model="claude-sonnet-4-5", key="ANTHROPIC_API_KEY")


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / "sessions.d" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(folder: Path, previous: FolderReading | None = None, **around: str) -> FolderReading:
    return read_folder(folder / "sessions.d", Surroundings(str(folder), **around), previous=previous)


def judge(folder: Path, text: str) -> FileReading:
    put(folder, "agents/a", text)
    return read(folder).files["agents/a.yaml"]


def agent(folder: Path, text: str) -> AgentSpec:
    found = judge(folder, text)
    assert found.agent is not None, found.problems
    return found.agent


def test_a_whole_agent_is_read_as_it_stands(tmp_path: Path) -> None:
    """Every key has its place in the value."""
    (tmp_path / "role.md").write_text("Be exact.\n")
    text = """
        prompt: {file: role.md}
        model: anthropic:claude-sonnet-4-5
        fallback: [openai:gpt-5-mini, {model: openai-compatible:llama3.2:3b, base_url: http://localhost:11434/v1}]
        settings: {temperature: 0.2, effort: high, max_output: 4_000}
        tools: {read: allow, shell: ask, mcp:gh: allow, mcp:gh/delete_repo: deny}
        mcp: {gh: [gh-mcp, --stdio], web: {url: https://mcp.example/v1, key: web-token}}
        budget: {run: {usd: 0.50}, day: {tokens: 1_000_000}}
        context: {tokens: 100_000, compress_at: 60%, compress_by: anthropic:claude-haiku-4-5}
        limits: {turns: 20, repeats: 2, silence: 10m}
        subagents: [reviewer, auditor, reviewer]
    """
    assert agent(tmp_path, "".join(line[8:] + "\n" for line in text.splitlines())) == AgentSpec(
        name="a",
        prompt="Be exact.\n",
        models=(
            CLAUDE,
            ModelSpec(provider="openai", model="gpt-5-mini", key="OPENAI_API_KEY"),
            ModelSpec(provider="openai-compatible", model="llama3.2:3b", base_url="http://localhost:11434/v1"),
        ),
        subagents=("reviewer", "auditor"),
        settings=ModelSettings(temperature=0.2, effort="high", max_output_tokens=4000),
        tools={"read": "allow", "shell": "ask", "mcp:gh": "allow", "mcp:gh/delete_repo": "deny"},
        mcp=(
            McpServer(name="gh", argv=("gh-mcp", "--stdio")),
            McpServer(name="web", url="https://mcp.example/v1", key="web-token"),
        ),
        budget=Budget(run=Amounts(usd=0.5), day=Amounts(tokens=1_000_000), timezone="UTC"),
        window=TokenWindow(
            tokens=100_000,
            compress_at=60_000,
            compress_by=ModelSpec(provider="anthropic", model="claude-haiku-4-5", key="ANTHROPIC_API_KEY"),
        ),
        limits=AgentLimits(turns=20, repeats=2, silence_seconds=600.0),
    )


def test_a_small_agent_has_its_defaults(tmp_path: Path) -> None:
    """A model alone is enough. The agent needs the usual key of the provider."""
    assert agent(tmp_path, "model: anthropic:claude-sonnet-4-5") == AgentSpec(name="a", models=(CLAUDE,))
    assert agent(tmp_path, "model: google:gemini-2.5-pro").secrets == ("GOOGLE_API_KEY",)
    assert agent(tmp_path, "model: openai-chat:gpt-4.1\nkey: house").secrets == ("house",)
    assert agent(tmp_path, "model: openai-compatible:x\nbase_url: http://127.0.0.1:1/v1").secrets == ()
    assert agent(tmp_path, "acp: [gemini, --acp]").acp == ("gemini", "--acp")


def test_an_external_agent_is_words_or_told_in_full(tmp_path: Path) -> None:
    """Its key is one of its secrets.

    A session that prefers a model of ours needs none of it.
    """
    found = agent(
        tmp_path,
        "acp: {command: [node, x/.bin/gemini, --acp], key: GEMINI_API_KEY, env: {A: b}, login: gemini-api-key, mode: plan, files: own}",
    )
    assert found.outside == ExternalAgentSettings(
        env={"A": "b"}, key="GEMINI_API_KEY", login="gemini-api-key", mode="plan", files="own"
    )
    assert (found.acp, found.model_name, found.secrets) == (
        ("node", "x/.bin/gemini", "--acp"),
        "acp:gemini",
        ("GEMINI_API_KEY",),
    )
    moved = prefer_model(found, "google:gemini-2.5-pro")
    assert moved is not None and (moved.outside, moved.secrets) == (ExternalAgentSettings(), ("GOOGLE_API_KEY",))
    assert agent(tmp_path, "acp: [some-agent]").outside == ExternalAgentSettings()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("[opencode, acp]", "opencode"), ("[/opt/x/bin/agent]", "agent"), ("[node, a/.bin/claude-agent-acp]", "claude-agent-acp"),
        ("[npx, -y, '@a/codex-acp']", "codex-acp"), ("[env, A=b/c, python3.12, -m, agent]", "agent"), ("[node]", "node"),
    ],
)  # fmt: skip
def test_an_external_agent_is_called_by_its_program_and_not_by_what_starts_it(
    tmp_path: Path, words: str, name: str
) -> None:
    assert agent(tmp_path, f"acp: {words}").model_name == f"acp:{name}"


def test_an_agent_without_a_model_owns_sessions_all_the_same(tmp_path: Path) -> None:
    """The agent answers no prompt. A session with a prompt is refused at the name of its agent."""
    put(tmp_path, "agents/hr", "prompt: Be careful.")
    put(tmp_path, "a", "agent: hr\nobjective: x\nrun: {command: ['true']}")
    put(tmp_path, "b", "objective: x\nagent: hr\nrun: {prompt: Do it.}")
    reading = read(tmp_path)
    assert list(reading.sessions) == ["a"] and not reading.agents["hr"].can_answer
    assert reading.refused == {
        "b": "sessions.d/b.yaml:2:8: agent 'hr' has neither a model nor acp, so nothing would answer the prompt;"
        " add model: PROVIDER:NAME to agents/hr.yaml"
    }


def test_a_model_of_the_same_provider_is_reached_as_the_first_is(tmp_path: Path) -> None:
    """No key is sent to an address that it was not named for."""
    text = "model: openai:a\nkey: house\nbase_url: https://h.example/v1\nfallback: "
    for fallback, key, url in (
        ("openai:b", "house", "https://h.example/v1"),
        ("{model: openai:b, key: other}", "other", "https://h.example/v1"),
        ("{model: openai:b, base_url: https://i.example}", "OPENAI_API_KEY", "https://i.example"),
        ("anthropic:c", "ANTHROPIC_API_KEY", None),
    ):
        second = agent(tmp_path, text + fallback).models[1]
        assert (second.key, second.base_url) == (key, url)


PROVIDERS = "anthropic, openai, openai-chat, openai-compatible, google"
WRONG = [
    ("promt: x", "1:1: unknown key 'promt' in this agent; did you mean 'prompt'?"),
    ("prompt: {fil: a}", "1:10: unknown key 'fil' in prompt; did you mean 'file'?"),
    ("prompt: {text: a, file: b}", "1:9: a prompt is text or {file: PATH}; write one of the two"),
    (
        "model: claude",
        f"1:8: model: 'claude' is no model; write PROVIDER:NAME, such as anthropic:claude-sonnet-4-5; providers are {PROVIDERS}",
    ),
    ("model: antropic:claude", "1:8: model: there is no provider 'antropic'; did you mean 'anthropic:claude'?"),
    (
        "model: openai-compatible:x",
        "1:8: openai-compatible:x needs base_url, the address where it is served, such as http://localhost:11434/v1",
    ),
    (
        "model: openai:a\nfallback: [openai:b, openai-compatible:c]",
        "2:22: openai-compatible:c needs base_url, the address where it is served, such as http://localhost:11434/v1",
    ),
    (
        "model: openai:a\nfallback: openai-compatible:c",
        "2:11: openai-compatible:c needs base_url, the address where it is served, such as http://localhost:11434/v1",
    ),
    ("model: openai:a\nfallback: {modle: openai:b}", "2:12: unknown key 'modle' in fallback; did you mean 'model'?"),
    (
        "model: openai:a\nfallback: [openai:b, {model: c}]",
        f"2:30: model: 'c' is no model; write PROVIDER:NAME, such as anthropic:claude-sonnet-4-5; providers are {PROVIDERS}",
    ),
    ("model: openai:a\nacp: [b]", "2:1: acp brings a model of its own; keep either model or acp"),
    ("key: k", "1:1: key is about a model, and this agent has none; add model: PROVIDER:NAME"),
    ("acp: [a]\nsettings: {effort: low}", "2:1: settings is about a model, and acp brings its own; remove it"),
    ("acp: claude code", "1:6: acp: a command is a list of words, never a shell string; write [claude, code]"),
    (
        "acp: {command: [a], key: sk-proj-12345678}",
        "1:26: this looks like the key itself; keep it with `wakeful secret set NAME`, change it where it was made, and write NAME here",
    ),
    ("acp: {command: [a], mod: x}", "1:21: unknown key 'mod' in acp; did you mean 'mode'?"),
    ("acp: {mode: x}", "1:6: key 'command' is missing; add it"),
    ("acp: {command: [a], files: hers}", "1:28: files is 'hers'; expected ours or own"),
    (
        "model: openai:a\nkey: sk-proj-12345678",
        "2:6: this looks like the key itself; keep it with `wakeful secret set NAME`, change it where it was made, and write NAME here",
    ),
    (
        "model: openai:a\nbase_url: https://me:word@h/",
        "2:11: base_url: an address holds no password; name the secret under key",
    ),
    (
        "model: openai:a\nbase_url: h/v1",
        "2:11: base_url: 'h/v1' is not an address; write http://HOST:PORT/PATH or https://…, with nothing behind ? or #",
    ),
    ("model: openai:a\nsettings: {efort: low}", "2:12: unknown key 'efort' in settings; did you mean 'effort'?"),
    ("model: openai:a\nsettings: {effort: max}", "2:20: effort is 'max'; expected low, medium or high"),
    (
        "model: openai:a\nsettings: {temperature: hot}",
        "2:25: temperature: 'hot' is no temperature; write a number from 0 to 2",
    ),
    ("model: openai:a\nsettings: {max_output: 0}", "2:24: max_output is 0; expected at least 1"),
    ("tools: {bash: maybe}", "1:15: bash is 'maybe'; expected allow, ask or deny"),
    ("tools: {serch: allow}", "1:9: there is no tool 'serch'; did you mean 'search'?"),
    ("mcp: {git: [x]}\ntools: {mcp:gitt: allow}", "2:9: there is no server 'gitt'; did you mean 'mcp:git'?"),
    ("tools: {mcp:web/get: allow}", "1:9: there is no server 'web'; declare it under mcp: {web: […]}"),
    (
        "mcp: {gh: gh mcp}",
        "1:11: gh: 'gh mcp' is no address; write https://…, or the program as a list of words: [gh, mcp]",
    ),
    (
        "mcp: {gh: {cmd: [x]}}",
        "1:12: unknown key 'cmd' in gh; expected one of command, url, key, env, secrets, start_timeout",
    ),
    (
        "mcp: {gh: {url: 'https://a', env: {A: b}}}",
        "1:30: env are for a program, and this server is an address; remove them, or name a secret under key",
    ),
    (
        "mcp: {gh: {command: [x], env: {TOKEN: sk-abc123}}}",
        "1:39: this looks like a secret itself; keep it with `wakeful secret set TOKEN`, change it where it was made, and write secrets: [TOKEN]",
    ),
    (
        "mcp: {gh: {command: [x], env: {A: b}, secrets: [A]}}",
        "1:32: A is a variable and a secret at once; keep one of the two",
    ),
    (
        "mcp: {gh: {command: [x], secrets: [gh-token]}}",
        "1:36: 'gh-token' becomes a variable of the program, and cannot be one; use letters, digits and _, no digit first",
    ),
    (
        "mcp: {gh: {command: [x], start_timeout: soon}}",
        "1:41: start_timeout: 'soon' is not a duration; write one number and its unit, such as 500ms, 30s, 5m, 2h or 7d",
    ),
    ("mcp: {g h: [x]}", "1:7: 'g h' cannot name a server; use letters, digits, - and _, a letter first"),
    ("mcp: {gh: {command: [x], key: k}}", "1:26: a key is sent to an address, and this server is a program; remove it"),
    ("budget: {week: {usd: 1}}", "1:10: unknown key 'week' in budget; expected one of run, hour, day, month"),
    (
        "model: openai:a\ncontext: {tokens: 5000, compress_at: 6000}",
        "2:38: compress_at is 6,000 tokens, and the context has 5,000; write a number between, or a part such as 80%",
    ),
    ("limits: {turns: 0}", "1:17: turns is 0; expected at least 1"),
    ("limits: {silence: 0s}", "1:19: silence: 0 is too short here; write a duration such as 30s or 5m"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_mistake_in_an_agent_is_named_where_it_stands(text: str, words: str, tmp_path: Path) -> None:
    """Each mistake has its line, its column and the remedy. The key itself is never repeated."""
    found = judge(tmp_path, text)
    assert (found.agent, [str(one) for one in found.problems]) == (None, [f"sessions.d/agents/a.yaml:{words}"])


def test_a_key_that_others_would_overhear_is_warned_about(tmp_path: Path) -> None:
    """Unencrypted is fine on this machine, and where no key is sent."""
    text = "model: openai-compatible:x\nbase_url: http://{}/v1\n"
    assert not judge(tmp_path, text.format("box.lan:8000")).warnings
    assert not judge(tmp_path, text.format("127.0.0.1:8000") + "key: house").warnings
    [warning] = judge(tmp_path, text.format("box.lan:8000") + "key: house").warnings
    assert str(warning).startswith(
        "sessions.d/agents/a.yaml:2:11: house would be sent to http://box.lan:8000/v1 unencrypted"
    )


# -- the prompt in a file of its own --------------------------------------------------------------


def test_a_prompt_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """The agent's own file did not change. An unchanged prompt keeps the same value."""
    (tmp_path / "role.md").write_text("One.")
    put(tmp_path, "agents/a", "prompt: {file: role.md}\nmodel: anthropic:claude-sonnet-4-5")
    first = read(tmp_path)
    (tmp_path / "role.md").write_text("Two.")
    second = read(tmp_path, first)
    assert (first.agents["a"].prompt, second.agents["a"].prompt) == ("One.", "Two.")
    (tmp_path / "role.md").unlink()
    third = read(tmp_path, second)
    assert third.agents == {} and "cannot be read: No such file" in third.refused["agents/a"]
    (tmp_path / "role.md").write_text("Three.")
    assert read(tmp_path, third).agents["a"].prompt == "Three."


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../role.md", "lies outside of the project"), ("/etc/passwd", "lies outside of the project"), ("link.md", "lies outside of the project"),
        ("state/x", "lies outside of the project"), ("nope.md", "cannot be read: No such file"), ("sessions.d", "is a folder"),
        ("fifo", "is no regular file"), ("empty.md", "is empty"), ("huge.md", "has more than 256 KB"), ("bytes.md", "is not UTF-8 text"),
    ],
)  # fmt: skip
def test_what_is_no_prompt_of_the_project_is_refused(path: str, words: str, tmp_path: Path) -> None:
    """A spec that others wrote must not send a person's keys to a model."""
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "x").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "huge.md").write_text("x" * 300_000)
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe")
    put(tmp_path, "agents/a", f"prompt: {{file: {path}}}")
    refused = read(tmp_path, state=str(tmp_path / "state")).refused["agents/a"]
    assert refused.startswith("sessions.d/agents/a.yaml:1:16: ") and words in refused


# -- another model --------------------------------------------------------------------------------


def test_a_session_can_prefer_another_model(tmp_path: Path) -> None:
    """A model that the agent declares is reached as declared, and another one as usual for its provider.

    The remaining models are the fallback.
    """
    found = agent(tmp_path, "model: openai:a\nkey: house\nfallback: anthropic:b")
    first, second = found.models
    assert prefer_model(found, "anthropic:b").models == (second, first)
    assert prefer_model(found, "openai:c").models[0] == ModelSpec(provider="openai", model="c", key="house")
    assert prefer_model(found, "google:d").models[0].key == "GOOGLE_API_KEY"
    assert prefer_model(found, "gpt") is None


@pytest.mark.parametrize(
    "text", ["", "openai", "openai:", "openai: x", "Openai:x", "openai:-x", "x:y", "openai:a b", "openai:" + "x" * 300]
)
def test_what_is_no_model_is_told_so(text: str) -> None:
    """A model is a provider and a name, and nothing else."""
    assert split_model(text) is None


def test_what_the_docs_tell_to_paste_is_right(tmp_path: Path) -> None:
    """Every agent of docs/agents.md is valid, external ones too."""
    text = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    found = re.findall(r"```yaml\n# sessions\.d/agents/(\w+)\.yaml[^\n]*\n(.*?)```", text, re.DOTALL)
    assert {"docs", "local", "reviewer", "claude", "opencode", "codex", "gemini"} == {name for name, _ in found}
    for name, body in found:
        judged = judge(tmp_path, body)
        assert judged.agent is not None, (name, judged.problems)


def test_an_external_agent_gives_no_work_to_others(tmp_path: Path) -> None:
    """An external agent has its own tools, and ours are not among them."""
    (problem,) = judge(tmp_path, "acp: [some-agent]\nsubagents: [reviewer]\n").problems
    assert "an external agent gives no work to others here" in problem.text and problem.line == 2

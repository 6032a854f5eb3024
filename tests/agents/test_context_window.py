"""The daemon asks a server of local models for the context window, as vLLM, llama.cpp and Ollama document it.

A key in the agent's file takes precedence.
"""

from __future__ import annotations

import pytest

from agents.provider import Call, Provider, Say, Turns
from agents.provider.local_model_servers import LlamaCpp, Ollama, Vllm
from e2e.box import Box
from wait_conditions import eventually
from wakeful.agents.models.context_window import find_window
from wakeful.core.spec.agent import AgentSpec, ModelSettings, ModelSpec, TokenWindow, fit_window, prefer_model

SERVERS = {
    "vLLM": (Vllm("small", 8192), 8192, "/v1/models"),
    "llama.cpp": (LlamaCpp("small", 4096), 4096, "/props"),
    "Ollama, loaded": (Ollama("small", 16384, is_loaded=True), 16384, "/api/ps"),
    "Ollama, not loaded": (Ollama("small", 32768), 32768, "/api/ps"),
    "Ollama, by the model's file": (Ollama("small", 4096, num_ctx=65536), 65536, "/api/show"),
}


def ask(provider: Provider) -> ModelSpec:
    return ModelSpec(provider="openai-compatible", model="small", base_url=f"{provider.url}/v1")


@pytest.mark.asyncio
@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_tells_how_much_its_model_takes_in(provider: Provider, server: str) -> None:
    """The result is the window with which the server runs the model, not the window of its training."""
    provider.local, tokens, place = SERVERS[server]
    found = await find_window(ask(provider), None, 10.0)
    assert found.tokens == tokens and found.source.endswith(place)


@pytest.mark.asyncio
async def test_a_server_that_does_not_tell_and_one_that_is_not_there_are_no_fault(provider: Provider) -> None:
    """The window is unknown and the answer names the address. An invalid number counts as unknown."""
    assert (await find_window(ask(provider), None, 10.0)).tokens is None
    provider.local = Vllm("small", 0)
    found = await find_window(ask(provider), None, 10.0)
    assert found.tokens is None and provider.url in found.source
    provider.close()
    assert (await find_window(ask(provider), None, 10.0)).tokens is None


def test_an_agent_fits_a_window_with_its_answer() -> None:
    """A share stays a share, a number is limited to the window, and the answer leaves room for the question."""
    assumed = AgentSpec(
        name="a",
        window=TokenWindow(is_assumed=True, compress_share=0.5),
        settings=ModelSettings(max_output_tokens=8192),
    )
    small = fit_window(assumed, 4096)
    assert (small.window.tokens, small.window.compress_at, small.settings.max_output_tokens) == (4096, 2048, 1024)
    by_number = AgentSpec(name="a", window=TokenWindow(compress_at=30_000, is_assumed=True))
    assert (
        fit_window(by_number, 100_000).window.compress_at == 30_000
        and fit_window(by_number, 10_000).window.compress_at == 8_000
    )


def test_a_session_that_moves_to_a_local_model_or_away_is_asked_for_the_right_one() -> None:
    """A window that a key sets is not asked for."""
    local = ModelSpec(provider="openai-compatible", model="small", base_url="http://localhost:1/v1")
    house = ModelSpec(provider="anthropic", model="m")
    at_home = AgentSpec(name="a", models=(local, house), window=TokenWindow(is_assumed=True, compress_share=0.8))
    assert at_home.asks_window and not prefer_model(at_home, house.name).asks_window  # type: ignore[union-attr]
    moved = prefer_model(AgentSpec(name="a", models=(house, local)), local.name)
    assert moved is not None and moved.asks_window and fit_window(moved, 10_000).window.compress_at == 8_000
    declared = prefer_model(
        AgentSpec(name="a", models=(house, local), window=TokenWindow(tokens=50_000, compress_at=40_000)), local.name
    )
    assert declared is not None and not declared.asks_window


@pytest.mark.long
def test_a_run_goes_by_the_window_that_its_server_tells(box: Box, provider: Provider) -> None:
    """The window is recorded with the run and shown before and after.

    If the agent's file sets the window, the server is not asked.
    """
    provider.local = LlamaCpp("small", 9000)
    provider.play(Turns((Call("read", {"path": "code.py"}), Say("done")), by="message"))
    (box.specs / "agents").mkdir()
    box.write("code.py", "x = 1  # and more words\n" * 4_000)
    agent = box.specs / "agents" / "docs.yaml"
    agent.write_text(f"model: openai-compatible:small\nbase_url: {provider.url}/v1\n")
    box.spec(
        "docs",
        "agent: docs\nobjective: Look.\nbindings: {code: {file: code.py, settle: 0ms}}\nfirst: adopt\nrun: {prompt: Look.}\n",
    )
    box.start()
    box.wait_at_rest("docs")
    assert "of 200,000 tokens (the window: its server is asked when it runs)" in box.words("context", "docs", "--brief")
    box.ask("activate", "docs", "--wait")
    [assembled] = [record["payload"] for record in box.log("docs") if record["kind"] == "prompt_assembled"]
    assert (assembled["window_tokens"], assembled["window_source"]) == (9000, f"{provider.url}/props")
    assert provider.requests[0].settings["max_tokens"] == 2250
    # A result may have a quarter of a request, and the file has far more.
    assert len(provider.requests[-1].results[0].content) < 9000 * 0.8 * 0.25 * 4
    shown = box.words("context", "docs", "--brief")
    assert (
        f"of 9,000 tokens (the window: {provider.url}/props), by estimate" in shown
        and "compressed from 7,200 on" in shown
    )
    assert f"of 9,000 ({provider.url}/props)" in box.words("log", "docs")
    asked = len(provider.looks)
    agent.write_text(f"model: openai-compatible:small\nbase_url: {provider.url}/v1\ncontext: {{tokens: 12_000}}\n")
    eventually(lambda: "of 12,000 tokens, by estimate" in box.words("context", "docs", "--brief"))
    box.ask("activate", "docs", "--wait")
    assert len(provider.looks) == asked
    assert [
        record["payload"]["window_tokens"] for record in box.log("docs") if record["kind"] == "prompt_assembled"
    ] == [9000, 12_000]

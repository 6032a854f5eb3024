"""Agents in the core: a session whose agent cannot answer sleeps with a reason, and wakes when the agent can."""

import msgspec
import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import read, session
from wakeful.core.agents.prices import find_cost, find_worst_case
from wakeful.core.agents.turns import TokenUsage
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.acting_agent import find_acting, find_owner, list_agent_keys, list_secrets_of_start
from wakeful.core.looking.targets import ServiceTarget, target_of
from wakeful.core.record.observations import AgentsRead, SecretsSeen
from wakeful.core.spec.agent import AgentSpec, McpServer, ModelSpec
from wakeful.core.spec.bindings import ServiceBinding
from wakeful.core.spec.budget import Price
from wakeful.core.spec.session import PromptRun, SessionSpec, Settings

CLAUDE = ModelSpec(provider="anthropic", model="claude-sonnet-4-5", key="ANTHROPIC_API_KEY")
LOCAL = ModelSpec(provider="openai-compatible", model="small", base_url="http://localhost:1/v1")
DOCS = AgentSpec(name="docs", models=(CLAUDE,))
NEEDS_KEY = "needs a key: ANTHROPIC_API_KEY (wakeful secret set ANTHROPIC_API_KEY)"
HAS_KEY = SecretsSeen({"ANTHROPIC_API_KEY": None})


def asking(name: str = "s", **keys: object) -> SessionSpec:
    return session(name, read("in"), run=PromptRun(prompt="Do it."), agent="docs", **keys)


def test_a_session_without_a_key_sleeps_and_the_others_go_on() -> None:
    """The change waits, and one run follows when the key is there. Command sessions of the same agent need no key."""
    world = World(asking(), session("other", read("in"), agent="docs"), files={"in": "1"})
    world.observe(AgentsRead(agents={"docs": DOCS}))
    world.rest()
    assert (world.starts("s"), world.hold("s"), world.starts("other")) == (0, NEEDS_KEY, 1)
    world.observe(SecretsSeen({"ANTHROPIC_API_KEY": "/secrets/ANTHROPIC_API_KEY is open to others; chmod 600"}))
    assert world.hold("s") == "/secrets/ANTHROPIC_API_KEY is open to others; chmod 600"
    world.observe(HAS_KEY)
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)


@pytest.mark.parametrize(
    ("read_now", "words"),
    [
        (AgentsRead(), "its agent docs does not exist: write agents/docs.yaml"),
        (
            AgentsRead(refused={"docs": "agents/docs.yaml:1:1: no\nmore"}),
            "its agent docs cannot be used: agents/docs.yaml:1:1: no",
        ),
        (
            AgentsRead(agents={"docs": AgentSpec(name="docs")}),
            "its agent docs has neither a model nor acp: add model: PROVIDER:NAME to agents/docs.yaml",
        ),
    ],
)
def test_a_session_that_nobody_would_answer_sleeps_with_words(read_now: AgentsRead, words: str) -> None:
    """Not even an activation starts it. It runs once when its agent is there."""
    world = World(asking(), files={"in": "1"})
    world.observe(HAS_KEY)
    world.observe(read_now)
    world.call(calls.Activate(name="s"))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (0, words)
    world.observe(AgentsRead(agents={"docs": DOCS}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)


def test_an_edited_agent_wakes_nobody_and_one_that_goes_holds_the_next_run() -> None:
    """The last good version of a broken agent file stays in force. The core is told of both and uses that version."""
    world = World(asking(), files={"in": "1"})
    world.observe(HAS_KEY)
    world.observe(AgentsRead(agents={"docs": DOCS}))
    world.rest()
    world.observe(
        AgentsRead(
            agents={"docs": msgspec.structs.replace(DOCS, prompt="Be brief.")},
            refused={"docs": "agents/docs.yaml:1:1: no"},
        )
    )
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)
    world.observe(AgentsRead())
    world.write("in", "2")
    world.rest()
    assert world.starts("s") == 1 and world.hold("s") is not None


def test_a_migrated_session_needs_what_its_new_agent_and_model_need() -> None:
    """The keys of its declared agent are not needed any more."""
    world = World(asking(), files={"in": "1"})
    world.observe(AgentsRead(agents={"docs": DOCS, "house": AgentSpec(name="house", models=(LOCAL,))}))
    assert world.hold("s") == NEEDS_KEY
    world.call(calls.Migrate(name="s", agent="house"))
    world.rest()
    assert (world.hold("s"), world.starts("s")) == (None, 1)
    world.call(calls.Migrate(name="s", agent="house", model="openai:gpt-5"))
    world.rest()
    assert world.hold("s") == "needs a key: OPENAI_API_KEY (wakeful secret set OPENAI_API_KEY)"
    owner = find_owner(world.core, world.session("s"))
    assert owner is not None and [one.name for one in owner.models] == ["openai:gpt-5", "openai-compatible:small"]


def test_a_session_needs_its_own_secrets_and_its_agents_keys() -> None:
    """Each secret is listed once. The secrets of the spec come first in the list and in the hold's words."""
    world = World(asking(secrets=("token", "ANTHROPIC_API_KEY")), files={"in": "1"})
    world.observe(AgentsRead(agents={"docs": DOCS}))
    assert list_secrets_of_start(world.core, world.session("s")) == ("token", "ANTHROPIC_API_KEY")
    assert world.hold("s") == "needs a secret: token (wakeful secret set token)"


def test_a_key_of_a_fallback_is_needed_as_well() -> None:
    """Otherwise the missing key would show only when the fallback is used."""
    world = World(asking(), files={"in": "1"})
    openai = ModelSpec(provider="openai", model="gpt-5", key="OPENAI_API_KEY")
    world.observe(AgentsRead(agents={"docs": msgspec.structs.replace(DOCS, models=(CLAUDE, openai))}))
    world.observe(HAS_KEY)
    world.rest()
    assert world.hold("s") == "needs a key: OPENAI_API_KEY (wakeful secret set OPENAI_API_KEY)"


# -- slots ----------------------------------------------------------------------------------------


def test_agents_have_slots_of_their_own() -> None:
    """Agents and commands do not take each other's slots. A queued session names the kind of slot it waits for."""
    asking_ones = [asking(name) for name in ("a1", "a2", "a3")]
    world = World(
        *asking_ones,
        session("c1", read("in")),
        session("c2", read("in")),
        files={"in": "1"},
        settings=Settings(concurrency=1, agent_concurrency=2),
    )
    world.observe(AgentsRead(agents={"docs": AgentSpec(name="docs", models=(LOCAL,))}))
    world.look()
    world.advance(1.0)
    world.look()
    running = {name for name in ("a1", "a2", "a3", "c1", "c2") if world.is_running(name)}
    assert running == {"a1", "a2", "c1"}
    assert (world.queued("a3"), world.queued("c2")) == ("a slot for agents", "a slot")
    assert world.core.view_slots() == {"commands": {"used": 1, "of": 1}, "agents": {"used": 2, "of": 2}}
    world.set(Settings(concurrency=1, agent_concurrency=3))
    assert world.is_running("a3") and not world.is_running("c2")
    world.rest()
    assert [world.starts(name) for name in ("a1", "a2", "a3", "c1", "c2")] == [1, 1, 1, 1, 1]
    assert world.core.view_slots()["agents"]["used"] == 0


# -- prices ---------------------------------------------------------------------------------------

PRICES = {
    "openai:a": Price(input=2.0, cached=0.5, output=8.0),
    "openai:a-b*": Price(input=4.0, output=8.0),
    "openai-compatible:*": Price(input=0.0, output=0.0),
}


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("openai:a", 2.0 * 0.9 + 0.5 * 0.1 + 8.0), ("openai-chat:a", 2.0 * 0.9 + 0.5 * 0.1 + 8.0), ("openai:a-2025-08-07", 2.0 * 0.9 + 0.5 * 0.1 + 8.0),
        ("openai:a-bc", 12.0), ("openai-compatible:x", 0.0), ("openai:a-pro", None), ("anthropic:a", None),
    ],
)  # fmt: skip
def test_an_answer_costs_what_its_model_costs(model: str, usd: float | None) -> None:
    """A price is found by name, with or without date, or by prefix.

    A model without a price is not free: its cost is unknown.
    """
    usage = TokenUsage(input=1_000_000, output=1_000_000, cached=100_000)
    assert find_cost(PRICES, model, usage) == (None if usd is None else pytest.approx(usd))


def test_cache_reads_and_writes_cost_their_own_price() -> None:
    """Each part of the input is charged once, at its own price. Without such a price, it costs as other input does."""
    price = Price(input=4, output=10, cached=1, cache_write=5)
    usage = TokenUsage(input=1_000_000, output=100_000, cached=500_000, cache_written=300_000)
    assert find_cost({"anthropic:m": price}, "anthropic:m", usage) == pytest.approx(0.2 * 4 + 0.5 * 1 + 0.3 * 5 + 1)
    assert find_cost({"anthropic:m": Price(input=4, output=10)}, "anthropic:m", usage) == pytest.approx(4 + 1)


def test_the_worst_case_is_never_less_than_what_it_comes_to() -> None:
    """The worst case takes all input at the highest price, and the longest answer."""
    prices = {**PRICES, "anthropic:m": Price(input=4, output=10, cached=1, cache_write=5)}
    for model in ("openai:a", "openai:a-bc", "openai-compatible:x", "anthropic:m"):
        worst = find_worst_case(prices, model, 1000, 500)
        for cached, written, made in ((0, 0, 500), (0, 1000, 500), (1000, 0, 0), (5000, 5000, 500)):
            cost = find_cost(prices, model, TokenUsage(input=1000, output=made, cached=cached, cache_written=written))
            assert worst is not None and cost is not None and cost <= worst
    assert find_worst_case(prices, "google:x", 1, 1) is None


def test_a_session_that_binds_servers_gets_those_and_no_others() -> None:
    """It does not need the keys of the other servers either.

    A session that binds none gets all servers of its agent.
    """
    servers = (McpServer(name="gh", url="https://gh", key="GH"), McpServer(name="web", url="https://web", key="WEB"))
    agent = AgentSpec(
        name="docs", models=(ModelSpec(provider="openai-compatible", model="m", base_url="http://x"),), mcp=servers
    )
    run = PromptRun(prompt="x", retries=0)
    bound = session("some", read("a"), ServiceBinding(name="gh", url="mcp:gh", wake=False), run=run, agent="docs")
    world = World(bound, session("all", read("a"), run=run, agent="docs"), files={"a": "1"})
    world.observe(AgentsRead(agents={"docs": agent}))
    found = {name: find_acting(world.core, world.core.state.by_name(name))[0] for name in ("some", "all")}
    assert found["all"] == agent
    assert found["some"] is not None and found["some"].mcp == servers[:1] and found["some"].secrets == ("GH",)
    assert list_agent_keys(world.core, world.core.state.by_name("some")) == ("GH",)


def test_while_a_bound_server_is_down_the_session_sleeps() -> None:
    """An MCP server is a service like any other. The servers of two agents are looked at separately."""
    agent = AgentSpec(
        name="docs",
        models=(ModelSpec(provider="openai-compatible", model="m", base_url="http://x"),),
        mcp=(McpServer(name="gh", url="https://gh"),),
    )
    spec = session(
        "s",
        read("a"),
        ServiceBinding(name="gh", url="mcp:gh", wake=False),
        run=PromptRun(prompt="x", retries=0),
        agent="docs",
    )
    world = World(files={"a": "1"})
    world.services["mcp:gh"] = "down"
    world.observe(AgentsRead(agents={"docs": agent}))
    world.declare(spec)
    world.look()
    assert world.hold("s") == "service gh is down: connection refused" and world.starts("s") == 0
    world.services["mcp:gh"] = "up"
    world.hint_kind(ServiceTarget)
    world.look()
    assert world.starts("s") == 1
    one, other = (target_of(replace(spec, agent=name), spec.bindings[1]) for name in ("docs", "other"))
    assert one is not None and other is not None and one.key != other.key

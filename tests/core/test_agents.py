"""Agents as the core knows them: who could not answer sleeps with words, and wakes by itself when somebody can."""

import msgspec
import pytest
from core.specs import read, session
from core.world import World

from wakeful.core import calls
from wakeful.core.agency import find_owner
from wakeful.core.agent import AgentSpec, ModelSpec
from wakeful.core.observation import AgentsRead, SecretsSeen
from wakeful.core.owners import list_needed
from wakeful.core.spec import PromptRun, SessionSpec

CLAUDE = ModelSpec(provider="anthropic", model="claude-sonnet-4-5", key="ANTHROPIC_API_KEY")
LOCAL = ModelSpec(provider="openai-compatible", model="small", base_url="http://localhost:1/v1")
DOCS = AgentSpec(name="docs", models=(CLAUDE,))
NEEDS_KEY = "needs a key: ANTHROPIC_API_KEY (wakeful secret set ANTHROPIC_API_KEY)"
HAS_KEY = SecretsSeen({"ANTHROPIC_API_KEY": None})


def asking(name: str = "s", **keys: object) -> SessionSpec:
    return session(name, read("in"), run=PromptRun(prompt="Do it."), agent="docs", **keys)


def test_a_session_without_a_key_sleeps_and_the_others_go_on() -> None:
    """The change waits; one run follows when the key came. The agent's own command sessions need none."""
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
        (AgentsRead(refused={"docs": "agents/docs.yaml:1:1: no\nmore"}), "its agent docs cannot be used: agents/docs.yaml:1:1: no"),
        (AgentsRead(agents={"docs": AgentSpec(name="docs")}), "its agent docs has neither a model nor acp: add model: PROVIDER:NAME to agents/docs.yaml"),
    ],
)
def test_a_session_that_nobody_would_answer_sleeps_with_words(read_now: AgentsRead, words: str) -> None:
    """Not even a person's wish starts it; it runs once when its agent is there."""
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
    """A bad file keeps what it said before in force: both are told, and the value counts."""
    world = World(asking(), files={"in": "1"})
    world.observe(HAS_KEY)
    world.observe(AgentsRead(agents={"docs": DOCS}))
    world.rest()
    world.observe(AgentsRead(agents={"docs": msgspec.structs.replace(DOCS, prompt="Be brief.")}, refused={"docs": "agents/docs.yaml:1:1: no"}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)
    world.observe(AgentsRead())
    world.write("in", "2")
    world.rest()
    assert world.starts("s") == 1 and world.hold("s") is not None


def test_a_migrated_session_needs_what_its_new_agent_and_model_need() -> None:
    """The keys of its declared agent are nobody's business then."""
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
    """Each once, and words for what its spec names come first."""
    world = World(asking(secrets=("token", "ANTHROPIC_API_KEY")), files={"in": "1"})
    world.observe(AgentsRead(agents={"docs": DOCS}))
    assert list_needed(world.core, world.session("s")) == ("token", "ANTHROPIC_API_KEY")
    assert world.hold("s") == "needs a secret: token (wakeful secret set token)"


def test_a_key_of_a_fallback_is_needed_as_well() -> None:
    """Else the night it is turned to would be the night it is missed."""
    world = World(asking(), files={"in": "1"})
    openai = ModelSpec(provider="openai", model="gpt-5", key="OPENAI_API_KEY")
    world.observe(AgentsRead(agents={"docs": msgspec.structs.replace(DOCS, models=(CLAUDE, openai))}))
    world.observe(HAS_KEY)
    world.rest()
    assert world.hold("s") == "needs a key: OPENAI_API_KEY (wakeful secret set OPENAI_API_KEY)"

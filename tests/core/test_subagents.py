"""Sub-agents in the simulated world: which there are, and what they may do and spend.

Their conversations are separate from that of the run.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.test_agent_runs import DOCS, answer, end, last, make_world, post, request, the, thinking
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import SubSpent, SubWork, ToolCall, WroteFile
from wakeful.core.deciding.acting_agent import list_secrets_of_start, narrow_for_sub
from wakeful.core.record import events as ev
from wakeful.core.record.observations import AgentsRead
from wakeful.core.spec.agent import AgentLimits, AgentSpec, McpServer, ModelSpec, ToolPolicy
from wakeful.core.spec.budget import Amounts, Budget
from wakeful.errors import CallerError

OTHER = ModelSpec(provider="openai", model="o", base_url="https://models.example:8443/v1")
AUDITOR = AgentSpec(
    name="auditor",
    models=(OTHER,),
    mcp=(McpServer(name="web", argv=("web",)),),
    subagents=("docs",),
    budget=Budget(day=Amounts(tokens=1_000)),
)
LEADER = replace(DOCS, subagents=("auditor", "nobody", "program"))
SUB = SubWork(call="c1", agent="auditor")


def make_team_world(auditor: AgentSpec = AUDITOR, leader: AgentSpec = LEADER, **keys: object) -> World:
    return make_world(thinking(**keys), agents=(leader, auditor, AgentSpec(name="program", acp=("other-agent",))))


def ask(world: World, turn: int = 1, taken: int = 100, made: int = 50) -> None:
    post(world, replace(request(turn, taken, made), sub=SUB))


def tell(world: World, turn: int = 1, *, tokens: int = 30) -> None:
    post(world, replace(answer(turn, tokens=tokens), sub=SUB))


def test_a_run_has_the_sub_agents_that_there_are_and_what_they_need() -> None:
    """Undeclared agents and external programs are left out. A sub-agent has no servers and no sub-agents."""
    run = the(make_team_world()).run
    assert run is not None and run.agent is not None
    (member,) = run.agent.team
    assert (member.name, member.mcp, member.subagents, member.team) == ("auditor", (), (), ())
    assert "models.example:8443" in run.agent.addresses


@pytest.mark.parametrize(
    ("given", "own", "expected"),
    [
        ({}, {"shell": "allow"}, {"shell": "deny"}),
        ({"shell": "allow"}, {"shell": "allow"}, {"shell": "allow"}),
        ({"shell": "allow"}, {}, {"shell": "deny"}),
        ({"write": "deny"}, {}, {"write": "deny"}),
        ({"write": "ask"}, {"write": "allow"}, {"write": "deny"}),
        ({}, {"edit": "ask", "read": "allow"}, {"edit": "deny", "read": "allow"}),
    ],
)
def test_a_sub_agent_has_no_tool_that_its_caller_has_not_and_asks_nobody(
    given: dict[str, ToolPolicy], own: dict[str, ToolPolicy], expected: dict[str, str]
) -> None:
    policies = narrow_for_sub(given, replace(AUDITOR, tools=own))
    assert expected.items() <= policies.items()
    assert [policies[name] for name in ("delegate", "ask_person", "hand_off", "todo")] == ["deny"] * 4


def test_what_a_sub_agent_takes_counts_for_all_who_pay_and_is_told_as_its_own() -> None:
    """Its tokens are charged to the session, to its caller and to itself.

    Its turns do not count as turns of the run, and its words are not in the run's conversation.
    """
    world = make_team_world(
        leader=replace(LEADER, budget=Budget(day=Amounts(tokens=5_000))), budget=Budget(day=Amounts(tokens=9_000))
    )
    post(world, request(), answer(tokens=40, call=ToolCall(id="c1", name="delegate", arguments="{}")))
    before = the(world)
    ask(world)
    tell(world, tokens=30)
    after = the(world)
    assert before.run is not None and after.run is not None
    assert (after.knowledge.conversation, after.knowledge.size_tokens, after.run.progress.turns) == (
        before.knowledge.conversation,
        before.knowledge.size_tokens,
        1,
    )
    assert after.tally.spent["day"].tokens == 70
    assert {name: spent["day"].tokens for name, spent in after.tally.agents_spent.items()} == {
        "docs": 70,
        "auditor": 30,
    }
    # A request without an answer is charged at its worst case, also to the sub-agent.
    ask(world, 2)
    end(world)
    finished = last(world, ev.RunFinished)
    assert finished.usage.tokens == 220 and finished.subagents == {
        "auditor": SubSpent(tokens=180, estimated_tokens=150)
    }
    assert {name: spent["day"].tokens for name, spent in the(world).tally.agents_spent.items()} == {
        "docs": 220,
        "auditor": 180,
    }


def test_a_write_of_a_sub_agent_is_known_as_any_of_the_run() -> None:
    """A call that has begun may have written. Once it returns, the written files are known."""
    world = make_team_world()
    call = ToolCall(id="w1", name="write", arguments="{}")
    post(world, work.CallTool(call=call, sub=SUB))
    assert the(world).run.progress.writing == ("w1",)  # type: ignore[union-attr]
    wrote = WroteFile(path="docs.md", digest="d1")
    post(world, work.ReturnTool(call="w1", name="write", text="written", wrote=(wrote,), sub=SUB))
    progress = the(world).run.progress  # type: ignore[union-attr]
    assert progress.writing == () and progress.wrote["docs.md"].digest == "d1"


@pytest.mark.parametrize(
    ("auditor", "words"),
    [
        (replace(AUDITOR, limits=AgentLimits(turns=1)), "took 1 turns and did not come to an end"),
        (replace(AUDITOR, budget=Budget(run=Amounts(tokens=200))), "agent auditor: budget of the run"),
        (replace(AUDITOR, budget=Budget(day=Amounts(tokens=160))), "agent auditor: budget of the day"),
    ],
)
def test_a_limit_of_a_sub_agent_ends_its_work_and_not_the_run(auditor: AgentSpec, words: str) -> None:
    world = make_team_world(auditor)
    ask(world)
    tell(world, tokens=60)
    ask(world, 2)
    halted, run = last(world, ev.SubagentHalted), the(world).run
    assert (
        words in halted.words
        and run is not None
        and run.halt is None
        and run.progress.sub_halts == {"c1": halted.words}
    )
    # The next piece of work begins without a halt.
    post(world, work.Assemble(agent="auditor", model=OTHER.name, instructions="i", sub=SUB))
    assert the(world).run.progress.sub_halts == {}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("budget", "is_run_halted"), [(Budget(day=Amounts(tokens=120)), True), (Budget(run=Amounts(tokens=120)), False)]
)
def test_the_budget_of_its_caller_bounds_a_sub_agent(budget: Budget, is_run_halted: bool) -> None:
    """An exhausted period halts the run until the next period.

    An exhausted budget of one run halts only the sub-agent.
    """
    world = make_team_world(budget=budget)
    ask(world)
    run = the(world).run
    assert run is not None and (run.halt is not None) == is_run_halted
    assert last(world, ev.WorkHalted if is_run_halted else ev.SubagentHalted).run == 1


def test_a_step_of_nobody_it_may_give_work_to_is_refused() -> None:
    world = make_team_world()
    with pytest.raises(CallerError, match="no sub-agent 'hr'; those it has: auditor"):
        post(world, replace(request(), sub=SubWork(call="c1", agent="hr")))


def test_a_session_waits_for_the_key_of_a_sub_agent() -> None:
    """The session notices a sub-agent that is declared later, and one whose file stops naming the key."""
    world = make_world(thinking(), agents=(LEADER,))
    end(world)
    assert list_secrets_of_start(world.core, the(world)) == ()
    locked = replace(AUDITOR, models=(replace(OTHER, key="OTHER_KEY"),))
    world.observe(AgentsRead(agents={"docs": LEADER, "auditor": locked}))
    assert list_secrets_of_start(world.core, the(world)) == ("OTHER_KEY",)
    world.write("code.py", "2")
    world.look()
    assert the(world).run is None
    world.observe(AgentsRead(agents={"docs": LEADER, "auditor": AUDITOR}))
    assert the(world).run is not None and the(world).run.agent.team == (replace(AUDITOR, mcp=(), subagents=()),)  # type: ignore[union-attr]

"""Runs of agents in the simulated world: recorded steps, budgets, questions, and messages to other agents.

Budgets are checked before each request.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import Answered, TokenUsage, ToolCall
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.acting_agent import find_hand_off_rule, merge_tools
from wakeful.core.record import events as ev
from wakeful.core.record.observations import AgentsRead
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentLimits, AgentSpec, ModelSpec
from wakeful.core.spec.budget import Amounts, Budget, Price
from wakeful.core.spec.session import PromptRun, SessionSpec
from wakeful.errors import CallerError

MODEL = ModelSpec(provider="anthropic", model="m")
DOCS = AgentSpec(name="docs", models=(MODEL,))
AUDITOR = AgentSpec(name="auditor", models=(ModelSpec(provider="openai", model="o"),))
HR = AgentSpec(name="hr")
DAY_US = 86_400_000_000


def thinking(name: str = "docs", **keys: Any) -> SessionSpec:
    return session(
        name,
        read("code.py"),
        write(f"{name}.md"),
        run=PromptRun(prompt="Keep it true.", retries=0),
        agent="docs",
        **keys,
    )


def make_world(*specs: SessionSpec, agents: tuple[AgentSpec, ...] = (DOCS, AUDITOR, HR)) -> World:
    world = World(*specs, files={"code.py": "1"})
    world.agents = agents  # type: ignore[attr-defined]
    world.observe(AgentsRead(agents={agent.name: agent for agent in agents}))
    world.look()
    return world


def boot_again(world: World) -> None:
    world.crash()
    world.observe(AgentsRead(agents={agent.name: agent for agent in world.agents}))  # type: ignore[attr-defined]


def the(world: World, name: str = "docs") -> Session:
    return world.core.state.by_name(name)


def post(world: World, *steps: work.Step, name: str = "docs") -> None:
    run = the(world, name).run
    assert run is not None
    world.call(calls.Work(name=name, run=run.run, steps=steps), author=f"run:{name}")


def request(turn: int = 1, taken: int = 100, made: int = 50) -> work.RequestTurn:
    return work.RequestTurn(turn=turn, model=MODEL.name, input_tokens=taken, max_output_tokens=made)


def answer(turn: int = 1, *, tokens: int = 30, call: ToolCall | None = None) -> work.RecordAnswer:
    answered = Answered(model=MODEL.name, text="so", calls=(call,) if call else (), stop="calls" if call else "done")
    return work.RecordAnswer(turn=turn, answer=answered, usage=TokenUsage(input=tokens, output=0))


def end(world: World, name: str = "docs", exit_code: int = 0) -> None:
    """End the process of the run and answer the looks at its outputs, so that the run is closed."""
    world.end(name, exit_code)
    world.answer_all()


def last(world: World, kind: type) -> Any:
    return next(entry.event for entry in reversed(world.log) if isinstance(entry.event, kind))


def test_a_run_records_the_agent_it_began_with_and_an_edited_file_counts_from_the_next() -> None:
    world = make_world(thinking())
    assert the(world).run is not None and the(world).run.agent == DOCS
    edited = replace(DOCS, prompt="Be brief.")
    world.observe(AgentsRead(agents={"docs": edited}))
    assert the(world).run.agent == DOCS
    end(world)
    world.call(calls.Activate(name="docs"))
    world.look()
    assert the(world).run.agent == edited


OUTSIDE = AgentSpec(name="docs", acp=("some-agent",), limits=AgentLimits(turns=5))


def meter(tokens: int, requests: int = 1, usd: float | None = None) -> work.MeterTurn:
    return work.MeterTurn(turn=1, requests=requests, usage=TokenUsage(input=tokens, is_estimated=True), usd=usd)


def test_the_log_of_an_agents_run_folds_without_a_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every event that charges a budget carries its periods: those of the session's time zone and of its agent's."""
    of_session = Budget(hour=Amounts(runs=9), day=Amounts(tokens=9000), timezone="Asia/Shanghai")
    of_agent = Budget(month=Amounts(tokens=9000), timezone="Europe/Berlin")
    world = make_world(thinking(budget=of_session), agents=(replace(DOCS, budget=of_agent),))
    post(world, request(), answer(tokens=30))
    post(world, request(2), work.RecordFault(turn=2, model=MODEL.name, fault="network", words="broke off"))
    # The third request has no answer. The end of the run charges it.
    post(world, request(3))
    end(world)
    live = dict(world.core.state.sessions)
    tally = the(world).tally
    assert tally.spent["day"].tokens == tally.agents_spent["docs"]["month"].tokens == 330

    def refuse(name: str) -> None:
        raise AssertionError(f"asked for {name}")

    monkeypatch.setattr("wakeful.core.spec.zones.ZoneInfo", refuse)
    assert world.fold_log() == live


def test_the_last_run_that_a_budget_of_runs_allows_may_send_its_requests() -> None:
    world = make_world(thinking(budget=Budget(day=Amounts(runs=1))))
    post(world, request())
    assert the(world).run.halt is None
    end(world)
    world.call(calls.Activate(name="docs"))
    assert the(world).run is None


@pytest.mark.parametrize(
    ("budget", "agent", "step", "kind", "words"),
    [
        (
            Budget(run=Amounts(tokens=1000)),
            None,
            meter(1000),
            "failed",
            "acp:some-agent was stopped: budget of the run: 1000 of 1000 tokens spent, by estimate",
        ),
        (
            Budget(day=Amounts(tokens=1000)),
            None,
            meter(1200),
            "budget",
            "acp:some-agent was stopped: budget of the day: 1200 of 1000 tokens spent, by estimate",
        ),
        (
            Budget(month=Amounts(usd=2)),
            None,
            meter(500, usd=2.5),
            "budget",
            "acp:some-agent was stopped: budget of the month: 2.5 of 2 USD spent, by estimate",
        ),
        (
            None,
            Budget(day=Amounts(tokens=1000)),
            meter(1000),
            "budget",
            "acp:some-agent was stopped: agent docs: budget of the day: 1000 of 1000 tokens spent, by estimate",
        ),
        (
            None,
            None,
            meter(500, requests=6),
            "failed",
            "acp:some-agent was stopped: it sent 6 requests and did not come to an end (limits.turns of agent docs)",
        ),
    ],
)
def test_an_external_agent_is_stopped_in_the_middle_of_its_prompt(
    budget: Budget | None, agent: Budget | None, step: work.MeterTurn, kind: str, words: str
) -> None:
    prices = {"acp:*": Price(input=0, output=0)}
    world = make_world(thinking(budget=budget), agents=(replace(OUTSIDE, budget=agent),))
    world.core.settings = replace(world.core.settings, prices=prices)
    post(world, work.RequestTurn(turn=1, model="acp:some-agent", input_tokens=100, max_output_tokens=50))
    post(world, meter(400, requests=5))
    assert the(world).run.halt is None and the(world).run.progress.spent_tokens == 400
    post(world, step)
    halt = the(world).run.halt
    assert halt is not None and (halt.kind, halt.words) == (kind, words)
    # The agent's own final count replaces the estimate. Nothing is recorded after it.
    post(world, answer(tokens=77), work.CallTool(call=ToolCall(id="c1", name="read", arguments="{}")))
    end(world, exit_code=75)
    assert last(world, ev.RunFinished).usage.tokens == 77 and "tool_called" not in [entry.kind for entry in world.log]


@pytest.mark.parametrize(
    ("is_permission", "given"),
    [(True, "no"), (False, "nobody answered within 90m; go on without an answer, or say what is missing and end")],
)
def test_a_question_of_an_agent_that_nobody_answers_is_denied_and_its_work_goes_on(
    is_permission: bool, given: str
) -> None:
    """The session's `ask_timeout` has precedence over its agent's.

    The moment of the denial is on record, so a crash does not move it.
    """
    world = make_world(thinking(ask_timeout_seconds=5400.0), agents=(replace(DOCS, ask_timeout_seconds=60.0),))
    post(
        world, request(), answer(), work.AskPerson(call="c1", name="shell", text="may it?", is_permission=is_permission)
    )
    end(world, exit_code=75)
    hold = the(world).hold
    assert hold.kind == "asking" and "denied if nobody answers within 90m)" in hold.words and hold.until is not None
    boot_again(world)
    world.look()
    world.advance(5300)
    assert the(world).hold == hold and the(world).run is None
    world.advance(200)
    answered = last(world, ev.QuestionAnswered)
    assert (answered.call, answered.text, answered.is_unanswered) == ("c1", given, True)
    assert the(world).run is not None and the(world).run.resumed_from == 1


def test_an_agent_may_say_how_long_its_questions_wait() -> None:
    world = make_world(thinking(), agents=(replace(DOCS, ask_timeout_seconds=60.0),))
    post(world, request(), answer(), work.AskPerson(call="c1", name="shell", text="may it?"))
    end(world, exit_code=75)
    assert "within 1m)" in the(world).hold.words
    world.call(calls.Answer(name="docs", text="this way"))
    assert not last(world, ev.QuestionAnswered).is_unanswered


def test_a_crash_books_what_was_metered() -> None:
    world = make_world(thinking(budget=Budget(day=Amounts(tokens=9000))), agents=(OUTSIDE,))
    post(world, work.RequestTurn(turn=1, model="acp:some-agent", input_tokens=100, max_output_tokens=50))
    post(world, meter(4000, requests=3))
    end(world, exit_code=1)
    finished = last(world, ev.RunFinished)
    assert (finished.usage.tokens, finished.usage.estimated_tokens, the(world).tally.spent["day"].tokens) == (
        4000,
        4000,
        4000,
    )


def test_a_migrated_session_is_worked_by_whom_it_was_given_to() -> None:
    world = make_world(thinking())
    end(world)
    world.call(calls.Migrate(name="docs", agent="auditor", model="openai:p"))
    world.call(calls.Activate(name="docs"))
    run = the(world).run
    assert run is not None and run.agent is not None
    assert (run.agent.name, run.agent.models[0].name) == ("auditor", "openai:p")


def test_steps_are_recorded_together_and_counted() -> None:
    world = make_world(thinking())
    post(world, request())
    assert the(world).run.progress.spent_tokens == 150
    tool = ToolCall(id="c1", name="read", arguments="{}")
    post(world, answer(call=tool), work.CallTool(call=tool))
    post(world, work.ReturnTool(call="c1", name="read", text="1"), request(2))
    post(world, answer(2, tokens=40))
    assert (the(world).run.progress.turns, the(world).run.progress.tokens, the(world).knowledge.size_tokens) == (
        2,
        70,
        40,
    )
    end(world)
    finished = last(world, ev.RunFinished)
    assert finished.outcome == "succeeded" and finished.usage.tokens == 70
    together = {
        entry.transaction for entry in world.log if entry.kind in ("turn_answered", "tool_called") and entry.transaction
    }
    assert len(together) == 2


def test_steps_of_nobody_and_of_a_run_that_is_over_are_refused() -> None:
    world = make_world(thinking(), session("plain", read("code.py")))
    for name, run in (("docs", 7), ("plain", 1)):
        with pytest.raises(CallerError, match="not an agent's run under way"):
            world.call(calls.Work(name=name, run=run, steps=(request(),)))
    large = work.ReturnTool(call="c", name="read", text="x" * 300_000)
    before = len(world.log)
    with pytest.raises(CallerError, match="at most"):
        post(world, request(), large)
    assert len(world.log) == before


# -- budgets ----------------------------------------------------------------------------------


def test_a_request_whose_worst_case_is_more_than_what_is_left_of_the_day_is_not_sent_and_the_session_sleeps_until_it_turns() -> (
    None
):
    world = make_world(thinking(budget=Budget(day=Amounts(tokens=400))))
    post(world, request(), answer(tokens=280))
    post(world, request(2))
    halt = the(world).run.halt
    assert (
        halt is not None
        and halt.kind == "budget"
        and "280 of 400 tokens spent, and the next request may take 150" in halt.words
    )
    end(world, exit_code=75)
    slept = the(world)
    assert slept.hold == halt and slept.wake is not None and slept.last_run.outcome == "interrupted"
    # An activation does not lift the budget hold. The next day does, and the run resumes where it was.
    world.call(calls.Activate(name="docs"))
    assert the(world).run is None
    world.advance(86_400)
    assert the(world).run is not None and the(world).run.resumed_from == 1


def test_a_run_that_reaches_its_own_bound_fails() -> None:
    world = make_world(thinking(budget=Budget(run=Amounts(tokens=200))))
    post(world, request(), answer(tokens=100))
    post(world, request(2))
    end(world, exit_code=75)
    assert "budget of the run: the next request may bring it to 250 of 200 tokens" in the(world).last_run.reason
    assert the(world).hold.kind == "failed"


def test_what_an_agent_may_spend_counts_over_all_its_sessions() -> None:
    thrifty = replace(DOCS, budget=Budget(day=Amounts(tokens=500)))
    world = make_world(thinking(), thinking("more"), agents=(thrifty,))
    post(world, request(), answer(tokens=300))
    post(world, request(), answer(tokens=100), name="more")
    post(world, request(), name="more")
    assert "agent docs: budget of the day: 400 of 500 tokens spent" in the(world, "more").run.halt.words


@pytest.mark.parametrize("ending", ["crash", "network"])
def test_a_request_whose_answer_never_came_counts_at_its_worst(ending: str) -> None:
    world = make_world(thinking(budget=Budget(day=Amounts(tokens=1000))))
    post(world, request())
    if ending == "crash":
        boot_again(world)
        world.recover()
    else:
        post(world, work.RecordFault(turn=1, model=MODEL.name, fault="network", words="reset"))
    assert the(world).tally.spent["day"].tokens == 150


@pytest.mark.parametrize("fault", ["busy", "unreached"])
def test_a_request_that_was_turned_away_or_never_sent_costs_nothing(fault: str) -> None:
    world = make_world(thinking(budget=Budget(day=Amounts(tokens=1000))))
    post(world, request(), work.RecordFault(turn=1, model=MODEL.name, fault=fault, words="429"))
    assert the(world).run.progress.spent_tokens == 0
    assert "day" not in the(world).tally.spent or the(world).tally.spent["day"].tokens == 0


def test_an_answer_of_no_use_costs_what_it_took() -> None:
    """The answer came, and the provider counted its tokens.

    The run is charged that count, not the estimated worst case.
    """
    world = make_world(thinking(budget=Budget(day=Amounts(tokens=1000))))
    usage = TokenUsage(input=100, output=7)
    post(
        world,
        request(),
        work.RecordFault(turn=1, model=MODEL.name, fault="garbage", words="nothing at all", usage=usage),
    )
    assert the(world).run.progress.spent_tokens == the(world).tally.spent["day"].tokens == 107
    assert the(world).run.progress.estimated_tokens == 0


def test_tokens_that_no_provider_counted_are_marked_in_the_run() -> None:
    """Estimated tokens come from an estimated answer and from a request whose connection broke.

    Counted tokens are not marked.
    """
    world = make_world(thinking())
    guessed = replace(answer(2), usage=TokenUsage(input=40, output=2, is_estimated=True))
    broken = work.RecordFault(turn=3, model=MODEL.name, fault="network", words="reset")
    post(world, request(), answer(tokens=30), request(2), guessed, request(3), broken)
    assert (the(world).run.progress.tokens, the(world).run.progress.estimated_tokens) == (30 + 42 + 150, 42 + 150)
    end(world)
    usage = last(world, ev.RunFinished).usage
    assert (usage.tokens, usage.estimated_tokens) == (222, 192)


def test_turns_have_a_bound() -> None:
    world = make_world(thinking(), agents=(replace(DOCS, limits=AgentLimits(turns=2)),))
    post(world, request(1), answer(1), request(2), answer(2), request(3))
    end(world, exit_code=75)
    assert "took 2 turns and did not come to an end" in the(world).last_run.reason


def test_summaries_do_not_count_as_turns_of_the_work() -> None:
    """A conversation that takes many requests to compress leaves the work as many turns as before."""
    world = make_world(thinking(), agents=(replace(DOCS, limits=AgentLimits(turns=2)),))
    summaries = [
        step
        for turn in (2, 3, 4)
        for step in (replace(request(turn), purpose="summary"), replace(answer(turn), purpose="summary"))
    ]
    post(world, request(1), answer(1), *summaries, request(5), answer(5))
    assert the(world).run.halt is None
    post(world, request(6))
    end(world, exit_code=75)
    assert "took 2 turns and did not come to an end" in the(world).last_run.reason


# -- crashes and questions --------------------------------------------------------------------


def test_a_run_that_was_lost_goes_on_in_the_same_conversation() -> None:
    world = make_world(thinking())
    post(world, request(), answer())
    before = the(world).knowledge.conversation.stretches
    boot_again(world)
    world.recover()
    world.look()
    run = the(world).run
    assert run is not None and run.resumed_from == 1 and run.agent == DOCS
    assert the(world).knowledge.conversation.stretches == before


def test_an_agent_whose_process_was_killed_is_tried_again_where_it_stood_a_few_times() -> None:
    world = make_world(thinking())
    stretches = set()
    while the(world).run is not None:
        assert the(world).tally.runs <= 4, "it is tried for ever"
        post(world, request(), answer())
        stretches.add(the(world).knowledge.conversation.stretches)
        world.end("docs", exit_code=None, signal=9)
        world.answer_all()
        world.advance(20)
    assert (
        the(world).hold.words
        == "crashing: 3 runs of this wake were lost; of the last, its process was killed by signal 9"
    )
    assert len(stretches) == 1


def test_a_question_ends_the_run_and_its_answer_wakes_the_session_where_it_stood() -> None:
    world = make_world(thinking())
    tool = ToolCall(id="c1", name="ask_person", arguments="{}")
    post(world, request(), answer(call=tool), work.AskPerson(call="c1", name="ask_person", text="which rate?"))
    end(world, exit_code=75)
    asked = the(world)
    assert asked.hold.kind == "asking" and asked.hold.words.startswith("asks: which rate?") and asked.run is None
    boot_again(world)
    world.look()
    with pytest.raises(CallerError, match="an answer has words"):
        world.call(calls.Answer(name="docs", text=" "))
    world.call(calls.Answer(name="docs", text="the new one"))
    assert last(world, ev.QuestionAnswered) == ev.QuestionAnswered(wake=1, text="the new one", call="c1")
    assert the(world).run is not None and the(world).run.resumed_from == 1 and the(world).question is None


def test_a_permission_takes_a_yes_or_a_no() -> None:
    world = make_world(thinking())
    post(world, request(), work.AskPerson(call="c1", name="shell", text="may it?", is_permission=True))
    end(world, exit_code=75)
    with pytest.raises(CallerError, match="yes or no"):
        world.call(calls.Answer(name="docs", text="perhaps"))
    world.call(calls.Answer(name="docs", text="No"))
    assert the(world).run is not None


def test_a_question_that_is_cancelled_is_asked_no_more() -> None:
    world = make_world(thinking())
    post(world, request(), work.AskPerson(call="c1", name="ask_person", text="which?"))
    end(world, exit_code=75)
    world.call(calls.Cancel(name="docs"))
    assert (the(world).question, the(world).hold, the(world).wake) == (None, None, None)


def test_a_failure_of_the_provider_sleeps_with_its_words_and_a_new_change_is_tried() -> None:
    world = make_world(thinking())
    post(
        world,
        request(),
        work.RecordFault(turn=1, model=MODEL.name, fault="key", words="401"),
        work.Halt(words="401: the key is wrong"),
    )
    end(world, exit_code=75)
    assert the(world).hold.words == "failed: 401: the key is wrong"
    world.write("code.py", "2")
    world.look()
    assert the(world).run is not None


# -- one message to another agent -------------------------------------------------------------


def test_a_message_put_to_another_agent_is_theirs_alone_and_the_next_goes_back() -> None:
    world = make_world(thinking())
    end(world)
    world.rest()
    world.call(calls.Ask(name="docs", text="is it safe?", agent="auditor"), author="person:ada")
    run = the(world).run
    assert run.agent == AUDITOR and run.is_aside and {cause.kind for cause in run.causes} == {"message", "activation"}
    world.call(calls.Send(name="docs", text="and shorter, please"), author="person:bob")
    end(world)
    back = the(world).run
    assert back is not None and back.agent == DOCS and not back.is_aside and back.versions["message"] == "2"


def test_what_else_is_owed_stays_owed_while_somebody_answers_aside() -> None:
    world = make_world(thinking())
    end(world)
    world.rest()
    world.write("code.py", "2")
    world.deliver_hints()
    world.call(calls.Ask(name="docs", text="is it safe?", agent="auditor"))
    world.look()
    assert the(world).run.is_aside
    end(world)
    world.look()
    assert the(world).run is not None and not the(world).run.is_aside
    assert {cause.binding for cause in the(world).run.causes} == {"code_py"}


def test_an_answer_aside_does_not_count_as_having_seen_the_inputs() -> None:
    world = make_world(thinking())
    end(world)
    world.rest()
    seen = the(world).marks.seen["file code.py content"]
    world.call(calls.Ask(name="docs", text="is it safe?", agent="auditor"))
    end(world)
    world.rest()
    assert the(world).marks.seen["file code.py content"] == seen and the(world).tally.runs == 2


def test_messages_to_different_agents_are_answered_in_order_each_by_its_own() -> None:
    world = make_world(thinking())
    end(world)
    world.rest()
    world.call(calls.Sleep(name="docs", seconds=60))
    world.call(calls.Send(name="docs", text="first"))
    world.call(calls.Ask(name="docs", text="second", agent="auditor"))
    world.call(calls.Send(name="docs", text="third"))
    workers = []
    while the(world).run is not None:
        workers.append((the(world).run.agent.name, the(world).run.versions["message"]))
        end(world)
        world.advance(61)
        world.look()
    assert workers == [("docs", "1"), ("auditor", "2"), ("docs", "3")]


def test_a_session_whose_work_is_a_program_can_be_asked_through_an_agent_by_name() -> None:
    world = make_world(session("plain", read("code.py"), agent="hr"))
    end(world, "plain")
    world.rest()
    with pytest.raises(CallerError, match="agent hr has no model"):
        world.call(calls.Ask(name="plain", text="why?"))
    with pytest.raises(CallerError, match=r"no agent is called 'audit'.*auditor, docs"):
        world.call(calls.Ask(name="plain", text="why?", agent="audit"))
    world.call(calls.Ask(name="plain", text="why?", agent="auditor"))
    assert the(world, "plain").run.agent == AUDITOR
    end(world, "plain")
    world.write("code.py", "2")
    world.look()
    assert the(world, "plain").run.agent is None


def test_a_session_gives_no_shell_that_its_agent_was_not_given() -> None:
    assert merge_tools({}, {"shell": "allow", "read": "ask"}) == {"shell": "deny", "read": "ask"}


def test_the_stricter_word_of_agent_and_session_counts() -> None:
    own = {"shell": "ask", "read": "allow", "write": "deny"}
    assert merge_tools(own, {"shell": "allow", "read": "deny", "write": "allow", "send": "ask"}) == {
        "shell": "ask", "read": "deny", "write": "deny", "send": "ask",
    }  # fmt: skip


def test_a_run_beside_the_owner_s_work_leaves_no_hand_off() -> None:
    """A run aside cannot leave a hand-off. Meanwhile a person can leave one, and so can the owner's next run."""
    world = make_world(thinking())
    end(world)
    world.rest()
    world.call(calls.Ask(name="docs", text="is it safe?", agent="auditor"), author="person:ada")
    aside = the(world).run
    assert aside is not None and find_hand_off_rule(the(world), aside) == "withheld"
    with pytest.raises(CallerError, match="belongs to the agent that works there"):
        world.observe(calls.Called(call=calls.Note(name="docs", text="mine"), author="run:docs#2", run=aside.run))
    world.call(calls.Note(name="docs", text="hers"), author="person:ada")
    end(world)
    assert the(world).knowledge.handoff == "hers"
    world.call(calls.Ask(name="docs", text="and now?"), author="person:ada")
    asked = the(world).run
    assert asked is not None and find_hand_off_rule(the(world), asked) == "kept"
    end(world)
    world.call(calls.Activate(name="docs"), author="person:ada")
    work_run = the(world).run
    assert work_run is not None and find_hand_off_rule(the(world), work_run) == "replaced"

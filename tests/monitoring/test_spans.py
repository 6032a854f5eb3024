"""Records become spans: one trace for each wake, with its runs, and below them model requests and tool calls."""

from __future__ import annotations

from wakeful.core.agents.turns import Answered, SubWork, TokenUsage, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.spec.agent import AgentSpec, ModelSpec
from wakeful.monitoring.spans import Seen, Span, SpanBuilder

AGENT = AgentSpec(name="clerk", models=(ModelSpec(provider="anthropic", model="claude-sonnet-4-5"),))


class Log:
    """Feed events to a span builder, one second apart, and collect the spans."""

    def __init__(self) -> None:
        self.builder = SpanBuilder()
        self.spans: list[Span] = []
        self.seqs: dict[str, int] = {}
        self.position = 0

    def add(self, event: ev.Event, session: str = "payroll", parent: str | None = None) -> str:
        self.position += 1
        seq = self.seqs[session] = self.seqs.get(session, 0) + 1
        seen = Seen(self.position, session, session, seq, self.position * 1_000_000, parent, event)
        self.spans += self.builder.take(seen)
        return f"{session}:{seq}"

    def start(self, session: str = "payroll", parent: str | None = None, agent: AgentSpec | None = None, **keys) -> str:
        wake = self.add(
            ev.WakeRequested(wake=1, causes=(ev.Cause(binding="in", kind="file", key="f"),)), session, parent
        )
        return self.begin(session, wake, agent, **keys)

    def begin(self, session: str, wake: str, agent: AgentSpec | None = None, run: int = 1, attempt: int = 0) -> str:
        event = ev.RunStarted(
            run=run, run_id="x", wake=1, attempt=attempt, incarnation="i", versions={}, causes=(), agent=agent
        )
        return self.add(event, session, wake)

    def finish(self, outcome: str = "succeeded", session: str = "payroll", run: int = 1, **keys) -> str:
        return self.add(ev.RunFinished(run=run, outcome=outcome, is_final=keys.pop("is_final", True), **keys), session)

    def one(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


def test_a_command_is_a_run_below_its_wake() -> None:
    """The wake's span lasts from its request to the end of its run."""
    log = Log()
    log.start()
    log.finish(exit_code=0)
    wake, run = log.one("invoke_workflow payroll"), log.one("run payroll")
    assert wake.parent_id is None and run.parent_id == wake.place.span_id
    assert run.place.trace_id == wake.place.trace_id
    assert (wake.start, wake.end, run.start) == (1 * 10**9, 3 * 10**9, 2 * 10**9)
    assert wake.attributes["wakeful.causes"] == ("file in",)
    assert run.attributes["wakeful.outcome"] == "succeeded" and "gen_ai.operation.name" not in run.attributes
    assert log.builder.oldest is None


def test_tries_of_one_wake_are_runs_of_one_trace() -> None:
    """The span of a failed try has its reason. The wake's span ends with the last try."""
    log = Log()
    log.start()
    log.finish("failed", is_final=False, reason="exit code 1")
    assert [span.name for span in log.spans] == ["run payroll"] and log.builder.oldest == 1
    log.begin("payroll", "payroll:1", run=2, attempt=1)
    log.finish(run=2)
    first, second = (span for span in log.spans if span.name == "run payroll")
    assert first.error == "exit code 1" and second.error is None
    assert first.place.trace_id == second.place.trace_id and first.place.span_id != second.place.span_id


def test_an_agents_requests_and_tools_are_below_its_run_by_their_conventional_names() -> None:
    """The spans of a sub-agent are below the call that it answers. No text of a message or argument is in a span."""
    log = Log()
    log.start(agent=AGENT)
    log.add(ev.TurnRequested(run=1, turn=1, model="anthropic:claude-sonnet-4-5", input_tokens=9, max_output_tokens=9))
    call = ToolCall(id="c1", name="delegate", arguments='{"secret": 1}')
    answer = Answered(model="claude-sonnet-4-5-20250929", text="the words", calls=(call,))
    log.add(ev.TurnAnswered(run=1, turn=1, answer=answer, usage=TokenUsage(input=100, output=7)))
    log.add(ev.ToolCalled(run=1, call=call))
    sub = SubWork(call="c1", agent="scout")
    log.add(ev.TurnRequested(run=1, turn=1, model="openai:gpt-5", input_tokens=9, max_output_tokens=9, sub=sub))
    log.add(ev.TurnFailed(run=1, turn=1, model="openai:gpt-5", fault="overloaded", words="busy", sub=sub))
    log.add(ev.ToolReturned(run=1, call="c1", name="delegate", text="the words", is_error=True))
    log.finish()
    run, request, tool = (
        log.one("invoke_agent clerk"),
        log.one("chat claude-sonnet-4-5"),
        log.one("execute_tool delegate"),
    )
    below = log.one("chat gpt-5")
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent" and run.attributes["gen_ai.agent.name"] == "clerk"
    assert request.parent_id == tool.parent_id == run.place.span_id and below.parent_id == tool.place.span_id
    assert request.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.conversation.id": "payroll",
        "gen_ai.response.model": "claude-sonnet-4-5-20250929",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
    }
    assert request.kind == "client" and tool.kind == "internal"
    assert tool.attributes["gen_ai.tool.name"] == "delegate" and tool.error is not None
    assert below.error == "busy" and below.attributes["error.type"] == "overloaded"
    assert below.attributes["gen_ai.agent.name"] == "scout"
    assert "the words" not in repr(log.spans) and "secret" not in repr(log.spans)


def test_a_wake_is_linked_to_the_run_that_led_to_it() -> None:
    """The link joins the traces of a wave."""
    log = Log()
    log.start("a")
    end = log.finish(session="a")
    log.start("b", parent=end)
    log.finish(session="b")
    assert log.one("invoke_workflow b").links == (log.one("run a").place,)


def test_a_call_without_an_end_ends_with_its_run() -> None:
    """The tool's process was killed, or a person is asked."""
    log = Log()
    log.start(agent=AGENT)
    log.add(ev.ToolCalled(run=1, call=ToolCall(id="c", name="shell", arguments="{}")))
    log.finish("lost", is_final=False, reason="gone")
    assert log.one("execute_tool shell").error == "its end is not on record"


def test_the_same_records_give_the_same_ids_to_another_daemon() -> None:
    """A daemon that reads from the middle finds the wake's trace by the record that the run's start names as parent."""
    log, later = Log(), Log()
    log.start()
    log.finish()
    later.seqs["payroll"] = 1
    later.begin("payroll", "payroll:1")
    later.finish()
    assert later.one("run payroll").place == log.one("run payroll").place
    assert later.one("run payroll").parent_id == log.one("invoke_workflow payroll").place.span_id

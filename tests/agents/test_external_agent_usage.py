"""The usage of an external agent, computed from its updates. The tests use tables of updates, without a program."""

from __future__ import annotations

from acp import schema, start_tool_call, update_tool_call

from wakeful.agents.acp.meter import OWN_PROMPT_TOKENS, STEP_TOKENS, Meter
from wakeful.core.agents.turns import TokenUsage

WORDS = "word " * 1_000


def call(meter: Meter, name: str, result: str = WORDS) -> None:
    meter.see_call(start_tool_call(name, "read a file", kind="read", status="in_progress", raw_input={"path": "a.py"}))
    meter.see_call(update_tool_call(name, status="completed", raw_output=result))


def tell(used: int, amount: float | None = None, currency: str = "USD") -> schema.UsageUpdate:
    cost = schema.Cost(amount=amount, currency=currency) if amount is not None else None
    return schema.UsageUpdate(session_update="usage_update", used=used, size=200_000, cost=cost)


def answer(usage: schema.Usage | None = None, meta: dict[str, object] | None = None) -> schema.PromptResponse:
    return schema.PromptResponse(stop_reason="end_turn", usage=usage, field_meta=meta)


def test_each_request_holds_the_whole_conversation_again() -> None:
    meter = Meter("acp:small", OWN_PROMPT_TOKENS)
    for number in range(3):
        call(meter, f"c{number}")
    meter.see_words("done")
    assert meter.requests == 4
    # 10,000, then about 1,150 more for each request.
    assert 4 * OWN_PROMPT_TOKENS + 6 * 1_000 < meter.usage.input < 4 * OWN_PROMPT_TOKENS + 6 * 1_500
    assert meter.usage.is_estimated and 0 < meter.usage.output < 100


def test_calls_of_one_answer_are_one_request() -> None:
    meter = Meter("acp:small", 100)
    for name in ("a", "b"):
        meter.see_call(start_tool_call(name, "read", kind="read", status="pending"))
    for name in ("a", "b", "a"):
        meter.see_call(update_tool_call(name, status="completed"))
    assert meter.requests == 1
    meter.see_words("done")
    assert meter.requests == 2


def test_the_size_that_it_tells_replaces_our_estimate_of_it() -> None:
    meter = Meter("acp:small", 100)
    meter.see_usage(tell(50_000))
    call(meter, "c1", "short")
    meter.see_usage(tell(60_000))
    meter.see_words("done")
    assert meter.requests == 2 and 109_000 < meter.usage.total < 111_000


def test_its_own_count_is_what_counts_in_the_end() -> None:
    meter = Meter("acp:small", 100)
    call(meter, "c1")
    meter.see_words("done")
    usage = schema.Usage(total_tokens=35, input_tokens=15, output_tokens=10, cached_read_tokens=5, thought_tokens=5)
    assert meter.conclude(answer(usage)) == TokenUsage(input=20, output=15, cached=5)
    quota = {"quota": {"token_count": {"input_tokens": 25_350, "output_tokens": 44}}}
    assert meter.conclude(answer(meta=quota)) == TokenUsage(input=25_350, output=44)
    for strange in (
        None,
        {},
        {"quota": {"token_count": {"input_tokens": "many", "output_tokens": 1}}},
        {"quota": None},
    ):
        assert meter.conclude(answer(meta=strange)).is_estimated


def test_a_count_of_the_last_request_alone_is_completed_by_estimate() -> None:
    """If the last request had more tokens than our estimate, the earlier requests get the same difference."""
    meter = Meter("acp:opencode", OWN_PROMPT_TOKENS)
    call(meter, "c1", "short")
    meter.see_words("done")
    counted = meter.conclude(answer(schema.Usage(total_tokens=8_011, input_tokens=8_000, output_tokens=11)))
    assert counted.is_estimated and 15_900 < counted.input < 16_000 and counted.output > 11


def test_what_it_says_it_cost_is_what_came_on_top_of_the_session() -> None:
    """The protocol reports the total cost of a session.

    Some programs begin at zero with every start. A cost in another currency is ignored.
    """
    for name, before, told, cost in (
        ("acp:opencode", 0.0, 0.05, 0.05),
        ("acp:opencode", 0.05, 0.25, 0.2),
        ("acp:opencode", 0.5, 0.25, 0.25),
        ("acp:claude-agent-acp", 0.09, 0.1, 0.1),
    ):
        meter = Meter(name, 100)
        meter.see_usage(tell(1_000, told))
        assert abs((meter.find_cost(before) or 0.0) - cost) < 1e-9, name
    meter.see_usage(tell(1_000, 7.0, "EUR"))
    assert meter.find_cost(0.0) == 0.1


def test_news_come_when_clearly_more_is_spent() -> None:
    meter = Meter("acp:small", 100)
    assert meter.take_news(0.0) is None
    meter.see_words("word " * (STEP_TOKENS + 100))
    assert meter.take_news(0.0) is not None and meter.take_news(0.0) is None
    meter.see_usage(tell(2_300, 0.5))
    assert meter.take_news(0.0) == (meter.usage, 0.5)

"""The conversion between our values and each provider's wire format, against the scripted provider."""

from __future__ import annotations

import asyncio
import builtins
import itertools
import sys
from collections.abc import Callable

import msgspec
import pytest

from agents.provider import Call, Empty, Provider, Reply, Say, Think, Usage
from agents.scripted_models import ADD, KEY, PROVIDERS, ask, hear, reach
from wait_conditions import PATIENCE_SECONDS
from wakeful.agents.contract import ModelRequest, ProviderFault
from wakeful.agents.models import provider_model as models
from wakeful.agents.models.provider_model import make_model
from wakeful.core.agents.model_text import complete_usage, estimate_tokens
from wakeful.core.agents.prices import find_cost
from wakeful.core.agents.turns import INTERRUPTED, Answered, Asked, Entry, Returned, TokenUsage, ToolCall
from wakeful.core.spec.agent import ModelSpec
from wakeful.core.spec.budget import Price
from wakeful.errors import InternalError, OperatorError
from wakeful.settings import read_known_prices

pytestmark = pytest.mark.asyncio

# One provider of each wire format. The omitted `openai-compatible` has the format of `openai-chat`.
QUICK = PROVIDERS[:3] + PROVIDERS[4:]


def always(text: str) -> Callable[[object], Say]:
    return lambda _: Say(text)


@pytest.mark.parametrize("ours", QUICK)
async def test_a_provider_that_tells_no_usage_is_not_taken_for_free(provider: Provider, ours: str) -> None:
    """Its answer is booked by estimate and marked as estimated. The same holds for a useless answer."""
    provider.play([Reply((Say("Four, I think."),), usage=Usage(input=120, output=6, is_told=False))])
    answer = await ask(reach(provider, ours), Asked(text="What is two and two?"))
    assert answer.usage == TokenUsage()
    assert complete_usage(answer.usage, 50, answer.answered) == TokenUsage(
        input=50, output=estimate_tokens("Four, I think."), is_estimated=True
    )
    provider.play([Empty(usage=Usage(input=120, output=6, is_told=False))])
    with pytest.raises(ProviderFault) as caught:
        await ask(reach(provider, ours), Asked(text="What is two and two?"))
    assert caught.value.count(50) == TokenUsage(input=50, is_estimated=True)


@pytest.mark.parametrize("ours", QUICK)
async def test_reads_and_writes_of_a_cache_are_counted_apart_and_charged_at_their_price(
    provider: Provider, ours: str
) -> None:
    """In every format, the input includes cached tokens. Google reports no cache writes.

    No request asks for a cache that lasts longer than the five minutes that the prices assume.
    """
    written = 0 if ours == "google" else 70
    provider.play([Reply((Say("Four."),), usage=Usage(input=120, output=6, cached=20, cache_written=written))])
    answer = await ask(reach(provider, ours), Asked(text="What is two and two?"))
    assert answer.usage == TokenUsage(input=120, output=6, cached=20, cache_written=written)
    prices = {f"{ours}:scripted": Price(input=100, cached=10, cache_write=125, output=1000)}
    millionths = (100 - written) * 100 + 20 * 10 + written * 125 + 6 * 1000
    assert find_cost(prices, f"{ours}:scripted", answer.usage) == pytest.approx(millionths / 1e6)
    assert "1h" not in str(provider.requests[-1].raw)


async def test_published_prices_of_a_cache_are_those_of_its_house() -> None:
    """Anthropic charges a tenth of the input price for a read.

    A write that lasts five minutes costs a quarter more than input.
    """
    for name, price in read_known_prices().items():
        if name.startswith("anthropic:"):
            assert (price.cached, price.cache_write) == (
                pytest.approx(price.input / 10),
                pytest.approx(price.input * 1.25),
            ), name


@pytest.mark.parametrize("ours", QUICK)
async def test_half_a_character_in_an_answer_fails_nothing(provider: Provider, ours: str) -> None:
    """A character that a stream cuts in two is restored, and a lone surrogate becomes an escape.

    The answer can be recorded and sent again.
    """
    thought = (Think("Hm \ud83d."),) if ours != "openai-chat" else ()
    calls = (Call("add", {"a": "x\ud83d", "b": "\ud83d\ude00"}, id="call_1"), Call("ad\ud83dd", {}, id="call_2"))
    provider.play([Reply((*thought, Say("Cut \ud83d\ude00, lone \ud83d."), *calls)), Say("Well then.")])
    said: list[str] = []
    model = reach(provider, ours)
    answered = (await ask(model, Asked(text="Hello?"), said=said)).answered
    assert answered.text == "".join(said) == "Cut \U0001f600, lone \\ud83d."
    assert msgspec.json.decode(msgspec.json.encode(answered), type=Answered) == answered
    returned = [Returned(call=call.id, name=call.name, text="no") for call in answered.calls]
    assert (await hear(model, Asked(text="Hello?"), answered, *returned)).text == "Well then."
    assert provider.requests[-1].calls[0].args == {"a": "x\\ud83d", "b": "\U0001f600"}
    # The same for another model, which gets only the words and calls.
    told_anew = await hear(
        reach(provider, ours), Asked(text="Hello?"), msgspec.structs.replace(answered, raw=None), *returned
    )
    assert told_anew.text == "Well then." and provider.requests[-1].calls[0].args == {
        "a": "x\\ud83d",
        "b": "\U0001f600",
    }


@pytest.mark.parametrize("ours", QUICK)
async def test_half_a_character_in_what_is_told_fails_nothing(provider: Provider, ours: str) -> None:
    """The surrogate may come from a person, a tool, an earlier model, a tool's description or instructions."""
    provider.play([Say("unused"), Say("unused"), Say("Fine.")])
    entries = (
        Asked(text="a \ud800"), Answered(model="m:n", text="b \udc80", calls=(ToolCall(id="c", name="add", arguments='{"a": "\\ud800"}'),)),
        Returned(call="c", name="add", text="d \udce9"), Answered(model="m:n", text="e"), Returned(call="gone", name="add", text="f \ud83d\ude00"),
    )  # fmt: skip
    tool = msgspec.structs.replace(ADD, description="Add \ud800 numbers.")
    request = ModelRequest(instructions="Be \udfff brief.", entries=entries, tools=(tool,))
    assert (await reach(provider, ours).answer(request, lambda _: None)).answered.text == "Fine."
    asked = provider.requests[-1]
    assert all(
        words in asked.text
        for words in (
            "a \\\\ud800",
            "b \\\\udc80",
            "d \\\\udce9",
            "f \U0001f600",
            "Add \\\\ud800 numbers.",
            "Be \\\\udfff brief.",
        )
    )


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_an_answer_comes_as_it_is_said(provider: Provider, ours: str) -> None:
    """The text arrives in pieces and whole, with the usage that the provider reported.

    The model gets the instructions, the words, the tools and the settings.
    """
    provider.play([Reply((Say("Four, I think, and not five."),), usage=Usage(input=120, output=6, cached=20))])
    said: list[str] = []
    answer = await ask(
        reach(provider, ours), Asked(text="What is two and two?"), said=said, temperature=0.5, max_output_tokens=99
    )
    assert answer.answered.text == "".join(said) == "Four, I think, and not five."
    assert len(said) > 1
    assert answer.answered.model == f"{ours}:scripted"
    assert (answer.answered.stop, answer.answered.calls) == ("done", ())
    assert answer.usage == TokenUsage(input=120, output=6, cached=20)
    [asked] = provider.requests
    assert (asked.model, asked.key, asked.is_streaming) == ("scripted", KEY, True)
    assert "Be brief." in asked.system and asked.last_words == "What is two and two?"
    assert asked.tools[0].description == "Add two numbers."
    assert asked.settings["temperature"] == 0.5 and asked.settings["max_tokens"] == 99


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_a_request_is_made_ready_at_once_and_sent_when_its_record_is_there(provider: Provider, ours: str) -> None:
    """The provider gets nothing before the record exists, and never a request that could not be recorded.

    The next request works.
    """
    provider.play(always("Well then."))
    model, request = reach(provider, ours), ModelRequest(instructions="", entries=[Asked(text="Hello?")])
    is_ready, is_recorded = asyncio.Event(), asyncio.Event()

    async def record() -> None:
        is_ready.set()
        await is_recorded.wait()

    async def refuse() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(ProviderFault):
        await model.answer(request, lambda *_: None, refuse())
    answering = asyncio.create_task(model.answer(request, lambda *_: None, record()))
    await asyncio.wait_for(is_ready.wait(), PATIENCE_SECONDS)
    assert provider.requests == [] and not answering.done()
    is_recorded.set()
    assert (await answering).answered.text == "Well then."
    assert [asked.last_words for asked in provider.requests] == ["Hello?"]


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_calls_are_answered_in_their_order_whatever_order_they_ended_in(provider: Provider, ours: str) -> None:
    """Two calls of one answer are two values. Their results go into one message, with errors marked."""
    provider.play(
        [(Say("Let me see."), Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), Say("3 and trouble")]
    )
    model = reach(provider, ours)
    first = await hear(model, Asked(text="Sums, please."))
    assert (first.text, first.stop, [call.name for call in first.calls]) == ("Let me see.", "calls", ["add", "add"])
    assert [msgspec.json.decode(call.arguments) for call in first.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    one, two = first.calls
    assert one.id != two.id
    late = Returned(call=two.id, name="add", text="no seven here", is_error=True)
    soon = Returned(call=one.id, name="add", text="3")
    last = await hear(model, Asked(text="Sums, please."), first, late, soon)
    assert last.text == "3 and trouble"
    results = provider.requests[-1].results
    assert "3" in results[0].content and "no seven here" in results[1].content
    assert results[1].is_error or "error" in results[1].content


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_a_call_that_nobody_answered_is_told_as_interrupted(provider: Provider, ours: str) -> None:
    """A conversation whose log ends with open calls continues legally. The model reads that their effect is unknown."""
    provider.play([(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), Say("I shall look.")])
    first = await hear(reach(provider, ours), Asked(text="Sums, please."))
    entries = (
        Asked(text="Sums, please."),
        first,
        Returned(call=first.calls[0].id, name="add", text="3"),
        Asked(text="And?"),
    )
    await ask(reach(provider, ours), *entries)
    asked = provider.requests[-1]
    assert [result.content for result in asked.results] == ["3", INTERRUPTED]
    assert asked.last_words == "And?"


@pytest.mark.parametrize("ours", QUICK)
async def test_a_thought_goes_back_to_where_it_came_from_and_nowhere_else(provider: Provider, ours: str) -> None:
    """A later request to the same provider returns the signature unchanged, also after a restart."""
    thinks = {"anthropic": "claude-sonnet-5", "openai": "gpt-5", "google": "gemini-3-pro"}.get(ours, "scripted")
    provider.play([(Think("Hm.", signature="c2lnbmVk"), Call("add", {"a": 1, "b": 2})), Say("3")])
    first = await hear(reach(provider, ours, model=thinks), Asked(text="Sum, please."))
    assert "Hm." not in first.text
    await hear(
        reach(provider, ours, model=thinks),
        Asked(text="Sum, please."),
        first,
        Returned(call=first.calls[0].id, name="add", text="3"),
    )
    if ours == "openai-chat":
        return  # The format has no signatures.
    assert "c2lnbmVk" in msgspec.json.encode(provider.requests[-1].raw).decode()


def _pairs() -> list[tuple[str, str]]:
    return list(itertools.permutations(PROVIDERS, 2))


async def _go_on_elsewhere(provider: Provider, one: str, other: str) -> None:
    """Begin with one provider, send its calls and results to the other, and return with that answer to the first."""
    provider.play(
        [
            (Think("Hm."), Say("First."), Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3})),
            Call("add", {"a": 5, "b": 6}),
            Say("Done."),
        ]
    )
    entries: list[Entry] = [Asked(text="Sums, please.")]
    for name in (one, other, one):
        answered = await hear(reach(provider, name), *entries)
        entries += [
            answered,
            *(Returned(call=call.id, name=call.name, text=f"came of {call.arguments}") for call in answered.calls),
        ]
    assert entries[-1].text == "Done."
    last = provider.requests[-1]
    assert [call.args for call in last.calls] == [{"a": 1, "b": 2}, {"a": 3}, {"a": 5, "b": 6}]
    assert len(last.results) == 3 and '"b":6' in last.results[2].content.replace(" ", "")
    assert "First." in last.text


@pytest.mark.parametrize(
    ("one", "other"), [("anthropic", "openai-chat"), ("openai", "google"), ("google", "anthropic")]
)
async def test_a_conversation_moves_to_another_provider_with_open_calls(
    provider: Provider, one: str, other: str
) -> None:
    """The next provider gets every word, call and result, with call ids that its format accepts."""
    await _go_on_elsewhere(provider, one, other)


@pytest.mark.long
@pytest.mark.parametrize(("one", "other"), _pairs())
async def test_a_conversation_moves_between_every_pair_of_providers(provider: Provider, one: str, other: str) -> None:
    """The same check for all pairs in both directions."""
    await _go_on_elsewhere(provider, one, other)


@pytest.mark.parametrize("ours", QUICK)
async def test_ids_of_calls_that_no_provider_accepts_become_ones_that_all_do(provider: Provider, ours: str) -> None:
    """A call recorded with a strange id is sent with a legal one, and so is its result."""
    provider.play([Say("Never asked."), Say("3")])
    strange = "call|fc:1/ä " + "x" * 90
    answered = Answered(
        model="elsewhere:m", calls=(ToolCall(id=strange, name="add", arguments='{"a": 1, "b": 2}'),), stop="calls"
    )
    await hear(reach(provider, ours), Asked(text="Sum"), answered, Returned(call=strange, name="add", text="3"))
    [call], [result] = provider.requests[-1].calls, provider.requests[-1].results
    assert call.id == result.id
    assert call.id is None or (len(call.id) <= 40 and call.id.replace("_", "").isalnum())


@pytest.mark.parametrize("ours", QUICK)
async def test_ids_that_a_server_repeats_are_told_apart(provider: Provider, ours: str) -> None:
    """If a server numbers its calls anew in each answer, our calls still get ids of their own."""
    provider.play(
        [
            (Call("add", {"a": 1}, id="call_0"), Call("add", {"a": 2}, id="call_0")),
            Call("add", {"a": 3}, id="call_0"),
            Say("Done."),
        ]
    )
    model, entries = reach(provider, ours), [Asked(text="Sums")]
    for _ in range(3):
        answered = await hear(model, *entries)
        entries += [answered, *(Returned(call=call.id, name="add", text=call.arguments) for call in answered.calls)]
    ids = [call.id for entry in entries if isinstance(entry, Answered) for call in entry.calls]
    assert len(set(ids)) == len(ids) == 3


@pytest.mark.parametrize("ours", QUICK)
async def test_arguments_that_are_no_json_are_kept_and_sent_back_legally(provider: Provider, ours: str) -> None:
    """The log keeps the invalid arguments as the model wrote them. The next request is legal all the same."""
    provider.play([Say("Never asked."), Say("Sorry.")])
    wrong = Answered(model=f"{ours}:m", calls=(ToolCall(id="call_1", name="add", arguments='{"a": 1, '),), stop="calls")
    entries = Asked(text="Sum"), wrong, Returned(call="call_1", name="add", text="arguments are no JSON", is_error=True)
    assert (await hear(reach(provider, ours), *entries)).text == "Sorry."
    [call] = provider.requests[-1].calls
    assert '{"a": 1, ' in msgspec.json.encode(call.args).decode().replace("\\", "")


@pytest.mark.parametrize("ours", QUICK)
async def test_what_was_asked_one_after_the_other_is_all_told(provider: Provider, ours: str) -> None:
    """The model gets several messages, also an empty one, and results without a call, as one legal turn."""
    provider.play([Say("Yes.")])
    stray = Returned(call="gone", name="add", text="seven")
    await ask(reach(provider, ours), Asked(text="One."), Asked(text="  "), stray, Asked(text="Two."))
    text = provider.requests[-1].text
    assert all(words in text for words in ("One.", "seven", "Two."))


@pytest.mark.parametrize("ours", QUICK)
@pytest.mark.parametrize("stop", ["length", "refused"])
async def test_an_answer_cut_short_or_refused_says_so(provider: Provider, ours: str, stop: str) -> None:
    """It still counts as an answer: it has a cost, and its words if the provider shows them."""
    provider.play([Reply((Say("Well, I"),), usage=Usage(input=7, output=3), stop=stop), Say("Fine.")])  # type: ignore[arg-type]
    model = reach(provider, ours)
    answer = await ask(model, Asked(text="Sing."))
    assert (answer.answered.stop, answer.usage) == (stop, TokenUsage(input=7, output=3))
    provider.play(always("Fine."))
    assert (await hear(model, Asked(text="Sing."), answer.answered, Asked(text="Then speak."))).text == "Fine."


EFFORT = {"anthropic": '"effort"', "openai": '"effort"', "openai-chat": "reasoning_effort", "google": "thinkingConfig"}


@pytest.mark.parametrize(
    ("ours", "name", "has_it"),
    [
        ("anthropic", "claude-sonnet-5", True),
        ("openai", "gpt-5", True),
        ("openai", "gpt-4o", False),
        ("openai-chat", "gpt-5", True),
        ("openai-chat", "gpt-4o", False),
        ("google", "gemini-3-pro", True),
    ],
)
async def test_effort_reaches_models_that_have_such_a_setting(
    provider: Provider, ours: str, name: str, has_it: bool
) -> None:
    """Effort becomes the provider's own setting. It is left out for a model without such a setting."""
    provider.play(always("Done."))
    await ask(reach(provider, ours, model=name), Asked(text="Think."), effort="low", temperature=0.1)
    assert (EFFORT[ours] in msgspec.json.encode(provider.requests[-1].raw).decode()) == has_it


async def test_thinking_by_budget_stays_within_the_answer_and_what_the_provider_allows(provider: Provider) -> None:
    """If a model takes a number of tokens for thinking, effort is a share of its answer.

    It is left out if there is no room, or no thought to continue from.
    """
    provider.play(always("Done."))
    model = reach(provider, "anthropic", model="claude-haiku-4-5")
    await ask(model, Asked(text="Think."), effort="high", max_output_tokens=8_000, temperature=0.1)
    assert provider.requests[-1].raw["thinking"] == {"type": "enabled", "budget_tokens": 6_000}
    assert "temperature" not in provider.requests[-1].raw
    await ask(model, Asked(text="Think."), effort="high", max_output_tokens=1_000)
    assert "thinking" not in provider.requests[-1].raw
    elsewhere = Answered(model="openai:m", calls=(ToolCall(id="c1", name="add", arguments="{}"),), stop="calls")
    await ask(model, Asked(text="Think."), elsewhere, Returned(call="c1", name="add", text="3"), effort="high")
    assert "thinking" not in provider.requests[-1].raw


async def test_a_conversation_that_begins_with_an_answer_is_a_defect_of_ours(provider: Provider) -> None:
    """No request is sent."""
    with pytest.raises(InternalError, match="begin"):
        await ask(reach(provider, "anthropic"), Answered(model="anthropic:m", text="Hello?"))
    assert provider.requests == []


async def test_a_raw_message_that_cannot_be_read_is_told_anew(provider: Provider) -> None:
    """If a raw message is damaged or from another library version, only its signature is lost.

    The conversation continues.
    """
    provider.play([Say("Never asked."), Say("Yes.")])
    for raw in (
        "",
        "{",
        "[]",
        '[{"kind":"response","parts":[{"part_kind":"of tomorrow"}]}]',
        '[{"kind":"response","parts":[]}]',
    ):
        odd = Answered(
            model="anthropic:m",
            text="One.",
            calls=(ToolCall(id="c1", name="add", arguments="{}"),),
            stop="calls",
            raw=raw,
        )
        assert (await hear(reach(provider, "anthropic"), Asked(text="Go."), odd)).text == "Yes."
        assert "One." in provider.requests[-1].text


async def test_no_key_is_needed_where_nobody_asks_for_one(provider: Provider) -> None:
    """An endpoint with an address of its own is used without a key. A provider's public address is not even tried."""
    provider.play(always("Hello."))
    assert (await hear(reach(provider, "openai-compatible", key=None), Asked(text="Hello?"))).text == "Hello."
    for ours in ("anthropic", "openai", "openai-chat", "google"):
        with pytest.raises(ProviderFault, match="needs a key") as caught:
            make_model(ModelSpec(provider=ours, model="m"), None)  # type: ignore[arg-type]
        assert caught.value.kind == "key"
    with pytest.raises(OperatorError, match="base_url"):
        make_model(ModelSpec(provider="openai-compatible", model="m"), KEY)


async def test_keys_and_addresses_of_the_environment_are_not_used(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents never use keys or addresses from the environment, so they cannot use each other's keys."""
    for name in ("ANTHROPIC", "OPENAI", "GOOGLE", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-of-the-environment")
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    provider.play(always("Hello."))
    for ours in QUICK:
        await hear(reach(provider, ours), Asked(text="Hello?"))
        assert provider.requests[-1].key == KEY
        assert "of-the-environment" not in str(provider.requests[-1].headers)


async def test_without_the_extra_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the adapter gives no traceback, and making a model names the command to install."""
    real = builtins.__import__

    def refuse(name: str, *rest: object, **named: object) -> object:
        if name.partition(".")[0] == "httpx2":
            raise ModuleNotFoundError("No module named 'httpx2'", name="httpx2")
        return real(name, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    adapters = [name for name in sys.modules if name.startswith("wakeful.agents.models.")]
    assert adapters
    for name in adapters:
        monkeypatch.delitem(sys.modules, name)
    fresh = __import__("wakeful.agents.models.provider_model", fromlist=["make_model"])
    assert fresh is not models
    with pytest.raises(OperatorError, match=r"pip install .*\[agents\]"):
        fresh.make_model(ModelSpec(provider="anthropic", model="m"), KEY)


@pytest.mark.parametrize("key", ["sk-of-two\nlines", "sk-\0-secret", "sk-of-Käthe"])
async def test_a_key_that_no_request_can_carry_is_refused_without_being_quoted(provider: Provider, key: str) -> None:
    """The key is refused before anything is sent."""
    for ours in QUICK:
        with pytest.raises(ProviderFault, match="set it again") as caught:
            reach(provider, ours, key=key)
        assert caught.value.kind == "key" and "sk-" not in str(caught.value)


async def test_a_key_is_in_no_word_a_model_says_of_itself(provider: Provider) -> None:
    """Neither the repr of the model nor that of a request contains the key."""
    model = reach(provider, "anthropic")
    assert KEY not in repr(model) + repr(ModelRequest(instructions="", entries=(), tools=(ADD,)))

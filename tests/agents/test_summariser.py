"""A conversation of any length is summarised whole.

If it is longer than one request, it is summarised in pieces. No part is left unread.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from wakeful.agents.compaction import LEAST_TOLD_TOKENS, Summariser
from wakeful.agents.contract import ModelAnswer, ModelRequest, ProviderFault
from wakeful.agents.summary import Summary
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import Answered, Asked, Returned, TokenUsage, ToolCall
from wakeful.core.spec.agent import AgentSpec, ModelSpec

AGENT = AgentSpec(name="docs", models=(ModelSpec(provider="anthropic", model="m"),))
EARLIER = "Objective: Keep it true.\n\nOpen questions:\n- Who signs the payroll of July?\n\nIt began in May."
# Each entry has unique words, so that a test can tell which of them a model was shown.
ENTRIES = [
    entry
    for number in range(30)
    for entry in (
        Asked(text=f"question-{number}-mark: what is in file {number}?"),
        Answered(
            model="anthropic:m",
            text=f"answer-{number}-mark",
            calls=(ToolCall(id=f"c{number}", name="read", arguments=f'{{"path": "call-{number}-mark"}}'),),
        ),
        Returned(
            call=f"c{number}",
            name="read",
            text=f"first-{number}-mark " + "some words of a file " * 100 + f" last-{number}-mark",
        ),
    )
]
MARKS = {f"{kind}-{number}-mark" for number in range(30) for kind in ("question", "answer", "call", "first", "last")}


class Reader:
    """A model whose summary is the marks that it was shown. It keeps each request.

    `faults` are its first answers, and `most` is the longest text that it accepts.
    """

    name = "anthropic:m"

    def __init__(
        self,
        *faults: ProviderFault | str,
        most: int | None = None,
        answer: Callable[[str], dict[str, Any] | str] | None = None,
    ) -> None:
        self.faults = list(faults)
        self.most = most
        self.told: list[str] = []
        self._answer = answer or (
            lambda text: {
                "summary": " ".join(re.findall(r"[\w-]+-mark", text)),
                "settled": ["Who signs the payroll of July? Ada does."],
            }
        )

    async def answer(
        self, request: ModelRequest, say: Callable[[str], None], recorded: Awaitable[object] | None = None
    ) -> ModelAnswer:
        text = request.entries[0].text
        if self.most is not None and len(text) > self.most:
            raise ProviderFault("too_long", "413: too long")
        self.told.append(text)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, ProviderFault):
            raise fault
        made = fault if fault is not None else self._answer(text)
        calls = (ToolCall(id="s", name="summarise", arguments=json.dumps(made)),) if isinstance(made, dict) else ()
        answered = Answered(model=self.name, text=made if isinstance(made, str) else "", calls=calls)
        return ModelAnswer(answered=answered, usage=TokenUsage(input=10, output=5))


class Made:
    """One summary and the steps recorded for it. After `end_after` requests the daemon ends the run."""

    def __init__(
        self,
        *models: Reader,
        most_tokens: int = 4_000,
        end_after: int | None = None,
        is_limit: bool = True,
        **beginning: Any,
    ) -> None:
        self.steps: list[work.PostedStep] = []
        self.pauses: list[float] = []
        self._end_after, self._is_limit = end_after, is_limit
        fields = {"agent": AGENT, "entries": (), "summary": EARLIER, "objective": "Keep it true.", **beginning}
        started = work.Beginning(session="s", run=1, run_id="s.1", instructions="", root="/p", **fields)
        self.summariser = Summariser(started, models, self, lambda text: None, most_tokens, self.pause)
        self.summary: Summary | None = asyncio.run(self.summariser.summarise(ENTRIES))

    async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
        self.steps += steps
        requests = sum(isinstance(step, work.RequestTurn) for step in self.steps)
        is_over = self._end_after is not None and requests > self._end_after
        return work.Recorded(end="nothing is left" if is_over else None, is_limit=is_over and self._is_limit)

    async def tell(self, *steps: work.PostedStep) -> None:
        self.steps += steps

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_a_conversation_that_fits_is_one_request_with_all_of_it() -> None:
    model = Reader()
    made = Made(model, most_tokens=150_000)
    assert len(model.told) == 1 and all(mark in model.told[0] for mark in MARKS) and "It began in May." in model.told[0]
    assert made.summariser.by == "anthropic:m"


@pytest.mark.parametrize("most_tokens", [4_000, 1_500, 700])
def test_one_that_does_not_fit_is_read_to_the_last_word_in_pieces_and_made_one(most_tokens: int) -> None:
    """This holds even if one result is longer than a request. Every request is recorded and fits the model's limit."""
    model = Reader()
    made = Made(model, most_tokens=most_tokens)
    parts = [text for text in model.told if "Summarise this part alone" in text]
    assert len(parts) >= 5 and all(mark in "".join(parts) for mark in MARKS)
    assert made.summary is not None and made.summary.settled
    requests = [step for step in made.steps if isinstance(step, work.RequestTurn)]
    assert len(requests) == len(model.told) and all(step.purpose == "summary" for step in requests)
    assert all(step.input_tokens <= most_tokens for step in requests) or most_tokens < 1_000
    assert [step.turn for step in requests] == list(range(1, len(requests) + 1))


def test_what_is_made_of_the_parts_is_all_of_them_and_the_summary_before() -> None:
    model = Reader()
    made = Made(model)
    last = model.told[-1]
    assert "summaries of consecutive parts" in last and "It began in May." in last
    assert made.summary is not None and {mark for mark in MARKS if mark in made.summary.summary} == MARKS


def test_a_provider_that_is_busy_is_asked_again_as_it_wishes() -> None:
    model = Reader(ProviderFault("busy", "429", retry_after=7.0), ProviderFault("busy", "503"))
    made = Made(model, most_tokens=150_000)
    assert made.pauses == [7.0, 4.0] and made.summary is not None
    assert [type(step).__name__ for step in made.steps] == [
        "RequestTurn",
        "RecordFault",
        "RequestTurn",
        "RecordFault",
        "RequestTurn",
        "RecordAnswer",
    ]
    assert {step.turn for step in made.steps} == {1}


def test_a_model_that_does_not_answer_gives_way_to_the_next_and_then_to_the_rule() -> None:
    gone = Reader(*[ProviderFault("busy", "529")] * 4)
    second = Reader()
    second.name = "openai:o"
    made = Made(gone, second)
    assert made.summariser.by == "openai:o" and len(gone.told) == 4 and len(second.told) > 5
    lonely = Made(Reader(*[ProviderFault("key", "401")] * 4))
    assert lonely.summary is None and lonely.summariser.by == "rule" and lonely.pauses == []


def test_a_provider_that_takes_less_is_told_smaller_pieces() -> None:
    model = Reader(most=5_000)
    made = Made(model, most_tokens=150_000)
    parts = "".join(text for text in model.told if "Summarise this part alone" in text)
    assert made.summary is not None and all(mark in parts for mark in MARKS)
    tiny = Made(Reader(most=LEAST_TOLD_TOKENS // 2))
    assert tiny.summary is None


def test_a_piece_that_no_model_summarises_is_told_by_rule_and_the_rest_by_the_model() -> None:
    model = Reader("", "", answer=lambda text: {"summary": f"it says {len(text)}"})
    made = Made(model)
    assert made.summary is not None and made.summariser.by == "anthropic:m and rule"
    assert "question-0-mark: what is in file 0?" in " ".join(made.summary.open_questions)


def test_a_question_that_a_model_loses_twice_stays_open() -> None:
    model = Reader(answer=lambda text: {"summary": "Nothing to say."})
    made = Made(model, most_tokens=150_000)
    assert len(model.told) == 2 and made.summary is not None
    assert made.summary.open_questions == ("Who signs the payroll of July?",)


def test_facts_of_every_part_are_found_also_of_one_that_is_not_in_the_end() -> None:
    def answer(text: str) -> dict[str, Any]:
        found = re.search(r"answer-(\d+)-mark", text)
        facts = [{"key": f"k{found[1]}", "value": "v"}] if found and "Summarise this part alone" in text else []
        return {"summary": "read", "facts": facts}

    made = Made(Reader(answer=answer))
    assert len(made.summariser.facts) == 5


def test_a_run_that_must_stop_keeps_the_parts_that_are_paid_for_and_tells_the_rest_by_rule() -> None:
    """No further request is sent, and no part is missing. A stop by a person is not reported as a limit."""
    model = Reader()
    made = Made(model, end_after=3)
    assert len(model.told) == 3 and made.summary is not None
    assert (
        made.summariser.stopped is not None
        and made.summariser.stopped.is_limit
        and made.summariser.by == "anthropic:m and rule"
    )
    told = made.summary.tell()
    assert "answer-0-mark" in told and "It began in May." in told and "file 29?" in told
    person = Made(Reader(), end_after=3, is_limit=False)
    assert person.summariser.stopped is not None and not person.summariser.stopped.is_limit

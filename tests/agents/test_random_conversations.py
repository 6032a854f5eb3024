"""Random conversations with compactions, through a real daemon and its agent process.

The test checks every request that leaves against the log. Each request carries all facts, open conflicts and the
hand-off of its session, as they were when its opening was made. Facts and conflicts are in an opening itself, or the
agent set them in a call that the request shows.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from agents.provider import Call, Fail, Provider, Say
from agents.provider.model_request import Asked, ToolCall
from agents.test_agent_runs import KEY, declare
from e2e.box import Box
from wait_conditions import eventually
from wakeful.cli.client import Client

ACTS = ("ask", "ask", "ask", "ask", "remember", "remember", "note", "fresh", "merge", "compress", "change")
LEFT = re.compile(r"left-\d+")


class Model:
    """A model that answers at random, but not for ever: it stops calling tools and ends with words."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def answer(self, asked: Asked) -> Any:
        self._number += 1
        number, choice = self._number, self._random.random()
        if "summarise" in asked.tool_names:
            return self._summarise(number, choice)
        if choice < 0.25 and asked.model_turns_since_message < 6:
            return Call("read", {"path": "code.py", "offset": 1 + number % 50})
        if choice < 0.45 and asked.model_turns_since_message < 6:
            return Say(f"so far {number}"), Call("remember", {"key": f"own-{number % 4}", "value": f"value-{number}"})
        if choice < 0.55:
            return Call("hand_off", {"done": f"left-{number}"})
        if choice < 0.6:
            return Fail(429, retry_after=0.05)
        return Say(f"left-{number} " + "words of an answer " * self._random.choice((1, 100, 300)))

    def _summarise(self, number: int, choice: float) -> Any:
        if choice < 0.15:
            return Fail(529, retry_after=0.05)
        if choice < 0.25:
            return Call("summarise", {"wrong": "shape"})
        facts = [{"key": f"found-{number % 3}", "value": f"value-{number}"}] if choice < 0.6 else []
        return Call(
            "summarise",
            {
                "summary": f"Much was said until {number}.",
                "open_questions": [f"Which is number {number}?"],
                "facts": facts,
            },
        )


class Story:
    """Random actions of people on the session."""

    def __init__(self, box: Box, seed: int) -> None:
        self._box = box
        self._random = random.Random(seed)
        self._number = 0

    def act(self) -> None:
        box, self._number = self._box, self._number + 1
        number = self._number
        match self._random.choice(ACTS):
            case "ask":
                box.run("ask", "docs", f"question {number}?")
            case "remember":
                box.ask("remember", "docs", f"ours-{number % 5}", f"value-{number}")
            case "note":
                box.ask("note", "docs", f"left-{number + 10_000}")
            case "fresh":
                box.run("activate", "docs", "--fresh", "--wait")
            case "compress":
                box.run("compress", "docs", "--keep", "2")
            case "change":
                box.write("code.py", f"version = {number}\n" + "value = 'of some length'\n" * 120)
                box.run("activate", "docs", "--wait")
            case "merge":
                box.ask("fork", "docs", "--as", f"trial-{number}")
                for name in ("docs", f"trial-{number}"):
                    box.ask("remember", name, f"rate-{number}", f"{name}-{number}")
                eventually(lambda: self._is_merged(f"trial-{number}"))

    def _is_merged(self, fork: str) -> bool:
        """Merge the fork, unless a run is under way: a message or a change may have started one."""
        done = self._box.run("merge", "docs", fork)
        assert done.returncode == 0 or "docs is running" in done.stderr, done.stderr
        return done.returncode == 0


def check_request(asked: Asked, state: dict[str, Any]) -> None:
    openings = "\n".join(message.text for message in asked.messages if message.role == "user")
    own = {
        (piece.args.get("key"), piece.args.get("value"))
        for piece in asked.calls
        if isinstance(piece, ToolCall) and piece.name == "remember"
    }
    lost = [
        (fact["key"], fact["value"])
        for fact in state["facts"]
        if f'"{fact["key"]}" = "{fact["value"]}"' not in openings and (fact["key"], fact["value"]) not in own
    ]
    assert lost == [], f"request {asked.number} lacks facts"
    missing = [
        conflict["number"] for conflict in state["conflicts"] if f"conflict {conflict['number']} over" not in openings
    ]
    assert missing == [], f"request {asked.number} lacks open conflicts"
    assert [left for left in LEFT.findall(state["handoff"] or "") if left not in asked.text] == [], (
        f"request {asked.number} lacks the hand-off"
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_request_that_leaves_has_all_facts_open_conflicts_and_the_hand_off(
    box: Box, provider: Provider, seed: int
) -> None:
    model = Model(seed)
    provider.play(model.answer)
    declare(
        box,
        provider,
        conversation="continue",
        agent="context: {tokens: 16000, compress_at: 6500}\nsettings: {max_output: 1000}\n",
    )
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    story = Story(box, seed)
    for _ in range(24):
        story.act()
    records = box.log("docs")
    requested = [(place, record) for place, record in enumerate(records) if record["kind"] == "turn_requested"]
    sent = [asked for asked in provider.requests]
    assert len(requested) == len(sent)
    client = Client(str(box.socket))
    states: dict[int, dict[str, Any]] = {}
    checked = 0
    for (place, record), asked in zip(requested, sent, strict=True):
        if record["payload"]["purpose"] == "summary":
            continue
        opened = next(one["seq"] for one in reversed(records[:place]) if one["kind"] == "prompt_assembled")
        if opened not in states:
            states[opened] = client.get("/sessions/docs", at=opened)
        check_request(asked, states[opened])
        checked += 1
    compacted = sum(record["kind"] == "conversation_compressed" for record in records)
    assert checked >= 20 and compacted >= 3, (checked, compacted)
    assert len(states) < checked, "no request was checked that was not the first of its beginning"

"""A conversation written as text for an external agent. The part that does not fit is condensed by rule, and marked."""

from __future__ import annotations

from wakeful.agents.acp.prompt import tell_all, tell_since
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import Answered, Asked
from wakeful.core.spec.agent import AgentSpec, TokenWindow

AGENT = AgentSpec(name="docs", acp=("program",), window=TokenWindow(tokens=2_000, compress_at=1_000))


def test_what_does_not_fit_is_told_by_rule_with_its_questions_decisions_and_names() -> None:
    """The condensed part includes the turns that the daemon left out before."""
    left_out = (
        Asked(text="Who signs for June? See pay/june.csv."),
        Answered(model="anthropic:m", text="We decided to use 4.6."),
    )
    shown = [
        entry
        for number in range(20)
        for entry in (
            Asked(text=f"question {number}?"),
            Answered(model="anthropic:m", text=f"answer {number} " + "words " * 100),
        )
    ]
    entries = (
        Asked(text="# Summary of the conversation so far: May."),
        Asked(text="(2 earlier turns left out)"),
        *shown,
    )
    beginning = work.Beginning(
        session="s",
        run=1,
        run_id="s.1",
        instructions="Be good.",
        root="/p",
        agent=AGENT,
        entries=entries,
        left_out=left_out,
        summary="May.",
        later=(Asked(text="And now?"),),
    )
    for told in (tell_all(beginning, "acp:program"), tell_since(beginning, "acp:program")):
        assert all(
            words in told
            for words in (
                "Who signs for June?",
                "We decided to use 4.6.",
                "pay/june.csv",
                "question 0?",
                "answer 19 ",
                "And now?",
            )
        ), told
        assert (
            "entries of this conversation do not fit; here they are, condensed without a model" in told
            and "earlier turns left out" not in told
        )
    assert "so far: May." in tell_all(beginning, "acp:program")

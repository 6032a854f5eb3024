"""An agent that must ask before it writes. A person sees the change in advance, and can refuse it with a reason."""

from __future__ import annotations

from agents.provider import Call, Provider, Say
from agents.test_agent_runs import KEY, declare, results
from e2e.box import Box


def test_the_change_is_shown_before_a_person_says_yes_and_the_reason_of_a_no_reaches_the_agent(
    box: Box, provider: Provider
) -> None:
    """The question shows the diff of the file. After a refusal, the model reads the refusal with its reason."""
    provider.play(
        [
            Call("write", {"path": "page.md", "content": "pay()\n"}),
            Call("write", {"path": "page.md", "content": "pay(): pays\n"}),
            Say("Done."),
        ]
    )
    declare(box, provider, tools="{write: ask}")
    box.start(env=KEY)
    box.wait_for("docs", state="sleeping")
    shown = box.ask("answer", "docs")
    assert "it would call write" in shown and "+pay()" in shown and "wakeful answer docs yes, or no" in shown
    found = box.json("answer", "docs")
    assert found["asks"] == "permission" and found["call"]["name"] == "write"
    assert found["call"]["diff"]["path"] == "page.md" and box.read("page.md") == ""
    box.ask("answer", "docs", "no", "--because", "say what it does")
    box.wait_for("docs", state="sleeping", runs=2)
    assert "+pay(): pays" in box.ask("answer", "docs")
    box.ask("answer", "docs", "yes")
    box.wait_at_rest("docs", runs=3)
    assert box.read("page.md") == "pay(): pays\n"
    assert [(one.is_error, one.content) for one in results(provider.requests[1])] == [
        (True, "a person was asked, and said no: say what it does")
    ]
    answers = [record["payload"] for record in box.log("docs") if record["kind"] == "question_answered"]
    assert [(one["text"], one["rationale"]) for one in answers] == [("no", "say what it does"), ("yes", None)]

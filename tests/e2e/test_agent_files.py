"""Agents declared and edited while the daemon runs.

A session whose agent cannot answer sleeps and says what to do. Other sessions go on.
"""

from __future__ import annotations

from e2e.box import Box
from wait_conditions import eventually

ASKING = (
    "objective: Ask.\nagent: docs\nbindings: {input: {file: in.txt, settle: 10ms}}\nrun: {prompt: Say what changed.}\n"
)


def test_a_session_without_a_key_sleeps_and_says_which(box: Box) -> None:
    """An edit of the agent's file shows at once, and a broken file leaves the agent as it was.

    A command session of the same agent needs no key.
    """
    box.write("in.txt", "1\n")
    box.write("role.md", "Be exact.\n")
    box.spec("ask", ASKING)
    box.spec(
        "plain",
        "objective: Run.\nagent: docs\nbindings: {input: {file: in.txt, settle: 10ms}}\nrun: {command: ['true']}\n",
    )
    box.spec("agents/docs", "prompt: {file: role.md}\nmodel: anthropic:claude-sonnet-4-5\n")
    box.start()
    box.wait_at_rest("plain", runs=1)
    row = box.wait_for("ask", state="sleeping")
    assert (
        row["reason"] == "needs a key: ANTHROPIC_API_KEY (wakeful secret set ANTHROPIC_API_KEY)"
        and row["agent"] == "docs"
    )
    assert {one["name"]: one["sessions"] for one in box.json("secret", "list")}["ANTHROPIC_API_KEY"] == ["ask"]
    box.spec("agents/docs", "model: openai:gpt-5\n")
    eventually(lambda: "needs a key: OPENAI_API_KEY" in (box.row("ask")["reason"] or ""))
    box.spec("agents/docs", "modle: openai:gpt-5\n")
    eventually(lambda: "did you mean 'model'" in box.run("doctor").stdout)
    assert "needs a key: OPENAI_API_KEY" in (box.row("ask")["reason"] or "")
    (box.specs / "agents" / "docs.yaml").unlink()
    eventually(lambda: "its agent docs does not exist" in (box.row("ask")["reason"] or ""))
    box.write("in.txt", "2\n")
    eventually(lambda: box.row("ask")["owed"], what="the change remembered")
    assert box.row("ask")["runs"] == 0

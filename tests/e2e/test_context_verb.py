"""`wakeful context` on a real daemon: what a model would get now, with the number of tokens. Nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from e2e.box import Box


def test_context_shows_what_would_be_sent_and_records_nothing(tmp_path: Path) -> None:
    """The agent is asked for by name, in a session that a command works.

    Without a name the call is refused, because no agent works the session.
    """
    box = Box(tmp_path)
    try:
        box.write("AGENTS.md", "Write short sentences.")
        box.write("in/a.txt", "one\n")
        box.spec("agents/reader", "prompt: You read.\nmodel: openai-compatible:m\nbase_url: http://127.0.0.1:9/v1\n")
        box.spec(
            "words",
            "objective: Count the words.\nbindings: {input: {file: 'in/*', settle: 10ms}}\nrun: {command: ['true']}\n",
        )
        box.start()
        box.wait_at_rest("words", runs=1)
        assert box.run("remember", "words", "style", "terse").returncode == 0
        before = box.json("show", "words")["seq"]
        found = box.json("context", "words", "--for-agent", "reader")
        assert [part["name"] for part in found["instructions"]] == ["rules", "agent", "objective", "guide"]
        assert (found["agent"], found["model"], found["wanted"]) == ("reader", "openai-compatible:m", False)
        assert (
            "Write short sentences." in found["instructions"][0]["text"]
            and '"style" = "terse"' in found["opening"][0]["text"]
        )
        assert found["tokens"]["total"] == sum(found["tokens"]["parts"].values()) > 0
        text = box.run("context", "words", "--for-agent", "reader").stdout
        assert "words is owed no run" in text and max(map(len, text.splitlines())) <= 80
        refused = box.run("context", "words")
        assert refused.returncode == 1 and "no agent works in" in refused.stderr
        assert box.json("show", "words")["seq"] == before
    finally:
        box.close()

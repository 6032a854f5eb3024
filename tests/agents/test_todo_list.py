"""The to-do list of a session, end to end.

The agent sets it, people see it, the next run reads it, and it is saved and loaded with the session.
"""

from __future__ import annotations

from agents.provider import Call, Provider, Route, Routes, Say
from agents.test_agent_runs import KEY, declare
from e2e.box import Box


def test_a_to_do_list_is_kept_with_its_session(box: Box, provider: Provider) -> None:
    """Another agent that answers one message reads the list and cannot change it."""
    first = (
        Call("todo", {"items": ["read the code", "write the page"], "doing": [1]}),
        Call("todo", {"done": [1], "doing": [2]}),
        Say("half done"),
    )
    aside = (Call("todo", {"items": []}), Say("The list is fine."))
    routes = Routes(
        (
            Route(aside, shows="You are a reviewer."),
            Route((Say("the rest is done"),), shows="def pay_all"),
            Route(first),
        )
    )
    provider.play(routes)
    declare(box, provider)
    (box.specs / "agents" / "reviewer.yaml").write_text(
        f"prompt: You are a reviewer.\nmodel: anthropic:claude-test\nbase_url: {provider.url}\n"
    )
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    items = [{"text": "read the code", "status": "done"}, {"text": "write the page", "status": "doing"}]
    assert box.json("show", "docs")["todo"] == items
    assert "TO-DO LIST [x] read the code [~] write the page" in box.words("show", "docs")
    assert "to-do list: 1 of 2 done; doing: write the page" in box.words("log", "docs")
    assert "to-do list" in box.words("context", "docs", "--brief")
    # The next run begins a new conversation, and its opening has the list.
    box.write("code.py", "def pay_all(): ...\n")
    box.wait_at_rest("docs", runs=2)
    told = provider.requests[-1].messages[0].text
    assert (
        '# To-do list of this session, 1 of 2 done; change it with todo\n\n1. [x] "read the code"\n2. [~] "write the page"'
        in told
    )
    assert "The list is fine." in box.ask("ask", "docs", "Is the list right?", "--agent", "reviewer")
    assert '[x] "read the code"' in provider.requests[-1].messages[0].text
    assert (
        "todo is not allowed in this session" in provider.requests[-1].text
        and box.json("show", "docs")["todo"] == items
    )
    box.ask("save", "docs", "--output", str(box.folder / "docs.wakeful"))
    box.ask("load", str(box.folder / "docs.wakeful"), "--as", "copy")
    assert box.json("show", "copy")["todo"] == items

"""External coding agents over the Agent Client Protocol, end to end: a real daemon and a real program on the pipe."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.provider import Provider, Say, Turns
from e2e.box import Box
from reserved_port import held_port
from wait_conditions import eventually
from wakeful.agents.acp.run import read_secrets
from wakeful.secrets.store import name_variable

PROGRAM = Path(__file__).parent / "scripted_acp_agent.py"


def declare(
    box: Box, *, tools: str = "{edit: allow}", acp: str = "", run: str = "", network: str = "false", **settings: str
) -> Path:
    """Declare a session whose agent is the program, and return the folder with the program's files.

    `settings` are the program's own.
    """
    folder = box.folder / "program"
    (folder / "sessions").mkdir(parents=True)
    (folder / "scripted_acp_agent.py").write_text(PROGRAM.read_text())
    box.write("secret.txt", "not for it\n")
    for key, text in {"forbidden": str(box.folder / "secret.txt"), **settings}.items():
        (folder / key).write_text(text)
    box.write("code.py", "def pay(): ...\n")
    (box.specs / "agents").mkdir()
    command = f"command: [{sys.executable}, program/scripted_acp_agent.py, program]"
    (box.specs / "agents" / "coder.yaml").write_text(f"acp: {{{command}{acp}}}\ntools: {tools}\n")
    (box.specs.parent / "wakeful.yaml").write_text("")
    box.spec(
        "docs",
        "agent: coder\nobjective: Keep page.md true to code.py.\n"
        "bindings: {code: {file: code.py, settle: 0ms}, page: {file: out/page.md, access: write}}\n"
        "allow: {read: [program/scripted_acp_agent.py], write: [program]}\n"
        f"network: {network}\nconversation: continue\nrun: {{prompt: Bring page.md in line.{run}}}\n",
    )
    return folder


def told(folder: Path) -> list[list[str]]:
    """Return the lines that the program noted for each of its sessions."""
    return [
        path.read_text().splitlines()
        for path in sorted((folder / "sessions").iterdir(), key=lambda path: path.stat().st_mtime)
    ]


def test_an_external_agent_works_within_the_bindings_and_everything_is_on_record(box: Box) -> None:
    folder = declare(box)
    box.start()
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert box.read("out/page.md") == "page of def pay(): ...\n"
    steps = [kind for kind in box.kinds("docs") if kind.startswith(("prompt_", "turn_", "tool_", "note_"))]
    assert steps == [
        "prompt_assembled",
        "turn_requested",
        "tool_called",
        "tool_returned",
        "turn_metered",
        "turn_answered",
        "note_added",
    ]
    answered = next(record for record in box.log("docs") if record["kind"] == "turn_answered")["payload"]
    assert (answered["answer"]["text"], answered["answer"]["model"]) == (
        "The page is true.",
        "acp:scripted_acp_agent.py",
    )
    assert answered["usage"] == {"input": 20, "output": 15, "cached": 5, "cache_written": 0, "is_estimated": False}
    tried = told(folder)[0][-1]
    assert "PermissionError" in tried and "not for it" not in tried and "RequestError" in tried
    assert "Bring page.md in line." in told(folder)[0][1]


@pytest.mark.parametrize(
    ("can", "name", "second"),
    [
        ("resume load", "small", "resumed"),
        pytest.param("load", "small", "loaded", marks=pytest.mark.long),
        pytest.param("load", "gemini-cli", "new", marks=pytest.mark.long),
        pytest.param("", "small", "new", marks=pytest.mark.long),
    ],
)
def test_a_conversation_goes_on_as_the_program_can(box: Box, can: str, name: str, second: str) -> None:
    """The run resumes the program's session if possible, else loads it if that is harmless, else sends our transcript.

    The messages that a load replays are not recorded again.
    """
    folder = declare(box, can=can, name=name)
    box.start()
    box.wait_at_rest("docs", runs=1)
    box.save("code.py", "def pay_more(): ...\n")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    lines = told(folder)[-1]
    assert second in lines
    again = next(line for line in reversed(lines) if line.startswith("prompt: "))
    assert ("The page is true." in again) is (second == "new")
    assert all("said long ago" not in str(record["payload"]) for record in box.log("docs"))


@pytest.mark.long
def test_what_needs_a_person_ends_the_run_with_the_question_and_is_not_asked_twice(box: Box) -> None:
    folder = declare(box, tools="{edit: ask}", can="resume")
    box.start()
    row = box.wait_for("docs", state="sleeping")
    assert row["reason"].startswith("asks: may it do this: edit page.md?") and box.read("out/page.md") == ""
    assert "cancelled" in told(folder)[0]
    box.ask("answer", "docs", "yes")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded" and box.read("out/page.md")


@pytest.mark.long
def test_the_value_of_a_secret_does_not_pass_through_our_hands(box: Box) -> None:
    """The program reads the name instead of the value.

    A write that would replace the value by the name is refused, and the file keeps its value.
    """
    folder = declare(box)
    box.write("code.py", "token = 'token-canary-7531'\n")
    box.write("out/page.md", "the token is token-canary-7531\n")
    box.start(env={"WAKEFUL_SECRET_GH": "token-canary-7531"})
    row = box.wait_for("docs", state="sleeping")
    assert "out/page.md contains the value of a secret, which was shown as [secret GH]" in row["reason"], (
        row,
        box.ask("output", "docs"),
    )
    assert """read: "token = '[secret GH]'\\n\"""" in "\n".join(told(folder)[0]), told(folder)
    assert box.read("out/page.md") == "the token is token-canary-7531\n"


@pytest.mark.long
def test_a_program_that_has_to_stop_leaves_a_hand_off(box: Box) -> None:
    """The next run begins with the hand-off, also in a new session of the program."""
    folder = declare(box, stop="max_turn_requests")
    box.start()
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "failed", row
    left = box.json("show", "docs")["handoff"]
    assert (
        left.startswith("Run 1 was stopped before it was done: acp:scripted_acp_agent.py stopped: max turn requests")
        and "Its last words: The page is true." in left
    )
    (folder / "stop").unlink()
    box.ask("activate", "docs", "--fresh", "--wait")
    assert (
        "Run 1 was stopped before it was done" in told(folder)[-1][1]
        and box.json("show", "docs")["handoff"] == "The page is true."
    )


@pytest.mark.long
def test_a_program_that_is_not_there_or_says_nothing_fails_in_words(box: Box) -> None:
    declare(box)
    (box.specs / "agents" / "coder.yaml").write_text("acp: [no-such-program]\n")
    box.start()
    row = box.wait_for("docs", state="sleeping")
    assert "acp:no-such-program" in row["reason"]


def records(box: Box, kind: str) -> list[dict[str, Any]]:
    return [record["payload"] for record in box.log("docs") if record["kind"] == kind]


@pytest.mark.long
@pytest.mark.parametrize("way", ["in pieces", "by its question alone"])
def test_a_call_is_on_record_with_its_words_however_it_was_told(box: Box, way: str) -> None:
    """Claude Code reports a call before it has its words, and Gemini only with its question.

    The report of the result does not repeat the kind of call.
    """
    declare(box, way=way)
    box.start()
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    [called], [returned] = records(box, "tool_called"), records(box, "tool_returned")
    assert called["call"]["name"] == "edit" and json.loads(called["call"]["arguments"]) == {
        "title": "edit page.md",
        "input": {"path": "out/page.md"},
    }
    assert (returned["call"], returned["name"], returned["text"]) == (
        called["call"]["id"],
        "edit",
        "edit page.md: completed",
    )


@pytest.mark.long
@pytest.mark.parametrize("page", ["out/other.md", "../elsewhere.md"])
def test_an_edit_of_what_is_not_bound_is_refused_when_it_asks(box: Box, page: str) -> None:
    """The kernel permits the whole folder of an output. The policy for edits permits only the bound paths."""
    declare(box, page=page)
    box.start()
    box.wait_at_rest("docs", runs=1)
    assert not (box.folder / page).exists()
    assert records(box, "tool_returned")[0]["is_error"] and "is not bound for writing" in box.words("output", "docs")


@pytest.mark.long
def test_who_writes_through_us_without_asking_is_held_to_the_policy(box: Box) -> None:
    """The program ends as one that cannot do its work, and the reason names the policy."""
    declare(box, tools="{edit: deny}", way="without asking")
    box.start()
    row = box.wait_for("docs", state="sleeping")
    assert (
        box.read("out/page.md") == ""
        and "the policies of this session do not allow it to write files (write: allow, edit: deny)" in row["reason"]
    )


@pytest.mark.long
def test_a_program_has_its_variables_its_key_its_port_and_a_home_that_stays(box: Box) -> None:
    """The program gets the variables of the agent's file and of the session's run, but not the person's home."""
    with held_port() as held:
        port = str(held.getsockname()[1])
    acp = ", key: SOME_KEY, env: {OF_AGENT: one, OF_RUN: one}, files: own"
    folder = declare(box, acp=acp, run=", env: {OF_RUN: two}", network=f'[":{port}"]', port=port)
    box.start(env={"WAKEFUL_SECRET_SOME_KEY": "key-canary-12345"})
    box.wait_at_rest("docs", runs=1)
    found = ast.literal_eval((folder / "environment").read_text())
    assert found["HOME"].startswith(str(box.state / "scratch")) and Path(found["HOME"]).is_dir()
    del found["HOME"]
    assert found == {
        "SOME_KEY": "key-canary-12345",
        "OF_AGENT": "one",
        "OF_RUN": "two",
        "WAKEFUL_TOKEN_FILE": None,
        "files": False,
        "listens": True,
    }


def test_without_its_key_the_session_sleeps_and_says_which(box: Box) -> None:
    folder = declare(box, acp=", key: SOME_KEY")
    box.start()
    assert box.wait_for("docs", state="sleeping")["reason"].startswith("needs a key: SOME_KEY")
    assert told(folder) == []


@pytest.mark.parametrize(
    ("can", "acp", "noted"),
    [
        ("login modes", ", login: by-key, mode: careful", "mode careful"),
        pytest.param("options", ", mode: careful", "way careful", marks=pytest.mark.long),
    ],
)
def test_it_is_logged_in_and_put_into_the_mode_that_is_declared(box: Box, can: str, acp: str, noted: str) -> None:
    folder = declare(box, can=can, acp=acp)
    box.start()
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert noted in told(folder)[0]


@pytest.mark.long
def test_a_session_that_goes_on_is_in_its_mode_though_it_tells_none(box: Box) -> None:
    folder = declare(box, can="modes resume", acp=", mode: careful")
    box.start()
    box.wait_at_rest("docs", runs=1)
    box.save("code.py", "def pay_more(): ...\n")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert told(folder)[0].count("mode careful") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("can", "acp", "words"),
    [
        (
            "login",
            "",
            "needs a login (Authentication required): give it its key, acp: {key: NAME}, or name a login that it offers (by-key)",
        ),
        (
            "login",
            ", login: by-hand",
            "has no login 'by-hand'; it offers by-key: correct acp.login in agents/coder.yaml",
        ),
        ("modes", ", mode: wild", "has no mode 'wild'; it offers careful, bold: correct acp.mode in agents/coder.yaml"),
        ("", ", mode: wild", "has no mode 'wild'; it offers none"),
    ],
)
def test_what_it_does_not_offer_is_said_with_what_it_does(box: Box, can: str, acp: str, words: str) -> None:
    declare(box, can=can, acp=acp)
    box.start()
    assert words in box.wait_for("docs", state="sleeping")["reason"]


@pytest.mark.long
def test_a_session_that_the_program_lost_is_told_anew(box: Box) -> None:
    folder = declare(box, can="resume")
    box.start()
    box.wait_at_rest("docs", runs=1)
    for path in (folder / "sessions").iterdir():
        path.unlink()
    box.save("code.py", "def pay_more(): ...\n")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    [lines] = told(folder)
    assert lines[0] == "new" and "You said: The page is true." in lines[1]


@pytest.mark.long
def test_what_a_rewind_took_back_is_not_known_to_the_program(box: Box) -> None:
    """The program's own session knows the rewound part. So the program gets a new session, which continues as usual."""
    folder = declare(box, can="resume")
    box.start()
    box.wait_at_rest("docs", runs=1)
    first = next(record["seq"] for record in reversed(box.log("docs")) if record["kind"] == "session_suspended")
    box.save("code.py", "def planted_mark(): ...\n")
    box.wait_at_rest("docs", runs=2)
    box.ask("rewind", "docs", str(first))
    for text, runs in (("def pay_more(): ...\n", 3), ("def pay_less(): ...\n", 4)):
        box.save("code.py", text)
        row = box.wait_at_rest("docs", runs=runs)
        assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    old, new = told(folder)
    assert any("planted_mark" in line for line in old) and [line for line in old if line == "resumed"] == ["resumed"]
    assert new[0] == "new" and "resumed" in new


@pytest.mark.long
def test_a_conversation_moves_to_an_external_agent_and_back(box: Box, provider: Provider) -> None:
    """Each agent reads what the other one said, marked as the other's words.

    When the conversation moves back, the program's own session gets only what it missed.
    """
    folder = declare(box, can="resume")
    model = f"model: anthropic:claude-test\nbase_url: {provider.url}\n"
    (box.specs / "agents" / "writer.yaml").write_text(model)
    box.spec("docs", (box.specs / "docs.yaml").read_text().replace("agent: coder", "agent: writer"))
    provider.play(Turns((Say("First words of the model."),), by="message"))
    box.start(env={"WAKEFUL_SECRET_ANTHROPIC_API_KEY": "sk-secret-canary-0001"})
    box.wait_at_rest("docs", runs=1)

    def move(agent: str, runs: int) -> None:
        box.ask("migrate", "docs", "--agent", agent)
        box.save("code.py", f"def pay_{runs}(): ...\n")
        row = box.wait_at_rest("docs", runs=runs)
        assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")

    move("coder", 2)
    assert "Another agent, anthropic:claude-test, said: First words of the model." in told(folder)[0][1]
    provider.play(Turns((Say("Later words of the model."),), by="message"))
    move("writer", 3)
    heard = provider.requests[-1].text
    assert "First words of the model." in heard and "The page is true." in heard
    move("coder", 4)
    [lines] = told(folder)
    again = lines[lines.index("resumed") + 1]
    assert "Later words of the model." in again and "First words of the model." not in again and "pay_4" in again


@pytest.mark.long
def test_a_fork_is_told_the_conversation_and_leaves_the_session_of_its_parent_alone(box: Box) -> None:
    folder = declare(box, can="resume")
    box.start()
    box.wait_at_rest("docs", runs=1)
    box.ask("fork", "docs", "--as", "trial")
    box.spec("trial", (box.specs / "docs.yaml").read_text().replace("out/page.md", "trial/page.md"))
    (folder / "page").write_text("trial/page.md")
    eventually(
        lambda: box.run("activate", "trial", "--wait").returncode == 0, what="the fork has its own files, and ran"
    )
    assert box.read("trial/page.md") == "page of def pay(): ...\n", box.ask("output", "trial")
    old, new = told(folder)
    assert "resumed" not in old and new[0] == "new" and "You said: The page is true." in new[1]


def test_a_program_is_not_handed_the_secrets_of_its_agent_s_servers(tmp_path: Path) -> None:
    """The run has both as files. The program gets only the secrets of the session."""
    environ = {}
    for name in ("gh-token", "SERVER_TOKEN"):
        (tmp_path / name).write_text(f"value of {name}\n")
        environ[name_variable(name)] = str(tmp_path / name)
    assert read_secrets(("gh-token", "not-given"), environ) == {"GH_TOKEN": "value of gh-token"}


@pytest.mark.long
def test_it_is_handed_the_server_of_its_own_session(box: Box) -> None:
    """The program calls verbs as the run, without access to a socket or a token. Denied verbs are not offered."""
    calls = [
        ["wakeful_remember", {"key": "currency", "value": "EUR"}],
        ["wakeful_recall", {"key": "currency"}],
        ["wakeful_send", {"name": "other", "text": "the rates changed", "wake": False}],
        ["wakeful_note", {"text": "done"}],
        ["wakeful_list", {}],
    ]
    folder = declare(box, tools="{edit: allow, hand_off: deny}", uses=json.dumps(calls))
    box.spec("other", "objective: Wait.\nrun: {command: ['true']}\n")
    box.start()
    row = box.wait_for("docs", state="sleeping")
    assert "may it do this: mcp__wakeful__wakeful_list?" in row["reason"], (row, box.ask("output", "docs"))
    box.ask("answer", "docs", "no")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    found = json.loads((folder / "used").read_text())
    assert found["servers"] == ["wakeful"]
    assert found["tools"] == [
        f"wakeful_{verb}" for verb in ("facts", "history", "log", "recall", "remember", "send", "todo")
    ]
    remembered, recalled, sent, noted, listed = found["answers"]
    assert [one[1] for one in (remembered, recalled, sent)] == [False] * 3, found
    assert "EUR" in recalled[2] and noted[1] == "not permitted" and listed[1] == "not permitted"
    [fact] = box.json("facts", "docs")
    assert (fact["value"], fact["author"]) == ("EUR", "run:docs#2")
    messages = [record for record in box.log("other") if record["kind"] == "message_added"]
    assert {record["author"] for record in messages} == {"run:docs#1", "run:docs#2"}
    called = [record["payload"]["call"]["name"] for record in box.log("docs") if record["kind"] == "tool_called"]
    assert {"remember", "recall", "send"} <= set(called)
    assert "PermissionError" in told(folder)[-1][-1]

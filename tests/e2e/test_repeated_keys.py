"""A call with `--key` can be repeated: every verb that takes one, from the command line to the log and back.

The table names each verb with what makes it possible and what it is called with. A verb that gains `--key` and is not in the table fails the first test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from e2e.box import Box
from wakeful.cli.command import VERBS, wakeful

QUIET = """
    objective: Rest.
    bindings: {input: {file: "in-%s", wake: false}}
    first: adopt
    run: {command: [sh, -c, "true"]}
"""
# Verb -> what comes before, each as a command line, and the call itself. NAME is a session of its own.
TABLE: dict[str, tuple[list[list[str]], list[str]]] = {
    "activate": ([], ["NAME", "--note", "why"]),
    "answer": ([["activate", "NAME"]], ["NAME", "yes"]),
    "ask": ([], ["NAME", "how much?", "--no-wait"]),
    "cancel": ([["sleep", "NAME"], ["send", "NAME", "come"]], ["NAME"]),
    "compress": (
        [["send", "NAME", "x" * 4000, "--no-wake"], ["send", "NAME", "y" * 4000, "--no-wake"]],
        ["NAME", "--keep", "1"],
    ),
    "erase": ([["note", "NAME", "a secret of mine"]], ["NAME", "LAST"]),
    "forget": ([["remember", "NAME", "rate", "7"]], ["NAME", "rate"]),
    "fork": ([], ["NAME"]),
    "interrupt": ([["sleep", "NAME"], ["send", "NAME", "come"]], ["NAME"]),
    "merge": ([["fork", "NAME", "--as", "NAME-twig"], ["remember", "NAME-twig", "rate", "7"]], ["NAME", "NAME-twig"]),
    "migrate": ([], ["NAME", "--model", "openai:small"]),
    "note": ([], ["NAME", "done: March"]),
    "open": ([["terminate", "NAME"]], ["NAME", "--again"]),
    "remember": ([], ["NAME", "rate", "7"]),
    "rename": ([], ["NAME", "NAME-renamed"]),
    "resolve": (
        [
            ["fork", "NAME", "--as", "NAME-twig"],
            ["remember", "NAME-twig", "rate", "7"],
            ["remember", "NAME", "rate", "8"],
            ["merge", "NAME", "NAME-twig"],
        ],
        ["NAME", "rate", "--theirs", "--because", "measured"],
    ),
    "resume": ([["sleep", "NAME"]], ["NAME"]),
    "rewind": ([["note", "NAME", "one"], ["note", "NAME", "two"]], ["NAME", "2"]),
    "save": ([], ["NAME", "--as", "here"]),
    "send": ([], ["NAME", "come"]),
    "sleep": ([], ["NAME", "--for", "1h"]),
    "suspend": ([["sleep", "NAME"], ["send", "NAME", "come"]], ["NAME"]),
    "terminate": ([], ["NAME", "--reason", "over"]),
}


def find_keyed() -> set[str]:
    context = click.Context(wakeful)
    commands = {name: wakeful.get_command(context, name) for name in VERBS}
    return {
        name
        for name, command in commands.items()
        if command is not None and any("--key" in one.opts for one in command.params)
    }


def test_every_verb_with_a_key_is_in_the_table() -> None:
    assert find_keyed() == TABLE.keys()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One daemon, one session for each verb."""
    box = Box(tmp_path_factory.mktemp("keys"))
    # It has no key, and answers nobody: what counts is that it was asked.
    box.spec("agents/helper", "prompt: Answer.\nmodel: anthropic:claude-test\n")
    for verb in TABLE:
        box.write(f"in-{verb}", "1")
        extra = "    approve: before_run\n" if verb == "answer" else ""
        agent = "    agent: helper\n" if verb in ("ask", "migrate") else ""
        box.spec(verb, QUIET % verb + extra + agent)
    try:
        box.start()
        for verb in TABLE:
            box.wait_at_rest(verb)
        yield box
    finally:
        box.close()


def records(box: Box) -> dict[str, int]:
    """How many records each session has, but those that follow from runs."""
    return {row["name"]: len([one for one in box.log(row["name"]) if one["author"] != "wakeful"]) for row in box.rows()}


@pytest.mark.parametrize("verb", TABLE)
def test_a_call_repeated_with_its_key_is_answered_with_what_the_first_did(box: Box, verb: str) -> None:
    """Nothing more is recorded, and the answer names the first record."""
    before, words = TABLE[verb]
    for line in before:
        box.ask(*(word.replace("NAME", verb) for word in line))
    last = str(box.json("show", verb)["seq"])
    call = [verb, *(last if word == "LAST" else word.replace("NAME", verb) for word in words), "--key", f"once-{verb}"]
    box.ask(*call)
    known = records(box)
    # JSON where the verb prints the answer to its call.
    again = box.run(*call, "--json")
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["words"].startswith("done already: record ") and answer["is_repeated"], answer
    assert records(box) == known
    kept = next(one for one in box.log(answer["name"]) if one["seq"] == answer["record"])
    assert f"{kept['kind']} by {kept['author']}" in answer["words"]


def test_a_key_that_another_call_used_is_refused(box: Box) -> None:
    """An answer about another call would say that something was done which was not."""
    box.ask("note", "save", "mine", "--key", "shared")
    known = records(box)
    for call in (
        ("send", "save", "come"),
        ("sleep", "--all"),
        ("rename", "save", "kept"),
        ("activate", "save", "--wait"),
    ):
        refused = box.run(*call, "--key", "shared")
        assert (
            refused.returncode == 1 and "belongs to another call" in refused.stderr and "note_added" in refused.stderr
        ), (call, refused)
    assert records(box) == known


def test_everything_is_put_to_sleep_and_let_go_once_per_key(box: Box) -> None:
    """The daemon lives on, whatever is recorded next."""
    assert "the brake is on" in box.ask("sleep", "--all", "--key", "stop")
    box.ask("resume", "--all", "--key", "go")
    known = records(box)
    assert box.ask("sleep", "--all", "--key", "stop").startswith("done already: record ")
    assert box.ask("resume", "--all", "--key", "go").startswith("done already: record ")
    assert records(box) == known
    box.ask("note", "save", "still here")
    box.stop()
    box.start()
    assert box.ask("sleep", "--all", "--key", "stop").startswith("done already: record ")
    assert not any(row["state"] == "sleeping" and "brake" in (row["reason"] or "") for row in box.rows())


def test_a_repeated_rename_leaves_the_session_alone_that_has_the_old_name_now(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    box = Box(tmp_path_factory.mktemp("renames"))
    try:
        for name in ("a", "in-other"):
            box.write(f"in-{name}", "1")
        box.spec("a", QUIET % "a")
        box.start()
        box.wait_at_rest("a")
        box.ask("rename", "a", "b", "--key", "k")
        assert "done already" in box.ask("rename", "a", "b", "--key", "k")
        box.ask("rename", "b", "c")
        box.spec("a", QUIET % "other")
        box.wait_at_rest("a")
        assert "done already" in box.ask("rename", "a", "b", "--key", "k")
        assert {row["name"] for row in box.rows()} == {"a", "c"} and (box.specs / "a.yaml").exists()
        box.stop()
        box.start()
        assert "done already" in box.ask("rename", "a", "b", "--key", "k")
        assert {row["name"] for row in box.rows()} == {"a", "c"}
    finally:
        box.close()

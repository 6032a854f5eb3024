"""A call with a key can be repeated.

This holds for every verb that says so in the table of verbs, from the command line to the log and back. The tables here
name what each verb needs and what it is called with. A verb that is not in them fails the first test.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import Box
from wakeful.cli.client import Client
from wakeful.client.refusals import DaemonRefused
from wakeful.verbs.table import COMMANDS, VERBS
from wakeful.verbs.verb import KEY, Verb

QUIET = """
    objective: Rest.
    bindings: {input: {file: "in-%s", wake: false}}
    first: adopt
    run: {command: [sh, -c, "true"]}
"""
# Calls that need other calls before them, or more than the plainest arguments. Each call is a command line, and NAME is
# a session of its own.
WITH_NEEDS: dict[str, tuple[list[list[str]], list[str]]] = {
    "answer": ([["activate", "NAME"]], ["NAME", "yes"]),
    "ask": ([], ["NAME", "how much?", "--no-wait"]),
    "cancel": ([["sleep", "NAME"], ["send", "NAME", "come"]], ["NAME"]),
    "compress": (
        [["send", "NAME", "x" * 4000, "--no-wake"], ["send", "NAME", "y" * 4000, "--no-wake"]],
        ["NAME", "--keep", "1"],
    ),
    "erase": ([["note", "NAME", "a secret of mine"]], ["NAME", "LAST"]),
    "forget": ([["remember", "NAME", "rate", "7"]], ["NAME", "rate"]),
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
    "sleep": ([], ["NAME", "--for", "1h"]),
    "suspend": ([["sleep", "NAME"], ["send", "NAME", "come"]], ["NAME"]),
}


def make_row(verb: Verb) -> tuple[list[list[str]], list[str]]:
    """Make the row of a call that needs nothing: its positional arguments, with the session as the first."""
    positional = [one for one in verb.typed if not one.option and one.is_needed]
    return [], ["NAME", *("7" for _ in positional[1:])]


# For each verb: the calls before it, and the call itself.
TABLE = {name: WITH_NEEDS.get(name) or make_row(verb) for name, verb in COMMANDS.items() if KEY in verb.arguments}
# Calls that have a key over HTTP alone: the calls before, and the body.
OVER_HTTP: dict[str, tuple[list[list[str]], dict[str, Any]]] = {
    "todo": ([], {"name": "NAME", "items": ["count", "send"]}),
    "trace": ([], {"name": "NAME"}),
    "sleep_all": ([], {"words": "stop"}),
    "resume_all": ([["sleep", "--all"]], {}),
}


def test_every_verb_that_is_safe_to_repeat_is_in_the_tables() -> None:
    assert {name for name, verb in VERBS.items() if verb.is_repeatable} == TABLE.keys() | OVER_HTTP.keys()
    assert WITH_NEEDS.keys() <= TABLE.keys()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One daemon with one session for each verb."""
    box = Box(tmp_path_factory.mktemp("keys"))
    # The agent has no key and cannot answer. The tests only need that it was asked.
    box.spec("agents/helper", "prompt: Answer.\nmodel: anthropic:claude-test\n")
    for verb in (*TABLE, *OVER_HTTP):
        box.write(f"in-{verb}", "1")
        extra = "    approve: before_run\n" if verb == "answer" else ""
        agent = "    agent: helper\n" if verb in ("ask", "migrate") else ""
        box.spec(verb, QUIET % verb + extra + agent)
    try:
        box.start()
        for verb in (*TABLE, *OVER_HTTP):
            box.wait_at_rest(verb)
        yield box
    finally:
        box.close()


def records(box: Box) -> dict[str, int]:
    """Return how many records each session has, without those that the daemon adds after a run."""
    return {row["name"]: count_records(box, row["name"], row["seq"]) for row in box.rows()}


# The count, keyed by box, session and the number of its last record.
_counted: dict[tuple[Path, str, int], int] = {}


def count_records(box: Box, name: str, seq: int) -> int:
    """Count a session's records, without the daemon's own.

    A log only grows, so it is read again only when its last number has changed. There are fifty sessions, counted after
    each call.
    """
    place = (box.folder, name, seq)
    if place not in _counted:
        kept = [one for one in box.log(name) if one["seq"] <= seq]
        _counted[place] = sum(one["author"] != "wakeful" for one in kept)
    return _counted[place]


def make_line(box: Box, verb: str, words: list[str]) -> list[str]:
    last = str(box.json("show", verb)["seq"]) if "LAST" in words else ""
    return [verb, *(last if word == "LAST" else word.replace("NAME", verb) for word in words)]


def make_body(verb: str) -> dict[str, Any]:
    return {field: verb if value == "NAME" else value for field, value in OVER_HTTP[verb][1].items()}


def assert_fits(verb: str, answer: dict[str, Any]) -> None:
    """Check that the answer has the fields of the table of verbs, and no other."""
    told = VERBS[verb].answer
    assert answer.keys() <= {field.name for field in told}
    assert {field.name for field in told if not field.is_optional} <= answer.keys()


def assert_repeated(box: Box, first: dict[str, Any], again: dict[str, Any]) -> None:
    """Check that the second answer is about the record of the first call."""
    assert again["words"].startswith("done already: record ") and again["is_repeated"], again
    # The first answer of a fork names a record of the new session. A call about all sessions names none.
    assert not first["is_repeated"] and (
        again["record"] == first["record"] or first["name"] != again["name"] or not first["name"]
    )
    name = again["name"] or next(row["name"] for row in box.rows())
    kept = next(one for one in box.log(name) if one["seq"] == again["record"])
    assert f"{kept['kind']} by {kept['author']}" in again["words"] or not again["name"]


@pytest.mark.parametrize("verb", TABLE)
def test_a_call_repeated_with_its_key_is_answered_with_what_the_first_did(box: Box, verb: str) -> None:
    """The second call records nothing, and its answer names the first record."""
    before, words = TABLE[verb]
    for line in before:
        box.ask(*(word.replace("NAME", verb) for word in line))
    call = [*make_line(box, verb, words), "--key", f"once-{verb}", "--json"]
    first = json.loads(box.ask(*call))
    known = records(box)
    again = json.loads(box.ask(*call))
    assert_repeated(box, first, again)
    assert_fits(verb, first)
    assert_fits(verb, again)
    assert records(box) == known


@pytest.mark.parametrize("verb", OVER_HTTP)
def test_a_call_without_a_command_is_repeated_over_http(box: Box, verb: str) -> None:
    """The same promise holds for calls that only programs make."""
    if verb == "trace" and shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    for line in OVER_HTTP[verb][0]:
        box.ask(*line)
    client = Client(str(box.socket))
    first = client.call(verb, f"once-{verb}", **make_body(verb))
    known = records(box)
    again = client.call(verb, f"once-{verb}", **make_body(verb))
    assert_repeated(box, first, again)
    assert_fits(verb, first)
    assert_fits(verb, again)
    assert records(box) == known
    if verb == "sleep_all":
        box.ask("resume", "--all")


@pytest.mark.parametrize("verb", [*TABLE, *OVER_HTTP])
def test_the_key_of_another_call_is_refused_whatever_is_called(box: Box, verb: str) -> None:
    """The key is looked up before anything else that the call needs. Nothing is done."""
    # The verb's own session, if it still takes notes: by now it may be renamed or terminated.
    is_there = any(row["name"] == verb and row["state"] != "terminated" for row in box.rows())
    name = verb if is_there else "note"
    other = "note" if verb != "note" else "remember"
    box.ask(other, name, "mine", *(["7"] if other == "remember" else []), "--key", f"taken-{verb}")
    known = records(box)
    if verb in TABLE:
        words = [word.replace("LAST", "1") for word in TABLE[verb][1]]
        refused = box.run(*[word.replace("NAME", name) for word in [verb, *words]], "--key", f"taken-{verb}")
        assert refused.returncode == 1, refused
        told = refused.stderr
    else:
        body = {field: name if field == "name" else value for field, value in make_body(verb).items()}
        with pytest.raises(DaemonRefused) as failure:
            Client(str(box.socket)).call(verb, f"taken-{verb}", **body)
        told = str(failure.value)
    assert "belongs to another call" in told and ("note_added" in told or "fact_set" in told)
    assert records(box) == known


def test_a_key_that_another_call_used_is_refused(box: Box) -> None:
    """An answer about the other call would report something as done which was not."""
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
    """The daemon goes on, whatever is recorded next."""
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

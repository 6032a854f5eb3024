"""`open NAME` makes a session without a file. It survives restarts, and can get a file later."""

from __future__ import annotations

import json

import pytest

from e2e.box import Box
from wait_conditions import eventually


def test_a_session_without_a_file_is_there_again_after_a_restart(box: Box) -> None:
    """After a restart it has the same id, the same log, and no file."""
    box.start()
    said = box.ask("open", "trip", "--objective", "Plan the trip.")
    assert said.startswith("trip: opened")
    box.ask("send", "trip", "book the train")
    box.ask("remember", "trip", "city", "Lyon")
    before = box.json("show", "trip")
    box.stop()
    box.start()
    after = box.json("show", "trip")
    assert (after["id"], after["state"]) == (before["id"], "suspended")
    assert json.loads(box.ask("facts", "trip", "--json"))[0]["value"] == "Lyon"
    kinds = [one["kind"] for one in box.log("trip")]
    assert kinds[:2] == ["session_opened", "spec_declared"] and "message_added" in kinds
    assert list(box.specs.glob("**/*.yaml")) == []
    author = box.log("trip")[0]["author"]
    assert author.startswith("person:") and box.log("trip")[1]["author"] == author


def test_an_open_session_works(box: Box) -> None:
    """Files wake it, and it runs what the spec in its log says."""
    box.write("notes/a.md", "one two\n")
    box.start()
    box.ask("open", "words", "--root", str(box.folder), "--file", "notes/*.md", "--script", "cat notes/*.md >> ledger")
    box.wait_at_rest("words", runs=1)
    box.save("notes/a.md", "three\n")
    box.wait_at_rest("words", runs=2)
    assert box.lines("ledger") == ["one two", "three"]


def test_a_file_that_is_written_later_goes_on_with_the_same_session(box: Box) -> None:
    """It keeps its id and log, and the file now declares it.

    It does not run again for that. Edits of the file count.
    """
    box.write("in.txt", "1\n")
    box.start()
    box.ask("open", "words", "--root", str(box.folder), "--file", "in.txt", "--script", "cat in.txt >> ledger")
    box.wait_at_rest("words", runs=1)
    before = box.json("show", "words")
    box.ask("new", "words", "--from", "words", "--specs", str(box.specs))
    text = box.read("sessions.d/words.yaml")
    assert "script:" in text and "in.txt" in text
    eventually(
        lambda: [one["payload"]["is_filed"] for one in box.log("words", "--kind", "spec_declared")] == [False, True]
    )
    after = box.json("show", "words")
    assert after["id"] == before["id"] and box.row("words")["runs"] == 1
    box.stop()
    box.start()
    assert box.row("words")["runs"] == 1 and box.row("words")["id"] == before["id"]
    (box.specs / "words.yaml").write_text(text.replace("cat in.txt >> ledger", "echo edited >> ledger"))
    box.wait_at_rest("words", runs=2)
    assert box.lines("ledger") == ["1", "edited"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a/../b",), "name"),
        (("x@",), "@"),
        (("x", "--agent", "nobody"), "no agent is called 'nobody'"),
        (("x", "--prompt", "do it"), "no agent to answer it"),
        (("x", "--root", "/nowhere/at/all"), "not a folder of this machine"),
        (("x", "--every", "often"), "often"),
        (("x", "--cron", "0 6 * *", "--script", "true"), "cron"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_words(box: Box, words: tuple[str, ...], said: str) -> None:
    box.start()
    refused = box.run("open", *words)
    assert refused.returncode == 1 and said in refused.stderr, refused.stderr
    assert box.rows() == []


def test_two_sessions_do_not_write_one_file(box: Box) -> None:
    box.spec("first", "bindings: {out: {file: out.txt, access: write}}\nrun: {script: 'echo 1 > out.txt'}\n")
    box.start()
    refused = box.run(
        "open", "second", "--root", str(box.folder), "--writes", "out.txt", "--script", "echo 2 > out.txt"
    )
    assert refused.returncode == 1 and "cannot be opened" in refused.stderr and "first" in refused.stderr
    assert [row["name"] for row in box.rows()] == ["first"]


def test_one_that_is_there_is_not_opened_anew(box: Box) -> None:
    """A second call makes no second session, and another objective is refused.

    With a key the call is safe to repeat.
    """
    box.start()
    box.ask("open", "trip", "--objective", "Plan.", "--key", "k1")
    assert "done already" in box.ask("open", "trip", "--objective", "Plan.", "--key", "k1")
    assert "open already" in box.ask("open", "trip")
    refused = box.run("open", "trip", "--objective", "Other.")
    assert refused.returncode == 1 and "exists already" in refused.stderr
    assert len(box.rows()) == 1
    box.ask("terminate", "trip")
    assert "opened again" in box.ask("open", "trip", "--again")
    assert box.row("trip")["state"] == "suspended"


def test_no_token_opens_a_new_session(box: Box) -> None:
    """Neither an admin's token nor a maintainer's does. Only the owner decides what a new session may touch."""
    box.start()
    box.ask("people", "add", "ana", "--role", "maintainer")
    for words in (("--scope", "admin"), ("--person", "ana")):
        token = box.write("t.token", box.ask("token", "new", *words))
        token.chmod(0o600)
        refused = box.run("open", "trip", env={"WAKEFUL_TOKEN_FILE": str(token)})
        assert refused.returncode == 1 and "only the daemon's own user" in refused.stderr
    assert box.rows() == []

"""A session moves to another host and comes home with its whole past, in one command each way.

Other tests load its bundles beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box

COUNTING = """
    objective: Count lines.
    bindings: {{lines: {{file: in.txt, settle: 10ms}}, count: {{file: out.txt, access: write}}}}
    run: {{command: [sh, -c, 'wc -l < in.txt > out.txt; echo run >> "$WAKEFUL_SCRATCH/notes"']}}
""".replace("{{", "{").replace("}}", "}")


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "there")
    yield made
    made.close()


def start_counting(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("count", COUNTING)
    box.start()
    box.wait_at_rest("count", runs=1)


def stand_in_for_ssh(here: Box, there: Box) -> dict[str, str]:
    """Make a stub of ssh that runs the command with the other host's socket. Return the PATH that finds it."""
    program = here.folder / "bin" / "ssh"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done; shift; shift\nWAKEFUL_SOCKET={there.socket} exec "$@"\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{here.environment()['PATH']}"}


def move(here: Box, there: Box, name: str = "count") -> None:
    done = here.run("migrate", name, "--to", "ssh://laptop", env=stand_in_for_ssh(here, there))
    assert done.returncode == 0, done.stderr


def hashes(box: Box) -> list[str]:
    return [record["hash"] for record in box.log("count")]


@pytest.mark.long
def test_a_session_goes_away_and_comes_home_again_and_again(box: Box, there: Box) -> None:
    """Both logs have one history, which verifies.

    The session lives in one place at a time, also across kills. At home it knows what it learnt away.
    """
    start_counting(box)
    box.ask("save", "count", "--as", "before")
    # The other host has the project and its spec, too. It has made a session of its own from them.
    start_counting(there)
    there.ask("remember", "count", "whose", "the one that was there")
    identity, boxes = box.json("show", "count")["id"], (box, there)
    for turn in range(4):
        here, other = boxes[turn % 2], boxes[(turn + 1) % 2]
        move(here, other)
        assert "moved to another host" in here.row("count")["reason"]
        assert here.run("activate", "count").returncode == 1
        # Both logs are one history: the shorter one is the beginning of the longer one.
        assert hashes(here) == hashes(other)[: len(hashes(here))]
        here.kill()
        here.start()
        assert "moved to another host" in here.row("count")["reason"]
        other.ask("remember", "count", f"turn{turn}", "learnt")
        other.write("in.txt", "x\n" * (turn + 3))
        assert other.run("activate", "count", "--wait").returncode == 0
        other.wait_at_rest("count")
        assert other.read("out.txt").strip() == str(turn + 3)
        assert other.json("show", "count")["id"] == identity
        assert {fact["key"] for fact in other.json("facts", "count")} == {f"turn{one}" for one in range(turn + 1)}
    assert [one["name"] for one in box.json("show", "count")["checkpoints"]] == ["before"]
    assert box.json("show", "count", "--at", "before")["seq"] < 10
    notes = box.state / "scratch" / identity / "notes"
    assert len(notes.read_text().splitlines()) == box.row("count")["runs"]
    for one in boxes:
        assert "sound" in one.words("verify")
    # The other host's own session is kept, and closed.
    assert there.row("count-before")["state"] == "terminated"
    assert [fact["value"] for fact in there.json("facts", "count-before")] == ["the one that was there"]


@pytest.mark.long
def test_a_payload_that_was_erased_away_is_erased_at_home_too(box: Box, there: Box) -> None:
    """The bytes were in the log at home before the session went away."""
    start_counting(box)
    box.ask("note", "count", "the password is swordfish")
    seq = box.log("count")[-1]["seq"]
    start_counting(there)
    move(box, there)
    there.ask("erase", "count", str(seq))
    move(there, box)
    assert "swordfish" not in box.ask("log", "count") and "swordfish" not in box.ask("search", "swordfish")
    assert hashes(there) == hashes(box)[: len(hashes(there))]
    assert "sound" in box.words("verify")
    box.kill()
    files = [path for path in box.state.rglob("*") if path.is_file()]
    assert (box.state / "log" / "events.db") in files and not [
        path for path in files if b"swordfish" in path.read_bytes()
    ]


@pytest.mark.long
def test_a_session_whose_receipt_was_lost_comes_home_all_the_same(box: Box, there: Box) -> None:
    """The session is frozen here and lives there. Back here, it goes on. A receipt that comes late changes nothing."""
    start_counting(box)
    there.start()
    box.ask("migrate", "count", "--to", "away.bundle")
    arrived = there.json("load", "--move", str(box.folder / "away.bundle"))
    there.ask("remember", "count", "learnt", "there")
    there.ask("migrate", "count", "--to", "home.bundle")
    home = box.json("load", "--move", str(there.folder / "home.bundle"))
    assert [fact["key"] for fact in box.json("facts", "count")] == ["learnt"]
    (box.folder / "late.json").write_text(json.dumps(arrived))
    assert box.run("migrate", "count", "--receipt", "late.json").returncode == 1
    (there.folder / "receipt.json").write_text(json.dumps(home))
    there.ask("migrate", "count", "--receipt", "receipt.json")
    assert there.words("migrate", "count", "--receipt", "receipt.json").endswith("its receipt came already")
    box.ask("resume", "count")
    box.write("in.txt", "1\n2\n3\n")
    box.wait_at_rest("count", runs=2)
    assert hashes(there) == hashes(box)[: len(hashes(there))]


def test_a_move_that_was_given_up_on_one_side_is_told_from_damage(box: Box, there: Box) -> None:
    """One session has two histories. The error says so and what to do, and does not speak of damage."""
    start_counting(box)
    there.start()
    box.ask("migrate", "count", "--to", "away.bundle")
    there.ask("load", "--move", str(box.folder / "away.bundle"))
    box.ask("migrate", "count", "--give-up")
    box.ask("note", "count", "here")
    there.ask("remember", "count", "learnt", "there")
    there.ask("migrate", "count", "--to", "home.bundle")
    refused = box.run("load", "--move", str(there.folder / "home.bundle"))
    assert refused.returncode == 1 and "another history" in refused.stderr and "damaged" not in refused.stderr
    said = " ".join(refused.stderr.split())
    assert "wakeful fork count --as FORK" in said and "wakeful merge count FORK" in said
    there.ask("fork", "count", "--as", "away")
    there.ask("save", "away", "-o", "away.bundle")
    box.ask("load", str(there.folder / "away.bundle"))
    box.ask("merge", "count", "away")
    assert {fact["key"] for fact in box.json("facts", "count")} == {"learnt"}
    box.ask("note", "count", "and still here")


def test_a_newer_bundle_is_loaded_where_an_older_one_was(box: Box, there: Box) -> None:
    start_counting(box)
    box.ask("save", "count", "-o", "old.bundle")
    box.ask("remember", "count", "month", "March")
    box.ask("save", "count", "-o", "new.bundle")
    there.start()
    there.ask("load", str(box.folder / "old.bundle"), "--as", "first")
    there.ask("load", str(box.folder / "new.bundle"), "--as", "second")
    assert [fact["value"] for fact in there.json("facts", "second")] == ["March"] and there.json("facts", "first") == []
    assert "sound" in there.words("verify")


def test_the_past_of_a_loaded_session_can_be_read(box: Box, there: Box) -> None:
    """`log --past` and `search` read it.

    `show --at`, `fork --at` and `diff` take a record, a checkpoint or a time of before.
    """
    start_counting(box)
    box.ask("remember", "count", "month", "March")
    box.ask("note", "count", "the zebra was counted")
    box.ask("save", "count", "--as", "march")
    at = box.log("count")[-1]["at"]
    box.ask("remember", "count", "month", "April")
    length = len(box.log("count"))
    box.ask("save", "count", "-o", "count.bundle")
    there.start()
    there.ask("load", str(box.folder / "count.bundle"), "--as", "back")
    there.ask("note", "back", "own words")
    past = there.log("back", "--past")
    assert [record["hash"] for record in past[:length]] == hashes(box) and [
        record["hash"] for record in past[length:]
    ] == [one["hash"] for one in there.log("back")]
    assert f"~{length}" in there.ask("log", "back", "--past")
    found = there.ask("search", "zebra", "--session", "back")
    assert "back, before it was loaded" in found and "zebra" in found
    seq = next(record["seq"] for record in box.log("count") if record["kind"] == "fact_set")
    for position in (f"~{seq}", "march", at):
        shown = there.json("show", "back", "--at", position)
        assert [fact["value"] for fact in shown["facts"]] == ["March"], position
        (changed,) = there.json("diff", f"back@{position}", "back")["facts"]
        assert (changed["a"]["value"], changed["b"]["value"]) == ("March", "April"), position
    assert there.run("rewind", "back", "march").returncode == 1
    there.ask("fork", "back", "--at", "march", "--as", "again")
    assert [fact["value"] for fact in there.json("facts", "again")] == ["March"]
    assert there.run("show", "back", "--at", f"~{length + 1}").returncode == 1


def test_a_load_that_is_repeated_completes_what_a_kill_left_undone(box: Box, there: Box) -> None:
    """It stays the same session. Missing scratch files are restored, and existing ones are left alone."""
    start_counting(box)
    box.ask("save", "count", "-o", "count.bundle")
    there.start()
    load = ("load", str(box.folder / "count.bundle"), "--as", "back")
    there.ask(*load)
    notes = there.state / "scratch" / there.row("back")["id"] / "notes"
    # The state that a daemon leaves if it is killed once the session is on record.
    there.kill()
    shutil.rmtree(notes.parent)
    there.start()
    assert "already" in there.words(*load)
    assert notes.read_text() == "run\n"
    notes.write_text("its own\n")
    assert "already" in there.words(*load)
    assert notes.read_text() == "its own\n"
    assert [path.name for path in (there.state / "scratch").iterdir()] == [notes.parent.name]


def test_what_a_loaded_session_learnt_is_merged_back_at_home(box: Box, there: Box) -> None:
    """This is a three-way merge with the moment of the save as the base.

    What both changed is a conflict, and the rest is taken.
    """
    start_counting(box)
    for key in ("both", "theirs", "ours"):
        box.ask("remember", "count", key, "old")
    box.ask("save", "count", "-o", "count.bundle")
    there.start()
    there.ask("load", str(box.folder / "count.bundle"), "--as", "away")
    there.ask("remember", "away", "theirs", "new")
    there.ask("remember", "away", "both", "there")
    there.ask("note", "away", "the zebra was counted there")
    there.ask("save", "away", "-o", "away.bundle")
    box.ask("remember", "count", "ours", "new")
    box.ask("remember", "count", "both", "here")
    box.ask("load", str(there.folder / "away.bundle"), "--as", "home")
    box.ask("remember", "home", "late", "learnt at home")
    box.ask("merge", "count", "home")
    assert {fact["key"]: fact["value"] for fact in box.json("facts", "count")} == {
        "both": "here",
        "theirs": "new",
        "ours": "new",
        "late": "learnt at home",
    }
    assert [conflict["key"] for conflict in box.json("show", "count")["conflicts"]] == ["both"]
    assert "zebra" in box.json("show", "count")["handoff"]
    # A second merge takes nothing twice.
    assert "nothing new" in box.words("merge", "count", "home")


def test_what_an_archived_or_erased_session_printed_is_told_in_words(box: Box) -> None:
    """`output` says where the text went. `log` tells archived payloads from erased ones."""
    start_counting(box)
    seq = next(record["seq"] for record in box.log("count") if record["kind"] == "run_finished")
    box.ask("note", "count", "a secret")
    box.ask("archive", "count")
    told = box.run("output", "count")
    assert told.returncode == 1 and "is archived" in told.stderr and "wakeful load count" in told.stderr
    lines = box.ask("log", "count")
    assert "archived; `wakeful load count` brings it back" in lines and "erased" not in lines
    box.ask("load", "count")
    assert box.run("output", "count").returncode == 0
    box.ask("erase", "count", str(seq))
    told = box.run("output", "count")
    assert told.returncode == 1 and "erased" in told.stderr and "Traceback" not in told.stderr
    assert "erased" in box.ask("log", "count") and "archived;" not in box.ask("log", "count")

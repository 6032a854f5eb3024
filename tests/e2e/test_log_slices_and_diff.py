"""Looking back: slices of a log, and a session as it was at any of its records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from e2e.box import Box


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A session that counted words three times, with a fact and a note in between.

    All tests share it, because looking back changes nothing.
    """
    box = Box(tmp_path_factory.mktemp("counted"))
    box.write("notes/a.md", "one\n")
    box.spec(
        "words",
        """
        objective: Count the words.
        bindings: {notes: {file: "notes/*.md", settle: 10ms}, count: {file: count.txt, access: write}}
        run: {script: "cat notes/*.md | wc -w > count.txt\\n"}
        """,
    )
    box.start()
    box.wait_at_rest("words", runs=1)
    box.ask("remember", "words", "language", "english", "--because", "it looks so")
    box.write("notes/a.md", "one two\n")
    box.wait_at_rest("words", runs=2)
    box.ask("remember", "words", "language", "german")
    box.ask("note", "words", "done: counted")
    box.write("notes/a.md", "eins zwei drei\n")
    box.wait_at_rest("words", runs=3)
    yield box
    box.close()


def test_a_log_is_sliced_from_outside(counted: Box) -> None:
    """The slices are by seq, time, kind, run and author. An unknown kind is refused, and the nearest one is named."""
    every = counted.log("words")
    assert counted.log("words", "--since", "1h") == every and counted.log("words", "--until", "1h") == []
    assert counted.log("words", "--from", "3", "--to", "5") == every[2:5]
    facts = counted.log("words", "--kind", "fact_set", "--kind", "note_added", "--author", every[-1]["author"])
    assert facts == []
    assert [
        one["kind"] for one in counted.log("words", "--kind", "fact_set", "--kind", "note_added", "--last", "2")
    ] == ["fact_set", "note_added"]
    assert {one["run"] for one in counted.log("words", "--run", "2")} == {2}
    refused = counted.run("log", "words", "--kind", "fact_sett")
    assert refused.returncode == 1 and "did you mean 'fact_set'?" in refused.stderr


def test_a_session_is_shown_as_it_was_at_every_record(counted: Box) -> None:
    """A fact and a hand-off are shown from their record on, and not before, also after kill -9."""
    every = counted.log("words")
    shown = [counted.json("show", "words", "--at", str(record["seq"])) for record in every]
    language, handoff = None, None
    for record, past in zip(every, shown, strict=True):
        language = record["payload"]["value"] if record["kind"] == "fact_set" else language
        handoff = record["payload"]["text"] if record["kind"] == "note_added" else handoff
        assert past["seq"] == record["seq"]
        assert [fact["value"] for fact in past["facts"]] == ([language] if language else [])
        assert past["handoff"] == handoff
    counted.kill()
    counted.start()
    assert [counted.json("show", "words", "--at", str(record["seq"])) for record in every[::5]] == shown[::5]
    assert "seq 9" in counted.words("show", "words", "--at", every[8]["at"])


def test_two_positions_are_compared_from_outside(counted: Box) -> None:
    """The difference says what a fact was and is, and which runs wrote files in between. One position may be now."""
    (first, second) = counted.log("words", "--kind", "fact_set")
    text = counted.ask("diff", f"words@{first['seq']}", "words")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "- language = english" in text and "+ language = german" in text and "by 2 runs, 2 to 3" in text
    found = counted.json("diff", f"words@{first['seq']}", f"words@{second['seq']}")
    assert [(fact["a"]["value"], fact["b"]["value"]) for fact in found["facts"]] == [("english", "german")]
    assert found["files"][0]["runs"] == [2] and found["handoff"] is None
    assert counted.ask("diff", "words", "words").endswith("no difference\n")


def test_the_log_is_exported_to_a_file_whole_or_not_at_all(counted: Box) -> None:
    """The file has what standard output would have. It is never overwritten, and no part of a file is left behind."""
    assert counted.ask("export", "-o", "all.jsonl") == f"all.jsonl: {len(counted.lines('all.jsonl'))} records\n"
    assert counted.read("all.jsonl") == counted.ask("export", "words")
    lines = [json.loads(line) for line in counted.lines("all.jsonl")]
    assert [(line["seq"], line["hash"]) for line in lines] == [
        (line["seq"], line["hash"]) for line in counted.log("words")
    ]
    assert {line["id"] for line in lines} == {counted.row("words")["id"]} and lines[3][
        "parent"
    ] == f"{lines[3]['id']}:3"
    for words, code in (
        (("-o", "all.jsonl"), 1),
        (("-o", "no/such/folder"), 1),
        (("--format", "xml"), 2),
        (("nobody", "-o", "none.jsonl"), 1),
    ):
        refused = counted.run("export", *words)
        assert refused.returncode == code and refused.stderr.startswith("wakeful: "), words
    assert not list(counted.folder.glob("*.part")) and not (counted.folder / "none.jsonl").exists()


def test_words_are_found_from_outside(counted: Box) -> None:
    """The search finds words in facts and notes, and says where they are.

    It says that nothing was found, and refuses an empty query.
    """
    text = counted.ask("search", "counted")
    assert "words" in text and "note_added" in text and "done: counted" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    found = [
        json.loads(line) for line in counted.ask("search", "--json", "--session", "words", "looks so").splitlines()
    ]
    assert [(one["kind"], one["payload"]["value"]) for one in found] == [("fact_set", "english")]
    assert counted.ask("search", "nowhere") == "nothing found\n"
    assert counted.run("search", "**").returncode == 1 and counted.run("search").returncode == 2

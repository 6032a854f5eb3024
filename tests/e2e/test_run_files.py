"""The contents that runs read and write are kept and recorded with the run. They are found again after kill -9."""

from __future__ import annotations

import pytest

from e2e.box import Box
from wait_conditions import eventually
from wakeful.run_files.file_record import RunFiles, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.system.blobs import Blobs


def files_of(box: Box, name: str, run: int) -> RunFiles:
    (finished,) = box.log(name, "--kind", "run_finished", "--run", str(run))
    return read_record(Blobs(str(box.state / "blobs")), finished["payload"]["files"])


def contents(box: Box, files: RunFiles, binding: str, side: str) -> dict[str, bytes]:
    blobs = Blobs(str(box.state / "blobs"))
    found = next(one for one in files.bindings if one.name == binding)
    entries = read_entries(blobs, getattr(found, side))
    return {entry.path: blobs.get(entry.address) for entry in entries}


def wait_until_kept(box: Box, name: str, run: int) -> None:
    """Wait until the inputs of the run are kept. The daemon keeps them after the run has ended."""
    blobs, files = Blobs(str(box.state / "blobs")), files_of(box, name, run)
    named = [entry.address for binding in files.bindings for entry in read_entries(blobs, binding.before)]
    eventually(lambda: all(blobs.is_kept(address) for address in named))


@pytest.fixture
def words(box: Box) -> Box:
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
    return box


def test_a_run_records_the_contents_it_found_and_left(words: Box) -> None:
    """The record has the inputs as the run found them, and the outputs before and after it.

    It has files that are gone by now, too.
    """
    words.write("notes/b.md", "two three\n")
    words.wait_at_rest("words", runs=2)
    wait_until_kept(words, "words", 2)
    words.kill()
    (words.folder / "notes/b.md").unlink()
    words.start()
    words.wait_at_rest("words", runs=3)
    first, second = files_of(words, "words", 1), files_of(words, "words", 2)
    assert contents(words, first, "notes", "before") == {"notes/a.md": b"one\n"}
    assert contents(words, first, "count", "before") == {} and contents(words, first, "count", "after") == {
        "count.txt": b"1\n"
    }
    assert contents(words, second, "notes", "before") == {"notes/a.md": b"one\n", "notes/b.md": b"two three\n"}
    assert contents(words, second, "count", "before") == {"count.txt": b"1\n"}
    assert contents(words, second, "count", "after") == {"count.txt": b"3\n"}


def test_what_others_left_where_a_run_writes_is_kept_before_it_is_overwritten(box: Box) -> None:
    """The daemon keeps the old content before it starts the run, however fast the run is.

    A rewind can then give a person's file back.
    """
    box.write("in", "1")
    box.write("out/report", "by a person\n")
    box.spec(
        "fast",
        """
        objective: Overwrite at once.
        bindings: {in: {file: in, settle: 0ms}, out: {file: "out/*", access: write}}
        run: {script: "echo run > out/report\\n"}
        """,
    )
    box.start()
    box.wait_at_rest("fast", runs=1)
    box.write("out/report", "by a person again\n")
    box.write("in", "2")
    box.wait_at_rest("fast", runs=2)
    found = [contents(box, files_of(box, "fast", run), "out", "before") for run in (1, 2)]
    assert found == [{"out/report": b"by a person\n"}, {"out/report": b"by a person again\n"}]


def test_a_full_set_of_inputs_is_recorded_and_unchanged_ones_cost_nothing_more(box: Box) -> None:
    """Of 300 files one changes. That stores one content, one part of the list, the list of parts and the record."""
    for number in range(300):
        box.write(f"in/{number}", f"content {number}")
    box.spec(
        "many",
        """
        objective: Count.
        bindings: {in: {file: "in/*", settle: 10ms}}
        run: {script: "ls in | wc -l\\n"}
        """,
    )
    box.start()
    box.wait_at_rest("many", runs=1)
    wait_until_kept(box, "many", 1)
    before = set(dict(Blobs(str(box.state / "blobs")).listing()))
    box.write("in/7", "another")
    box.wait_at_rest("many", runs=2)
    wait_until_kept(box, "many", 2)
    # The content, one part, the list of parts and the record. The output is the same as before.
    assert len(set(dict(Blobs(str(box.state / "blobs")).listing())) - before) == 4
    assert contents(box, files_of(box, "many", 2), "in", "before")["in/7"] == b"another"
    assert len(contents(box, files_of(box, "many", 1), "in", "before")) == 300


def test_a_session_without_files_keeps_nothing(box: Box) -> None:
    box.spec("clock", "objective: Tick.\nfirst: run\nbindings: {beat: {every: 1h}}\nrun: {script: 'echo tick\\n'}\n")
    box.start()
    box.ask("activate", "clock")
    box.wait_at_rest("clock", runs=1)
    (finished, *_) = box.log("clock", "--kind", "run_finished")
    assert finished["payload"]["files"] is None


def test_diff_shows_what_changed_in_the_files(words: Box) -> None:
    """It compares two positions, a position before the first run, a fork, and a rewound session.

    It prints lines or JSON.
    """
    wait_until_kept(words, "words", 1)
    words.ask("save", "words", "--as", "first")
    words.save("notes/a.md", "one two\n")
    words.wait_at_rest("words", runs=2)
    wait_until_kept(words, "words", 2)
    assert "--contents shows the changes" in words.ask("diff", "words@first", "words")
    shown = words.ask("diff", "words@first", "words", "--contents")
    assert (
        "\n  changed  notes/a.md\n" in shown and "\n    -one\n    +one two\n" in shown and "\n    -1\n    +2\n" in shown
    )

    def changes(a: str, b: str) -> dict[str, str]:
        return {file["path"]: file["change"] for file in words.json("diff", a, b, "--contents")["contents"]["files"]}

    assert changes("words@first", "words") == {"count.txt": "changed", "notes/a.md": "changed"}
    # A position before any run has the files that the first run found.
    assert changes("words@1", "words@first") == {"count.txt": "added"} and changes("words@first", "words@1") == {
        "count.txt": "removed"
    }
    words.ask("fork", "words", "--as", "trial", "--at", "first")
    assert changes("trial", "words") == {"count.txt": "changed", "notes/a.md": "changed"}
    words.ask("rewind", "words", "first")
    assert changes("words@first", "words") == {}
    words.spec("desk", "objective: nothing\n")
    eventually(lambda: any(row["name"] == "desk" for row in words.rows()))
    assert "no files of a run are recorded for b," in words.ask("diff", "words", "desk", "--contents")

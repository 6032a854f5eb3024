"""What runs read and wrote is kept: recorded with the run, by content, and found again after a kill -9."""

from __future__ import annotations

import pytest
from e2e.box import Box

from wakeful.blobs import Blobs
from wakeful.contents.listing import read_entries
from wakeful.contents.record import RunFiles, read_record


def files_of(box: Box, name: str, run: int) -> RunFiles:
    (finished,) = box.log(name, "--kind", "run_finished", "--run", str(run))
    return read_record(Blobs(str(box.state / "blobs")), finished["payload"]["files"])


def contents(box: Box, files: RunFiles, binding: str, side: str) -> dict[str, bytes]:
    blobs = Blobs(str(box.state / "blobs"))
    found = next(one for one in files.bindings if one.name == binding)
    entries = read_entries(blobs, getattr(found, side))
    return {entry.path: blobs.get(entry.address) for entry in entries}


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
    """Inputs as it found them, outputs before and after; also those that are gone by now."""
    words.write("notes/b.md", "two three\n")
    words.wait_at_rest("words", runs=2)
    words.kill()
    (words.folder / "notes/b.md").unlink()
    words.start()
    words.wait_at_rest("words", runs=3)
    first, second = files_of(words, "words", 1), files_of(words, "words", 2)
    assert contents(words, first, "notes", "before") == {"notes/a.md": b"one\n"}
    assert contents(words, first, "count", "before") == {} and contents(words, first, "count", "after") == {"count.txt": b"1\n"}
    assert contents(words, second, "notes", "before") == {"notes/a.md": b"one\n", "notes/b.md": b"two three\n"}
    assert contents(words, second, "count", "before") == {"count.txt": b"1\n"}
    assert contents(words, second, "count", "after") == {"count.txt": b"3\n"}

"""`--dry-run` for people: the answer that would come, in sentences and lists, and never as JSON."""

from __future__ import annotations

from e2e.box import Box

SUMMING = """
    root: project
    objective: Sum up.
    bindings:
      data: {file: "data/*.txt", settle: 10ms}
      out:  {file: "out/**", access: write}
    run: {command: [sh, -c, 'mkdir -p out; cat data/*.txt > out/sum.txt'], retries: 0}
"""


def start(box: Box) -> None:
    box.write("project/data/a.txt", "one\n")
    box.spec("sum", SUMMING)
    box.start()
    box.wait_at_rest("sum", runs=1)


def preview(box: Box, *words: str) -> str:
    """Return what people see. Check that it has no JSON and that the call recorded nothing."""
    length = len(box.log("sum"))
    shown = box.ask(*words, "--dry-run")
    assert len(box.log("sum")) == length
    assert not {"{", "}", '["', "null"} & set(shown.replace("\n", " ").split()) and '": ' not in shown, shown
    return shown


def test_a_merge_is_previewed_as_its_answer_will_be(box: Box) -> None:
    """It shows facts, conflicts, the hand-off and each file. A conflict has the number that `show` will give it."""
    start(box)
    box.ask("remember", "sum", "rate", "8")
    box.ask("fork", "sum", "--as", "trial", "--workspace", str(box.folder / "place"))
    box.write("place/out/sum.txt", "by the fork\n")
    box.ask("remember", "trial", "rate", "9")
    box.ask("remember", "trial", "holiday", "yes", "--because", "the calendar says so")
    box.ask("send", "trial", "is the rate right?", "--no-wake")
    box.ask("remember", "sum", "rate", "10")
    shown = preview(box, "merge", "sum", "trial")
    assert "FACTS it would take\n  holiday = yes  (the calendar says so)\n" in shown
    assert "  1  rate  was: 8; here: 10; trial: 9\n" in shown and "wakeful resolve" in shown
    assert "FILES it would bring\n  taken     out/sum.txt\n" in shown
    assert "HAND-OFF it would leave\n" in shown and "is the rate right?" in shown
    box.ask("merge", "sum", "trial")
    assert "1  rate  was: 8; here: 10; trial: 9" in box.ask("show", "sum")


def test_a_rewind_is_previewed_with_its_files_and_with_what_nobody_kept(box: Box) -> None:
    """Each path has its verb. If no run wrote anything, the preview says so."""
    start(box)
    box.ask("save", "sum", "--as", "before")
    assert "none of its runs wrote anything since" in preview(box, "rewind", "sum", "before", "--files")
    box.save("project/data/a.txt", "two\n")
    box.wait_at_rest("sum", runs=2)
    assert "  restore   out/sum.txt\n" in preview(box, "rewind", "sum", "before", "--files")


def test_compress_and_erase_are_previewed_in_words(box: Box) -> None:
    """It shows the summary or the record as it would stand, and where else the erased words are."""
    start(box)
    for number in range(4):
        box.ask("send", "sum", f"message {number} of many", "--no-wake")
    assert "SUMMARY that would replace them\n" in preview(box, "compress", "sum", "--keep", "1")
    box.ask("note", "sum", "the password is swordfish")
    box.ask("note", "sum", "the password is swordfish")
    first = next(record["seq"] for record in box.log("sum") if record["kind"] == "note_added")
    shown = preview(box, "erase", "sum", str(first))
    assert "  text: [erased]\n" in shown and f"  sum {first + 1}\n" in shown and "wakeful erase NAME SEQ" in shown


def test_what_retention_would_archive_is_said_before_it_is_done(box: Box) -> None:
    """The preview names the session and the reason. The answer afterwards says the same in the past tense."""
    box.spec("old", "objective: x\nretention: {keep: 1ms}\n")
    box.start()
    assert box.ask("archive", "--due", "--dry-run") == "archive: nothing is due\n"
    box.ask("terminate", "old")
    assert box.ask("archive", "--due", "--dry-run").startswith(
        "archive: would archive 1 session\n  old: not active for "
    )
    assert box.ask("archive", "--due").startswith("archive: archived 1 session\n")

"""For an output of many files, `why PATH` names the run that wrote this file."""

from __future__ import annotations

from e2e.box import Box

COPY = """
    objective: Copy what is new.
    bindings: {data: {file: "in/*", settle: 10ms}, out: {file: "out/*.txt", access: write}}
    run: {command: [sh, -c, 'mkdir -p out; for f in in/*; do n=out/$(basename $f).txt; cmp -s $f $n || cp $f $n; done; for f in out/*; do [ -e in/$(basename $f .txt) ] || rm $f; done'], retries: 0}
"""


def test_the_run_that_wrote_this_file_is_named_and_not_the_last(box: Box) -> None:
    """It does so after a restart, for a file that others changed since, and for a file that a run removed.

    Of a file that a rewind gave back, the rewind is named.
    """
    box.write("in/a", "1\n")
    box.spec("copy", COPY)
    box.start()
    box.wait_at_rest("copy", runs=1)
    box.ask("save", "copy", "--as", "first")
    for runs, name in ((2, "b"), (3, "c"), (4, "b")):
        box.write(f"in/{name}", f"{runs}\n")
        box.wait_at_rest("copy", runs=runs)

    def writer(name: str) -> int | None:
        return box.json("why", f"out/{name}.txt")["outputs"][0]["run"]["run"]

    assert {name: writer(name) for name in "abc"} == {"a": 1, "b": 4, "c": 3}
    words = box.words("why", "out/a.txt")
    assert "Run 1 wrote this file at" in words and "Later runs, up to run 4, left it unchanged." in words
    box.kill()
    box.start()
    assert {name: writer(name) for name in "abc"} == {"a": 1, "b": 4, "c": 3}
    box.write("out/c.txt", "theirs\n")
    assert "changed since by somebody else" in box.words("why", "out/c.txt") and "somebody else" not in box.words(
        "why", "out/a.txt"
    )
    (box.folder / "in/a").unlink()
    box.wait_at_rest("copy", runs=5)
    assert "Run 5 removed this file" in box.words("why", "out/a.txt")
    record = box.json("rewind", "copy", "first", "--files", "--force")["record"]
    assert box.read("out/a.txt") == "1\n"
    # The next run finds this file as it should be.
    with box.held_still():
        box.write("in/a", "1\n")
        box.write("in/d", "6\n")
    box.wait_at_rest("copy", runs=6)
    assert writer("d") == 6
    words = box.words("why", "out/a.txt")
    assert "The rewind to seq" in words and f"(record {record})" in words and "run 5 had left it" in words
    assert "Later runs, up to run 6, left it unchanged." in words and "somebody else" not in words
    box.write("out/a.txt", "theirs\n")
    assert "changed since by somebody else" in box.words("why", "out/a.txt")

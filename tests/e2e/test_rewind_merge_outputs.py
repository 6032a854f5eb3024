"""Files that a rewind or a merge writes count as the session's own writes.

They do not wake the session. They wake its readers, and `why` names the rewind or the merge.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from e2e.box import Box
from wait_conditions import eventually
from wakeful.cli.client import Client
from wakeful.client.refusals import DaemonRefused

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

# With `wake: true`, the session wakes when others change its output.
SUM = """
    root: {root}
    objective: Sum up.
    bindings:
      data: {{file: "data/*.txt", settle: 10ms}}
      out:  {{file: "out/*.txt", access: write, wake: true, settle: 10ms}}
    run: {{command: [sh, -c, 'mkdir -p out; cat data/*.txt > out/sum.txt'], retries: 0}}
"""
PAGE = """
    root: {root}
    objective: Show the sum.
    bindings:
      sum:  {{file: "out/*.txt", settle: 10ms}}
      page: {{file: page.html, access: write}}
    run: {{command: [sh, -c, 'cat out/*.txt > page.html'], retries: 0}}
"""


@pytest.fixture
def root(box: Box) -> Path:
    """A project whose session ran twice, with a checkpoint in between.

    Another session made its page of the second result.
    """
    root = box.folder / "project"
    box.write("project/data/a.txt", "one\n")
    box.spec("sum", SUM.format(root=root))
    box.spec("page", PAGE.format(root=root))
    box.start()
    box.wait_at_rest("sum", runs=1)
    box.ask("save", "sum", "--as", "first")
    box.write("project/data/a.txt", "two\n")
    box.wait_at_rest("sum", runs=2)
    box.wait_at_rest("page", runs=2)
    return root


def judge_adopted(box: Box, by: str) -> None:
    """Check the record of the adopted files, after the reader has made its page of them.

    The session did not wake, and `why` names no other author.
    """
    box.wait_at_rest("page", runs=3)
    box.wait_at_rest("sum")
    records = box.log("sum")
    adopted = next(record for record in records if record["kind"] == "outputs_adopted")
    assert adopted["payload"]["by"] == by and adopted["author"] == "person:root"
    assert box.row("sum")["runs"] == 2 and records[-1] == adopted, "it did not wake for its own files"
    assert not any(binding["drift"] for binding in box.json("show", "sum")["bindings"])
    words = box.words("why", "project/out/sum.txt")
    assert (
        f"T{by[1:]}, asked for by person:root (record {adopted['payload']['position']}), left it as" in words
        and "somebody else" not in words
    )
    (origin,) = box.json("why", "page")["links"][0]["led_by"]
    assert (origin["session"], origin["kind"], origin["run"]) == (
        "sum",
        "outputs_adopted",
        None,
    ) and f"seq {adopted['seq']} of sum" in origin["words"]


def test_files_taken_back_by_a_rewind_are_the_sessions_own(box: Box, root: Path) -> None:
    seq = next(record["payload"]["position"] for record in box.log("sum") if record["kind"] == "checkpoint_marked")
    assert [file["ending"] for file in box.json("rewind", "sum", "first", "--files")["files"]] == ["restored"]
    judge_adopted(box, f"the rewind to seq {seq}")
    assert (root / "page.html").read_text() == "one\n"
    box.write("project/out/sum.txt", "by hand\n")
    box.wait_at_rest("sum", runs=3)
    assert (root / "out/sum.txt").read_text() == "two\n", "what others do to it wakes as ever"
    assert "Run 3 wrote this file" in box.words("why", "project/out/sum.txt")


def test_files_brought_by_a_merge_are_the_sessions_own(box: Box, root: Path) -> None:
    box.ask("fork", "sum", "--as", "trial", "--workspace")
    place = Path(box.json("show", "trial")["root"])
    (place / "out/sum.txt").write_text("by the trial\n")
    (place / "out/more.txt").write_text("more\n")
    box.ask("merge", "sum", "trial")
    judge_adopted(box, "the merge of trial")
    assert (root / "page.html").read_text() == "more\nby the trial\n"


def test_two_who_merge_at_once_merge_once_and_the_files_are_there(box: Box, root: Path) -> None:
    """One caller gets the merge.

    The others are refused or told that there is nothing new. A refusal takes no file away.
    """
    box.ask("fork", "sum", "--as", "trial", "--workspace")
    place = Path(box.json("show", "trial")["root"])
    client = Client(str(box.socket))
    for number in range(5):
        (place / "out/sum.txt").write_text(f"by the trial {number}\n")
        # The fork notices the change, too. A merge prepared before that would rightly be refused.
        eventually(lambda wakes=number + 1: sum(kind.startswith("wake_") for kind in box.kinds("trial")) == wakes)
        answers: list[str] = []
        callers = [threading.Thread(target=lambda: answers.append(try_merge(client))) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
        assert sum("is merged" in answer for answer in answers) == 1 and len(answers) == 4, answers
        assert (root / "out/sum.txt").read_text() == f"by the trial {number}\n", answers
    assert box.kinds("sum").count("session_merged") == 5 and box.row("sum")["runs"] == 2
    assert [one for one in box.json("doctor") if one["name"] == "merge"] == []


def try_merge(client: Client) -> str:
    try:
        return client.call("merge", name="sum", fork="trial")["words"]
    except DaemonRefused as failure:
        return f"refused: {failure}"


def test_a_rewind_whose_daemon_died_before_its_files_is_finished_by_its_key(box: Box, root: Path) -> None:
    """The same key restores and adopts the files, and records the rewind once.

    Files that others changed meanwhile stay theirs.
    """
    box.ask("sleep", "sum")
    box.ask("rewind", "sum", "first", "--files", "--key", "k")
    box.kill()
    # The state that a daemon leaves if it dies between the record and the files.
    (root / "out/sum.txt").write_text("two\n")
    box.start()
    answer = box.json("rewind", "sum", "first", "--files", "--key", "k")
    assert answer["words"].startswith("done already: record ") and [file["ending"] for file in answer["files"]] == [
        "restored"
    ]
    assert (root / "out/sum.txt").read_text() == "one\n"
    kinds = box.kinds("sum")
    assert kinds.count("session_rewound") == 1
    (root / "out/sum.txt").write_text("by hand\n")
    done = box.run("rewind", "sum", "first", "--files", "--key", "k")
    assert done.returncode == 1 and "by others" in " ".join(done.stdout.split())
    assert (root / "out/sum.txt").read_text() == "by hand\n"

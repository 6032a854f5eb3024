"""A file changes, a session wakes, runs and is suspended again: the promise of the first page."""

from __future__ import annotations

import json
import os
import subprocess

from e2e.box import Box
from wait_conditions import PATIENCE_SECONDS, eventually

COPY = """
    objective: Copy what the input says.
    bindings:
      input: {file: in.txt, settle: 20ms}
      result: {file: out.txt, access: write}
    run:
      command: [sh, -c, 'cat in.txt >> ledger; cp in.txt out.txt']
"""
# When this session has run for a mark, the daemon has looked at everything that happened before the mark.
SENTINEL = """
    objective: Tell that all earlier hints were taken in.
    bindings: {input: {file: sentinel.txt, settle: 20ms}}
    run: {command: [sh, -c, 'cat sentinel.txt >> sentinel.ledger']}
"""


def pass_sentinel(box: Box, mark: str) -> None:
    box.write("sentinel.txt", f"{mark}\n")
    eventually(lambda: mark in box.lines("sentinel.ledger"))
    box.wait_at_rest("sentinel")


def test_first_sight_runs_once_and_suspends(box: Box) -> None:
    """A new session runs at first sight and rests. `list` and the log say so in the documented words."""
    box.write("in.txt", "one\n")
    box.spec("copy", COPY)
    box.start()
    row = box.wait_at_rest("copy", runs=1)
    (listed,) = box.json("list")
    assert listed == {key: row[key] for key in listed}
    assert row["state"] == "suspended" and row["runs"] == 1 and row["owed"] == [] and row["queued"] is None
    assert row["last_run"]["outcome"] == "succeeded"
    assert [cause["binding"] for cause in row["last_run"]["causes"]] == ["first"]
    assert box.lines("ledger") == ["one"]
    watched = {binding["name"]: binding.get("watched") for binding in box.json("show", "copy")["bindings"]}
    assert watched["input"] == "1 file, 1 folder watched"
    kinds = box.kinds("copy")
    assert kinds[:2] == ["session_opened", "spec_declared"]
    assert kinds[2:] == ["wake_requested", "run_started", "run_finished", "session_suspended"]
    assert [record["seq"] for record in box.log("copy")] == list(range(1, len(kinds) + 1))


def test_an_edit_wakes_and_says_which_path(box: Box) -> None:
    """The causes name the binding, the old and new version and the changed path."""
    box.write("in.txt", "one\n")
    box.spec("copy", COPY)
    box.start()
    box.wait_at_rest("copy", runs=1)
    box.write("in.txt", "two\n")
    row = box.wait_at_rest("copy", runs=2)
    (cause,) = row["last_run"]["causes"]
    assert cause["binding"] == "input" and cause["kind"] == "file" and cause["old"] != cause["new"]
    assert cause["paths"] == [{"path": "in.txt", "change": "modified"}] and cause["delta"] == "known"
    assert box.lines("ledger") == ["one", "two"]


def test_atomic_saves_are_each_seen(box: Box) -> None:
    """Each of three saves by rename is seen, although a watch follows inodes."""
    box.write("in.txt", "0\n")
    box.spec("copy", COPY)
    box.start()
    box.wait_at_rest("copy", runs=1)
    for number in (1, 2, 3):
        box.save("in.txt", f"{number}\n")
        eventually(lambda number=number: str(number) in box.lines("ledger"))
    assert box.lines("ledger") == ["0", "1", "2", "3"]


def test_a_touch_and_an_undone_edit_wake_nobody(box: Box) -> None:
    """New times alone are no new version. Neither is a change that is undone before the look."""
    box.write("in.txt", "one\n")
    box.write("sentinel.txt", "\n")
    box.spec("copy", COPY)
    box.spec("sentinel", SENTINEL.replace("settle: 20ms", "settle: 200ms"))
    box.start()
    box.wait_at_rest("copy", runs=1)
    box.wait_at_rest("sentinel", runs=1)
    with box.held_still():
        os.utime(box.folder / "in.txt")
        box.write("in.txt", "two\n")
        box.write("in.txt", "one\n")
    pass_sentinel(box, "passed")
    assert box.row("copy")["runs"] == 1


def test_a_change_during_a_run_gives_exactly_one_follow_up(box: Box) -> None:
    """However many edits come during a run, one run follows it and sees the last edit."""
    box.write("in.txt", "one\n")
    box.spec(
        "slow",
        """
        objective: Take long enough to be overtaken.
        bindings: {input: {file: in.txt, settle: 10ms}}
        run: {command: [sh, -c, 'cat in.txt >> ledger; touch started; while [ ! -e go ]; do sleep 0.01; done']}
        """,
    )
    box.start()
    eventually(lambda: (box.folder / "started").exists())
    for text in ("two\n", "three\n", "four\n"):
        box.write("in.txt", text)
    box.write("go", "")
    box.wait_at_rest("slow", runs=2)
    assert box.lines("ledger") == ["one", "four"]
    assert box.row("slow")["runs"] == 2


def test_an_input_changed_back_during_the_run_is_run_again(box: Box) -> None:
    """The run may have read the state in between. Equal content with new times clears `seen` once (rule 17)."""
    box.write("in.txt", "one\n")
    box.spec(
        "slow",
        """
        objective: Be overtaken.
        bindings: {input: {file: in.txt, settle: 10ms}}
        run: {command: [sh, -c, 'touch started; while [ ! -e go ]; do sleep 0.01; done']}
        """,
    )
    box.start()
    eventually(lambda: (box.folder / "started").exists())
    box.write("in.txt", "two\n")
    box.write("in.txt", "one\n")
    box.write("go", "")
    row = box.wait_at_rest("slow", runs=2)
    assert row["runs"] == 2
    assert row["last_run"]["causes"][0]["reason"] == "touched during run"


def test_an_input_that_is_only_touched_during_the_run_is_not_run_again(box: Box) -> None:
    """Rule 17: only attributes changed, and nothing that a run could have read."""
    box.write("in.txt", "one\n")
    box.write("other.txt", "x\n")
    box.spec(
        "slow",
        """
        objective: Be touched.
        bindings: {input: {file: in.txt, settle: 10ms}, other: {file: other.txt, settle: 10ms}}
        run: {command: [sh, -c, 'echo run >> ledger; touch started; while [ ! -e go ]; do sleep 0.01; done']}
        """,
    )
    box.start()
    eventually(lambda: (box.folder / "started").exists())
    for number in range(5):
        os.utime(box.folder / "in.txt", (number, number))
        (box.folder / "in.txt").touch()
        # Unlike the calls before, the command opens the file for writing.
        subprocess.run(["touch", "in.txt"], cwd=box.folder, check=True)
        (box.folder / "in.txt").chmod(0o600 + 0o40 * (number % 2))
    box.write("go", "")
    box.wait_at_rest("slow", runs=1)
    # Wakes for the touches would come before the wake for this change.
    box.write("other.txt", "y\n")
    box.wait_at_rest("slow", runs=2)
    assert box.lines("ledger") == ["run", "run"]
    assert [cause["binding"] for cause in box.row("slow")["last_run"]["causes"]] == ["other"]


def test_a_slow_writer_gives_one_run_on_the_whole(box: Box) -> None:
    """With default settings, readers wait while a program holds the file open for writing, and say so."""
    box.write("data.csv", "")
    box.spec(
        "reader",
        """
        objective: Count what is there.
        bindings: {input: {file: data.csv}}
        run: {command: [sh, -c, 'wc -l < data.csv >> ledger']}
        """,
    )
    box.start()
    box.wait_at_rest("reader", runs=1)
    with (box.folder / "data.csv").open("w") as file:
        for number in range(5):
            file.write(f"{number}\n")
            file.flush()
            box.wait_for("reader", queued="data.csv is being written")
            words = box.words("why", "reader")
            assert "data.csv is being written" in words
    box.wait_at_rest("reader", runs=2)
    assert box.lines("ledger") == ["0", "5"]


def test_a_run_that_ends_while_its_input_is_being_written_is_followed_by_one_on_the_whole(box: Box) -> None:
    """Rule 17: this holds even if the writer began a moment before the end."""
    box.write("in.txt", "one\n")
    box.spec(
        "slow",
        """
        objective: Be overtaken by a writer.
        bindings: {input: {file: in.txt, settle: 10ms}}
        run: {command: [sh, -c, 'cat in.txt >> ledger; touch started; while [ ! -e go ]; do sleep 0.01; done']}
        """,
    )
    box.start()
    eventually(lambda: (box.folder / "started").exists())
    box.write("go", "")
    with (box.folder / "in.txt").open("w") as file:
        file.write("half")
        file.flush()
        box.wait_for("slow", state="suspended", runs=1)
        file.write(" and half\n")
    box.wait_at_rest("slow", runs=2)
    assert box.lines("ledger") == ["one", "half and half"]


def test_without_hints_a_run_is_known_for_its_output(box: Box) -> None:
    """`hints: poll`: the output is recorded as the run left it.

    Its reader runs once for each change, and `why` names no other writer.
    """
    box.write("wakeful.yaml", "hints: poll\n")
    box.write("in.txt", "one\n")
    box.spec(
        "writer",
        """
        objective: Copy.
        bindings: {input: {file: in.txt}, output: {file: out.txt, access: write}}
        run: {command: [sh, -c, 'cat in.txt > out.txt']}
        """,
    )
    box.spec(
        "reader",
        """
        objective: Read.
        bindings: {input: {file: out.txt}}
        run: {command: [sh, -c, 'cat out.txt >> ledger']}
        """,
    )
    box.start()
    box.wait_at_rest("reader", runs=1)
    for number, text in enumerate(("two", "three"), start=2):
        box.write("in.txt", f"{text}\n")
        box.wait_at_rest("writer", runs=number)
        box.wait_at_rest("reader", runs=number)
        finished = [record for record in box.log("writer") if record["kind"] == "run_finished"][-1]
        seen = [record for record in box.log("reader") if record["kind"] == "run_started"][-1]
        assert finished["payload"]["written"]["output"] in seen["payload"]["versions"].values()
        started = [record for record in box.log("writer") if record["kind"] == "run_started"][-1]
        assert finished["payload"]["written"]["output"] != started["payload"]["versions"]["output out.txt content"]
        assert "run" in box.words("why", "out.txt") and "writer" in box.words("why", "out.txt")
        assert "replaced" not in box.words("why", "out.txt")
    records = [record["payload"] for record in box.log("writer") if record["kind"] in ("run_started", "run_finished")]
    left = [record["written"]["output"] for record in records if "written" in record]
    found = [record["versions"]["output out.txt content"] for record in records if "versions" in record]
    assert found == ["absent", *left[:-1]]
    assert box.lines("ledger") == ["one", "two", "three"]
    assert box.row("reader")["runs"] == 3


def test_what_changed_while_the_daemon_was_down_is_noticed(box: Box) -> None:
    """Level, not edge: an edit while the daemon was down wakes the session, with its path.

    A session without an edit rests.
    """
    box.write("in.txt", "one\n")
    box.write("other.txt", "x\n")
    box.spec("copy", COPY)
    box.spec(
        "other",
        "objective: Rest.\nbindings: {input: {file: other.txt}}\nrun: {command: [sh, -c, 'echo x >> other.ledger']}\n",
    )
    box.start()
    box.wait_at_rest("copy", runs=1)
    box.wait_at_rest("other", runs=1)
    assert box.stop() == 0
    box.write("in.txt", "two\n")
    box.start()
    row = box.wait_at_rest("copy", runs=2)
    assert row["last_run"]["causes"][0]["paths"] == [{"path": "in.txt", "change": "modified"}]
    assert box.row("other")["runs"] == 1


def test_a_pattern_sees_new_changed_and_removed_files(box: Box) -> None:
    """`**` matches in folders made after the start. Excluded and default-excluded names do not count."""
    box.write("data/a.csv", "1\n")
    box.spec(
        "sum",
        """
        objective: List the tables.
        bindings: {tables: {file: "data/**/*.csv", exclude: ["data/old/"], settle: 20ms}}
        run: {command: [sh, -c, 'tr "\\\\0" "\\\\n" < "$WAKEFUL_CHANGED" | sort | tr "\\\\n" " " >> ledger; echo >> ledger']}
        """,
    )
    box.start()
    box.wait_at_rest("sum", runs=1)
    box.write("data/x/y/b.csv", "2\n")
    box.wait_at_rest("sum", runs=2)
    (box.folder / "data/a.csv").unlink()
    box.write("data/old/c.csv", "3\n")
    box.write("data/.hidden.swp", "3\n")
    row = box.wait_at_rest("sum", runs=3)
    assert box.lines("ledger")[1:] == ["data/x/y/b.csv ", "data/a.csv "]
    assert row["last_run"]["causes"][0]["paths"] == [{"path": "data/a.csv", "change": "removed"}]


def test_a_run_finds_what_specs_promise(box: Box) -> None:
    """A run has its causes, changed paths, scratch, bindings and session. It does not have the daemon's environment."""
    box.write("in.txt", "one\n")
    box.spec(
        "see",
        """
        objective: Show what a run finds.
        bindings: {input: {file: in.txt}, result: {file: out.json, access: write}}
        run:
          env: {GREETING: hello}
          script: |
            cp "$WAKEFUL_CAUSES" out.json
            env | sort > environment
            echo kept >> "$WAKEFUL_SCRATCH/count"
            wc -l < "$WAKEFUL_SCRATCH/count" >> scratch.ledger
        """,
    )
    box.start(env={"SECRET": "do not tell", "NOTIFY_SOCKET": ""})
    box.wait_at_rest("see", runs=1)
    box.ask("activate", "see")
    box.wait_at_rest("see", runs=2)
    causes = json.loads(box.read("out.json"))
    assert causes["session"] == "see" and causes["run"] == 2 and causes["objective"] == "Show what a run finds."
    assert [cause["kind"] for cause in causes["causes"]] == ["activation"]
    names = {line.split("=", 1)[0] for line in box.lines("environment")}
    assert {
        "WAKEFUL_SESSION",
        "WAKEFUL_RUN",
        "WAKEFUL_CAUSES",
        "WAKEFUL_CHANGED",
        "WAKEFUL_SCRATCH",
        "WAKEFUL_SOCKET",
    } <= names
    assert {"WAKEFUL_BINDING_INPUT", "WAKEFUL_BINDING_RESULT", "GREETING"} <= names
    assert "SECRET" not in names
    assert [line.strip() for line in box.lines("scratch.ledger")] == ["1", "2"]


def test_a_stop_does_not_wait_for_a_look_at_a_terabyte(box: Box) -> None:
    """SIGTERM in the middle of a hash or a walk ends the daemon cleanly, long before the hash or walk would end."""
    with box.write("huge.bin", "").open("wb") as file:
        file.truncate(1024**4)
    box.spec("huge", "objective: Read it.\nbindings: {i: {file: huge.bin}}\nrun: {command: ['true']}\n")
    box.spec("wide", "objective: Read all.\nbindings: {i: {file: /usr/}}\nrun: {command: ['true']}\n")
    box.start(is_ready=False)
    eventually(lambda: box.socket.exists())
    assert box.daemon is not None
    box.daemon.terminate()
    assert box.daemon.wait(PATIENCE_SECONDS) == 0
    box.daemon = None
    assert "Traceback" not in box.output.read_text()

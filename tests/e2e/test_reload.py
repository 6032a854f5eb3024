"""Hot reload: good edits apply, bad ones keep the last good spec, and other sessions are not disturbed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time

import pytest

from e2e.box import Box
from wait_conditions import eventually

ECHO = """
    objective: Echo.
    bindings: {{input: {{file: {name}.txt, settle: 10ms}}}}
    run: {{command: [sh, -c, 'cat {name}.txt >> {name}.ledger']}}
"""


def declare(box: Box, name: str) -> None:
    box.write(f"{name}.txt", "1\n")
    box.spec(name, ECHO.format(name=name))


def test_a_new_file_is_a_new_session_without_a_restart(box: Box) -> None:
    """The daemon watches sessions.d/ itself."""
    declare(box, "one")
    box.start()
    box.wait_at_rest("one", runs=1)
    declare(box, "two")
    eventually(lambda: any(row["name"] == "two" for row in box.rows()))
    box.wait_at_rest("two", runs=1)
    assert box.row("one")["runs"] == 1


def test_a_bad_edit_keeps_the_last_good_spec_and_is_reported(box: Box) -> None:
    """One bad file does not disturb the other sessions, and its own session goes on as it was."""
    declare(box, "one")
    declare(box, "two")
    box.start()
    box.wait_at_rest("one", runs=1)
    box.wait_at_rest("two", runs=1)
    box.spec("one", "objective: Echo.\nbindings: {input: {fiel: one.txt}}\n")
    eventually(lambda: "did you mean 'file'" in box.words("show", "one"))
    box.write("one.txt", "2\n")
    box.write("two.txt", "2\n")
    box.wait_at_rest("one", runs=2)
    box.wait_at_rest("two", runs=2)
    assert box.lines("one.ledger") == ["1", "2"]
    checked = box.run("check")
    assert checked.returncode == 1 and "sessions.d/one.yaml:2:" in (checked.stdout + checked.stderr)
    box.stop()
    box.write("one.txt", "3\n")
    box.start()
    box.wait_at_rest("one", runs=3)


def test_what_a_run_can_notice_wakes_and_what_it_cannot_does_not(box: Box) -> None:
    """An edited command is one wake. An edited priority, pace or comment is none (rule 9)."""
    declare(box, "one")
    box.start()
    box.wait_at_rest("one", runs=1)
    text = (box.specs / "one.yaml").read_text()
    box.spec("one", text + "priority: 90\n# a comment\n")
    eventually(lambda: box.row("one")["priority"] == 90)
    assert box.row("one")["runs"] == 1
    box.spec("one", text.replace("cat one.txt", "echo edited; cat one.txt"))
    row = box.wait_at_rest("one", runs=2)
    assert [cause["binding"] for cause in row["last_run"]["causes"]] == ["spec"]


def test_a_vanished_file_puts_its_session_to_sleep_and_back(box: Box) -> None:
    """An undeclared session keeps its identity and `seen`. What changes meanwhile is owed when the file returns."""
    declare(box, "one")
    box.start()
    first = box.wait_at_rest("one", runs=1)
    text = (box.specs / "one.yaml").read_text()
    (box.specs / "one.yaml").unlink()
    row = box.wait_for("one", state="sleeping")
    assert row["reason"].startswith("undeclared")
    box.write("one.txt", "2\n")
    box.spec("one", text)
    row = box.wait_at_rest("one", runs=2)
    assert row["id"] == first["id"] and row["state"] == "suspended"


def test_rename_keeps_identity_and_history(box: Box) -> None:
    """The file follows the name, no session wakes, and the log goes on."""
    declare(box, "one")
    box.start()
    first = box.wait_at_rest("one", runs=1)
    box.ask("rename", "one", "uno")
    row = box.wait_at_rest("uno")
    assert row["id"] == first["id"] and row["runs"] == 1
    assert (box.specs / "uno.yaml").exists() and not (box.specs / "one.yaml").exists()
    assert box.kinds("uno")[0] == "session_opened"
    box.write("one.txt", "2\n")
    box.wait_at_rest("uno", runs=2)


def test_sighup_reads_the_settings_again(box: Box) -> None:
    """wakeful.yaml is hot, too: the size of a pool applies without a restart."""
    box.write("wakeful.yaml", "concurrency: 1\n")
    for name in ("a", "b"):
        box.spec(
            name,
            f"objective: Wait.\nbindings: {{i: {{file: i.txt}}}}\nrun: {{command: [sh, -c, 'touch {name}.started; while [ ! -e go ]; do sleep 0.01; done']}}\n",
        )
    box.write("i.txt", "1\n")
    box.start()
    eventually(
        lambda: (
            sorted((row["state"], row["queued"]) for row in box.rows()) == [("running", None), ("suspended", "a slot")]
        )
    )
    box.write("wakeful.yaml", "concurrency: 2\n")
    assert box.daemon is not None
    box.daemon.send_signal(signal.SIGHUP)
    eventually(lambda: [row["state"] for row in box.rows()] == ["running", "running"])
    box.write("go", "")


def how_polled(box: Box, name: str) -> list[str]:
    """Return what `show` says about bindings of this session that are not watched.

    If `doctor` says something else, return that, too.
    """
    shown = [binding["degraded"] for binding in box.json("show", name)["bindings"] if binding.get("degraded")]
    told = [check["words"] for check in json.loads(box.run("doctor", "--json").stdout) if "polling" in check["words"]]
    return (
        shown
        if all(any(words in line for line in told) for words in shown) and bool(told) == bool(shown)
        else [*shown, *told]
    )


def test_the_watcher_is_exchanged_in_the_running_daemon(box: Box) -> None:
    """`hints` is hot: a save while the watcher changes is not missed. `show` says how each binding is watched."""
    declare(box, "one")
    box.start()
    box.wait_at_rest("one", runs=1)
    for runs, setting in enumerate(("watchfiles", "poll", "inotify", "auto"), start=2):
        box.write("one.txt", f"{runs}\n")
        box.write("wakeful.yaml", f"hints: {setting}\n")
        if runs == 4:
            # While everything is polled, wakeful.yaml is polled as well, only some seconds apart.
            assert box.daemon is not None
            box.daemon.send_signal(signal.SIGHUP)
        wanted = ["polling: chosen by `hints: poll`"] if setting == "poll" else []
        eventually(lambda wanted=wanted: how_polled(box, "one") == wanted, what=f"hints: {setting}")
        box.wait_at_rest("one", runs=runs)
    assert box.lines("one.ledger") == ["1", "2", "3", "4", "5"]
    box.write("one.txt", "6\n")
    box.wait_at_rest("one", runs=6)


def test_bombs_are_refused_at_once(box: Box) -> None:
    """An alias bomb and 5,000 brackets get an error with a line, and do not delay the other sessions."""
    declare(box, "one")
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]\n" for i in range(9)
    )
    (box.specs / "bomb.yaml").write_text(bomb)
    (box.specs / "deep.yaml").write_text("bindings: " + "[" * 5000)
    began = time.process_time()
    checked = box.run("check")
    assert checked.returncode == 1 and time.process_time() - began < 5
    said = checked.stdout + checked.stderr
    assert "bomb.yaml:1:" in said and "deep.yaml:1:" in said
    box.start()
    box.wait_at_rest("one", runs=1)


def test_once_runs_the_wave_and_exits(box: Box) -> None:
    """`--once` reconciles, runs what is owed and ends. The exit code is 0 if all went well, and 1 if a run failed."""
    declare(box, "one")
    done = box.once()
    assert done.returncode == 0, done.stdout + done.stderr
    assert box.lines("one.ledger") == ["1"]
    assert box.once().returncode == 0 and box.lines("one.ledger") == ["1"]
    box.spec("bad", "objective: Fail.\nbindings: {i: {file: one.txt}}\nrun: {command: ['false'], retries: 0}\n")
    assert box.once().returncode == 1


def test_without_a_daemon_the_exit_code_is_three(box: Box) -> None:
    """The message says how to start one."""
    done: subprocess.CompletedProcess[str] = box.run("list")
    assert done.returncode == 3 and "wakeful daemon" in done.stderr


@pytest.mark.long
def test_a_stop_in_the_middle_of_a_reload_is_clean(box: Box) -> None:
    """SIGTERM comes while specs are read and looked at. The exit code is 0, and there is no traceback."""
    declare(box, "one")
    for delay in range(0, 120, 12):
        box.start()
        declare(box, f"extra{delay}")
        assert box.daemon is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            box.daemon.wait(delay / 1000)
        assert box.stop() == 0, box.output.read_text()[-2000:]
    assert "Traceback" not in box.output.read_text()


def test_a_specs_folder_that_is_not_there_is_refused(box: Box) -> None:
    """A typing error in --specs must not undeclare every session."""
    done = box.run("daemon", "--specs", str(box.folder / "nowhere"), "--state", str(box.state))
    assert done.returncode == 1 and "nowhere is not a folder" in done.stderr


def test_each_problem_of_a_spec_is_a_line_of_its_own(box: Box) -> None:
    """Each line has the name of its session, as `check` shows it. A newline in a key makes no line."""
    box.spec("bad", 'objective: x\nfoo: 1\n"b\\n12:00:00 payroll: run 1 succeeded": 2\n')
    told = [line for line in box.once().stdout.splitlines() if "unknown key" in line]
    assert ["bad: sessions.d/bad.yaml:2:1" in told[0], "bad: sessions.d/bad.yaml:3:1" in told[1], len(told)] == [
        True,
        True,
        2,
    ]
    assert not any("\\n" in line for line in told) and "unknown key 'b 12:00:00 payroll" in told[1]

"""`wakeful daemon --once` in CI: its exit code, what it prints of failed runs, and `output` after it has ended."""

from __future__ import annotations

import json

from e2e.box import Box

FAIL = "objective: Fail.\nbindings: {i: {file: in.txt}}\nrun: {script: 'printf \"no \\033[31mrates\\n\"; seq 3000 3100; exit 3', retries: 0}\n"


def test_once_is_exit_one_until_nothing_is_wrong(box: Box) -> None:
    """A refused spec, a failed run and a session that failed before each give exit code 1.

    The last lines of a failed run are printed, bounded and escaped.
    """
    # The first one is started by its script, as in CI.
    box.is_forked = False
    box.write("in.txt", "1\n")
    box.spec("good", "objective: Work.\nbindings: {i: {file: in.txt}}\nrun: {command: ['true']}\n")
    refused = box.spec("typo", "objective: Fail.\nrnu: {command: ['true']}\n")
    done = box.once()
    assert (
        done.returncode == 1
        and "unknown key 'rnu'" in done.stdout
        and done.stdout.splitlines()[-1].endswith("exit 1: 1 refused spec (typo)")
    )
    box.is_forked = True
    refused.unlink()
    box.spec("bad", FAIL)
    failed = box.once()
    lines = failed.stdout.splitlines()
    quoted = [line for line in lines if line.startswith("  │ ")]
    assert failed.returncode == 1 and quoted[-1] == "  │ 3100" and len(quoted) == 40
    assert any(
        "bad: run 1 printed, the end of " in line and f"`wakeful output bad --state {box.state}` has more" in line
        for line in lines
    )
    assert lines[-1].endswith("exit 1: 1 failed session (bad)")
    again = box.once()
    assert again.returncode == 1 and "run 2" not in again.stdout and "  │ 3100" in again.stdout.splitlines()
    assert (
        "bad: still sleeps: failed: exit code 3; it runs when an input changes, or by: wakeful activate bad"
        in again.stdout
    )
    _check_output_without_a_daemon(box)
    # A session that is disabled does not count.
    box.spec("bad", f"enabled: false\n{FAIL}")
    assert box.once().returncode == 0


def _check_output_without_a_daemon(box: Box) -> None:
    """`output` reads the named folder or the project's.

    An unknown session or run, or a missing daemon, gives a message.
    """
    state = ("--state", str(box.state))
    shown = box.run("output", "bad", *state)
    assert (
        shown.returncode == 0
        and shown.stdout.startswith("no \\x1b[31mrates\n3000\n")
        and shown.stdout.endswith("3100\n")
    )
    assert json.loads(box.run("output", "bad", "--run", "1", "--json", *state).stdout)["head"].startswith(
        "no \x1b[31mrates"
    )
    elsewhere = {"WAKEFUL_SOCKET": "", "WAKEFUL_STATE": str(box.state)}
    found = box.run("output", "bad", env=elsewhere)
    assert found.returncode == 0 and f"no daemon answers; read from {box.state}" in found.stderr
    assert box.run("output", "bad", "--find", "RATES", *state).stdout == "1:no \\x1b[31mrates\n"
    assert box.run("output", "bad", "--find", "3100", env=elsewhere).stdout.endswith(":3100\n")
    for words, said in (
        (("bad", "--run", "7"), "bad has no run 7"),
        (("nobody",), "no session in this log is called 'nobody'"),
    ):
        refused = box.run("output", *words, *state)
        assert refused.returncode == 1 and said in refused.stderr
    # A socket that is named tells nothing about a folder.
    assert box.run("output", "bad").returncode == 3
    assert box.run("output", "bad", "--follow", env=elsewhere).returncode == 3

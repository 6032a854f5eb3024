"""A damaged record of one session: that session is read-only and says why, the others work, and a backup repairs it."""

from __future__ import annotations

import json

import apsw
import pytest

from e2e.box import Box
from process_state import is_alive
from wait_conditions import eventually

SPEC = """
    objective: Say what is there.
    bindings:
      input: {{file: {name}.txt}}
    run:
      command: [cat, {name}.txt]
"""


@pytest.mark.faults
def test_a_session_with_a_damaged_record_is_read_only_and_the_others_work(box: Box) -> None:
    for name in ("hurt", "whole"):
        box.write(f"{name}.txt", "1\n")
        box.spec(name, SPEC.format(name=name))
    assert box.once().returncode == 0
    assert box.run("backup", "kept", "--state", str(box.state)).returncode == 0
    damage_newest(box, "hurt")
    box.start()
    assert "hurt: damaged: seq" in box.output.read_text()
    before = box.log("hurt")
    row = box.row("hurt")
    assert (row["state"], row["owed"], row["queued"]) == ("sleeping", [], None)
    assert "its payload is not the one that was recorded; it is read-only" in row["reason"]
    assert "damaged: seq" in box.words("show", "hurt")
    assert "damaged: its payload is not the one that was recorded" in box.words("log", "hurt")
    assert before[-1]["payload"] is None
    # Its input changes, people call it, the brake is set and released, and its spec changes. None of this is recorded.
    box.write("hurt.txt", "2\n")
    for call in (
        ("activate", "hurt"),
        ("send", "hurt", "hello"),
        ("remember", "hurt", "k", "v"),
        ("terminate", "hurt"),
        ("rename", "hurt", "other"),
        ("fork", "hurt", "--as", "new"),
        ("erase", "hurt", "2"),
    ):
        refused = box.run(*call)
        assert refused.returncode == 1, call
        assert "hurt is read-only: seq" in refused.stderr, (call, refused.stderr)
        assert "wakeful restore BACKUP" in refused.stderr
    saved = box.run("save", "hurt", "-o", "hurt.bundle")
    assert (saved.returncode, "is damaged" in saved.stderr) == (1, True), saved.stderr
    assert "Its bindings are not looked at, because it cannot run." in box.words("why", "hurt")
    # Every verb that only reads gives an answer.
    for look in (
        ("why", "hurt"),
        ("costs",),
        ("history", "hurt"),
        ("output", "hurt"),
        ("facts", "hurt"),
        ("context", "hurt"),
        ("search", "said"),
        ("plan",),
        ("export",),
        ("verify",),
    ):
        assert box.run(*look).returncode in (0, 1), look
    assert "Traceback" not in box.output.read_text()
    box.ask("sleep", "--all")
    box.ask("resume", "--all")
    box.spec("hurt", SPEC.format(name="hurt").replace("objective: Say", "objective: Tell"))
    box.write("whole.txt", "2\n")
    box.wait_at_rest("whole", runs=2)
    (box.specs / "hurt.yaml").unlink()
    box.write("whole.txt", "3\n")
    box.wait_at_rest("whole", runs=3)
    assert box.log("hurt") == before
    checks = {check["name"]: check for check in box_checks(box)}
    assert checks["session"]["verdict"] == "bad"
    assert checks["session"]["words"].startswith("hurt: damaged: seq")
    assert "only a backup has it" in checks["log"]["words"]
    box.stop()
    box.ask("restore", "kept", "--state", str(box.state), "--even-if-newer")
    box.spec("hurt", SPEC.format(name="hurt"))
    box.start()
    box.wait_at_rest("hurt", runs=2)


@pytest.mark.faults
def test_a_run_that_a_killed_daemon_left_ends_though_its_session_is_damaged(box: Box) -> None:
    box.write("hurt.txt", "1\n")
    box.spec("hurt", SPEC.format(name="hurt").replace("[cat, hurt.txt]", "[sh, -c, 'echo $$ > pid; exec sleep 600']"))
    box.start()
    pid = int(eventually(lambda: box.read("pid").strip()))
    box.ask("remember", "hurt", "k", "v")
    box.kill()
    assert is_alive(pid), "the run ended with its daemon"
    damage_newest(box, "hurt")
    box.start()
    assert box.row("hurt")["state"] == "sleeping"
    eventually(lambda: not is_alive(pid))


def damage_newest(box: Box, name: str) -> None:
    """Overwrite the session's newest payload, as a bad disk does."""
    connection = apsw.Connection(str(box.state / "log" / "events.db"))
    (found,) = connection.execute(
        "SELECT e.session FROM event e JOIN payload p ON p.event = e.id WHERE e.kind = 'session_opened' AND instr(p.body, ?)",
        (f'"{name}"'.encode(),),
    ).fetchone()
    connection.execute(
        "UPDATE payload SET body = x'00' WHERE event = (SELECT max(id) FROM event WHERE session = ?)", (found,)
    )
    connection.close()


def box_checks(box: Box) -> list[dict[str, str]]:
    return json.loads(box.run("doctor", "--json").stdout)

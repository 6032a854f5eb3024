"""Commits, clocks, probes and services under a running daemon, each with the real thing."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.box import Box
from git_repository import git
from reserved_port import held_port
from wait_conditions import eventually


def commit(box: Box, path: str, text: str) -> str:
    box.write(path, text)
    git(box.folder, "add", path)
    git(box.folder, "commit", "-q", "-m", f"change {path}")
    return git(box.folder, "rev-parse", "HEAD")


def test_a_commit_in_the_bound_folder_wakes_and_others_do_not(box: Box) -> None:
    """The version is the tree of branch:path. The causes name the commit and the paths."""
    git(box.folder, "init", "-q", "-b", "main")
    commit(box, "src/a.py", "a = 1\n")
    box.spec(
        "docs",
        "objective: Document.\nbindings: {code: {commits: src/, branch: main, settle: 10ms}}\nrun: {command: [sh, -c, 'cp \"$WAKEFUL_CAUSES\" causes.json; git rev-parse HEAD >> ledger']}\n",
    )
    box.start()
    box.wait_at_rest("docs", runs=1)
    commit(box, "README", "no\n")
    head = commit(box, "src/a.py", "a = 2\n")
    row = box.wait_at_rest("docs", runs=2)
    assert row["runs"] == 2
    (cause,) = json.loads(box.read("causes.json"))["causes"]
    assert cause["kind"] == "commits" and [p["path"] for p in cause["paths"]] == ["src/a.py"]
    assert any(head[:7] in line for line in cause["commits"])


def test_each_commit_runs_one_by_one_in_order(box: Box) -> None:
    """Three commits while the daemon is down give three runs, each with its own commit."""
    git(box.folder, "init", "-q", "-b", "main")
    commit(box, "src/a", "0\n")
    box.spec(
        "each",
        "objective: Each.\nbindings: {code: {commits: src/, each_commit: true, settle: 10ms}}\nrun: {command: [sh, -c, 'cat \"$WAKEFUL_CAUSES\" >> ledger; echo >> ledger']}\n",
    )
    box.start()
    box.wait_at_rest("each", runs=1)
    box.stop()
    heads = [commit(box, "src/a", f"{number}\n") for number in (1, 2, 3)]
    box.start()
    box.wait_at_rest("each", runs=4)
    news = [json.loads(line)["causes"][0]["new"] for line in box.lines("ledger")[1:]]
    assert news == heads


@pytest.mark.long
def test_every_second_beats_and_catches_up_once(box: Box) -> None:
    """Slots run once each while the daemon is up. A downtime gives one run, not one for each missed slot."""
    box.spec("beat", "objective: Beat.\nbindings: {tick: {every: 1s}}\nrun: {command: [sh, -c, 'echo x >> ledger']}\n")
    box.start()
    eventually(lambda: box.kinds("beat").count("run_finished") >= 2)
    box.kill()
    killed = datetime.now(UTC)
    eventually(lambda: datetime.now(UTC) - killed > timedelta(seconds=2.5))
    before = len(box.lines("ledger"))
    box.start()
    eventually(lambda: len(box.lines("ledger")) >= before + 2)
    runs = [record["payload"]["causes"] for record in box.log("beat") if record["kind"] == "run_started"]
    causes = [cause for (cause,) in runs]
    assert {cause["kind"] for cause in causes} == {"every"}, "clocks start at their declaration, without a first run"
    slots = [datetime.fromisoformat(cause["new"]) for cause in causes]
    assert slots == sorted(set(slots))
    assert [cause["old"] for cause in causes[1:]] == [cause["new"] for cause in causes[:-1]]
    # The first run after the downtime leaves out at least one slot, and is for the last one.
    late = next(place for place, slot in enumerate(slots) if slot > killed)
    assert slots[late] - slots[late - 1] >= timedelta(seconds=2)


def test_an_edited_interval_of_a_probe_counts_at_once(box: Box) -> None:
    """This took a restart before: the target kept its key, and a source leaves known keys alone."""
    text = "objective: Probe.\nbindings: {{value: {{probe: [cat, value], check_every: {every}}}}}\nrun: {{command: [sh, -c, 'cat value >> ledger']}}\n"
    box.write("value", "1\n")
    box.spec("watch", text.format(every="1h"))
    box.start()
    box.wait_at_rest("watch", runs=1)
    box.spec("watch", text.format(every="200ms"))
    box.write("value", "2\n")
    box.wait_at_rest("watch", runs=2)
    box.write("value", "3\n")
    box.wait_at_rest("watch", runs=3)


def test_a_probe_is_looked_at_and_its_failure_is_not_a_change(box: Box) -> None:
    """The output of the probe is the version.

    `show` names the failure of a probe, and the session does not run for it.
    """
    box.write("value", "1\n")
    box.spec(
        "watch",
        "objective: Probe.\nbindings: {value: {probe: [cat, value], check_every: 200ms}}\nrun: {command: [sh, -c, 'cat value >> ledger']}\n",
    )
    box.start()
    box.wait_at_rest("watch", runs=1)
    box.write("value", "2\n")
    box.wait_at_rest("watch", runs=2)
    (box.folder / "value").unlink()
    eventually(lambda: "No such file" in box.words("show", "watch"))
    box.write("value", "2\n")
    eventually(lambda: "No such file" not in box.words("show", "watch"))
    assert box.row("watch")["runs"] == 2


def test_a_service_that_is_down_puts_the_session_to_sleep(box: Box) -> None:
    """A service is a condition, not a cause: what changed meanwhile runs when the service is back."""
    box.write("in.txt", "1\n")
    with held_port() as service:
        port = service.getsockname()[1]
        box.spec(
            "need",
            f"objective: Need it.\nbindings: {{i: {{file: in.txt, settle: 10ms}}, db: {{service: 'tcp://127.0.0.1:{port}', check_every: 200ms}}}}\nrun: {{command: [sh, -c, 'cat in.txt >> ledger']}}\n",
        )
        service.listen()
        box.start()
        box.wait_at_rest("need", runs=1)
        service.shutdown(socket.SHUT_RDWR)
        row = box.wait_for("need", state="sleeping")
        assert "db" in row["reason"]
        box.write("in.txt", "2\n")
        eventually(lambda: box.row("need")["owed"] == ["i"])
        service.listen()
        box.wait_at_rest("need", runs=2)
    assert box.lines("ledger") == ["1", "2"]


def test_a_rebase_under_way_holds_file_wakes(box: Box) -> None:
    """The session is `queued: git rebase` while the marker is there. The wake comes when it is gone."""
    git(box.folder, "init", "-q", "-b", "main")
    commit(box, "in.txt", "1\n")
    box.spec(
        "read",
        "objective: Read.\nbindings: {i: {file: in.txt, settle: 10ms}}\nrun: {command: [sh, -c, 'cat in.txt >> ledger']}\n",
    )
    box.start()
    box.wait_at_rest("read", runs=1)
    (box.folder / ".git/rebase-merge").mkdir()
    box.write("in.txt", "2\n")
    box.wait_for("read", queued="git rebase")
    (box.folder / ".git/rebase-merge").rmdir()
    box.wait_at_rest("read", runs=2)


def test_an_exported_tree_is_clean_and_gone_after_the_run(box: Box) -> None:
    """`export: true` hands over what was committed, not the working tree. A cancel during the export is obeyed."""
    git(box.folder, "init", "-q", "-b", "main")
    commit(box, "src/a.py", "a = 1\n")
    box.write("src/a.py", "not committed\n")
    box.spec(
        "docs",
        """
        objective: Document what was committed.
        bindings: {code: {commits: src/, branch: main, settle: 10ms, export: true}}
        run: {command: [sh, -c, 'cat "$WAKEFUL_BINDING_CODE/a.py" >> ledger; echo "$WAKEFUL_BINDING_CODE" >> folders; [ ! -e hang ] || sleep 300']}
        """,
    )
    box.start()
    box.wait_at_rest("docs", runs=1)
    assert box.lines("ledger") == ["a = 1"]
    folder = Path(box.lines("folders")[0])
    eventually(lambda: not folder.exists())
    box.write("hang", "")
    for number in range(500):
        box.write(f"src/m{number}.py", "x\n")
    git(box.folder, "add", "src")
    git(box.folder, "commit", "-q", "-m", "many")
    box.wait_for("docs", state="running")
    box.ask("cancel", "docs")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "cancelled"

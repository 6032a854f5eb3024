"""Other accounts of the machine at the control socket: refused by default, people if the owner names them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.conftest import Speaker
from e2e.box import WAKEFUL, Box
from in_process_command import run_command
from ordinary_user import BECOME, OrdinaryBox, OrdinaryUser
from thread_user import acting_as
from wait_conditions import PATIENCE_SECONDS, eventually

BEN, EVE = 61_301, 61_302
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can be several users: other accounts were NOT checked"
)


@pytest.fixture
def meeting_box(box: Box) -> Iterator[Box]:
    """A box whose socket lies in a folder that only members of the group 61301 can pass."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(folder, 0, BEN)
    folder.chmod(0o710)
    box.socket = folder / "w.sock"
    yield box
    box.close()
    shutil.rmtree(folder)


def open_to(box: Box, settings: str) -> None:
    box.write("wakeful.yaml", f"people: {settings}\n")
    box.spec("payroll", "bindings: {beat: {every: 1h}}\nrun: {script: 'true'}\n")
    box.spec("other", "objective: hidden\n")
    box.start()


def test_another_account_is_the_person_that_the_owner_says(meeting_box: Box) -> None:
    """Ben's account is the person ben, with ben's role for one session.

    A changed role counts at once. The log has the name.
    """
    open_to(meeting_box, f"{{accounts: {{{BEN}: ben}}, socket_group: '{BEN}'}}")
    found = meeting_box.socket.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, BEN)
    speaker = Speaker(meeting_box.socket)
    with acting_as(BEN):
        # The account is known, but its person has not been added yet.
        assert speaker.get("/sessions").status == 401
    meeting_box.ask("people", "add", "ben", "--role", "observer", "--session", "payroll")
    with acting_as(BEN):
        assert [row["name"] for row in speaker.get("/sessions").json] == ["payroll"]
        refused = speaker.call("note", name="payroll", text="x")
        assert refused.status == 403 and "ben is an observer of payroll" in refused.error
        assert speaker.get("/tokens").status == 403 and speaker.get("/people").status == 403
    meeting_box.ask("people", "role", "ben", "--role", "contributor", "--session", "payroll")
    with acting_as(BEN):
        assert speaker.call("note", name="payroll", text="x").status == 200
    assert meeting_box.log("payroll")[-1]["author"] == "person:ben"
    listed = meeting_box.json("people", "list")
    assert listed[0]["account"] == str(BEN)


def test_an_account_that_nobody_named_stays_outside(meeting_box: Box) -> None:
    """An account that no setting names is refused with a message if it is in the group. Otherwise it cannot connect."""
    open_to(meeting_box, f"{{accounts: {{{BEN}: ben}}, socket_group: '{BEN}'}}")
    speaker = Speaker(meeting_box.socket)
    with acting_as(EVE), pytest.raises(PermissionError):
        speaker.get("/sessions")
    os.chmod(meeting_box.socket.parent, 0o711)
    os.chmod(meeting_box.socket, 0o666)
    with acting_as(EVE):
        refused = speaker.get("/sessions")
    assert refused.status == 403 and str(EVE) in refused.error and "accounts" in refused.error


def test_an_account_does_not_borrow_a_token(meeting_box: Box) -> None:
    """An account that belongs to another person cannot use the owner's token or a third person's token."""
    open_to(meeting_box, f"{{accounts: {{{BEN}: ben}}, socket_group: '{BEN}'}}")
    for name in ("ben", "ana"):
        meeting_box.ask("people", "add", name, "--role", "observer")
    owners = meeting_box.ask("token", "new", "--scope", "admin").strip()
    anas = meeting_box.ask("token", "new", "--person", "ana").strip()
    own = meeting_box.ask("token", "new", "--person", "ben", "--session", "other").strip()
    speaker = Speaker(meeting_box.socket)
    with acting_as(BEN):
        assert speaker.get("/sessions", owners).status == 403
        assert speaker.get("/sessions", anas).status == 403
        # The person's own token narrows their rights.
        assert speaker.get("/sessions/other", own).status == 200
        assert speaker.get("/sessions/payroll", own).status == 403


def test_the_default_is_closed(box: Box) -> None:
    """Without the setting, only the owner can use the socket, whatever the mode of the socket and its folder."""
    box.start()
    assert stat.S_IMODE(box.socket.stat().st_mode) == 0o600
    box.socket.chmod(0o666)
    for above in (box.folder, *box.folder.parents):
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    with acting_as(BEN):
        refused = Speaker(box.socket).get("/sessions")
    assert refused.status == 403 and "may not use it" in refused.error


@pytest.mark.parametrize(
    ("group", "mode", "words"),
    [("no-such-group-here", 0o711, "no group 'no-such-group-here'"), (str(BEN), 0o700, "cannot pass through")],
)
def test_a_group_that_cannot_come_in_is_said_at_the_start(meeting_box: Box, group: str, mode: int, words: str) -> None:
    meeting_box.socket.parent.chmod(mode)
    meeting_box.write("wakeful.yaml", f"people: {{socket_group: {group}}}\n")
    meeting_box.start(is_ready=False)
    assert meeting_box.daemon is not None
    meeting_box.daemon.wait(PATIENCE_SECONDS)
    assert meeting_box.daemon.returncode != 0 and words in meeting_box.output.read_text()


def test_the_command_line_of_another_account(meeting_box: Box, ordinary_user: OrdinaryUser) -> None:
    """A real process of an ordinary user can list and note, and is told which verbs it may not use."""
    uid = ordinary_user.uid
    os.chown(meeting_box.socket.parent, 0, uid)
    open_to(meeting_box, f"{{accounts: {{{uid}: ben}}, socket_group: '{uid}'}}")
    meeting_box.ask("people", "add", "ben", "--role", "contributor", "--session", "payroll")

    def say(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", str(BECOME), str(uid), str(ordinary_user.home), WAKEFUL, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(ordinary_user.home),
                "WAKEFUL_SOCKET": str(meeting_box.socket),
            },
            timeout=PATIENCE_SECONDS,
        )

    listed = say("list")
    assert listed.returncode == 0 and "payroll" in listed.stdout and "other" not in listed.stdout, listed.stderr
    assert say("note", "payroll", "from next door").returncode == 0
    refused = say("terminate", "payroll")
    assert refused.returncode == 1 and "this needs a maintainer" in refused.stderr
    eventually(lambda: meeting_box.log("payroll")[-1]["author"] == "person:ben")


def test_a_person_says_whose_daemon_they_mean(ordinary_box: OrdinaryBox) -> None:
    """The command line sends nothing to a daemon of another account, unless its user named that account."""
    folder, owner = Path(tempfile.mkdtemp(dir="/tmp")), ordinary_box.user.uid
    try:
        os.chown(folder, owner, owner)
        folder.chmod(0o710)
        ordinary_box.socket = folder / "w.sock"
        ordinary_box.write("wakeful.yaml", f"people: {{accounts: {{{EVE}: eve}}, socket_group: '{owner}'}}\n")
        ordinary_box.spec("payroll", "objective: Pay.\n")
        ordinary_box.start()
        assert ordinary_box.run("people", "add", "eve", "--role", "observer").returncode == 0
        environment = {"WAKEFUL_SOCKET": str(ordinary_box.socket), "HOME": "/", "PATH": os.environ["PATH"]}
        # Import everything that the command needs now, while this process may still read all files.
        run_command("list", environment=environment)
        with acting_as(EVE, owner):
            refused = run_command("list", environment=environment)
            listed = run_command("list", environment=environment | {"WAKEFUL_OWNER": str(owner)})
        assert refused.returncode == 1 and f"WAKEFUL_OWNER={owner}" in refused.stderr
        assert listed.returncode == 0 and "payroll" in listed.stdout, listed.stderr
    finally:
        ordinary_box.close()
        shutil.rmtree(folder)

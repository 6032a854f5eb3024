"""Completion with Tab: verbs, options and what the daemon knows, in a real bash.

For zsh and fish, the tests check the questions of their scripts and the answers.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.small_daemon import RunningDaemon, declare, reads
from cli.conftest import Command, run_wakeful
from wakeful.core.calls.call_types import Remember, Save

FOLDER = str(Path(sys.executable).parent)


@pytest.fixture
def known(rested: RunningDaemon) -> RunningDaemon:
    """Give payroll a checkpoint and facts, and declare two sessions of a template.
    One fact has a key that a shell would execute."""

    async def live(d: object) -> None:
        calls = [
            Remember(name="payroll", key="rate", value="8"),
            Remember(name="payroll", key="$(touch x)", value="8"),
            Save(name="payroll", mark="march"),
        ]
        for call in calls:
            await d.call(call, author="person:ada", key=None, run=None)  # type: ignore[attr-defined]

    rested.do(lambda d: d.declare(declare("ticket@7", reads("one", "a")), declare("ticket@8", reads("one", "a"))))
    rested.do(live)
    return rested


def ask_bash(*lines: str, **environ: str) -> list[list[str]]:
    """Return what bash would insert for each line with the cursor at its end.
    The real script is called as readline does."""
    asked = "".join(
        f'COMP_LINE={line!r} COMP_POINT={len(line)}; _wakeful_completion wakeful; echo "${{COMPREPLY[*]}}"\n'
        for line in lines
    )
    path = f"{FOLDER}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'eval "$(wakeful completion bash)"\n{asked}'],
        capture_output=True, text=True, timeout=120, env={**os.environ, **environ, "PATH": path},
    )  # fmt: skip
    # Outside a terminal no completion is under way, so `compopt` fails.
    assert not [words for words in done.stderr.splitlines() if "compopt" not in words], done.stderr
    return [answer.split() for answer in done.stdout.splitlines()]


OFFERED = {
    "wakeful re": ["recall", "replay", "resume", "rename", "rewind", "resolve", "remember", "restore"],
    "wakeful show p": ["payroll"],
    "wakeful show hr/": ["hr/filing"],
    "wakeful show nobody": [],
    "wakeful show --a": ["--at"],
    "wakeful show payroll --at ": ["march"],
    "wakeful rewind payroll m": ["march"],
    "wakeful log payroll --run ": ["1"],
    "wakeful replay payroll ": ["1"],
    "wakeful forget payroll ": ["rate"],
    "wakeful recall payroll r": ["rate"],
    "wakeful recall payroll rate ": [],
    "wakeful completion f": ["fish"],
    # Bash keeps the text before the @ and expects the rest alone, with the @.
    "wakeful show ticket@": ["@7", "@8"],
    "wakeful list ticket": ["ticket@7", "ticket@8", "ticket@"],
    "wakeful diff payroll@": ["@march"],
    "wakeful diff payroll@1 t": ["ticket@7", "ticket@8"],
}


def test_bash_offers_what_could_stand_there(known: RunningDaemon) -> None:
    """Bash gets names, checkpoints, runs and keys of the session in the line, and never a word that a shell would
    execute."""
    assert dict(zip(OFFERED, ask_bash(*OFFERED, WAKEFUL_SOCKET=str(known.socket)), strict=True)) == OFFERED


def test_without_a_daemon_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    """The line stays as it was, also when something listens on the socket and never answers."""
    assert ask_bash("wakeful show p", WAKEFUL_SOCKET=str(tmp_path / "none")) == [[]]
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        began = time.monotonic()
        assert ask_bash("wakeful show p", WAKEFUL_SOCKET=str(tmp_path / "deaf")) == [[]]
        assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("shell", "words", "position"), [("zsh", "wakeful show pay", "2"), ("fish", "wakeful show pay", "pay")]
)
def test_the_other_shells_are_answered_in_their_own_way(
    known: RunningDaemon, wakeful: Command, shell: str, words: str, position: str
) -> None:
    """Their scripts ask through environment variables. Each candidate is marked as plain text."""
    asked = {"_WAKEFUL_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": position}
    assert "payroll" in wakeful(**asked).stdout and "plain" in wakeful(**asked).stdout
    assert "_WAKEFUL_COMPLETE" in run_wakeful("completion", shell).stdout


def test_a_description_reaches_fish_whole(wakeful: Command) -> None:
    """The script of fish splits an answer at commas, so the description has none."""
    answers = wakeful(_WAKEFUL_COMPLETE="fish_complete", COMP_WORDS="wakeful rec", COMP_CWORD="rec").stdout.splitlines()
    assert answers == ["plain,recall\tprint one fact; or all facts"]


def test_fish_itself_offers_the_names(known: RunningDaemon) -> None:
    """If fish is installed, it is asked as it asks itself."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    environ = {**os.environ, "PATH": f"{FOLDER}:{os.environ['PATH']}", "WAKEFUL_SOCKET": str(known.socket)}
    asked = 'wakeful completion fish | source; complete -C "wakeful show ticket@"'
    done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, timeout=60, env=environ)
    assert done.stdout.split() == ["ticket@7", "ticket@8"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_the_shell_can_read(shell: str) -> None:
    """If the shell is installed, it checks the syntax of the script."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = run_wakeful("completion", shell).stdout
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def terminal(known: RunningDaemon) -> Iterator[int]:
    """Start a bash at a terminal, with completion set up."""
    pid, descriptor = pty.fork()
    if pid == 0:
        environ = {
            **os.environ,
            "PATH": f"{FOLDER}:{os.environ['PATH']}",
            "WAKEFUL_SOCKET": str(known.socket),
            "PS1": "> ",
            "TERM": "dumb",
        }
        os.execvpe("bash", ["bash", "--norc", "-i"], environ)
    os.write(descriptor, b'eval "$(wakeful completion bash)"; echo rea""dy\n')
    read_until(descriptor, b"\nready")
    yield descriptor
    os.write(descriptor, b"\x15exit\n")
    os.waitpid(pid, 0)
    os.close(descriptor)


def read_until(descriptor: int, wanted: bytes, seconds: float = 30) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while wanted not in seen:
        assert select.select([descriptor], [], [], max(end - time.monotonic(), 0))[0], seen
        seen += os.read(descriptor, 4096).replace(b"\r", b"")
    return seen


def test_a_name_with_a_mark_is_completed_at_a_terminal(terminal: int) -> None:
    """The Tab key continues the typed name and does not repeat a part of it."""
    os.write(terminal, b"wakeful show ticket@7\t")
    read_until(terminal, b"show ticket@7 ")
    os.write(terminal, b"\x15wakeful show pay\t")
    read_until(terminal, b"payroll ")

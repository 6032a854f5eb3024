"""Names of files as attacks: the author of a file that a template finds must not decide what is run.

Each command is first run with a hostile name filled in, as a template would do, and the attack works. The template with
that command is refused with its place. A template that passes the name in a variable is taken, and harmless.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wakeful.core.spec.session import CommandRun, ScriptRun
from wakeful.specs.folder_reading import read_folder
from wakeful.specs.templates import fill

# The words of a command, and a file name that makes the command create `gotcha`.
ATTACKS = {
    "sh -c": (["sh", "-c", "cat {path}"], "x;touch gotcha;"),
    "sh behind xargs": (["xargs", "sh", "-c", "cat {path}"], "x;touch gotcha;"),
    "sh behind find": (["find", ".", "-maxdepth", "0", "-exec", "sh", "-c", "cat {path}", ";"], "x;touch gotcha;"),
    "env -S": (["env", "-S", "{stem}"], "touch gotcha"),
    "python3 -c": (["python3", "-c", "print('{stem}')"], "');open('gotcha', 'w').close();('"),
    "awk": (["awk", 'BEGIN {{ print "{stem}" }}'], '" (system("touch gotcha")) "'),
    "sed": (["sed", "-n", "{stem}", "in.txt"], "1etouch gotcha"),
    "perl -e": (["perl", "-e", "print '{stem}'"], "'.`touch gotcha`.'"),
    "perl -ne": (["perl", "-ne", "print", "{path}"], "x;touch gotcha|"),
    "make": (["make", "-f", "/dev/null", "{stem}"], "x:=$(shell touch gotcha)"),
    "git": (["git", "-c", "alias.x={stem}", "x"], "!touch gotcha"),
    "an option": (["sh", "-{stem}", "touch gotcha"], "c"),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("key", ["command", "check", "probe"])
def test_a_hostile_name_is_run_where_it_is_code_and_no_template_puts_it_there(
    attack: str, key: str, tmp_path: Path
) -> None:
    words, name = ATTACKS[attack]
    if shutil.which(words[0]) is None:
        pytest.skip(f"NOT TESTED: there is no {words[0]} here")
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets" / f"{name}.md" if not name.endswith("|") else tmp_path / "tickets" / name).write_text("x")
    (tmp_path / "in.txt").write_text("1\n")
    path = next((tmp_path / "tickets").iterdir())
    filled = fill({"run": {"command": words}}, f"tickets/{path.name}", path.stem)["run"]["command"]
    # make expands its arguments before it sets a shell of its own. Without SHELL in the environment, this attack does
    # nothing.
    environment = os.environ | {"SHELL": "/bin/sh"}
    subprocess.run(filled, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=60, input=b"x\n")
    assert (tmp_path / "gotcha").exists(), f"the attack itself: {filled}"

    (tmp_path / "sessions.d").mkdir()
    run = {
        "command": f"command: {words!r}",
        "check": f"command: ['true'], check: {words!r}",
        "probe": "command: ['true']",
    }[key]
    probe = f"bindings: {{p: {{probe: {words!r}}}}}\n" if key == "probe" else ""
    (tmp_path / "sessions.d" / "ticket@.yaml").write_text(f"for_each: tickets/*\nobjective: x\n{probe}run: {{{run}}}\n")
    reading = read_folder(tmp_path / "sessions.d")
    assert not reading.sessions
    assert "whoever names a file would say what is run" in reading.refused["ticket@"], reading.refused
    assert 'env: {FILE: "{path}"}' in reading.refused["ticket@"]


def test_a_name_in_a_variable_is_data(tmp_path: Path) -> None:
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets" / "$(touch gotcha);touch gotcha;`touch gotcha`.md").write_text("hello")
    (tmp_path / "sessions.d").mkdir()
    (tmp_path / "sessions.d" / "ticket@.yaml").write_text(
        "for_each: tickets/*.md\nobjective: x\nrun:\n  env: {FILE: '{path}'}\n  script: cat \"$FILE\"\n"
    )
    (spec,) = read_folder(tmp_path / "sessions.d").sessions.values()
    assert isinstance(spec.run, ScriptRun) and not isinstance(spec.run, CommandRun)
    done = subprocess.run(
        ["sh", "-eu", "-c", spec.run.text],
        cwd=tmp_path,
        env=spec.run.env | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"hello" and not (tmp_path / "gotcha").exists()


@pytest.mark.parametrize("name", ["-rf.md", "~root.md", "a\nb.md"])
def test_a_name_that_would_be_an_option_a_home_or_two_lines_is_no_session(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    (tmp_path / "sessions.d").mkdir()
    (tmp_path / "sessions.d" / "ticket@.yaml").write_text(
        "for_each: '*.md'\nobjective: x\nrun: {command: [cat, '{path}']}\n"
    )
    reading = read_folder(tmp_path / "sessions.d")
    assert not reading.sessions and "cannot be a session" in str(reading.refused)

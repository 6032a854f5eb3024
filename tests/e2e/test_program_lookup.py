"""A program is looked up at every start of a run.

It may be installed, rebuilt or replaced after its session was declared, without a restart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordinary_user import OrdinaryBox
from ordinary_user import ordinary_box as ordinary_box
from ordinary_user import ordinary_user as ordinary_user

SPEC = """
objective: Run what is installed.
bindings:
  go:  {{file: go}}
  out: {{file: out/, access: write}}
first: adopt
run: {{command: [{command}], retries: 0}}
"""


def find_pythons() -> list[str]:
    """Return the system's Python and the one of this suite, if they are different."""
    found = {
        os.path.realpath(path): path
        for path in ("/usr/bin/python3", getattr(sys, "_base_executable", sys.executable))
        if os.path.exists(path)
    }
    return list(found.values())


class Project:
    """A box with one session, which tests declare once and run several times."""

    def __init__(self, box: OrdinaryBox) -> None:
        self.box = box
        self.runs = 0

    def declare(self, command: str, **files: str) -> None:
        for name, text in {"go": "0", **files}.items():
            self.box.write(name.replace("__", "."), text)
        self.box.spec("app", SPEC.format(command=command))
        self.box.start()

    def run(self) -> tuple[str, str]:
        """Run the session once more. Return the outcome and what it printed."""
        self.runs += 1
        self.box.run("activate", "app", "--wait")
        row = self.box.wait_at_rest("app", runs=self.runs)
        return row["last_run"]["outcome"], self.box.run("output", "app").stdout

    def make_venv(self, python: str) -> None:
        folder = self.box.folder / ".venv"
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
        packages = next(folder.glob("lib/python3*/site-packages"))
        (packages / "installed.py").write_text("word = 'installed'\n")
        self.box.user.give(folder)


@pytest.fixture
def project(ordinary_box: OrdinaryBox) -> Iterator[Project]:
    yield Project(ordinary_box)


@pytest.mark.long
def test_a_venv_is_used_as_soon_as_it_is_there_and_after_it_was_rebuilt(project: Project) -> None:
    """The second venv may have another Python, whose libraries lie elsewhere."""
    pythons = find_pythons()
    project.declare(".venv/bin/python, app.py", app__py="import installed, sys; print(installed.word, sys.prefix)\n")
    outcome, said = project.run()
    assert outcome == "failed"
    for python in (*pythons, pythons[0]):
        project.make_venv(python)
        outcome, said = project.run()
        assert (outcome, said.split()) == ("succeeded", ["installed", str(project.box.folder / ".venv")]), said


@pytest.mark.long
def test_a_program_of_npm_is_found_when_it_is_installed(project: Project) -> None:
    """It is found through the link that npm makes, with the packages beside it.

    It is found again after it is removed and installed elsewhere.
    """
    project.declare("node_modules/.bin/x, go")
    assert project.run()[0] == "failed"
    packages = project.box.folder / "node_modules"
    for package in ("one", "two"):
        shutil.rmtree(packages, ignore_errors=True)
        (packages / package).mkdir(parents=True)
        (packages / "beside").mkdir()
        (packages / "beside/word").write_text(f"beside {package}")
        (packages / package / "cli.sh").write_text("#!/bin/sh\ncat node_modules/beside/word\n")
        (packages / package / "cli.sh").chmod(0o755)
        (packages / ".bin").mkdir()
        (packages / ".bin/x").symlink_to(f"../{package}/cli.sh")
        project.box.user.give(packages)
        assert project.run() == ("succeeded", f"beside {package}")


def test_a_file_that_becomes_executable_is_run(project: Project) -> None:
    """The daemon's look at a program includes its mode."""
    project.declare("tools/x", tools__x="")
    tool: Path = project.box.write("tools/x", "#!/bin/sh\necho ran\n")
    project.box.user.give(tool.parent)
    assert project.run()[0] == "failed"
    tool.chmod(0o755)
    assert project.run() == ("succeeded", "ran\n")

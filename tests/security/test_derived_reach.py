"""A run's reach is what a person declared. Files that a run or a project can write do not widen it.

Each attack is made as an ordinary user whose key lies in `~/.ssh`. In the session `open`, which has no isolation, the
same program reads the key.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ordinary_user import OrdinaryBox

# The program prints whether it can read the key, and succeeds in either case.
READER = """
if told=$(cat {key} 2>&1); then echo "key: $told"; else echo "key: denied"; fi
# {mention}
"""
SPEC = """
isolation: {level}
bindings:
  go: {{file: {go}}}
{more}
first: run
run: {{command: [sh, {program}], retries: 0}}
"""
KEY = "PRIVATE KEY"
# The undefended half takes as long as the defended one, and only a change of both can break it alone.
DEFENDED = [True, pytest.param(False, marks=pytest.mark.long)]
# A part of an installation on PATH. A session that names a program of the installation may read it.
INSTALLED = Path(sys.executable).parent.parent / "pyvenv.cfg"


class Home:
    """The user's home with a key in it, a project beside it, and sessions that try to read the key."""

    def __init__(self, box: OrdinaryBox) -> None:
        self.box = box
        self.home = box.user.home
        self.key = self.put(self.home / ".ssh/id_ed25519", KEY)
        # An executable in bin/ makes the home look like an installation.
        self.put(self.home / "bin/tool", "#!/bin/sh\n", 0o755)
        box.write("wakeful.yaml", "allow_unisolated: true\n")

    def put(self, path: Path | str, text: str, mode: int = 0o644) -> Path:
        target = self.box.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
        return target

    def link(self, path: str, target: str) -> None:
        link = self.box.folder / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def declare(
        self, mention: str, name: str = "shut", level: str = "standard", more: str = "", key: Path | None = None
    ) -> None:
        """Declare a session whose program mentions a file and tries to read the key, or another file.

        Programs mention the files that they start in this way.
        """
        self.put(f"{name}.sh", READER.format(key=str(key or self.key), mention=mention))
        self.put(f"{name}.go", "")
        self.box.spec(name, SPEC.format(level=level, go=f"{name}.go", program=f"{name}.sh", more=more))

    def attack(self, mention: str, key: Path | None = None, *, is_defended: bool = True) -> None:
        if not is_defended:
            self.box.weaken("lead_anywhere")
        self.declare(mention, key=key)
        self.declare(mention, "open", "none", key=key)
        self.start()
        self.box.wait_at_rest("shut", runs=1)
        self.box.wait_at_rest("open", runs=1)
        assert f"key: {KEY}" in self.told("open"), "the attack itself does not work"

    def start(self) -> None:
        self.box.user.give(self.home)
        self.box.start()

    def told(self, name: str) -> str:
        return self.box.run("output", name).stdout

    def isolation(self, name: str) -> dict[str, Any]:
        return [record["payload"]["isolation"] for record in self.box.log(name) if record["kind"] == "run_finished"][-1]

    def assert_open(self, name: str = "shut") -> None:
        assert "key: " in self.told(name) and "key: denied" not in self.told(name), self.isolation(name)

    def assert_shut(self, name: str = "shut") -> None:
        assert "key: denied" in self.told(name), self.isolation(name)


@pytest.fixture
def home(ordinary_box: OrdinaryBox) -> Home:
    return Home(ordinary_box)


@pytest.mark.parametrize("is_defended", DEFENDED)
def test_a_folder_is_no_interpreter(home: Home, is_defended: bool) -> None:
    """The program mentions a helper whose first line names the home. The record says why it was not granted."""
    home.put("tools/e.sh", f"#!{home.home}\n", 0o755)
    home.attack("./tools/e.sh", is_defended=is_defended)
    if not is_defended:
        home.assert_open()
        return
    home.assert_shut()
    assert any(
        str(home.home) in words and "not a regular executable file" in words
        for words in home.isolation("shut")["not_derived"]
    )
    assert home.isolation("shut")["derived"] == ["tools/e.sh"]


@pytest.mark.parametrize(
    "what", ["pth", "home", "library", "python", "companion", "shims", "conda", "packages", "interpreter", "whole"]
)
@pytest.mark.parametrize("is_defended", DEFENDED)
def test_files_of_the_project_lead_nowhere_outside_of_it(home: Home, what: str, is_defended: bool) -> None:
    """An environment inside the project whose files or links name the home.

    Each case uses another way in which an installation is found.
    """
    home.put("v/pyvenv.cfg", "home = /usr/bin\n")
    home.put("v/bin/tool", "#!/bin/sh\n", 0o755)
    mention, key = "./v/bin/tool", home.key
    match what:
        case "pth":
            home.put("v/lib/python3.11/site-packages/x.pth", f"{home.home}\n{home.home}/.ssh\n")
        case "home":
            # This has the marks of a Python installation, except for its library.
            home.put("v/pyvenv.cfg", f"home = {home.home}/.ssh/bin\n")
            home.put(home.home / ".ssh/bin/python3", "#!/bin/sh\n", 0o755)
            home.link(str(home.home / ".ssh/lib"), ".")
        case "library":
            home.put("w/bin/tool", "#!/bin/sh\n", 0o755)
            home.link("w/lib/python3.11", str(home.home / ".ssh"))
            mention = "./w/bin/tool"
        case "python":
            # The environment's link leads to a program elsewhere. The folder beside that program is not a library.
            home.put(home.home / ".ssh/bin/python3", "#!/bin/sh\n", 0o755)
            home.link(str(home.home / ".ssh/lib"), str(home.home / ".ssh"))
            home.link("v/bin/python", str(home.home / ".ssh/bin/python3"))
            mention = "./v/bin/python"
        case "companion":
            home.put("c/.cargo/bin/cargo", "#!/bin/sh\n", 0o755)
            home.link("c/.rustup", str(home.home))
            home.put(home.home / "toolchains/x", "")
            home.link("c/.cargo/lib/ruby", str(home.home / ".ssh"))
            mention = "./c/.cargo/bin/cargo"
        case "shims":
            home.link("shims", str(home.home / "bin"))
            home.put(home.home / "shims/tool", "#!/bin/sh\n", 0o755)
            home.link("x", str(home.home / "shims"))
            mention = "./shims/tool ./x/tool"
        case "conda":
            home.put(home.home / "conda-meta/history", "")
            home.link("b", str(home.home / "bin"))
            mention = f"./b/tool {home.home}/bin/tool"
        case "packages":
            # The packages of another project, with a key among them.
            home.put(home.home / "node_modules/.bin/x", "#!/bin/sh\n", 0o755)
            key = home.put(home.home / "node_modules/keys/id_ed25519", KEY)
            home.link("node_modules", str(home.home / "node_modules"))
            mention = "./node_modules/.bin/x"
        case "interpreter":
            # A person's own environment, to which the project was never given access.
            home.put(home.home / "own/pyvenv.cfg", "home = /usr/bin\n")
            home.put(home.home / "own/bin/python", "#!/bin/sh\n", 0o755)
            home.put(home.home / "own/lib/python3.11/site-packages/x.pth", f"{home.home}/.ssh\n")
            home.put("e.sh", f"#!{home.home}/own/bin/python\n", 0o755)
            mention = "./e.sh"
        case "whole":
            home.put(home.home / "pyvenv.cfg", "home = /usr/bin\n")
            home.put(home.home / "bin/python3", "#!/bin/sh\n", 0o755)
            home.put("v/pyvenv.cfg", f"home = {home.home}/bin\n")
    home.attack(mention, key, is_defended=is_defended)
    if not is_defended:
        home.assert_open()
        return
    home.assert_shut()
    assert not any(str(home.home) in place for place in home.isolation("shut").get("derived", ()))


@pytest.mark.parametrize("is_defended", [True, False])
def test_a_run_that_leaves_a_helper_does_not_widen_the_next(home: Home, is_defended: bool) -> None:
    """The run writes out/helper.sh, whose first line names a person's interpreter.

    It also touches its own program, so that the reach is derived again for the next run.
    """
    if not is_defended:
        home.box.weaken("believe_everybody")
    home.put(home.home / "own/pyvenv.cfg", "home = /usr/bin\n")
    home.put(home.home / "own/bin/python", "#!/bin/sh\n", 0o755)
    home.put(home.home / "own/lib/python3.11/site-packages/x.pth", f"{home.home}/.ssh\n")
    home.declare("./out/helper.sh", more="  out: {file: out/, access: write}")
    leave = f"[ -e out/helper.sh ] || {{ echo '#!{home.home}/own/bin/python' > out/helper.sh; chmod 755 out/helper.sh; touch shut.sh; }}\n"
    home.put("shut.sh", (home.box.folder / "shut.sh").read_text() + leave)
    home.start()
    home.box.wait_at_rest("shut", runs=1)
    home.box.ask("activate", "shut")
    home.box.wait_at_rest("shut", runs=2)
    if not is_defended:
        home.assert_open()
        return
    home.assert_shut()
    found = home.isolation("shut")
    assert "derived" not in found
    assert any("own/bin/python" in words and "runs may write" in words for words in found["not_derived"])


@pytest.mark.parametrize("is_defended", [True, False])
def test_what_another_session_writes_leads_nowhere(home: Home, is_defended: bool) -> None:
    """A helper in another session's output folder opens nothing, not even an interpreter of PATH.

    In a folder of the project, the same helper does.
    """
    if not is_defended:
        home.box.weaken("believe_everybody")
    home.box.spec(
        "neighbour", "bindings: {o: {file: theirs/, access: write}}\nfirst: adopt\nrun: {command: ['true']}\n"
    )
    for folder in ("theirs", "ours"):
        home.put(f"{folder}/helper.sh", "#!/usr/bin/env wakeful\n", 0o755)
    for name, folder in (("theirs", "theirs"), ("ours", "ours")):
        home.declare(f"./{folder}/helper.sh", name, key=INSTALLED)
    home.start()
    for name in ("theirs", "ours"):
        home.box.wait_at_rest(name, runs=1)
    if not is_defended:
        home.assert_open("theirs")
        return
    home.assert_shut("theirs")
    assert str(INSTALLED.parent) in home.isolation("ours")["derived"] and "home = " in home.told("ours")
    assert home.isolation("theirs")["derived"] == ["theirs/helper.sh"]


@pytest.mark.parametrize("is_defended", [True, False])
def test_a_program_that_runs_may_write_is_not_looked_through(home: Home, is_defended: bool) -> None:
    """An output in the same folder as the program makes the whole folder writable.

    So the programs that the program mentions are not granted.
    """
    if not is_defended:
        home.box.weaken("believe_everybody")
    home.put(home.home / "own/bin/python", "#!/bin/sh\n", 0o755)
    home.declare(f"wakeful {home.home}/own/bin/python", more="  out: {file: report.md, access: write}", key=INSTALLED)
    home.start()
    home.box.wait_at_rest("shut", runs=1)
    if not is_defended:
        home.assert_open()
        return
    home.assert_shut()
    found = home.isolation("shut")
    assert not any("wakeful" in place for place in found.get("derived", ()))
    assert any("shut.sh may be written by runs of" in words for words in found["not_derived"])


@pytest.mark.parametrize("is_defended", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_link_that_a_run_leaves_leads_no_other_session_elsewhere(home: Home, is_defended: bool) -> None:
    """A run replaces a neighbour's input, or the folder of its outputs, by a link to another part of the project."""
    if not is_defended:
        home.box.weaken("follow_planted_links")
    home.put("private/notes.txt", "PRIVATE NOTES")
    home.put("go", "")
    home.put("out/kept", "")
    leave = "rm -rf out/it; ln -s ../private out/it"
    home.box.spec(
        "planter",
        f"allow: {{write: [out]}}\nbindings: {{go: {{file: go}}}}\nfirst: run\nrun: {{script: '{leave}', retries: 0}}\n",
    )
    neighbours = {
        "reader": ("{file: out/it/notes.txt}", "cat out/it/notes.txt"),
        "writer": ("{file: out/it/made.txt, access: write}", "cat private/notes.txt; echo x > private/planted.txt"),
    }
    for name, (bound, act) in neighbours.items():
        home.box.spec(
            name, f"bindings: {{go: {{file: go}}, it: {bound}}}\nfirst: adopt\nrun: {{script: '{act}', retries: 0}}\n"
        )
    home.start()
    home.box.wait_at_rest("planter", runs=1)
    for name in neighbours:
        home.box.run("activate", name, "--wait")
        row = home.box.wait_at_rest(name, runs=1)
        if is_defended:
            assert row["last_run"]["outcome"] == "failed" and "PRIVATE" not in home.told(name)
            assert "which runs of planter may have made" in home.box.words("show", name)
        else:
            assert row["last_run"]["outcome"] == "succeeded" and "PRIVATE NOTES" in home.told(name)
    assert (home.box.folder / "private/planted.txt").exists() != is_defended

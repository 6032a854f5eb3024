"""The places of the programs that a run needs, and the places that runs may write.

A place counts only if no run can have written the bytes that name it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakeful.runners.isolation import reach
from wakeful.runners.isolation.path_answers import PathAnswers
from wakeful.runners.isolation.program_places import Derived, ProgramWords, derive_places, resolve_links
from wakeful.runners.isolation.written_places import Writing, WrittenPlaces, list_written


class Ground:
    """A project, a home folder beside it, and the places that runs may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "project"
        self.root.mkdir()
        self.written = WrittenPlaces()

    def put(self, path: str, text: str = "", mode: int = 0o644) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
        return target

    def put_python(self, prefix: str) -> str:
        """Make an installation of Python, from which a venv can be made."""
        self.put(f"{prefix}/lib/python3.12/os.py")
        return str(self.put(f"{prefix}/bin/python3.12", mode=0o755))

    def put_venv(self, prefix: str, python: str) -> None:
        self.put(f"{prefix}/pyvenv.cfg", f"home = {os.path.dirname(python)}\n")
        self.put(f"{prefix}/lib/python3.12/site-packages/word.py")
        (self.folder / prefix / "bin").mkdir()
        (self.folder / prefix / "bin/python").symlink_to(python)

    def write(self, *patterns: str, allowed: tuple[str, ...] = (), is_staged: bool = False) -> None:
        self.written.declare("w", "writer", list_written(str(self.root), patterns, allowed, is_staged=is_staged))

    def derive(self, *texts: str, path: str = "", program: str | None = None) -> Derived:
        words = ProgramWords(
            texts=texts,
            program=None if program is None else str(self.root / program),
            root=str(self.root),
            cwd=str(self.root),
            search_path=path,
        )
        return derive_places(words, self.written, reach.is_wide)[0]

    def places(self, derived: Derived) -> set[str]:
        return {os.path.relpath(place.path, self.folder) for place in derived.places}


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(reach, "_find_home", lambda: str(tmp_path / "home"))
    return Ground(tmp_path)


def test_a_venv_of_the_project_leads_to_the_python_it_was_made_from(ground: Ground) -> None:
    """The places are the program and the library of that Python, found by the venv's links and its settings.

    Nothing beside them is opened.
    """
    python = ground.put_python("home/versions/3.12")
    ground.put("home/versions/3.12/share/secret")
    ground.put_venv("project/.venv", python)
    assert ground.places(ground.derive(".venv/bin/python", "app.py")) == {
        "project/.venv",
        "home/versions/3.12/bin/python3.12",
        "home/versions/3.12/lib",
    }


def test_a_venv_that_runs_may_write_leads_to_interpreters_of_path_alone(ground: Ground) -> None:
    """An output in root makes all of root writable.

    The refusal names the file, and the session whose runs may write there.
    """
    python = ground.put_python("home/versions/3.12")
    ground.put_venv("project/.venv", python)
    ground.write("report.md")
    refused = ground.derive(".venv/bin/python", "app.py")
    assert ground.places(refused) == set() and "by a file that runs may write" in refused.refused[0]
    shims = ground.put("home/shims/python3", mode=0o755).parent
    found = ground.derive(".venv/bin/python", "app.py", path=f"{os.path.dirname(python)}:{shims}")
    assert {"project/.venv", "home/versions/3.12/lib"} <= ground.places(found)


def test_a_venv_of_a_person_names_editable_installs_but_nothing_wide(ground: Ground) -> None:
    """A home folder, a folder that holds the project, and folders of all users are not opened.

    The project itself is.
    """
    ground.put_venv("own", ground.put_python("base"))
    ground.put("source/lib.py")
    lines = [str(ground.folder / name) for name in ("source", "home", "project")] + [
        str(ground.folder),
        "/tmp",
        "/home",
        "/",
    ]
    ground.put("own/lib/python3.12/site-packages/x.pth", "\n".join(lines))
    found = ground.derive(f"{ground.folder}/own/bin/python")
    assert ground.places(found) == {"own", "base/bin/python3.12", "base/lib", "source", "project"}
    assert sum("x.pth leads to" in words for words in found.refused) == 5


def test_an_editable_install_of_the_project_lies_inside_it(ground: Ground) -> None:
    """The paths in the project's own venv are opened inside root and nowhere else. Root as a whole is not opened."""
    ground.put_venv("project/.venv", "/usr/bin/python3")
    ground.put("project/src/lib.py")
    ground.put("other/lib.py")
    lines = [str(ground.root / "src"), str(ground.root), str(ground.folder / "other")]
    ground.put("project/.venv/lib/python3.12/site-packages/x.pth", "\n".join(lines))
    assert ground.places(ground.derive(".venv/bin/python")) == {"project/.venv", "project/src"}


def test_what_comes_later_is_found_by_the_same_words(ground: Ground) -> None:
    """The places are empty before the installation.

    Found later are the agent of the documentation, a venv, and a program of PATH.
    """
    tools = ground.folder / "tools"
    tools.mkdir()
    words = ("node", ".agents/node_modules/.bin/claude-agent-acp", ".venv/bin/python", "render")
    assert ground.derive(*words, path=str(tools)) == Derived()
    ground.put("project/.agents/node_modules/@a/claude-agent-acp/dist/index.js", "#!/usr/bin/env node\n", 0o755)
    (ground.root / ".agents/node_modules/.bin").mkdir()
    (ground.root / ".agents/node_modules/.bin/claude-agent-acp").symlink_to("../@a/claude-agent-acp/dist/index.js")
    assert "project/.agents/node_modules" in ground.places(ground.derive(*words, path=str(tools)))
    ground.put_venv("project/.venv", ground.put_python("one"))
    assert {"project/.venv", "one/lib"} <= ground.places(ground.derive(*words, path=str(tools)))
    (ground.root / ".venv/bin/python").unlink()
    (ground.root / ".venv/bin/python").symlink_to(ground.put_python("two"))
    assert "two/lib" in ground.places(ground.derive(*words, path=str(tools)))
    ground.put("tools/render", "#!/bin/sh\n", 0o755)
    assert "tools/render" in ground.places(ground.derive(*words, path=str(tools)))


def test_a_name_of_a_file_is_one_word(ground: Ground) -> None:
    """A stranger may choose the name of a file. A path inside that name is not a path of the command."""
    ground.put("elsewhere/tool", "#!/bin/sh\n", 0o755)
    name = f"inbox/a {ground.folder}/elsewhere/tool"
    assert ground.places(ground.derive(name)) == {"elsewhere/tool"}
    ground.put(f"project/{name}")
    assert ground.derive(name) == Derived()


def test_what_runs_may_write(ground: Ground) -> None:
    """A literal output opens the folder that holds it, unless it is a folder itself or is staged."""
    ground.put("project/pages/x")

    def find(path: str) -> Writing | None:
        return ground.written.find(str(ground.root / path), os.path.isdir)

    ground.write("out/report.md", "pages", "data/*.csv", allowed=("cache",))
    assert find("out/helper.sh") == Writing(str(ground.root / "out"), "writer")
    assert all(find(path) is not None for path in ("pages/deep/x", "data/x", "cache/y"))
    assert all(find(path) is None for path in ("app.py", "outside", "pages.py"))
    ground.write("out/report.md", is_staged=True)
    assert find("out/report.md") is not None and find("out/helper.sh") is None and find("pages/x") is None


def test_another_session_that_may_write_a_file_changes_what_holds(ground: Ground) -> None:
    """The answers also change with a mode, with a new name, and with a change within the same tick as the look."""
    file = ground.put("project/tool", "1")
    os.utime(file, (1, 1))

    def look() -> PathAnswers:
        answers = PathAnswers(ground.written)
        answers.find_writer(str(file))
        answers.is_program(str(file))
        answers.is_there(str(ground.root / "missing"))
        return answers

    answers = look()
    ground.write("elsewhere/x")
    assert answers.still_hold()
    ground.write("tool")
    assert not answers.still_hold()
    answers = look()
    file.chmod(0o755)
    assert not answers.still_hold()
    answers = look()
    ground.put("project/missing")
    assert not answers.still_hold()
    answers = PathAnswers()
    answers.read(str(ground.put("project/fresh", "1")))
    assert not answers.still_hold()


def test_links_on_the_way_are_told_by_where_they_lie(ground: Ground) -> None:
    """The links go through a folder that is a link, and to a missing file."""
    ground.put("elsewhere/file")
    (ground.root / "a").symlink_to(ground.folder / "elsewhere")
    (ground.folder / "elsewhere/b").symlink_to("missing")
    real, links = resolve_links(str(ground.root / "a/b"))
    assert real == str(ground.folder / "elsewhere/missing")
    assert links == [str(ground.root / "a"), str(ground.folder / "elsewhere/b")]
    (ground.root / "loop").symlink_to("loop")
    assert len(resolve_links(str(ground.root / "loop"))[1]) > 1


def test_a_file_that_is_written_at_every_run_changes_no_answer(tmp_path: Path) -> None:
    """`allow.write` may name a file.

    Otherwise every run would compute its reach again, which takes two milliseconds.
    """
    (tmp_path / "ledger").write_text("one")
    answers = PathAnswers()
    assert answers.list_folders(str(tmp_path / "ledger")) == []
    (tmp_path / "ledger").write_text("one, two")
    os.utime(tmp_path / "ledger", (1, 1))
    assert answers.still_hold()
    (tmp_path / "ledger").unlink()
    (tmp_path / "ledger").mkdir()
    assert not answers.still_hold()

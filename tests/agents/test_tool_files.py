"""The tools for files: they do their work inside the bindings, and nothing outside of them."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeful.agents.contract import ToolResult
from wakeful.agents.tools import bound_files as place
from wakeful.agents.tools.bound_files import Bounds, Place
from wakeful.agents.tools.file_replace import LARGEST_FILE_BYTES, digest_content
from wakeful.agents.tools.files import FileTools, NestedRules
from wakeful.agents.tools.search import SearchTool
from wakeful.agents.tools.tool import RESULT_BYTES
from wakeful.core.agents.turns import WroteFile

SECRET = "the-secret-of-somebody-else"


class World:
    """A root with bound files, and secrets outside of the bindings that no result may show."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.scratch = folder / "scratch"
        self.outside = folder / "outside"
        for made in (self.root / "src/deep", self.root / "docs", self.root / "private", self.scratch, self.outside):
            made.mkdir(parents=True)
        (self.root / "src/a.py").write_text("def area(side):\n    return side * side\n")
        (self.root / "src/deep/b.py").write_text("import a\n")
        (self.root / "src/notes.txt").write_text("not python\n")
        (self.root / "docs/api.md").write_text("# API\n\narea(side)\n")
        (self.root / "private/key.txt").write_text(SECRET)
        (self.outside / "key.txt").write_text(SECRET)
        self.bounds = Bounds.build(str(self.root), ["src/**/*.py"], [Place("docs/", ("*.bak",))], str(self.scratch))
        self.reload()

    def reload(self, before: Any = None) -> None:
        self.files = FileTools(self.bounds, before)
        self.tools = {
            tool.offer.name: tool for made in (self.files, SearchTool(self.bounds)) for tool in made.list_tools()
        }

    def use(self, name: str, **arguments: Any) -> ToolResult:
        result = asyncio.run(self.tools[name].carry_out(arguments, "call-1"))
        assert SECRET not in result.text
        assert len(result.text.encode()) <= RESULT_BYTES + 200
        return result

    def get(self, name: str, **arguments: Any) -> str:
        result = self.use(name, **arguments)
        assert not result.is_error, result.text
        return result.text

    def refuse(self, name: str, **arguments: Any) -> str:
        result = self.use(name, **arguments)
        assert result.is_error, result.text
        return result.text


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_read_shows_lines_with_a_header(world: World) -> None:
    """The result names the file, counts its lines and shows them."""
    assert world.get("read", path="src/a.py") == "src/a.py, lines 1-2 of 2:\ndef area(side):\n    return side * side"
    assert (
        world.get("read", path=str(world.root / "src/a.py"), offset=2)
        == "src/a.py, lines 2-2 of 2:\n    return side * side"
    )
    assert world.get("read", path="./src/deep/../a.py", limit=1).endswith(
        "[lines 2-2 are not shown; read on with offset 2]"
    )
    assert "after its end" in world.refuse("read", path="src/a.py", offset=3)


def test_a_long_file_is_read_on_where_it_was_cut(world: World) -> None:
    """Each result is limited and names the call for the rest. All results together are the whole file."""
    lines = [f"line {number} " + "x" * 90 for number in range(3_000)]
    (world.root / "docs/long.md").write_text("\n".join(lines) + "\n")
    read: list[str] = []
    offset = 1
    while offset:
        head, *shown = world.get("read", path="docs/long.md", offset=offset).split("\n")
        offset = int(shown.pop().removesuffix("]").rsplit(" ", 1)[1]) if shown[-1].startswith("[lines") else 0
        read += shown
    assert read == lines


@pytest.mark.parametrize("letter", ["y", "ß", "\N{GRINNING FACE}"])
def test_a_long_line_is_read_on_where_it_was_cut(world: World, letter: str) -> None:
    """All parts together are the whole line. The next line follows the last part."""
    line = "".join(f"{number}{letter}" for number in range(12_000))
    (world.root / "docs/line").write_text(f"first\n{line}\nlast\n")
    column, parts = 1, ""
    while True:
        text = world.get("read", path="docs/line", offset=2, column=column)
        shown = text.split("\n")[1]
        rest = re.search(r"… \[\d+ more characters in this line; read on with offset 2 and column (\d+)\]$", shown)
        parts += shown[: rest.start()] if rest is not None else shown
        if rest is None:
            break
        column = int(rest[1])
    assert parts == line and text.endswith("\nlast")
    assert "line 2 of docs/line has" in world.refuse("read", path="docs/line", offset=2, column=len(line) + 2)


def test_odd_files_are_told_in_words(world: World) -> None:
    """Binary, empty, huge, one endless line, not UTF-8, CRLF, a folder, a pipe: each has its own message."""
    docs = world.root / "docs"
    (docs / "image").write_bytes(b"\x89PNG\0\1")
    (docs / "empty").write_bytes(b"")
    (docs / "line").write_text("y" * 100_000)
    (docs / "latin").write_bytes(b"caf\xe9\n")
    (docs / "dos").write_bytes(b"a\r\nb\r\n")
    with (docs / "huge").open("wb") as file:
        file.truncate(LARGEST_FILE_BYTES + 1)
    os.mkfifo(docs / "pipe")
    assert "docs/image is binary: 6 bytes, beginning with 89 50 4e 47 00 01" == world.get("read", path="docs/image")
    assert world.get("read", path="docs/empty") == "docs/empty is empty"
    assert "[96000 more characters in this line; read on with offset 1 and column 4001]" in world.get(
        "read", path="docs/line"
    )
    assert "not valid UTF-8" in world.get("read", path="docs/latin") and "caf�" in world.get("read", path="docs/latin")
    assert world.get("read", path="docs/dos") == "docs/dos, lines 1-2 of 2 (with CRLF line ends):\na\nb"
    assert "larger than" in world.refuse("read", path="docs/huge")
    (docs / "sub").mkdir()
    assert "docs/sub is a folder; list shows" in world.refuse("read", path="docs/sub")
    assert "a folder" in world.refuse("write", path="docs/sub", content="")
    assert "not a file" in world.refuse("read", path="docs/pipe")


@pytest.mark.parametrize(
    "path",
    ["private/key.txt", "../outside/key.txt", "src/../private/key.txt", "src/../../outside/key.txt", "//etc/passwd", "/etc/passwd", "/proc/self/environ",
     "/proc/self/root/etc/passwd", "src/notes.txt", "~/.ssh/id_rsa", "", "src/a.py\0", "docs/../private/key.txt", "x" * 5_000, "src", ".", "/", "docs/.git/config"],
)  # fmt: skip
def test_what_is_not_bound_is_neither_read_nor_written(world: World, path: str) -> None:
    """Dots, absolute paths, and names that nearly match a pattern are refused. The refusal lists the bound paths."""
    (world.root / "docs/.git").mkdir()
    (world.root / "docs/.git/config").write_text(SECRET)
    for tool, more in (
        ("read", {}),
        ("write", {"content": "x"}),
        ("edit", {"old": "t", "new": "x"}),
        ("diff", {"against": "src/a.py"}),
    ):
        assert world.use(tool, path=path, **more).is_error
    assert world.use("diff", path="src/a.py", against=path or "private/key.txt").is_error
    assert (world.root / "private/key.txt").read_text() == SECRET and (
        world.root / "docs/.git/config"
    ).read_text() == SECRET


def test_a_refusal_teaches(world: World) -> None:
    """It names the bound paths, a similar path, and the reason why a file is excluded."""
    words = world.refuse("read", path="a.py")
    assert "src/**/*.py (read), docs/ (write)" in words and "did you mean src/a.py?" in words
    assert "did you mean docs/api.md?" in world.refuse("read", path="docs/apis.md")
    assert "bound for reading only" in world.refuse("write", path="src/a.py", content="")
    assert "is not bound, because the exclude '*.bak' matches it" in world.refuse(
        "write", path="docs/x.bak", content=""
    )
    assert "it takes path: string, content: string" in world.refuse("write", path="docs/x")


def test_links_lead_to_what_is_bound_and_nowhere_else(world: World) -> None:
    """A link to a file, to a folder, or a chain of both is judged by its target.

    A write changes the target and keeps the link.
    """
    docs = world.root / "docs"
    (docs / "out.md").symlink_to(world.outside / "key.txt")
    (docs / "folder").symlink_to(world.outside)
    (docs / "inside.md").symlink_to("../private/key.txt")
    (docs / "chain").symlink_to("folder/key.txt")
    (docs / "self").symlink_to("self")
    (docs / "good.md").symlink_to("api.md")
    for path in ("docs/out.md", "docs/folder/key.txt", "docs/inside.md", "docs/chain"):
        assert "symbolic link" in world.refuse("read", path=path)
        assert "symbolic link" in world.refuse("write", path=path, content="mine")
    assert world.use("read", path="docs/self").is_error
    assert "symbolic link" in world.refuse("write", path="docs/folder/new.md", content="mine")
    assert (world.outside / "key.txt").read_text() == SECRET and not (world.outside / "new.md").exists()
    assert "# API" in world.get("read", path="docs/good.md")
    world.get("write", path="docs/good.md", content="# New\n")
    assert (docs / "good.md").is_symlink() and (docs / "api.md").read_text() == "# New\n"
    listed = world.get("list")
    assert "docs/good.md" in listed and "out.md" not in listed and "folder" not in listed and "inside" not in listed


def test_a_path_swapped_for_a_link_while_it_is_opened_leads_nowhere(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder becomes a link between the check and the opening.

    The opening is refused, because no link may be on the path.
    """
    real = place.open_without_links
    target = world.root / "docs/sub"
    target.mkdir()
    (target / "key.txt").write_text("mine")
    swapped: list[bool] = []

    def swap(path: str, flags: int) -> int:
        if path.endswith("key.txt") and not swapped:
            target.rename(world.root / "docs/moved")
            target.symlink_to(world.outside)
            swapped.append(True)
        return real(path, flags)

    monkeypatch.setattr(place, "open_without_links", swap)
    assert world.use("read", path="docs/sub/key.txt").is_error
    assert swapped


def test_a_root_behind_a_link_is_a_root(world: World, tmp_path: Path) -> None:
    """If the project is reached through a link, its files are still bound.

    The same holds for a folder elsewhere that a binding names.
    """
    (tmp_path / "linked").symlink_to(world.root)
    (tmp_path / "data").symlink_to(world.outside)
    (world.outside / "open.csv").write_text("1\n")
    world.bounds = Bounds.build(str(tmp_path / "linked"), ["src/", str(tmp_path / "data/*.csv")], ["docs/"])
    world.reload()
    assert "src/a.py, lines" in world.get("read", path="src/a.py")
    assert "1" in world.get("read", path=str(tmp_path / "data/open.csv"))
    world.refuse("read", path=str(tmp_path / "data/key.txt"))
    world.get("write", path="docs/new/page.md", content="x\n")
    assert (world.root / "docs/new/page.md").read_text() == "x\n"


def test_write_is_atomic_keeps_the_mode_and_is_attributed(world: World) -> None:
    """A new file replaces the old one and keeps its mode. The write is listed with its digest.

    Writing the same content again is no write.
    """
    path = world.root / "docs/run.sh"
    path.write_text("old\n")
    path.chmod(0o750)
    inode = path.stat().st_ino
    assert (
        world.get("write", path="docs/run.sh", content="one\ntwo\n")
        == "docs/run.sh written: 2 lines added, 1 removed, 8 bytes now"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o750 and path.stat().st_ino != inode
    assert "nothing was written" in world.get("write", path="docs/run.sh", content="one\ntwo\n")
    assert (
        world.get("write", path="docs/deep/er/new.md", content="")
        == "docs/deep/er/new.md created: 0 lines added, 0 removed, 0 bytes now"
    )
    first, second = world.files.written["call-1"]
    assert first == WroteFile(path="docs/run.sh", base=digest_content(b"old\n"), digest=digest_content(b"one\ntwo\n"))
    assert second == WroteFile(path="docs/deep/er/new.md", digest=digest_content(b""))
    assert sorted(entry.name for entry in (world.root / "docs").iterdir()) == ["api.md", "deep", "run.sh"]
    world.get("write", path=str(world.scratch / "draft"), content="x")
    # Writes to the scratch folder are not listed, because only the run reads it.
    assert (world.scratch / "draft").read_text() == "x" and len(world.files.written["call-1"]) == 2


def test_a_folder_that_is_closed_still_lets_its_one_file_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the isolation permits the file but not its folder, the file is written in place.

    A new file cannot be made, and the result says so.
    """
    real = os.open

    def closed(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", closed)
    inode = (world.root / "docs/api.md").stat().st_ino
    world.get("write", path="docs/api.md", content="short\n")
    assert (world.root / "docs/api.md").read_text() == "short\n" and (world.root / "docs/api.md").stat().st_ino == inode
    assert "isolation does not allow new files here" in world.refuse("write", path="docs/new.md", content="x")


def test_somebody_else_s_change_is_not_overwritten_unseen(world: World) -> None:
    """If a person changes a file after the agent read it, the first write is refused. A repeated write succeeds."""
    world.get("read", path="docs/api.md")
    (world.root / "docs/api.md").write_text("a person's words\n")
    assert "changed by somebody else" in world.refuse("write", path="docs/api.md", content="mine\n")
    assert (world.root / "docs/api.md").read_text() == "a person's words\n" and world.files.written == {}
    world.get("write", path="docs/api.md", content="mine\n")
    (world.root / "docs/api.md").unlink()
    assert "changed by somebody else" in world.refuse("edit", path="docs/api.md", old="mine", new="x")


@pytest.mark.parametrize("hand", ["changes it", "removes it", "makes it"])
def test_two_hands_at_once_and_neither_loses(world: World, monkeypatch: pytest.MonkeyPatch, hand: str) -> None:
    """Somebody else changes the file between the preparation of a write and its effect.

    Their version stays, and the model is told.
    """
    path = world.root / "docs/api.md"
    if hand == "makes it":
        path.unlink()

    def intervene(fd: int) -> None:
        path.unlink(missing_ok=True)
        if hand != "removes it":
            path.write_text("theirs\n")

    monkeypatch.setattr(os, "fsync", intervene)
    assert "by somebody else just now; nothing was written" in world.refuse(
        "write", path="docs/api.md", content="mine\n"
    )
    assert not path.exists() if hand == "removes it" else path.read_text() == "theirs\n"
    assert world.files.written == {} and not list(path.parent.glob(".*.tmp"))


def test_edit_replaces_what_occurs_once(world: World) -> None:
    """The old text must occur exactly once, otherwise the result says where it occurs.

    The line ends of the file are kept.
    """
    page = world.root / "docs/api.md"
    page.write_text("one two\nthree two\n")
    assert (
        "occurs 2 times" in (words := world.refuse("edit", path="docs/api.md", old="two", new="2"))
        and "lines 1, 2" in words
    )
    assert "the line most similar to its first is 'three two'" in world.refuse(
        "edit", path="docs/api.md", old="three  two", new=""
    )
    world.get("edit", path="docs/api.md", old="one two", new="1")
    assert page.read_text() == "1\nthree two\n"
    page.write_text("x x x")
    world.reload()
    assert "1 line added, 1 removed" in world.get("edit", path="docs/api.md", old="x", new="y", all=True)
    assert page.read_text() == "y y y"
    page.write_bytes(b"a\r\nb\r\nc\r\n")
    world.reload()
    world.get("edit", path="docs/api.md", old="a\nb", new="A\nB")
    assert page.read_bytes() == b"A\r\nB\r\nc\r\n"
    page.write_bytes(b"\xff\xfe")
    world.reload()
    assert "not text in UTF-8" in world.refuse("edit", path="docs/api.md", old="a", new="b")
    assert "does not exist yet; create it with write" in world.refuse("edit", path="docs/none.md", old="a", new="b")
    assert "half of a character" in world.refuse("write", path="docs/half.md", content="\ud800")


def test_two_edits_at_once_both_count(world: World) -> None:
    """If a model makes several edits in one answer, none is lost."""
    (world.root / "docs/api.md").write_text("".join(f"<{number}>\n" for number in range(20)))

    async def both() -> list[ToolResult]:
        edit = world.tools["edit"]
        return await asyncio.gather(
            *(
                edit.carry_out({"path": "docs/api.md", "old": f"<{number}>", "new": f"[{number}]"}, str(number))
                for number in range(20)
            )
        )

    assert not any(result.is_error for result in asyncio.run(both()))
    assert (world.root / "docs/api.md").read_text() == "".join(f"[{number}]\n" for number in range(20))
    assert len(world.files.written) == 20


def test_diff_compares_two_bound_files_or_a_file_with_what_was(world: World) -> None:
    """The diff is unified and covers bound files only. Without a kept version the result says so."""
    (world.root / "docs/old.md").write_text("# API\n\nvolume(side)\n")
    words = world.get("diff", path="docs/api.md", against="docs/old.md")
    assert (
        words.splitlines()[:2] == ["--- docs/old.md", "+++ docs/api.md"]
        and "-volume(side)" in words
        and "+area(side)" in words
    )
    assert "have the same content" in world.get("diff", path="docs/api.md", against="docs/api.md")
    assert "was not kept" in world.refuse("diff", path="docs/api.md")

    async def before(path: str) -> bytes | None:
        return b"# API\n" if path.endswith("api.md") else None

    world.reload(before)
    assert "+area(side)" in world.get("diff", path="docs/api.md")
    (world.root / "docs/api.md").write_text("\n".join(map(str, range(15_000))))
    assert "[cut here; in total 15,000 lines added, 1 removed" in world.get("diff", path="docs/api.md")


def test_list_shows_bound_files_and_says_when_there_are_more(world: World) -> None:
    """It shows names, sizes and write permissions, below a folder or by a pattern. Excluded files are not shown."""
    (world.root / "src/__pycache__").mkdir()
    (world.root / "src/__pycache__/c.py").write_text("")
    assert world.get("list").splitlines() == [
        "3 bound files, 66 bytes in all:",
        "docs/api.md  18 bytes  (write)",
        "src/a.py  39 bytes",
        "src/deep/b.py  9 bytes",
    ]
    assert "1 bound file" in world.get("list", path="src/deep")
    assert "2 bound files" in world.get("list", path="**/*.py")
    assert "there is no bound file under private; bound files: src/**/*.py" in world.get("list", path="private")
    assert "no bound file" in world.get("list", path="../outside")
    for number in range(600):
        (world.root / f"docs/{number:03}.md").write_text("")
    assert "[103 more; give a folder or a pattern as path]" in world.get("list")
    (world.scratch / "draft").write_text("x")
    assert str(world.scratch / "draft") in world.get("list", path=str(world.scratch)) and "draft" not in world.get(
        "list", path="docs"
    )


def test_a_walk_that_takes_too_long_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call does not visit ten thousand folders. The result says that it is incomplete."""
    monkeypatch.setattr(place, "MOST_VISITED", 5)
    for number in range(20):
        (world.root / f"docs/{number}").mkdir()
    assert "maybe more: listing took too long and was stopped" in world.get("list")


def test_search_finds_lines(world: World) -> None:
    """It finds a literal text or an expression, with file and line, only in bound text files."""
    (world.root / "docs/blob").write_bytes(b"area\0")
    assert world.get("search", text="area(").splitlines() == [
        "2 lines in 2 files:",
        "docs/api.md:3: area(side)",
        "src/a.py:1: def area(side):",
    ]
    assert world.get("search", text=r"^def \w+\(", regex=True) == "1 line in 1 file:\nsrc/a.py:1: def area(side):"
    assert "2 lines" in world.get("search", text="AREA", ignore_case=True)
    assert "1 line" in world.get("search", text="AREA", ignore_case=True, regex=True, path="docs/")
    assert world.get("search", text=SECRET[:-1]) == "no bound file contains it"
    assert "not a regular expression" in world.refuse("search", text="(", regex=True)
    assert "there is no bound file to search under private" in world.refuse("search", text="x", path="private/")
    assert "several lines" in world.refuse("search", text="a\nb")
    (world.root / "docs/many.md").write_text("hit\n" * 500)
    words = world.get("search", text="hit", most=3)
    assert words.count(": hit") == 3 and "[there are more, from docs/many.md:4 on" in words


def test_an_expression_without_end_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression with endless backtracking stops after its time limit.

    The process continues its other work meanwhile, and no process stays.
    """
    (world.root / "docs/trap.md").write_text("good\n" + "a" * 60 + "!\n")

    async def beside() -> tuple[ToolResult, int]:
        ticks = 0
        search = asyncio.ensure_future(world.tools["search"].carry_out({"text": "(a+)+$", "regex": True}, "1"))
        while not search.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return await search, ticks

    # Three limits, because a busy machine may need longer to start the searching process.
    for seconds in (0.5, 4.0, 32.0):
        monkeypatch.setattr("wakeful.agents.tools.search.DEADLINE_SECONDS", seconds)
        result, ticks = asyncio.run(beside())
        if "docs/trap.md" in result.text:
            break
    assert f"stopped at docs/trap.md after {seconds:g} s" in result.text and not result.is_error
    assert ticks > 10


@pytest.mark.parametrize("make", [lambda path: path.write_text("a" * 9 * 1024 * 1024), lambda path: path.mkdir()])
def test_search_leaves_out_what_is_not_to_be_searched(world: World, make: Callable[[Path], Any]) -> None:
    """A file of several megabytes is named as left out. A folder is searched."""
    make(world.root / "docs/odd.md")
    words = world.get("search", text="area(")
    assert "docs/api.md:3" in words and (
        ("left out, such as docs/odd.md" in words) == (world.root / "docs/odd.md").is_file()
    )


class Told:
    """A stub link to a daemon with one rule. It notes the folders that it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def look(self, path: str, params: dict[str, str]) -> dict[str, str]:
        self.asked.append(params["folder"])
        return (
            {"out/AGENTS.md": "<rules 1 out/AGENTS.md>\nBe brief.\n</rules 1>"}
            if params["folder"].startswith("out")
            else {}
        )


def test_rules_are_told_once_and_again_when_they_may_be_gone(tmp_path: Path) -> None:
    """The rules come again after the conversation was shortened. A refused call brings none."""
    (tmp_path / "root" / "out" / "deep").mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "root" / "out" / "a.md").write_text("a\n")
    link = Told()
    rules = NestedRules(link)  # type: ignore[arg-type]
    files = FileTools(Bounds.build(str(tmp_path / "root"), [], ["out/"], str(tmp_path / "scratch")), rules=rules)
    tools = {tool.offer.name: tool for tool in files.list_tools()}

    def use(name: str, **arguments: str) -> str:
        return asyncio.run(tools[name].carry_out(arguments, "1")).text

    assert not use("edit", path="out/a.md", old="none", new="b").startswith("<rules")
    assert use("edit", path="out/a.md", old="a", new="b").startswith("<rules 1 out/AGENTS.md>\nBe brief.")
    assert not use("read", path="out/a.md").startswith("<rules") and not use(
        "write", path="out/deep/b.md", content="b"
    ).startswith("<rules")
    rules.forget()
    assert use("read", path="out/deep/b.md").startswith("<rules")
    assert link.asked == ["out", "out", "out/deep", "out/deep"]
    # Only the run reads its scratch folder.
    use("write", path=str(tmp_path / "scratch" / "x"), content="x")
    assert link.asked[-1] == "out/deep"

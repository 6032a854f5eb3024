"""Run the commands of docs/ in order, on a project that has the examples and the session `words`.

Pages that have files of their own get a daemon each. The others share one, because a start takes longer than most
pages.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box, copy_examples
from pages.fenced_blocks import PAGES, read_blocks
from sources.commit_follower import GitRepo
from wait_conditions import PATIENCE_SECONDS
from wakeful.specs.command_words import has_shell_sign

WORDS = """
    objective: Keep a count of the words in my notes.
    bindings:
      notes: {file: "notes/*.md"}
      count: {file: notes/count.txt, access: write}
    run:
      script: |
        cat notes/*.md | wc -w > notes/count.txt
"""
# Pages that have tests of their own.
ELSEWHERE = ("README.md", "docs/recipes.md")
RUN_HERE = [page for page in PAGES if page not in ELSEWHERE and any(block.is_run_here for block in read_blocks(page))]
WITH_FILES = [page for page in RUN_HERE if any(block.noted("file") for block in read_blocks(page))]


class Reader(Box):
    """A person who types the commands of a page in the folder of the project."""

    def environment(self) -> dict[str, str]:
        return super().environment() | {"WAKEFUL_STATE": str(self.state), "HOME": str(self.folder / "home")}

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a single command of ours in this process, because a page has dozens. Give everything else to a shell."""
        if line.startswith("wakeful ") and not has_shell_sign(line):
            return self.run(*shlex.split(line, comments=True)[1:])
        return subprocess.run(
            ["sh", "-c", line],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment(),
            timeout=PATIENCE_SECONDS,
        )


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "project"
    folder.mkdir()
    copy_examples(folder)
    made = Reader(folder)
    (folder / "home").mkdir()
    made.spec("words", WORDS)
    made.write("notes/a.md", "three little words\n")
    GitRepo(folder).commit("daemon/README", "x\n")
    yield made
    made.close()


@pytest.mark.parametrize(
    "pages", [[page for page in RUN_HERE if page not in WITH_FILES], *([page] for page in WITH_FILES)], ids=" ".join
)
def test_the_commands_of_a_page_work_in_order(pages: list[str], reader: Reader) -> None:
    """Each command ends with the exit code that its page names, or with 0."""
    blocks = [block for page in pages for block in read_blocks(page)]
    for block in blocks:
        for path in block.noted("file"):
            reader.write(path, "\n".join(block.lines) + "\n")
    reader.start()
    for name in ("words", "payroll", "social-insurance-filing"):
        reader.wait_at_rest(name, runs=1)
    for block in blocks:
        for line in block.noted("first"):
            done = reader.type(line)
            assert done.returncode == 0, f"{block.place}: first: {line}\n{done.stdout}{done.stderr}"
        for line, code in zip(block.commands, block.exits, strict=True) if block.is_run_here else ():
            done = reader.type(line)
            assert code in ("*", str(done.returncode)), (
                f"{block.place}: {line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )

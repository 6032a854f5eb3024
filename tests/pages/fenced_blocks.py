"""The fenced blocks of a page, and the HTML comments above a block that describe its commands.

A reader of the page does not see a comment. These may stand above a block, each in a comment of its own:
  not run: REASON      no test can run the block, and why
  run by: TEST_FILE    another test runs these very commands
  first: COMMAND       run before the block, which needs it
  waits: NAME WHAT     wait before the block until the session is at rest with so many runs, or is in a state:
                       `waits: words 2`, `waits: words sleeping`
  exits: 0 1           the exit codes of its commands, if one of them is not 0; * is any
  file: PATH           the block is the content of that file; without the comment, the block's first line may
                       name the file: `# sessions.d/words.yaml`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path
    for path in (
        REPOSITORY / "README.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
        REPOSITORY / "examples/README.md",
    )
}

_COMMENT = re.compile(r"<!-- (not run|run by|first|waits|exits|file): (.*?) -->")
_FENCE = re.compile(r"( *)```(\w*)$")
_PROMPT = re.compile(r"(?:here|there)?\$ +(.*)")
_NAMED = re.compile(r"# (\S+\.yaml)\b")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    lines: tuple[str, ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def noted(self, kind: str) -> list[str]:
        return [text for one, text in self.notes if one == kind]

    @property
    def commands(self) -> list[str]:
        """The commands that the block shows, without their output."""
        if self.language == "sh":
            return [line for line in self.lines if line.strip() and not line.lstrip().startswith("#")]
        return [found[1] for line in self.lines if (found := _PROMPT.match(line))]

    @property
    def answers(self) -> list[list[str]]:
        """The lines that the block shows below each command."""
        if self.language == "sh":
            return [[] for _ in self.commands]
        found: list[list[str]] = []
        for line in self.lines:
            if _PROMPT.match(line):
                found.append([])
            elif found:
                found[-1].append(line)
        return found

    @property
    def is_undecided(self) -> bool:
        """Tell whether the block has commands but neither a prompt nor a language, so their start is unclear."""
        is_open = not self.language and not self.commands and not self.noted("not run")
        return is_open and any(re.match(r"(wakeful [a-z]|make [a-z]|eval |sudo |git )", line) for line in self.lines)

    @property
    def exits(self) -> list[str]:
        told = self.noted("exits")
        return told[0].split() if told else ["0"] * len(self.commands)

    @property
    def file(self) -> str | None:
        """The path of the file whose content the block is."""
        if told := self.noted("file"):
            return told[0]
        found = _NAMED.match(self.lines[0]) if self.language == "yaml" and self.lines else None
        return found[1] if found else None

    @property
    def is_run_here(self) -> bool:
        return bool(self.commands) and not self.noted("not run") and not self.noted("run by")


def read_blocks(page: str) -> list[Block]:
    return list(_read(page, PAGES[page].read_text().splitlines()))


def _read(page: str, lines: list[str]) -> Iterator[Block]:
    notes: list[tuple[str, str]] = []
    opened: tuple[int, str, str] | None = None
    content: list[str] = []
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if opened is not None:
            if fence and not fence[2]:
                yield Block(page, opened[0], opened[2], tuple(content), tuple(notes))
                opened, notes = None, []
            else:
                content.append(line.removeprefix(opened[1]))
        elif fence:
            opened, content = (number, fence[1], fence[2]), []
        elif found := _COMMENT.fullmatch(line.strip()):
            notes.append((found[1], found[2]))
        elif line.strip():
            notes = []


def read_spans(page: str) -> list[str]:
    """Return the commands inside sentences that name a verb."""
    prose, is_fenced = [], False
    for line in PAGES[page].read_text().splitlines():
        if _FENCE.match(line):
            is_fenced = not is_fenced
        elif not is_fenced:
            prose.append(line)
    return [span for span in _SPAN.findall("\n".join(prose)) if re.match(r"wakeful [a-z]", span)]

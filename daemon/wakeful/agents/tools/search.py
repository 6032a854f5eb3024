"""The tool `search`: finds the lines of bound files that contain a text or match an expression, within limits.

A text is searched for in a thread of this process, because that only takes as long as reading. An expression may take
for ever, so a separate process matches it (regex_process.py) and is killed when its time is over. The results until
then are returned, with the file at which it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from time import monotonic
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from wakeful.agents.contract import Tool
from wakeful.agents.tools import regex_process as matcher
from wakeful.agents.tools.bound_files import Bounds, Found, Refused
from wakeful.agents.tools.file_replace import read_content
from wakeful.agents.tools.files import is_binary, redact_content
from wakeful.agents.tools.result_pages import Redact, redact_nothing
from wakeful.agents.tools.tool import RESULT_BYTES, Arguments, CheckedTool
from wakeful.text.display import count

DEADLINE_SECONDS = 10.0
MOST_BYTES = 256 * 1024 * 1024
_MOST_MATCHES = 200
_LONGEST_PATTERN = 1_000
# The largest file that is searched. Larger ones are taken for data, and the result says that they are left out.
_LARGEST_FILE_BYTES = 8 * 1024 * 1024
_ROOM_BYTES = RESULT_BYTES - 2_048

# The number and text of each line found.
_Lines = list[tuple[int, str]]


class SearchArguments(Arguments, frozen=True):
    text: Annotated[
        str, Meta(min_length=1, max_length=_LONGEST_PATTERN, description="the text that a line must contain")
    ]
    regex: Annotated[bool, Meta(description="text is a Python regular expression")] = False
    ignore_case: bool = False
    path: Annotated[
        str, Meta(description="a file, folder or pattern such as src/**/*.py to look in; empty: all files")
    ] = ""
    most: Annotated[int, Meta(ge=1, le=_MOST_MATCHES, description="the most lines to show")] = 50


class SearchTool:
    """The tool `search`."""

    def __init__(self, bounds: Bounds, redact: Redact = redact_nothing) -> None:
        self._bounds = bounds
        self._redact = redact

    def list_tools(self) -> Iterable[Tool]:
        yield CheckedTool(
            "search",
            "Find lines of bound files that contain a text or match a regular expression.",
            SearchArguments,
            self._search,
            is_look=True,
        )

    async def _search(self, given: SearchArguments, _: str) -> str:
        if not given.regex and "\n" in given.text:
            raise Refused("the text has several lines, and files are searched line by line; look for one of them")
        pattern = given.text if given.regex else re.escape(given.text)
        try:
            expression = re.compile(pattern, re.IGNORECASE if given.ignore_case else 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise Refused(
                f"{given.text!r} is not a regular expression: {error}; without regex: true it is searched for literally"
            ) from None
        walk = await asyncio.to_thread(self._bounds.walk, given.path or None)
        if not walk.files:
            raise Refused(
                f"there is no bound file to search{f' under {given.path}' if given.path else ''}; bound files: "
                f"{self._bounds.describe()}"
            )
        hunt = _Hunt(self._bounds, given.most, self._redact, is_whole=walk.is_whole)
        matching = _match_apart(pattern, given) if given.regex else _match_here(expression)
        async with matching as match:
            for found in walk.files:
                if not await hunt.go_through(found, match):
                    break
        return hunt.tell()


class _Match(Protocol):
    """Finds the matching lines of one text. Raises TimeoutError if that takes too long."""

    async def __call__(self, text: bytes, most: int, deadline: float) -> _Lines: ...


class _MatchHere:
    def __init__(self, expression: re.Pattern[str]) -> None:
        self._expression = expression

    async def __call__(self, text: bytes, most: int, deadline: float) -> _Lines:
        return await asyncio.to_thread(matcher.find_lines, self._expression, text.decode(errors="replace"), most)


class _MatchApart:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, text: bytes, most: int, deadline: float) -> _Lines:
        source, sink = self._process.stdin, self._process.stdout
        assert source is not None and sink is not None
        async with asyncio.timeout(max(0.0, deadline - monotonic())):
            try:
                source.write(b"%d\n" % len(text) + text)
                await source.drain()
                line = await sink.readline()
            except ConnectionError:
                line = b""
        if not line:
            raise Refused("the process that matches expressions ended early; make the expression simpler")
        return msgspec.json.decode(line, type=_Lines)


@contextlib.asynccontextmanager
async def _match_here(expression: re.Pattern[str]) -> AsyncIterator[_Match]:
    yield _MatchHere(expression)


@contextlib.asynccontextmanager
async def _match_apart(pattern: str, given: SearchArguments) -> AsyncIterator[_Match]:
    # The interpreter is isolated and has no site-packages. So it starts in a hundredth of a second, and imports no
    # modules of a project.
    program = (sys.executable, "-I", "-S", str(Path(matcher.__file__)))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *program, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={}, limit=1 << 24
    )
    try:
        assert process.stdin is not None
        process.stdin.write(
            json.dumps({"pattern": pattern, "ignore_case": given.ignore_case, "most": given.most}).encode() + b"\n"
        )
        yield _MatchApart(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Hunt:
    """The results so far, and the reason why there are no more."""

    def __init__(self, bounds: Bounds, most: int, redact: Redact, *, is_whole: bool) -> None:
        self._bounds = bounds
        self._redact = redact
        self._most = most
        self._lines: list[str] = []
        self._files = 0
        self._notes: list[str] = [] if is_whole else ["not all files were found in time"]
        self._skipped: list[str] = []
        self._left_bytes = MOST_BYTES
        self._room = _ROOM_BYTES
        self._deadline = monotonic() + DEADLINE_SECONDS

    async def go_through(self, found: Found, match: _Match) -> bool:
        """Search one file. False if the search must stop here."""
        name = self._bounds.name(found.path)
        if found.size_bytes > _LARGEST_FILE_BYTES:
            self._skipped.append(name)
            return True
        if monotonic() > self._deadline or self._left_bytes < 0:
            self._notes.append(f"stopped before {name}: too much to search at once; give a narrower path")
            return False
        try:
            content = await asyncio.to_thread(read_content, self._bounds, found.path)
        except (OSError, Refused):
            # The file was removed, or made unreadable, since it was listed.
            return True
        self._left_bytes -= len(content)
        if is_binary(content):
            return True
        try:
            lines = await match(content, self._most + 1 - len(self._lines), self._deadline)
            # Redact the whole file and match again, because in single lines half of a value would not be found.
            if lines and (redacted := await redact_content(content, self._redact)) is not content:
                lines = await match(redacted, self._most + 1 - len(self._lines), self._deadline)
        except TimeoutError:
            self._notes.append(
                f"stopped at {name} after {DEADLINE_SECONDS:g} s: the expression takes too long there; make it simpler "
                "(nested repeats such as (a+)+ never end)"
            )
            return False
        return self._take(name, lines)

    def _take(self, name: str, lines: _Lines) -> bool:
        self._files += bool(lines)
        for number, line in lines:
            words = f"{name}:{number}: {line}"
            self._room -= len(words.encode(errors="replace")) + 1
            if len(self._lines) >= self._most or self._room < 0:
                self._notes.append(
                    f"there are more, from {name}:{number} on; narrow the path or the text"
                    + ("" if self._room < 0 else ", or raise most")
                )
                return False
            self._lines.append(words)
        return True

    def tell(self) -> str:
        if self._skipped:
            self._notes.append(
                f"{count(len(self._skipped), 'file')} above {_LARGEST_FILE_BYTES} bytes were left out, "
                f"such as {self._skipped[0]}"
            )
        head = (
            f"{count(len(self._lines), 'line')} in {count(self._files, 'file')}:"
            if self._lines
            else "no bound file contains it"
        )
        return "\n".join([head, *self._lines, *(f"[{note}]" for note in self._notes)])

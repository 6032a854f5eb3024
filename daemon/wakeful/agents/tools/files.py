"""The tools over bound files: read, list, write, edit, diff (search has a module of its own).

Every path goes through `Bounds.place`. Every result is limited, and says what it left out and how to get the rest. A
write is atomic and keeps the file's mode. It is recorded with the digests of the old and new content, so that the
daemon knows exactly which changes this run made. Blocking work is done in threads. The first result from below a folder
with rules (AGENTS.md) includes the rules.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

from msgspec import Meta, Struct

from wakeful.agents.contract import Tool, ToolResult
from wakeful.agents.tools.bound_files import Bounds, Refused
from wakeful.agents.tools.file_replace import LARGEST_FILE_BYTES, digest_content, read_content, replace_content
from wakeful.agents.tools.image import describe_image, find_obstacle
from wakeful.agents.tools.result_pages import MARGIN, Redact, redact_nothing
from wakeful.agents.tools.tool import RESULT_BYTES, Arguments, CheckedTool, ResultLimit
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents.steps import SurroundingText
from wakeful.core.agents.turns import WroteFile
from wakeful.core.looking.patterns import contains
from wakeful.text.display import count
from wakeful.text.unicode import make_sendable

_MOST_LINES = 2_000
_LONGEST_LINE = 4_000
_MOST_LISTED = 500
# The most lines of a file that is compared line by line. In the worst case the time grows with the square of the lines.
_MOST_COMPARED_LINES = 20_000
_SNIFFED_BYTES = 8_192
# The bytes reserved for the note after a line that is cut.
_LINE_NOTE_BYTES = 200
# The bytes of lines in a result. The rest is for the header and the notes about what is left out.
_ROOM_BYTES = RESULT_BYTES - 1_024

# A function that returns a file's content as the last run saw it, or None if that content was not kept.
Before = Callable[[str], Awaitable[bytes | None]]
_Path = Annotated[str, Meta(description="relative to the session's root, or absolute")]


class ReadArguments(Arguments, frozen=True):
    path: _Path
    offset: Annotated[int, Meta(ge=1, description="the first line to show")] = 1
    limit: Annotated[int, Meta(ge=1, le=_MOST_LINES, description="the most lines to show")] = _MOST_LINES
    column: Annotated[
        int, Meta(ge=1, description="the first character to show of the first line, if that line was cut")
    ] = 1


class ListArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="a folder or a pattern such as src/**/*.py; empty: all files")] = ""


class WriteArguments(Arguments, frozen=True):
    path: _Path
    content: Annotated[str, Meta(description="the whole new content")]


class EditArguments(Arguments, frozen=True):
    path: _Path
    old: Annotated[
        str, Meta(min_length=1, description="the exact text to replace, with enough context to occur only once")
    ]
    new: Annotated[str, Meta(description="the text that replaces it")]
    all: Annotated[bool, Meta(description="replace every occurrence")] = False


class DiffArguments(Arguments, frozen=True):
    path: _Path
    against: Annotated[
        str, Meta(description="another bound file, as the older version; empty: the file as the last run saw it")
    ] = ""


class FileTools:
    """The file tools of one run. `written` has the bound files that each call wrote.

    Writes to the scratch folder are not included, because only the run uses it.
    """

    def __init__(
        self,
        bounds: Bounds,
        before: Before | None = None,
        limit: ResultLimit | None = None,
        redact: Redact = redact_nothing,
        rules: NestedRules | None = None,
    ) -> None:
        self.written: dict[str, list[WroteFile]] = {}
        self._rules = rules
        self._bounds = bounds
        self._before = before
        self._limit = limit or ResultLimit()
        self._redact = redact
        # Only one change at a time, so that two edits of the same file do not overwrite each other.
        self._changing = asyncio.Lock()
        # Path -> digest of the content that the model saw last.
        self._known: dict[str, str] = {}

    def list_tools(self) -> Iterable[Tool]:
        bound = f"Bound files: {self._bounds.describe()}."
        yield CheckedTool(
            "read", "Read a bound file by lines. An image is shown.", ReadArguments, self._read, is_look=True
        )
        yield CheckedTool(
            "list", f"List bound files with their sizes. {bound}", ListArguments, self._list, is_look=True
        )
        yield CheckedTool(
            "diff",
            "Show how a bound file differs from what the last run saw, or from another bound file.",
            DiffArguments,
            self._diff,
        )
        if self._bounds.writes:
            yield CheckedTool(
                "write",
                "Write the whole content of a file that is bound for writing. Missing folders are created.",
                WriteArguments,
                self._write,
            )
            yield CheckedTool(
                "edit",
                "Replace an exact text in a file that is bound for writing.",
                EditArguments,
                self._edit,
            )

    async def _read(self, given: ReadArguments, _: str) -> str | ToolResult:
        path, content = await asyncio.to_thread(self._find_content, given.path)
        self._known[path] = digest_content(content)
        rules = await self._tell_rules(path)
        if (words := describe_image(content)) is not None:
            return show_image(f"{rules}{self._bounds.name(path)} is {words}", content)
        page = find_page_bytes(self._limit.most_bytes)
        page = max(page - len(rules.encode()), page // 2)
        name = self._bounds.name(path)
        if given.column == 1:
            shown = show_lines(name, content, given.offset, given.limit, page)
            if shown.is_whole:
                return rules + shown.text
            if shown.around is not None and not rules and self._fits(shown.text):
                return ToolResult(shown.text, around=shown.around)
        # A line is cut, or the result will be, so redact first. Columns count in the redacted line.
        content = await redact_content(content, self._redact)
        return rules + show_lines(name, content, given.offset, given.limit, page, given.column).text

    def _fits(self, text: str) -> bool:
        """Is this text shown unchanged?"""
        return len(text.encode(errors="replace")) <= self._limit.most_bytes and make_sendable(text) == text

    async def _tell_rules(self, path: str) -> str:
        """Return the rules for a path that are new to the model.

        They are the start of a result, where file content never is.
        """
        return (
            await self._rules.tell(self._bounds.name(os.path.dirname(path)))
            if self._rules is not None and contains(self._bounds.root, path)
            else ""
        )

    def _find_content(self, text: str) -> tuple[str, bytes]:
        path = self._bounds.place(text, "read")
        return path, read_content(self._bounds, path)

    async def _list(self, given: ListArguments, _: str) -> str:
        return await asyncio.to_thread(list_files, self._bounds, given.path)

    async def _write(self, given: WriteArguments, call_id: str) -> str:
        return await self._change_by_rules(given.path, call_id, lambda _: encode_text(given.content, "content"))

    async def _edit(self, given: EditArguments, call_id: str) -> str:
        def edit(content: bytes | None) -> bytes:
            if content is None:
                raise Refused(f"{given.path} does not exist yet; create it with write")
            return edit_content(given, content)

        return await self._change_by_rules(given.path, call_id, edit)

    async def _change_by_rules(self, text: str, call_id: str, make: Callable[[bytes | None], bytes]) -> str:
        """Change a file, and return the new rules for it with the result.

        The rules are read first, so that nothing is changed if the daemon does not answer. A refusal does not include
        the rules, so they are shown again later.
        """
        rules = await self._tell_rules(await asyncio.to_thread(self._bounds.place, text, "write"))
        try:
            async with self._changing:
                return rules + await asyncio.to_thread(self._change, text, call_id, make)
        except Refused:
            if rules and self._rules is not None:
                self._rules.forget()
            raise

    def _change(self, text: str, call_id: str, make: Callable[[bytes | None], bytes]) -> str:
        path = self._bounds.place(text, "write")
        name = self._bounds.name(path)
        try:
            old = read_content(self._bounds, path, "write")
        except FileNotFoundError:
            old = None
        seen = self._known.get(path)
        if seen is not None and (old is None or digest_content(old) != seen):
            # Never overwrite a change that the model has not seen. The refusal comes once; a second attempt writes.
            del self._known[path]
            raise Refused(
                f"{name} was changed by somebody else since you saw it; nothing was written: read it again, then decide"
            )
        new = make(old)
        digest = digest_content(new)
        if old == new:
            return f"{name} already has this content; nothing was written"
        replace_content(self._bounds, path, new, old)
        self._known[path] = digest
        if self._bounds.scratch is None or not contains(self._bounds.scratch, path):
            wrote = WroteFile(path=name, base=digest_content(old) if old is not None else None, digest=digest)
            self.written.setdefault(call_id, []).append(wrote)
        return (
            f"{name} {'created' if old is None else 'written'}: {say_change(old or b'', new)}, "
            f"{count(len(new), 'byte')} now"
        )

    async def _diff(self, given: DiffArguments, _: str) -> str:
        path = await asyncio.to_thread(self._bounds.place, given.path, "read")
        name = self._bounds.name(path)
        new = await asyncio.to_thread(read_content, self._bounds, path)
        if given.against:
            other = await asyncio.to_thread(self._bounds.place, given.against, "read")
            old, label = await asyncio.to_thread(read_content, self._bounds, other), self._bounds.name(other)
        else:
            found = await self._before(path) if self._before is not None else None
            if found is None:
                raise Refused(
                    f"the content of {name} at the last run was not kept; give another bound file as `against`, "
                    "or read it"
                )
            old, label = found, f"{name} (as the last run saw it)"
        # Redact before the diff, because its line marks would split a multi-line value.
        old, new = [await redact_content(content, self._redact) for content in (old, new)]
        return await asyncio.to_thread(show_difference, label, old, name, new)


async def redact_content(content: bytes, redact: Redact) -> bytes:
    """Redact a file's content, so that parts of it may be shown. Returns `content` itself if nothing changes."""
    if is_binary(content):
        return content
    text = content.decode(errors="replace")
    redacted = await redact(text)
    return redacted.encode(errors="replace") if redacted != text else content


def show_image(words: str, content: bytes) -> ToolResult:
    """Return the image with a text, or only the text with the reason why the image cannot be shown."""
    obstacle = find_obstacle(content)
    return (
        ToolResult(words, images=(content,))
        if obstacle is None
        else ToolResult(f"{words}. It cannot be shown: {obstacle}")
    )


def find_page_bytes(result_bytes: int) -> int:
    """Return the bytes of lines on one page: those of a result without its header and notes."""
    return max(result_bytes - (RESULT_BYTES - _ROOM_BYTES), result_bytes // 2)


def find_longest_line(page_bytes: int) -> int:
    """Return the most characters that are shown of one line."""
    return min(_LONGEST_LINE, page_bytes // 2)


class Shown(Struct, frozen=True):
    """The shown part of a file. `around` has the text before and after it, if whole lines are shown."""

    text: str
    is_whole: bool = True
    around: SurroundingText | None = None


def show_lines(
    name: str, content: bytes, offset: int, limit: int, page_bytes: int = _ROOM_BYTES, column: int = 1
) -> Shown:
    """Show lines of a file below a header. Notes say what is left out and which call returns it."""
    if not content:
        return Shown(f"{name} is empty")
    if is_binary(content):
        return Shown(f"{name} is binary: {count(len(content), 'byte')}, beginning with {content[:32].hex(' ')}")
    lines = content.decode(errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > len(lines):
        raise Refused(f"{name} has {count(len(lines), 'line')}; offset {offset} is after its end")
    if column > len(lines[offset - 1]) + 1:
        raise Refused(
            f"line {offset} of {name} has {count(len(lines[offset - 1]), 'character')}; "
            f"column {column} is after its end"
        )
    shown: list[str] = []
    room, longest = page_bytes, find_longest_line(page_bytes)
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        # If the model reads on in a cut line, show as much of it as fits.
        is_read_on = number == offset and column > 1
        cut = cut_line(
            line, number, column if is_read_on else 1, (page_bytes - _LINE_NOTE_BYTES) // 4 if is_read_on else longest
        )
        room -= len(cut.encode(errors="replace")) + 1
        if room < 0:
            break
        shown.append(cut.removesuffix("\r"))
    last = offset + len(shown) - 1
    notes = [
        words
        for words, is_so in (
            ("with CRLF line ends", b"\r\n" in content),
            ("not valid UTF-8: bytes that cannot be shown are �", not _is_utf8(content)),
        )
        if is_so
    ]
    head = (
        f"{name}, lines {offset}-{last} of {len(lines)}"
        + (f", line {offset} from column {column}" if column > 1 else "")
        + (f" ({'; '.join(notes)})" if notes else "")
    )
    rest = (
        [f"[lines {last + 1}-{len(lines)} are not shown; read on with offset {last + 1}]"] if last < len(lines) else []
    )
    text = "\n".join([f"{head}:", *shown, *rest])
    if column > 1 or any(len(line) > longest for line in lines[offset - 1 : last]):
        return Shown(text, is_whole=False)
    if offset == 1 and last == len(lines):
        return Shown(text)
    before, after = "\n".join(lines[: offset - 1]), "\n".join(lines[last:])
    start = len(head) + 2
    end = start + len("\n".join(shown))
    around = SurroundingText(before=before[-MARGIN:], after=after[:MARGIN], start=start, end=end)
    return Shown(text, is_whole=False, around=around)


def cut_line(line: str, number: int, column: int, longest: int) -> str:
    """Return at most `longest` characters of a line from a column on, with a note on how to read on."""
    end = column - 1 + longest
    left = len(line) - end
    return (
        line[column - 1 :]
        if left <= 0
        else f"{line[column - 1 : end]}… [{left} more characters in this line; "
        f"read on with offset {number} and column {end + 1}]"
    )


def list_files(bounds: Bounds, under: str) -> str:
    walk = bounds.walk(under or None)
    whole = "" if walk.is_whole else ", and maybe more: listing took too long and was stopped"
    if not walk.files:
        return f"there is no bound file{f' under {under}' if under else ''}{whole}; bound files: {bounds.describe()}"
    lines: list[str] = []
    room = _ROOM_BYTES
    for found in walk.files[:_MOST_LISTED]:
        line = (
            f"{bounds.name(found.path)}  "
            f"{count(found.size_bytes, 'byte')}{'  (write)' if bounds.may('write', found.path) else ''}"
        )
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        lines.append(line)
    head = (
        f"{count(len(walk.files), 'bound file')}, {count(sum(found.size_bytes for found in walk.files), 'byte')} "
        f"in all{whole}:"
    )
    rest = (
        [f"[{len(walk.files) - len(lines)} more; give a folder or a pattern as path]"]
        if len(lines) < len(walk.files)
        else []
    )
    return "\n".join([head, *lines, *rest])


def edit_content(given: EditArguments, content: bytes) -> bytes:
    if not _is_utf8(content):
        raise Refused(f"{given.path} is not text in UTF-8; an edit would damage it")
    text = content.decode()
    old, new = given.old, given.new
    if old not in text and "\r\n" in text and "\r" not in old:
        # The model sees lines without CR, so match its text with CRLF.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    found = text.count(old)
    if found == 0:
        raise Refused(
            f"{given.path} does not contain the text to replace{_say_nearest(old, text)}; it must be exact, "
            "spaces and line ends included"
        )
    if found > 1 and not given.all:
        raise Refused(
            f"the text to replace occurs {found} times in {given.path}, on lines {_say_places(old, text)}; give more "
            "context, or all: true"
        )
    return encode_text(text.replace(old, new), "new")


def encode_text(text: str, what: str) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise Refused(
            f"{what} has half of a character at {error.start} (a lone surrogate); give whole characters"
        ) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise Refused(f"{what} has {len(content)} bytes; at most {LARGEST_FILE_BYTES} can be written")
    return content


def say_change(old: bytes, new: bytes) -> str:
    """Count the lines added and removed, regardless of their position. Cheap for any size."""
    before, after = Counter(old.splitlines()), Counter(new.splitlines())
    return f"{count((after - before).total(), 'line')} added, {(before - after).total()} removed"


def show_difference(old_name: str, old: bytes, new_name: str, new: bytes) -> str:
    """Return a unified diff, cut if it is too long."""
    if old == new:
        return f"{new_name} and {old_name} have the same content"
    if is_binary(old) or is_binary(new):
        return f"{new_name} differs from {old_name}, and is binary: {len(old)} bytes then, {len(new)} now"
    before, after = (content.decode(errors="replace").split("\n") for content in (old, new))
    if max(len(before), len(after)) > _MOST_COMPARED_LINES:
        return (
            f"{new_name} differs from {old_name}: {say_change(old, new)}; files of more than {_MOST_COMPARED_LINES} "
            "lines are not compared line by line"
        )
    shown: list[str] = []
    room = _ROOM_BYTES
    for line in difflib.unified_diff(before, after, old_name, new_name, lineterm=""):
        cut = (
            line
            if len(line) <= _LONGEST_LINE
            else f"{line[:_LONGEST_LINE]}… [{len(line) - _LONGEST_LINE} more characters in this line; read shows them]"
        )
        room -= len(cut.encode(errors="replace")) + 1
        if room < 0:
            shown.append(f"[cut here; in total {say_change(old, new)}: read the file for the rest]")
            break
        shown.append(cut)
    return "\n".join(shown)


def is_binary(content: bytes) -> bool:
    return b"\0" in content[:_SNIFFED_BYTES]


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _say_places(old: str, text: str) -> str:
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) < 10:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return ", ".join(map(str, places)) + (", …" if at >= 0 else "")


def _say_nearest(old: str, text: str) -> str:
    first = next((line for line in old.splitlines() if line.strip()), "")
    lines = [line for line in text.splitlines()[:_MOST_COMPARED_LINES] if line.strip()]
    near = difflib.get_close_matches(first[:200], [line[:200] for line in lines[:2_000]], 1, 0.6)
    return f"; the line most similar to its first is {near[0]!r}" if near else ""


_RULES_HEAD = "These rules of the project apply to the files below their folders:"


class NestedRules:
    """Shows the rules of folders that an agent works in. An AGENTS.md applies to the files below its folder.

    The daemon finds and quotes the rules (model_context/project_rules.py), because it knows which of them strangers can
    write. The rules of a folder are shown once in a run, and again after a compression.
    """

    def __init__(self, link: DaemonClient) -> None:
        self._link = link
        self._asked: set[str] = set()
        self._told: set[str] = set()

    async def tell(self, folder: str) -> str:
        """Return the rules of folders from the root to this one that were not shown yet. Empty if all were shown.

        They must be the first lines of a result.
        """
        if folder in self._asked:
            return ""
        self._asked.add(folder)
        found: dict[str, str] = await self._link.look("/work/rules", {"folder": folder})
        new = {path: text for path, text in found.items() if path not in self._told}
        self._told |= new.keys()
        # The quoted rules come first. A rules mark anywhere else in a result is file content.
        return "\n\n".join((*new.values(), f"({_RULES_HEAD} {', '.join(new)})", "")) if new else ""

    def forget(self) -> None:
        self._asked.clear()
        self._told.clear()

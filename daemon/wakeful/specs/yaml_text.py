"""YAML bytes -> nested dicts and lists in which every scalar is still text.

Called by `folder_reading` and settings. Works on the parser's events, without recursion. A file that is too large, too
deep or has aliases is refused at the first event that shows it, before anything is built from it. (Measured without
this: 272 bytes of aliases grow to 39 MB, and 5,000 brackets exceed the recursion limit.)
No value gets a type: `branch: 3.10` and `at: 12:30` stay text. Marks are read only on request, because a file without
problems never needs them. For the usual mistakes (`*.csv`, `@home`, tabs, `a: b: c`, an open quote), the message says
what to type instead; for the rest, it quotes the parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import cast

from yaml import CBaseLoader
from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from wakeful.specs.problem import RefusedSpec, refuse

MAX_BYTES = 256 * 1024
MAX_LEVELS = 32
# An event costs about 2 us: 256 KB of `[1,1,…` would take a quarter of a second without this.
MAX_EVENTS = 10_000

Value = str | list["Value"] | dict[str, "Value"]
Path = tuple[str | int, ...]
Place = tuple[int, int]

# Control characters that YAML forbids, and so do our paths and words. Tab, line feed, carriage return and NEL are text.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
Explanation = tuple[int, int, str]

_TOKEN = re.compile(r"[^\s,\[\]{}]+")
_NEEDS_QUOTES = "a value that begins with {0} needs quotes: {1}"


@dataclass(slots=True)
class Marks:
    """The line and column of each key and each value, by its path from the root."""

    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)

    def of_key(self, path: Path) -> Place:
        return self.keys.get(path) or self.of_value(path)

    def of_value(self, path: Path) -> Place:
        # A default has no place in this file. Use the place of the mapping into which it was merged.
        while path not in self.values and path:
            path = path[:-1]
        return self.values.get(path, (1, 1))


def read_mapping(data: bytes, file: str) -> dict[str, Value]:
    """Read the keys and values of a file. Raises RefusedSpec for the first problem."""
    return _read(data, file, None)


def read_marks(data: bytes, file: str) -> Marks:
    """Read the positions in a file that `read_mapping` accepts."""
    marks = Marks()
    _read(data, file, marks)
    return marks


def _read(data: bytes, file: str, marks: Marks | None) -> dict[str, Value]:
    text = _decode(data, file)
    builder = _Builder(file, text, marks)
    parser = CBaseLoader(text)
    try:
        for _ in range(MAX_EVENTS):
            event = parser.get_event()
            # Tested first, because scalars are nearly half of all events.
            if type(event) is ScalarEvent:
                builder.take_scalar(event)
            elif event is None or type(event) is StreamEndEvent:
                break
            else:
                builder.take(event)
        else:
            assert event is not None
            raise builder.refusal(event, f"more than {MAX_EVENTS // 2:,} values; split the file into several")
    except YAMLError as error:
        line, column, words = explain(error, text)
        raise refuse(file, line, column, words) from None
    finally:
        parser.dispose()
    if builder.root is None:
        raise refuse(file, 1, 1, "the file is empty; write at least `objective: …`, or delete it")
    return builder.root


def _decode(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise refuse(file, 1, 1, f"the file is larger than {MAX_BYTES // 1024} KB; split it into several")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise refuse(file, 1, 1, "the file is UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line_start = before.rfind(b"\n") + 1
        column = len(before[line_start:].decode("utf-8", "replace")) + 1
        words = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise refuse(file, before.count(b"\n") + 1, column, words) from None
    if found := _CONTROL.search(text):
        line, column = _place(text, found.start())
        raise refuse(file, line, column, f"the character U+{ord(found[0]):04X} cannot stand in a spec; delete it")
    return text


def _place(text: str, index: int) -> Place:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


class _Builder:
    """Builds the mapping from the events of one document."""

    __slots__ = ("file", "key", "key_event", "marks", "open", "root", "text", "top", "within")

    def __init__(self, file: str, text: str, marks: Marks | None) -> None:
        self.file = file
        self.text = text
        self.marks = marks
        self.root: dict[str, Value] | None = None
        # The container being filled, those around it, and the key that waits for its value.
        self.top: dict[str, Value] | list[Value] | None = None
        self.open: list[dict[str, Value] | list[Value] | None] = []
        self.key: str | None = None
        self.key_event: Event | None = None
        self.within: Path = ()

    def take_scalar(self, event: ScalarEvent) -> None:
        text, top, key = event.value, self.top, self.key
        if event.anchor is not None or event.tag is not None:
            raise self._adorned(event)
        if not text and not event.style:
            raise self._empty(event)
        if "\x00" in text:
            raise self.refusal(event, r'the escape "\0" stands for no character a path or word can hold; delete it')
        if type(top) is dict:
            if key is None:
                self._take_key(event, text, top)
                return
            top[key] = text
            self.key = None
        elif top is None:
            raise self.refusal(event, "expected `key: value` lines, found only text; begin with `objective: …`")
        elif type(top) is list:
            top.append(text)
        if self.marks is not None:
            self._mark(self.marks, event, key)

    def take(self, event: Event) -> None:
        kind = type(event)
        if isinstance(event, MappingStartEvent):
            self._enter(event, {})
        elif isinstance(event, SequenceStartEvent):
            self._enter(event, [])
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            self.top = self.open.pop()
            self.within = self.within[:-1]
        elif kind is AliasEvent:
            found = quote_found(self.text, _mark_of(event))
            raise self.refusal(event, f"a value that begins with * needs quotes: {found} (aliases are refused)")
        elif kind is DocumentStartEvent and self.root is not None:
            raise self.refusal(event, "a second document begins here; one file holds one, so delete the `---`")

    def _take_key(self, event: ScalarEvent, text: str, top: dict[str, Value]) -> None:
        if text in top:
            raise self.refusal(event, f"key '{shorten(text)}' is here twice; keep one of them")
        self.key = text
        self.key_event = event
        if self.marks is not None:
            self.marks.keys[(*self.within, text)] = _start(event)

    def _enter(self, event: MappingStartEvent | SequenceStartEvent, value: dict[str, Value] | list[Value]) -> None:
        top, key = self.top, self.key
        if event.anchor is not None or event.tag is not None:
            raise self._adorned(event)
        if len(self.open) >= MAX_LEVELS:
            raise self.refusal(event, f"more than {MAX_LEVELS} levels deep; a spec needs no more than five")
        if type(top) is dict:
            if key is None:
                raise self.refusal(event, "a list or mapping cannot be a key; quote it if it is text")
            top[key] = value
        elif type(top) is list:
            top.append(value)
        elif type(value) is dict:
            self.root = value
        else:
            raise self.refusal(event, "expected `key: value` lines, found a list; begin with `objective: …`")
        if self.marks is not None:
            self.within = self._mark(self.marks, event, key)
        self.open.append(top)
        self.top, self.key = value, None

    def _mark(self, marks: Marks, event: Event, key: str | None) -> Path:
        """Record where the value that was just placed begins, and return its path."""
        match self.top:
            case None:
                path: Path = ()
            case dict():
                path = (*self.within, key or "")
            case items:
                path = (*self.within, len(items) - 1)
        marks.values[path] = _start(event)
        return path

    def _adorned(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> RefusedSpec:
        if event.anchor is not None:
            words = (
                f"anchors are refused (&{shorten(event.anchor)}); write the value out, "
                "or put it in quotes if & belongs to it"
            )
            return self.refusal(event, words)
        found = quote_found(self.text, _mark_of(event))
        return self.refusal(event, f"a value that begins with ! needs quotes: {found} (tags are refused)")

    def _empty(self, event: Event) -> RefusedSpec:
        if self.key is not None:
            words = f"key '{shorten(self.key)}' has no value; write one, or delete the line"
            return self.refusal(self.key_event or event, words)
        if type(self.top) is dict:
            return self.refusal(event, "a key is missing before the colon; write `key: value`")
        return self.refusal(event, "an empty entry; write a value, or delete it")

    def refusal(self, event: Event, text: str) -> RefusedSpec:
        return refuse(self.file, *_start(event), text)


def _start(event: Event) -> Place:
    mark = _mark_of(event)
    return mark.line + 1, mark.column + 1


def _mark_of(event: Event) -> Mark:
    """Return the mark of an event. Every event of this parser has one; the type allows None for events made by hand."""
    mark = event.start_mark
    assert mark is not None
    return cast(Mark, mark)


def shorten(text: str, length: int = 40) -> str:
    """Shorten text of a file for one line of a message."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def explain(error: YAMLError, text: str) -> Explanation:
    """Return line, column and words for an error of the parser."""
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return 1, 1, f"this is not YAML: {error}"
    problem, context = error.problem or "", error.context or ""
    at = error.problem_mark
    began = error.context_mark or at
    if "alias" in context or "anchor" in context:
        return _at(
            began, _NEEDS_QUOTES.format(_line(text, began)[began.column : began.column + 1], quote_found(text, began))
        )
    if "tab character" in problem:
        return _at(at, "a tab cannot indent; use spaces")
    if "cannot start any token" in problem or "expected node content" in problem:
        return _at(at, _explain_first_character(text, at))
    if "quoted scalar" in context:
        return _at(began, _explain_quoted(problem))
    if "block scalar" in context:
        return _at(began, f"a value that begins with {_character(text, began)} needs quotes, or a line break after it")
    if "tag" in context or "directive" in context:
        return _at(began, _NEEDS_QUOTES.format(_character(text, began), quote_found(text, began)))
    if "mapping values are not allowed" in problem:
        return _at(at, _explain_colon(text, at))
    if "simple key" in context:
        return _at(began, "expected `key: value`, found no colon on this line; a space must follow the colon")
    if "flow sequence" in context:
        return _at(began, "the [ that opens here is not closed by a ], or a comma is missing")
    if "flow mapping" in context:
        return _at(began, "the { that opens here is not closed by a }, or a comma is missing")
    if "block mapping" in context or "block collection" in context:
        return _at(at, _explain_misaligned(text, at))
    if "block sequence entries are not allowed" in problem:
        return _at(at, "a list cannot begin here; put `- ` on a line of its own, or use [a, b]")
    return _at(at, f"this is not YAML: {problem or context}; check quotes and indentation")


def quote_found(text: str, mark: Mark) -> str:
    """Quote the word at a mark, ready to be pasted."""
    found = _TOKEN.match(_line(text, mark), mark.column)
    word = (found[0] if found else "…").rstrip(":")
    return '"' + word[:40].replace("\\", "\\\\").replace('"', '\\"') + '"'


def _explain_first_character(text: str, at: Mark) -> str:
    character = _line(text, at)[at.column : at.column + 1]
    if not character:
        return "the file ends inside a [ or {; close it"
    if character == "\t":
        return "a tab cannot indent; use spaces"
    return _NEEDS_QUOTES.format(character, quote_found(text, at))


def _explain_quoted(problem: str) -> str:
    if "escape" in problem or "hex" in problem.lower():
        return "a backslash inside \"…\" must begin an escape; write \\\\ for one, or use 'single quotes'"
    return "the quote that opens here is never closed; close it"


def _explain_colon(text: str, at: Mark) -> str:
    line = _line(text, at)
    key, colon, value = line[: at.column].partition(": ")
    if "\t" in line[: at.column]:
        return "a tab cannot indent; use spaces"
    if not colon:
        return "this line is indented as if it belonged to the value above it; check the indentation"
    whole = (value + line[at.column :]).strip()
    return f'a value with `: ` inside needs quotes: {key.strip()}: "{whole[:60]}"'


def _explain_misaligned(text: str, at: Mark) -> str:
    line = _line(text, at)
    before = line[: at.column]
    if "\t" in before:
        return "a tab cannot indent; use spaces"
    if before.rstrip().endswith(('"', "'")):
        return "text after the closing quote; put the whole value inside the quotes"
    return "this line does not line up with the keys above it; check the indentation"


def _line(text: str, mark: Mark) -> str:
    lines = text.splitlines()
    return lines[mark.line] if mark.line < len(lines) else ""


def _character(text: str, mark: Mark) -> str:
    return _line(text, mark)[mark.column : mark.column + 1] or "nothing"


def _at(mark: Mark, words: str) -> Explanation:
    return mark.line + 1, mark.column + 1, words

"""YAML bytes -> nested dicts and lists in which every scalar is still text.

Called by load and settings. Works on the parser's events, never recursing: a file that is too large, too
deep or full of aliases is refused at the first event that shows it, before anything is built from it
(measured without this: 272 bytes of aliases grow to 39 MB, 5,000 brackets end the recursion limit).
Never types a value: `branch: 3.10` and `at: 12:30` stay what they say. Marks are kept only when asked for,
since a good file, the usual one, never needs them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from yaml.cyaml import CParser
from yaml.error import YAMLError
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
from wakeful.specs.yaml_traps import explain, quote_found

MAX_BYTES = 256 * 1024
MAX_LEVELS = 32
# A value costs about 2 us: 256 KB of `[1,1,…` would take a quarter of a second without this.
MAX_VALUES = 10_000

Value = str | list["Value"] | dict[str, "Value"]
Path = tuple[str | int, ...]
Place = tuple[int, int]

# What no YAML may hold, and no path or word of ours either. Tab, line feed, carriage return and NEL are text.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(slots=True)
class Marks:
    """Where each key and each value begins, by its path from the root."""

    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)

    def of_key(self, path: Path) -> Place:
        return self.keys.get(path) or self.of_value(path)

    def of_value(self, path: Path) -> Place:
        # A default has no place in this file, but what it was merged into has.
        while path not in self.values and path:
            path = path[:-1]
        return self.values.get(path, (1, 1))


def read_mapping(data: bytes, file: str) -> dict[str, Value]:
    """The keys and values of a file, or RefusedSpec naming the first thing that is wrong with it."""
    return _read(data, file, None)


def read_marks(data: bytes, file: str) -> Marks:
    """Where everything stands in a file that `read_mapping` accepts."""
    marks = Marks()
    _read(data, file, marks)
    return marks


def _read(data: bytes, file: str, marks: Marks | None) -> dict[str, Value]:
    text = _decode(data, file)
    builder = _Builder(file, text, marks)
    parser = CParser(text)
    try:
        while not builder.is_done:
            builder.take(parser.get_event())
    except YAMLError as error:
        line, column, words = explain(error, text)
        raise refuse(file, line, column, words) from None
    finally:
        parser.dispose()
    if not isinstance(builder.root, dict):
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
    """Takes the events of one document and grows the value they describe."""

    __slots__ = ("count", "file", "is_done", "key", "key_event", "marks", "open", "root", "text", "top", "within")

    def __init__(self, file: str, text: str, marks: Marks | None) -> None:
        self.file = file
        self.text = text
        self.marks = marks
        self.is_done = False
        self.root: Value | None = None
        self.count = 0
        # The container being filled, the key that waits for its value, and the same of those around it.
        self.top: dict[str, Value] | list[Value] | None = None
        self.key: str | None = None
        self.key_event: Event | None = None
        self.open: list[tuple[dict[str, Value] | list[Value] | None, str | None]] = []
        self.within: Path = ()

    def take(self, event: Event) -> None:
        kind = type(event)
        if kind is ScalarEvent:
            self._take_scalar(event)
        elif kind is MappingStartEvent:
            self._enter(event, {})
        elif kind is SequenceStartEvent:
            self._enter(event, [])
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            self._leave()
        elif kind is AliasEvent:
            found = quote_found(self.text, event.start_mark)
            raise self._refusal(event, f"a value that begins with * needs quotes: {found} (aliases are refused)")
        elif kind is DocumentStartEvent and self.root is not None:
            raise self._refusal(event, "a second document begins here; one file holds one, so delete the `---`")
        elif kind is StreamEndEvent:
            self.is_done = True

    def _take_scalar(self, event: ScalarEvent) -> None:
        self._check(event)
        top, text = self.top, event.value
        if "\x00" in text:
            raise self._refusal(event, r'the escape "\0" stands for no character a path or word can hold; delete it')
        if type(top) is dict and self.key is None:
            self._take_key(event, text, top)
            return
        if not text and not event.style:
            raise self._empty(event)
        if top is None:
            raise self._refusal(event, "expected `key: value` lines, found only text; begin with `objective: …`")
        self._place_value(event, text)

    def _take_key(self, event: ScalarEvent, text: str, top: dict[str, Value]) -> None:
        if text in top:
            raise self._refusal(event, f"key '{shorten(text)}' is here twice; keep one of them")
        if not text:
            raise self._refusal(event, "a key is missing before the colon; write `key: value`")
        self.key = text
        self.key_event = event
        if self.marks is not None:
            self.marks.keys[(*self.within, text)] = _start(event)

    def _place_value(self, event: Event, value: Value) -> None:
        top = self.top
        if type(top) is dict:
            place: str | int = self.key  # type: ignore[assignment]
            top[self.key] = value  # type: ignore[index]
            self.key = None
        else:
            place = len(top)  # type: ignore[arg-type]
            top.append(value)  # type: ignore[union-attr]
        if self.marks is not None:
            self.marks.values[(*self.within, place)] = _start(event)

    def _enter(self, event: Event, value: dict[str, Value] | list[Value]) -> None:
        self._check(event)
        if len(self.open) >= MAX_LEVELS:
            raise self._refusal(event, f"more than {MAX_LEVELS} levels deep; a spec needs no more than five")
        if type(self.top) is dict and self.key is None:
            raise self._refusal(event, "a list or mapping cannot be a key; quote it if it is text")
        key = self.key
        if self.top is None:
            if type(value) is list:
                raise self._refusal(event, "expected `key: value` lines, found a list; begin with `objective: …`")
            self.root = value
            if self.marks is not None:
                self.marks.values[()] = _start(event)
        else:
            place = key if key is not None else len(self.top)
            self._place_value(event, value)
            self.within = (*self.within, place)
        self.open.append((self.top, key))
        self.top, self.key = value, None

    def _leave(self) -> None:
        self.top, _ = self.open.pop()
        self.key = None
        self.within = self.within[:-1]

    def _check(self, event: Event) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self._refusal(event, f"more than {MAX_VALUES:,} values; split the file into several")
        if event.anchor is not None:
            raise self._refusal(
                event,
                f"anchors are refused (&{shorten(event.anchor)}); write the value out,"
                " or put it in quotes if & belongs to it",
            )
        if event.tag is not None:
            raise self._refusal(
                event, f"a value that begins with ! needs quotes: {quote_found(self.text, event.start_mark)} (tags are refused)"
            )

    def _empty(self, event: Event) -> RefusedSpec:
        if self.key is None:
            return self._refusal(event, "an empty entry; write a value, or delete it")
        at = self.key_event or event
        return self._refusal(at, f"key '{shorten(self.key)}' has no value; write one, or delete the line")

    def _refusal(self, event: Event, text: str) -> RefusedSpec:
        return refuse(self.file, *_start(event), text)


def _start(event: Event) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1


def shorten(text: str, length: int = 40) -> str:
    """Text from a file, fit for one line of a message."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"

"""YAML text: the refusals, their messages and their speed. Any bytes end in a mapping or a refusal."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import SpecError
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.yaml_text import read_mapping, read_marks


def refusal(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(RefusedSpec) as caught:
        read_mapping(data, "f.yaml")
    return str(caught.value)


TRAPS = [
    ("a:\n  b: *.csv", '2:6: a value that begins with * needs quotes: "*.csv"'),
    ("a: {b: *.csv}", '1:8: a value that begins with * needs quotes: "*.csv"'),
    ("a: @home", '1:4: a value that begins with @ needs quotes: "@home"'),
    ("a: %x", '1:4: a value that begins with % needs quotes: "%x"'),
    ("%x", '1:1: a value that begins with % needs quotes: "%x"'),
    ("a: `x`", '1:4: a value that begins with ` needs quotes: "`x`"'),
    ("a: &*.csv", '1:4: a value that begins with & needs quotes: "&*.csv"'),
    ("a: >50", "1:4: a value that begins with > needs quotes, or a line break after it"),
    ("a: *foo", '1:4: a value that begins with * needs quotes: "*foo" (aliases are refused)'),
    ("a: &x b", "1:4: anchors are refused (&x); write the value out, or put it in quotes if & belongs to it"),
    ("a: &x {b: c}", "1:4: anchors are refused (&x); write the value out, or put it in quotes if & belongs to it"),
    ("a: !t b", '1:4: a value that begins with ! needs quotes: "!t" (tags are refused)'),
    ("a: !!python/name:os b", '1:4: a value that begins with ! needs quotes: "!!python/name:os" (tags are refused)'),
    ("a: 'x", "1:4: the quote that opens here is never closed; close it"),
    ('a: "x', "1:4: the quote that opens here is never closed; close it"),
    ("a: 'it's'", "1:8: text after the closing quote; put the whole value inside the quotes"),
    ('a: "C:\\dir"', "1:4: a backslash inside \"…\" must begin an escape; write \\\\ for one, or use 'single quotes'"),
    ("a: b: c", '1:5: a value with `: ` inside needs quotes: a: "b: c"'),
    ("a:\n\tb: c", "2:1: a tab cannot indent; use spaces"),
    ("a: 1\n\tb: 2", "2:1: a tab cannot indent; use spaces"),
    ("a: [1, 2", "1:4: the [ that opens here is not closed by a ], or a comma is missing"),
    ("a: {b: c", "1:4: the { that opens here is not closed by a }, or a comma is missing"),
    ("a: 1\n b: 2", "2:3: this line is indented as if it belonged to the value above it; check the indentation"),
    ("a:\n  b: 1\n c: 2", "3:2: this line does not line up with the keys above it; check the indentation"),
    ("a: - b", "1:4: a list cannot begin here; put `- ` on a line of its own, or use [a, b]"),
    ("a: 1\na: 2", "2:1: key 'a' is here twice; keep one of them"),
    ("a: {b: 1, b: 2}", "1:11: key 'b' is here twice; keep one of them"),
    ("a:", "1:1: key 'a' has no value; write one, or delete the line"),
    ("a: # x", "1:1: key 'a' has no value; write one, or delete the line"),
    ("a:\n  - b\n  -", "3:4: an empty entry; write a value, or delete it"),
    ("?\n: a", "1:2: a key is missing before the colon; write `key: value`"),
    ("{[a]: b}", "1:2: a list or mapping cannot be a key; quote it if it is text"),
    ("just text", "1:1: expected `key: value` lines, found only text; begin with `objective: …`"),
    ("- a", "1:1: expected `key: value` lines, found a list; begin with `objective: …`"),
    ("", "1:1: the file is empty; write at least `objective: …`, or delete it"),
    ("# only words\n", "1:1: the file is empty; write at least `objective: …`, or delete it"),
    ("---\na: 1\n---\nb: 2", "3:1: a second document begins here; one file holds one, so delete the `---`"),
    ('a: "\\0"', '1:4: the escape "\\0" stands for no character a path or word can hold; delete it'),
    ("a: b\n\nc: d\x00", "3:5: the character U+0000 cannot stand in a spec; delete it"),
    (b"a: b\nc: caf\xe9\n", "2:7: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    ("a: b".encode("utf-16"), "1:1: the file is UTF-16; save it as UTF-8"),
]


@pytest.mark.parametrize(("text", "words"), TRAPS)
def test_a_trap_is_explained_where_it_stands(text: str | bytes, words: str) -> None:
    """Each trap of YAML is answered with its line, its column and the text to type instead."""
    assert refusal(text) == f"f.yaml:{words}"


@pytest.mark.parametrize(
    "text", ["3.10", "12:30", "true", "NO", "022", "0x1f", "1e3", "~", "null", "2024-01-01", "<<", "=", "on"]
)
def test_a_scalar_stays_the_text_it_is(text: str) -> None:
    """YAML types no value: values, list entries and keys stay text."""
    assert read_mapping(f"a: {text}\nb: [{text}]\n{text}: c".encode(), "f.yaml") == {"a": text, "b": [text], text: "c"}


def test_ordinary_shapes_are_read() -> None:
    """Blocks, flows, quotes, byte order marks and foreign line ends all give the same values."""
    assert read_mapping("\ufeffa: b\r\nc:\r\n  - d\r\n  - {e: ''}\r\nf: |\r\n  g\r\n  h: i\r\n".encode(), "f.yaml") == {
        "a": "b",
        "c": ["d", {"e": ""}],
        "f": "g\nh: i\n",
    }


def test_marks_say_where_everything_stands() -> None:
    """Keys and values are found by their path. A missing path has the place of its parent."""
    marks = read_marks(b"a: b\nc:\n  d: [e, {f: g}]\n", "f.yaml")
    assert marks.of_key(("c", "d")) == (3, 3)
    assert marks.of_value(("c", "d", 0)) == (3, 7)
    assert marks.of_value(("c", "d", 1, "f")) == (3, 14)
    assert marks.of_value(("c", "d", 1, "not there")) == (3, 10)
    assert marks.of_value(("nowhere",)) == (1, 1)


BOMBS = {
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "brackets": "a: " + "[" * 5000,
    "braces": "a: " + "{a: " * 5000,
    "dashes": "a:\n" + "- " * 5000,
    "question marks": "? " * 5000,
    "indentation": "".join(f"{' ' * i}a:\n" for i in range(600)),
    "many values": "a: [" + "1," * 120_000 + "]",
    "many keys": "".join(f"k{i}: 1\n" for i in range(24_000)),
    "a large file": "a: " + "x" * 10_000_000,
    "an open quote": 'a: "' + "x\n" * 100_000,
    "tags": "a: " + "!x " * 50_000,
    "comments": "# x\n" * 60_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_monster_is_refused_before_it_grows(name: str) -> None:
    """Text that would fill memory or take long is refused early, with a message."""
    data = BOMBS[name].encode()
    tracemalloc.start()
    try:
        assert refusal(data).startswith("f.yaml:")
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()
    began = time.process_time()
    refusal(data)
    print(f"{name}: refused in {(time.process_time() - began) * 1000:.1f} ms")


@given(
    st.binary(max_size=200)
    | st.text(alphabet="ab :-[]{}&*!|>'\"%@`#,?\n\t\\~<=.\x00\ufeffé", max_size=80).map(str.encode)
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Any input ends in a mapping of text, or in a SpecError with its place."""
    try:
        value = read_mapping(data, "f.yaml")
    except SpecError as error:
        assert str(error).startswith("f.yaml:")
        return
    marks = read_marks(data, "f.yaml")
    assert {path[0] for path in marks.keys} == set(value)

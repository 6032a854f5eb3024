"""Explains errors of the YAML parser in words that say what to type instead.

Called by yaml_text with the parser's error and its text. Knows the usual mistakes (`*.csv`, `@home`, tabs, `a: b: c`,
an open quote) and never shows the parser's own vocabulary for them.
"""

from __future__ import annotations

import re

from yaml.error import Mark, MarkedYAMLError, YAMLError

Explanation = tuple[int, int, str]

_TOKEN = re.compile(r"[^\s,\[\]{}]+")
_NEEDS_QUOTES = "a value that begins with {0} needs quotes: {1}"


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

"""One word for each thing: words abandoned in docs/glossary.md are in no help text, page or message.

A message is a string literal of the code with more than one word. Other legitimate uses of a word are listed with their
reasons.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from source_trees import parse_package
from wakeful.cli.command import wakeful
from wakeful.verbs.table import COMMANDS

REPOSITORY = Path(__file__).parent.parent
GLOSSARY = REPOSITORY / "docs" / "glossary.md"


class Abandoned(NamedTuple):
    """A word not used (as in the glossary's last column), the pattern that finds it, and its legitimate uses with
    reasons."""

    word: str
    pattern: str
    legitimate: dict[str, str] = {}


ABANDONED = (
    Abandoned("retract", r"\bretract\w*"),
    Abandoned("forget", r"\berases?\b[^.]{0,60}\bforget\w*|\bforget\w*[^.]{0,20}\b(payload|record)s?\b"),
    Abandoned("big red switch", r"\bred switch\b|\beverything (was|is) put to sleep\b"),
    Abandoned("emergency stop", r"\bemergency stop\b"),
    Abandoned("put aside", r"\bcauses? (are|is|were) (put|set|laid) aside\b"),
    Abandoned("set aside", r"\bset aside\b"),
    Abandoned("thawed", r"\bthaw\w*"),
    Abandoned("orphaned", r"\borphaned session"),
    Abandoned("trigger", r"\btrigger(s|ed|ing)?\b", {r"watchman trigger": "a command of another tool"}),
    Abandoned(
        "note",
        r"\b(?<!-)(notes?|noted)\b",
        {
            r"`note`|\bwakeful note\b|/call/note\b|\bnote (NAME|TEXT)\b|may note, send": "the verb `note`, which leaves a hand-off",
            r"--note\b|`[^`]*\bnote\}?`|\bENDS +NOTE\b": "the option --note of activate, save and token, and its keys of JSON",
            r"\bnote 16 KiB": "the key `note` of `limits`, a name on disk",
            r"\bnotes/|mkdir -p \S*\bnotes\b|\bnotes:|\bnotes(?=\s+(\(|[0-9a-f]{12}))|(my|some|the) notes\b|a note counts again|change of a note": "files of a person in the examples",
            r"^ {2}note\b": "the verb in the list of verbs",
        },
    ),
    Abandoned(
        "event",
        r"\bevents?\b",
        {
            r"file\s+events|lost events?|event queue|watched by events|not events|\bevents are lost": "a report of the kernel or of git",
            r"events\.db|memory\.events|event-stream|event loop": "names of files and of other systems",
            r"--event\b|\{event: |`event(\.type)?`|X-Git(Hub|lab)-Event(-UUID)?|event_id": "what senders of webhooks call it",
            r"[Ss]erver-sent events?|Last-Event-ID|\bevent: |an event `\w+`|events `\w+`|\| event \| data|live event|one\s+event|one event|x-event": "what browsers call it",
            r"\{event\}": "a name in the messages of notifiers",
        },
    ),
    Abandoned("job", r"\bjobs?\b", {r"\{job=": "a label of Prometheus"}),
    Abandoned(
        "task",
        r"\btasks?\b",
        {
            r"modelcontextprotocol/tasks|\btasks/(get|cancel|update)|notifications/tasks|[Tt]asks extension|"
            r"tasks of 2025-11-25|`?resultType: task`?": "what MCP calls a call that is polled"
        },
    ),
    Abandoned("paused", r"\bpaused\b"),
    Abandoned("worker", r"\bworkers?\b", {r"\bworker-src\b": "a directive of a browser's policy"}),
)
# The glossary names the words itself. The roadmap describes future work in passing words. The page on architecture
# names classes, and calls a record's value an event.
UNREAD = (GLOSSARY, REPOSITORY / "docs" / "roadmap.md", REPOSITORY / "docs" / "architecture.md")
_SQL = re.compile(r"\b(SELECT|INSERT INTO|FROM event|JOIN event|UPDATE|LEFT JOIN)\b")


def list_pages() -> Iterator[tuple[str, str]]:
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))):
        if page not in UNREAD:
            yield page.name, page.read_text()


def list_help() -> Iterator[tuple[str, str]]:
    context = click.Context(wakeful, info_name="wakeful", terminal_width=10_000)
    yield "wakeful --help", wakeful.get_help(context)
    for name in COMMANDS:
        command = wakeful.get_command(context, name)
        assert command is not None
        yield f"wakeful {name} --help", command.get_help(click.Context(command, context, name, terminal_width=10_000))


def list_messages() -> Iterator[tuple[str, str]]:
    for path, tree in parse_package().items():
        for literal in find_literals(tree):
            if " " in literal.value.strip() and not _SQL.search(literal.value):
                yield f"{path.relative_to(REPOSITORY)}:{literal.lineno}", literal.value


@functools.cache
def list_texts() -> tuple[tuple[str, str], ...]:
    """Return the texts of pages, help and messages, read once."""
    return (*list_pages(), *list_help(), *list_messages())


def find_literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield all string literals except docstrings. Of an f-string these are its fixed parts."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def find_said(one: Abandoned, text: str) -> list[str]:
    """Return the places that use a word, without its legitimate uses."""
    if re.search(one.pattern, text, re.IGNORECASE) is None:
        return []
    for other in one.legitimate:
        text = re.sub(other, "", text, flags=re.MULTILINE)
    return [
        text[max(0, found.start() - 40) : found.end() + 40] for found in re.finditer(one.pattern, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("one", ABANDONED, ids=lambda one: one.word)
def test_an_abandoned_word_is_said_nowhere(one: Abandoned) -> None:
    """The word is in no help text, no page and no message."""
    said = {place: found for place, text in list_texts() if (found := find_said(one, text))}
    assert not said


def test_the_glossary_names_what_is_looked_for() -> None:
    """The last column has each abandoned word, and each word of the glossary has a meaning."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in GLOSSARY.read_text().splitlines()
        if line.startswith("|")
    ]
    words = [row for row in rows if row[0] not in ("word", "---")]
    assert all(len(row) == 3 and row[0] and row[1] for row in words)
    not_said = {word.strip() for row in words for word in row[2].split(",") if word}
    assert {one.word for one in ABANDONED} == not_said


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("note", "the note of the last run"),
        ("note", "payroll: noted"),
        ("event", "100 events of 8 sessions"),
        ("put aside", "its causes are put aside"),
        ("forget", "erase NAME SEQ forgets what was said"),
        ("retract", "retracted language"),
    ],
)
def test_the_walk_finds_what_it_looks_for(word: str, text: str) -> None:
    """The patterns of this test do find the words."""
    assert find_said(next(one for one in ABANDONED if one.word == word), text)

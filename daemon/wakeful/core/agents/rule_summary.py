"""Summaries of messages made without a model, always the same for the same messages; and the parser of any summary.

Used if a session has no agent, if its model cannot summarise, and for the conversation of a merged fork. The objective
is copied word for word. Open questions, decisions and names come first, those of the earlier summary included. Nothing
is listed twice. A summary has a maximum length, and says how many lines it leaves out. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from wakeful.text.display import count

LONGEST_DIGEST = 6_000
OPEN_QUESTIONS, DECISIONS, SETTLED, FILES, NAMES = "Open questions", "Decisions", "Settled", "Files", "Names"
_SAID, _BEFORE = "Said", "Before that"
# Title of a list -> the field of `ReadSummary`. The last two titles are in summaries of earlier releases.
_TITLES = {
    OPEN_QUESTIONS: "open_questions", DECISIONS: "decisions", SETTLED: "settled", FILES: "names", NAMES: "names",
    "Questions asked": "open_questions", "Paths named": "names",
}  # fmt: skip
_LINE = 160
# The maximum number of characters that each list has in a digest.
_QUESTIONS_ROOM, _DECISIONS_ROOM, _NAMES_ROOM = 1_300, 1_300, 900
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_DECISION = re.compile(
    r"\b(decid\w+|decisions?|agreed|agree to|chose|chosen|choose|we (will|use|go with|keep|drop)|will use|from now on"
    r"|rejected|approved|settled on|ruled out|must|shall)\b",
    re.IGNORECASE,
)
# Every repeat has a bound, and every name must begin at a fixed place. Strangers write the searched text, and must not
# be able to make the search slow (catastrophic backtracking).
_NAME = re.compile(
    r"(?P<quoted>`[^`\n]{2,60}`)"
    r"|(?P<url>\bhttps?://[^\s<>\"')]{1,200})"
    r"|(?P<path>(?<![\w/.@+-])(?:(?:[\w.@+-]{1,80}/){1,20}[\w.@+-]{0,80}(?<!\.)|[\w@+-]{1,80}\.(?:csv|json|ya?ml|md"
    r"|py|toml|txt|sql|html?|[jt]sx?|go|rs|c|h)\b))"
    r"|(?P<ticket>(?<![\w-])(?:[A-Z][A-Z0-9]{1,15}-\d{1,9}\b|#\d{1,9}\b|@[\w-]{1,40}))"
    r"|(?P<identifier>\b[A-Za-z]{1,40}(?:_[A-Za-z0-9]{1,40}){1,8}\b)"
    r"|(?P<proper>(?<=[a-z,;] )[A-Z][\w'-]{1,40}(?: [A-Z][\w'-]{1,40}){0,4})"
)
# The origin of a listed line: a record, or a part of a conversation in the form that a summariser gets.
_SOURCE = re.compile(r"^(?:\[\d+\] .{1,80}?|ASKED|AGENT|[\w-]{1,80} RETURNED): ")
_HEAD = re.compile(r"\d{1,9} messages?, (?:records \d{1,9} to \d{1,9}, )?from ")
_COUNT = re.compile(r"(?:- )?\(\d+ older ones are in the log\)")


class Message(Struct, frozen=True, kw_only=True):
    """One entry of a conversation. `seq` is the number of its record, 0 if not known."""

    session: str
    seq: int
    at: int
    author: str
    text: str


class ReadSummary(Struct, frozen=True, kw_only=True):
    """A parsed summary: its lists, and the rest as prose."""

    prose: str = ""
    open_questions: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def read_summary(text: str | None) -> ReadSummary:
    """Parse a summary of any origin: this module, a model, an earlier release."""
    lists: dict[str, list[str]] = {}
    prose: list[str] = []
    for block in (text or "").split("\n\n"):
        title, *lines = block.split("\n")
        kind = _TITLES.get(title.removeprefix(f"{_BEFORE}:").strip().removesuffix(":"))
        if kind is not None and lines:
            lists.setdefault(kind, []).extend(line.removeprefix("- ") for line in lines if not _is_count(line))
        else:
            prose.append(block)
    found = {kind: tuple(keep_once(lines)) for kind, lines in lists.items()}
    return ReadSummary(prose="\n\n".join(prose).strip(), **found)


def list_lines(title: str, lines: Sequence[str]) -> list[str]:
    """Format one block of a summary. Empty if there are no lines. Line breaks inside a line become spaces."""
    return ["\n".join((f"{title}:", *(f"- {' '.join(line.split())}" for line in lines)))] if lines else []


def keep_once(lines: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Drop the lines that repeat an earlier line or a `known` one. Letter case, spaces and the source of a line do not
    count."""
    seen = {_fold(line) for line in known}
    kept: list[str] = []
    for line in lines:
        folded = _fold(line)
        if folded and folded not in seen:
            seen.add(folded)
            kept.append(line)
    return kept


def digest_messages(messages: Sequence[Message], *, objective: str | None, earlier: str | None = None) -> str:
    """Summarise these messages, and carry over the entries of the `earlier` summary."""
    before = read_summary(earlier)
    head = [f"Objective: {objective}"] if objective else []
    head.append(f"{count(len(messages), 'message')}, {_span(messages)}{_say_authors(messages)}.")
    questions, decisions, rest = _sort_sentences(messages)
    names = (name for message in messages for name in _find_names(message.text))
    listed = (
        (OPEN_QUESTIONS, keep_once((*before.open_questions, *questions)), _QUESTIONS_ROOM),
        (DECISIONS, keep_once((*before.decisions, *decisions)), _DECISIONS_ROOM),
        (NAMES, keep_once((*before.names, *names)), _NAMES_ROOM),
    )
    parts = ["\n".join(head), *(part for title, lines, room in listed for part in list_lines(title, _fit(lines, room)))]
    room = LONGEST_DIGEST - sum(len(part) + 2 for part in parts)
    if prose := _drop_heads(before.prose):
        # Older prose gets half of the free space, so it becomes shorter with every summary.
        parts.append(f"{_BEFORE}:\n{_shorten(prose, max(room // 2, 200))}")
        room -= len(parts[-1]) + 2
    parts += list_lines(_SAID, _fit(keep_once(rest, known=prose.splitlines()), room - len(_SAID) - 4))
    return "\n\n".join(parts)


def _sort_sentences(messages: Sequence[Message]) -> tuple[list[str], list[str], list[str]]:
    """Split messages into questions, decisions and the rest. Each line names its source."""
    questions: list[str] = []
    decisions: list[str] = []
    rest: list[str] = []
    for message in messages:
        others: list[str] = []
        for sentence in _split_sentences(message.text):
            if sentence.endswith("?"):
                questions.append(_say(message, sentence))
            elif _DECISION.search(sentence):
                decisions.append(_say(message, sentence))
            else:
                others.append(sentence)
        if others:
            rest.append(_say(message, " ".join(others)))
    return questions, decisions, rest


def _split_sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from (sentence.strip() for sentence in _SENTENCE.split(line) if sentence.strip())


def _find_names(text: str) -> Iterator[str]:
    return (" ".join(found.group().strip("`").split()) for found in _NAME.finditer(text))


def _span(messages: Sequence[Message]) -> str:
    return f"records {messages[0].seq} to {messages[-1].seq}, " if messages and messages[0].seq else ""


def _say_authors(messages: Iterable[Message]) -> str:
    counts = Counter(message.author for message in messages)
    return (
        "from " + ", ".join(f"{author} ({number})" for author, number in sorted(counts.items()))
        if counts
        else "from nobody"
    )


def _say(message: Message, text: str) -> str:
    source = f"[{message.seq}] " if message.seq else ""
    return f"{source}{message.author}: {_shorten(' '.join(text.split()), _LINE)}"


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _drop_heads(prose: str) -> str:
    """Drop the lines that every digest writes again: objective, counts, titles."""
    dropped = ("Objective: ", f"{_BEFORE}:", f"{_SAID}:")
    lines = (
        line
        for line in prose.splitlines()
        if not line.startswith(dropped) and not _HEAD.match(line) and not _is_count(line)
    )
    return "\n".join(lines).strip()


def _is_count(line: str) -> bool:
    return _COUNT.fullmatch(line) is not None


def _fold(line: str) -> str:
    return " ".join(_SOURCE.sub("", line.removeprefix("- ")).split()).casefold()


def _fit(lines: list[str], room: int) -> list[str]:
    """Return the newest lines that fit. If lines were dropped, the first line of the result says how many."""
    room -= 40
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 3
        if room < 0:
            kept.append(f"({len(lines) - len(kept)} older ones are in the log)")
            break
        kept.append(line)
    return kept[::-1]

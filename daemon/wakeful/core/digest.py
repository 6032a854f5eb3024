"""The summary that needs no model: what old messages said, told by rule, the same every time.

Used where a session has no agent to summarise it, and for what a fork brings home. The objective stands in it verbatim, open
questions and named paths are kept before anything else, and it never grows beyond its bound. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from wakeful.counting import count

LONGEST_DIGEST = 6_000
_LINE = 160
_MOST_QUESTIONS = 20
_MOST_PATHS = 40
_PATH = re.compile(r"(?<![\w/.])(?:[\w.@+-]+/)+[\w.@+-]+|(?<![\w/.])[\w@+-]+\.(?:csv|json|ya?ml|md|py|toml|txt|sql|html?|[jt]sx?|go|rs|c|h)\b")


class Message(Struct, frozen=True, kw_only=True):
    """One entry of a conversation, with the record it stands in."""

    session: str
    seq: int
    at: int
    author: str
    text: str


def digest_messages(messages: Sequence[Message], *, objective: str | None, earlier: str | None = None) -> str:
    """What these messages said, and before them the summary they follow."""
    head = [f"Objective: {objective}"] if objective else []
    head.append(f"{count(len(messages), 'message')}, {_span(messages)}, {_say_authors(messages)}.")
    parts = ["\n".join(head)]
    questions = [_say(message, line) for message in messages for line in message.text.splitlines() if line.rstrip().endswith("?")]
    parts += _list("Questions asked", questions[-_MOST_QUESTIONS:])
    paths = dict.fromkeys(path for message in messages for path in _PATH.findall(message.text))
    parts += _list("Paths named", list(paths)[:_MOST_PATHS])
    room = LONGEST_DIGEST - sum(len(part) + 2 for part in parts)
    if earlier and room > 0:
        # The older a thing is, the less of it is left: half of what is free.
        parts.append("Before that:\n" + _shorten(_without_objective(earlier), max(room // 2, 200)))
        room -= len(parts[-1]) + 2
    parts += _list("Said", _fit([_say(message, message.text) for message in messages], room))
    return "\n\n".join(parts)


def _span(messages: Sequence[Message]) -> str:
    return f"records {messages[0].seq} to {messages[-1].seq}" if messages else "none"


def _say_authors(messages: Iterable[Message]) -> str:
    counts = Counter(message.author for message in messages)
    return "from " + ", ".join(f"{author} ({number})" for author, number in sorted(counts.items()))


def _say(message: Message, text: str) -> str:
    return f"[{message.seq}] {message.author}: {_shorten(' '.join(text.split()), _LINE)}"


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _without_objective(summary: str) -> str:
    return "\n".join(line for line in summary.splitlines() if not line.startswith("Objective: "))


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return ["\n".join((f"{title}:", *(f"- {line}" for line in lines)))] if lines else []


def _fit(lines: list[str], room: int) -> list[str]:
    """The newest lines that fit, and how many had to go."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 3
        if room < 40:
            kept.append(f"({len(lines) - len(kept)} older ones are in the log)")
            break
        kept.append(line)
    return kept[::-1]

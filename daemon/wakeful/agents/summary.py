"""Summaries of a conversation: the text to summarise, the tool with which a model returns a summary, and their merging.

Pure. compaction.py asks for summaries. The whole conversation is written as text, in pieces that each fit into one
request. A piece keeps its entries apart, so that it can be condensed without a model: if no model answers, or for the
hand-off of a run that had to stop. core/agents/rule_summary.py writes the headings of a summary's lists, and parses
them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.agents.contract import ToolOffer
from wakeful.core.agents import steps as work
from wakeful.core.agents.model_text import cut_to_tokens, estimate_tokens
from wakeful.core.agents.rule_summary import (
    DECISIONS,
    FILES,
    OPEN_QUESTIONS,
    SETTLED,
    Message,
    digest_messages,
    keep_once,
    list_lines,
    read_summary,
)
from wakeful.core.agents.turns import Answered, Asked, Entry, Returned
from wakeful.text.unicode import make_json_sendable

SUMMARISE = "summarise"
# The most characters of prose in a summary that was merged without a model. The lists are not cut.
LONGEST_PROSE = 12_000
_RETURNED = " RETURNED"
# An upper limit for the letters of an estimated token.
_MOST_LETTERS_A_TOKEN = 5


class FoundFact(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    value: str
    why: str | None = None


class Summary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A summary as the model returns it."""

    summary: str
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    facts: tuple[FoundFact, ...] = ()

    def tell(self, objective: str | None = None) -> str:
        parts = [f"Objective: {objective}"] if objective else []
        # Questions and decisions come before the prose, because a summary that is too long is cut at its end.
        parts += [*list_lines(OPEN_QUESTIONS, self.open_questions), *list_lines(DECISIONS, self.decisions)]
        parts.append(self.summary.strip())
        parts += [*list_lines(SETTLED, self.settled), *list_lines(FILES, self.files)]
        return "\n\n".join(parts)

    def tell_as_part(self) -> str:
        """Write the summary with its facts, as one of several to be summarised again."""
        return "\n\n".join((self.tell(), *list_lines("Facts", [f"{fact.key} = {fact.value}" for fact in self.facts])))


_TEXTS = {"type": "array", "items": {"type": "string"}}
OFFER = ToolOffer(
    name=SUMMARISE,
    description="Return the summary.",
    parameters={
        "type": "object",
        "properties": {
            "summary": {"type": "string", "description": "What happened and how things are now, in prose."},
            "decisions": _TEXTS | {"description": "Decisions, each with its reason."},
            "open_questions": _TEXTS | {"description": "Questions that nobody has answered yet."},
            "settled": _TEXTS
            | {"description": "Questions of the earlier summary that were answered, with the answer."},
            "files": _TEXTS | {"description": "Paths that matter, each with a short reason."},
            "facts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"key": {"type": "string"}, "value": {"type": "string"}, "why": {"type": "string"}},
                    "required": ["key", "value"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["summary"],
        "additionalProperties": False,
    },
)


def read_answer(answer: Answered) -> Summary | None:
    """Read the summary from an answer. None if the answer has no summary, or one that cannot be parsed."""
    for call in answer.calls:
        if call.name == SUMMARISE:
            try:
                found = msgspec.json.decode(make_json_sendable(call.arguments), type=Summary)
            except msgspec.MsgspecError:
                return None
            return found if found.summary.strip() else None
    return Summary(summary=answer.text) if answer.text.strip() else None


def read_told(text: str) -> Summary:
    """Parse a summary from its text, whether a model made it or not. The objective is left out."""
    found = read_summary(text)
    lines = found.prose.splitlines()
    prose = "\n".join(line for line in lines if not line.startswith("Objective: ")).strip()
    return Summary(
        summary=prose,
        decisions=found.decisions,
        open_questions=found.open_questions,
        settled=found.settled,
        files=found.names,
    )


def find_lost(questions: Iterable[str], found: Summary) -> list[str]:
    """Find the open questions that this summary does not mention."""
    told = " ".join((*found.open_questions, *found.settled, found.summary)).casefold()
    return [question for question in questions if not _is_told(question, told)]


def _is_told(question: str, told: str) -> bool:
    """Does the text have at least half of the question's longer words? A model seldom repeats a sentence literally."""
    words = [word.strip("?.,;:!").casefold() for word in question.split() if len(word) > 3]
    return not words or sum(word in told for word in words) * 2 >= len(words)


def keep_questions(found: Summary, questions: Iterable[str]) -> Summary:
    """Add questions to the open questions of a summary."""
    return replace(found, open_questions=tuple(keep_once((*questions, *found.open_questions))))


def merge_summaries(parts: Sequence[Summary]) -> Summary:
    """Merge several summaries, oldest first, without a model.

    Lists are joined without duplicates. The prose of each summary is cut to its share.
    """
    share = LONGEST_PROSE // max(1, len(parts))
    prose = [
        text if len(text) <= share else f"{text[:share]}… (cut here; history shows all of it)"
        for text in (part.summary.strip() for part in parts)
        if text
    ]
    settled = keep_once(line for part in parts for line in part.settled)
    return Summary(
        summary="\n\n".join(prose),
        decisions=tuple(keep_once(line for part in parts for line in part.decisions)),
        open_questions=tuple(keep_once((line for part in parts for line in part.open_questions), known=settled)),
        settled=tuple(settled),
        files=tuple(keep_once(line for part in parts for line in part.files)),
        facts=tuple({fact.key: fact for part in parts for fact in part.facts}.values()),
    )


class SummaryPiece(Struct, frozen=True):
    """One entry, or a part of a long entry. `who` is its label."""

    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.who}: {self.text}"


Piece = tuple[SummaryPiece, ...]


def list_whole(beginning: work.Beginning, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the conversation. Turns that did not fit the model are there again, in place of the mark for them.

    The summary at its beginning is left out.
    """
    made = bool(beginning.summary and beginning.entries) + bool(beginning.left_out)
    return (*beginning.left_out, *entries[made:])


def tell_entries(entries: Iterable[Entry]) -> list[SummaryPiece]:
    return [_tell(entry) for entry in entries]


def tell_piece(piece: Piece) -> str:
    return "\n\n".join(map(str, piece))


def split_pieces(told: Sequence[SummaryPiece], most_tokens: int) -> list[Piece]:
    """Split entries into pieces, in order. An entry that is too long for one piece continues in the next."""
    pieces: list[Piece] = []
    current: list[SummaryPiece] = []
    used = 0
    for part in (part for one in told for part in _split(one, most_tokens)):
        size = estimate_tokens(str(part)) + 1
        if current and used + size > most_tokens:
            pieces.append(tuple(current))
            current, used = [], 0
        current.append(part)
        used += size
    return [*pieces, tuple(current)] if current else pieces


def digest_piece(piece: Iterable[SummaryPiece], earlier: str | None = None) -> str:
    """Condense a piece without a model.

    Results of tools are left out, because they are not part of the talk, and can be looked up again.
    """
    said = [
        Message(session="", seq=0, at=0, author=one.who, text=one.text) for one in piece if _RETURNED not in one.who
    ]
    return digest_messages(said, objective=None, earlier=earlier)


def _tell(entry: Entry) -> SummaryPiece:
    match entry:
        case Asked(text=text):
            return SummaryPiece("ASKED", text)
        case Answered(text=text, calls=calls):
            return SummaryPiece("AGENT", text + "".join(f"\nCALLS {call.name} {call.arguments}" for call in calls))
        case Returned(name=name, text=text):
            return SummaryPiece(f"{name}{_RETURNED}", text)


def _split(told: SummaryPiece, most_tokens: int) -> Iterator[SummaryPiece]:
    # Leave room for the label.
    room = max(1, most_tokens - estimate_tokens(told.who) - 8)
    if estimate_tokens(told.text) <= room:
        yield told
        return
    rest, who = told.text, told.who
    while rest:
        part = cut_to_tokens(rest[: room * _MOST_LETTERS_A_TOKEN], room) or rest[:1]
        if len(part) < len(rest):
            part = _end_at_word(part)
        yield SummaryPiece(who, part)
        rest, who = rest[len(part) :], f"{told.who} (continued)"


def _end_at_word(text: str) -> str:
    """Cut off the last word, which may be incomplete, unless it is half of the text or more."""
    end = max(text.rfind(" "), text.rfind("\n")) + 1
    return text[:end] if end > len(text) // 2 else text

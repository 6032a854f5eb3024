"""The summary of a conversation as a value, the tool by which a model hands it in, and the merging of several.

Pure. compaction.py asks for summaries. core/agents/rule_summary.py writes the headings of a summary's lists, and parses
them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.agents.contract import ToolOffer
from wakeful.core.agents.rule_summary import (
    DECISIONS,
    FILES,
    OPEN_QUESTIONS,
    SETTLED,
    keep_once,
    list_lines,
    read_summary,
)
from wakeful.core.agents.turns import Answered
from wakeful.text.unicode import make_json_sendable

SUMMARISE = "summarise"
# The most characters of prose in a summary that was merged without a model. The lists are not cut.
LONGEST_PROSE = 12_000


class FoundFact(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    value: str
    why: str | None = None


class Summary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The summary as the model hands it in."""

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
    description="InstallSteps in the summary.",
    parameters={
        "type": "object",
        "properties": {
            "summary": {"type": "string", "description": "What happened and where things stand, in prose."},
            "decisions": _TEXTS | {"description": "What was decided, with the reason."},
            "open_questions": _TEXTS | {"description": "What nobody has answered yet."},
            "settled": _TEXTS
            | {"description": "Questions of the earlier summary that were answered, with the answer."},
            "files": _TEXTS | {"description": "Paths that matter, each with a word on why."},
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
    """Read the summary from an answer. None if there is none, or it cannot be parsed."""
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

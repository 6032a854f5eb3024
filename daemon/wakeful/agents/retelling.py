"""A conversation as words for an external agent, which keeps its own record of it: all of it where it begins, else what it has not heard.

Who said what is told: a conversation moves between models of ours and programs of others, and each is to know which words were its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.core import work
from wakeful.core.tokens import estimate_tokens
from wakeful.core.turn import Answered, Asked, Entry, Returned

_GO_ON = "Go on where you stopped."


def tell_all(beginning: work.Beginning, name: str) -> str:
    """For a session that begins. What is too much to be told is left out from its beginning, and that is said."""
    entries = _keep_newest([_tell(entry, name) for entry in beginning.entries], beginning.agent.window.compress_at)
    return "\n\n".join((beginning.instructions, *entries, *(asked.text for asked in beginning.later)))


def tell_since(beginning: work.Beginning, name: str) -> str:
    """For its own session of before: what others said and were asked since its last answer, and what is asked now."""
    entries = beginning.entries
    own = max((place for place, entry in enumerate(entries) if isinstance(entry, Answered) and entry.model == name), default=-1)
    unheard = _keep_newest([_tell(entry, name) for entry in entries[own + 1 :]], beginning.agent.window.compress_at)
    return "\n\n".join((*unheard, *(asked.text for asked in beginning.later))) or _GO_ON


def _keep_newest(told: Sequence[str], most_tokens: int) -> list[str]:
    kept: list[str] = []
    tokens = 0
    for text in reversed(told):
        tokens += estimate_tokens(text)
        if tokens > most_tokens and kept:
            left = len(told) - len(kept)
            return [f"[of this conversation the first {left} of {len(told)} pieces are left out]", *reversed(kept)]
        kept.append(text)
    return kept[::-1]


def _tell(entry: Entry, name: str) -> str:
    match entry:
        case Asked(text=text):
            return text
        case Answered(model=model, text=text, calls=calls):
            who = "You" if model == name else f"Another agent, {model},"
            return "\n".join((f"{who} said: {text}", *(f"{who} called {call.name} {call.arguments}" for call in calls)))
        case Returned(name=tool, text=text):
            return f"{tool} returned: {text}"

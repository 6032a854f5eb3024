"""Renders a conversation as text for an external agent: all of it for a new session, else only the new entries.

Called by external_agent.py. The external agent keeps its own record of the conversation. The text names the speaker of
each entry, because a conversation can move between our models and external programs. Each of them must know which
answers were its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.agents.summary import digest_piece, list_whole, tell_entries
from wakeful.core.agents import steps as work
from wakeful.core.agents.model_text import estimate_tokens
from wakeful.core.agents.turns import Answered, Asked, Entry, Returned

_GO_ON = "Continue where you stopped."


def tell_all(beginning: work.Beginning, name: str) -> str:
    """Write the whole conversation, for a new session of the program.

    If the conversation is too long, its oldest part is condensed without a model, and marked as such.
    """
    summary = [_tell(beginning.entries[0], name)] if beginning.summary and beginning.entries else []
    entries = _tell_newest(list_whole(beginning, beginning.entries), name, beginning.agent.window.compress_at)
    return "\n\n".join((beginning.instructions, *summary, *entries, *(asked.text for asked in beginning.later)))


def tell_since(beginning: work.Beginning, name: str) -> str:
    """Write the entries since the program's own last answer, and the present prompt, for a session that continues."""
    entries = list_whole(beginning, beginning.entries)
    own = max(
        (place for place, entry in enumerate(entries) if isinstance(entry, Answered) and entry.model == name),
        default=-1,
    )
    unheard = _tell_newest(entries[own + 1 :], name, beginning.agent.window.compress_at)
    return "\n\n".join((*unheard, *(asked.text for asked in beginning.later))) or _GO_ON


def _tell_newest(entries: Sequence[Entry], name: str, most_tokens: int) -> list[str]:
    """Write the newest entries that fit in full. Earlier ones are condensed without a model."""
    kept: list[str] = []
    for entry in reversed(entries):
        told = _tell(entry, name)
        most_tokens -= estimate_tokens(told)
        if most_tokens < 0 and kept:
            left = entries[: len(entries) - len(kept)]
            digest = digest_piece(tell_entries(left))
            return [
                (
                    f"[the first {len(left)} of {len(entries)} entries of this conversation do not fit; "
                    f"here they are, condensed without a model:]\n{digest}"
                ),
                *reversed(kept),
            ]
        kept.append(told)
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

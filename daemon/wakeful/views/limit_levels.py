"""The limits as `doctor` shows them: every level, and the sessions above a warning level.

The amounts are measured in the folded state of a session. Nothing is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from wakeful.core.record.state import Session
from wakeful.core.spec.limits import ADVICE, MEANINGS, UNWARNED, LimitName, Limits, say_amount

# The most excesses that are listed. Further excesses are only counted.
MOST_SHOWN = 50


def view_limits(limits: Limits, sessions: Iterable[Session]) -> dict[str, Any]:
    over = [
        view_excess(session, name, amount, limits)
        for session in sessions
        for name, amount in find_excesses(session, limits)
    ]
    over.sort(key=lambda one: (one["level"] != "hard", one["session"], one["limit"]))
    levels = {
        name: {
            "what": what,
            "warn": limits.of(name).warn,
            "hard": limits.of(name).hard,
            "words": _say_levels(name, limits),
        }
        for name, what in MEANINGS.items()
    }
    return {"levels": levels, "over": over[:MOST_SHOWN], "over_count": len(over)}


def find_excesses(session: Session, limits: Limits) -> Iterator[tuple[LimitName, int]]:
    """Find the amounts of this session that exceed a warning level. A closed session gives no warnings."""
    if session.is_shut:
        return
    for name, amount in weigh(session).items():
        if amount > limits.of(name).warn:
            yield name, amount


def weigh(session: Session) -> dict[LimitName, int]:
    """Measure the state of a session for each limit."""
    return {
        "note": _size(session.knowledge.handoff or ""),
        "fact": max((_size(fact.value) for fact in session.knowledge.facts.values()), default=0),
        "facts": len(session.knowledge.facts),
        "conversation": session.knowledge.conversation.size_bytes,
        "records": session.seq,
        "tokens": session.knowledge.size_tokens,
        # A container never handles its mailbox, so its messages are a record, not a backlog.
        "deliveries": max(
            (one.position - int(session.marks.seen.get(key) or 0) for key, one in session.webhooks.items()), default=0
        )
        if session.is_live
        else 0,
        "mailbox": session.mailbox.position - int(session.marks.seen.get("message") or 0) if session.is_live else 0,
    }


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def view_excess(session: Session, name: LimitName, amount: int, limits: Limits) -> dict[str, Any]:
    level = "hard" if amount > limits.of(name).hard else "warn"
    bound = say_amount(name, getattr(limits.of(name), level))
    words = f"{MEANINGS[name]}: {say_amount(name, amount)}, above {bound}"
    mend = ADVICE.get(name, "").replace("NAME", session.name)
    return {"session": session.name, "limit": name, "amount": amount, "level": level, "words": words, "mend": mend}


def _say_levels(name: LimitName, limits: Limits) -> str:
    levels = limits.of(name)
    if name in UNWARNED:
        return f"{say_amount(name, levels.hard)} at most" if levels.hard else "none is kept"
    return f"{say_amount(name, levels.warn)} warns, {say_amount(name, levels.hard)} at most"

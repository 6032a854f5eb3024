"""Participants: who spoke or acted in a session, how often and when last, with the role its spec gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from wakeful.core.state import Session
from wakeful.views.times import show_time

# The daemon's own author: what it records is no part in a session.
DAEMON = "wakeful"


class Part(Struct, frozen=True):
    records: int
    last_at: int


def add_part(parts: dict[str, Part], author: str, at: int) -> None:
    """One more record. All runs of a session are one participant: nobody asks for the part of run 4,711."""
    if author == DAEMON:
        return
    who = author.partition("#")[0] if author.startswith("run:") else author
    before = parts.get(who)
    parts[who] = Part(1, at) if before is None else Part(before.records + 1, max(at, before.last_at))


def view_participants(session: Session, parts: Mapping[str, Part]) -> list[dict[str, Any]]:
    """Those with a role and those who did something, the latest first."""
    roles = {f"person:{name}": role for name, role in session.spec.people.items()} if session.spec is not None else {}
    named = sorted(parts.items(), key=lambda one: (-one[1].last_at, one[0]))
    silent = sorted(roles.keys() - parts.keys())
    return [
        *({"author": who, "role": roles.get(who), "records": part.records, "last_at": show_time(part.last_at)} for who, part in named),
        *({"author": who, "role": roles[who], "records": 0, "last_at": None} for who in silent),
    ]

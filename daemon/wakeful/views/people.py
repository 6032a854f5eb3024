"""Participants: who spoke or acted in a session, how often and when last, and the role they have here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from wakeful.core.calls.roles import PERSON, find_role
from wakeful.core.record.state import Session
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


def view_participants(session: Session, parts: Mapping[str, Part], uids: Mapping[str, int]) -> list[dict[str, Any]]:
    """Those who did something, the latest first, then those who only have a role.

    `uids` are of authors whom the spec names by uid.
    """
    by_uid = {str(uid) for uid in uids.values()}
    people = session.spec.people if session.spec is not None else {}
    named = {f"{PERSON}{name}" for name in people if name not in by_uid} | uids.keys()
    rows = sorted(parts.items(), key=lambda one: (-one[1].last_at, one[0])) + [
        (who, None) for who in sorted(named - parts.keys())
    ]
    return [
        {
            "author": who,
            # A run speaks for its session, and has no role of its own.
            "role": find_role(session, who, uids.get(who)) if who.startswith(PERSON) else None,
            "records": part.records if part is not None else 0,
            "last_at": show_time(part.last_at) if part is not None else None,
        }
        for who, part in rows
    ]

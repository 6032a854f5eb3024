"""One decision in the making: the events of one observation, folded as they are emitted.

Take and dispatch write here; the reactor appends the entries as one transaction (rule 39) and
carries out looks at once, everything else after the entries are durable.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from wakeful.core.deciding.plan import Look
from wakeful.core.looking.targets import Target
from wakeful.core.record.events import Event
from wakeful.core.record.observations import Moment

DAEMON = "wakeful"


@dataclass(slots=True, frozen=True)
class Entry:
    """One event bound for the log, with the seq it will have."""

    session: str
    seq: int
    event: Event
    author: str
    run: int | None = None
    parent: str | None = None
    key: str | None = None


@dataclass(slots=True)
class Decision:
    moment: Moment
    entries: list[Entry] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    follow: list[Target] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    # Sessions still to be dispatched, in the order they were touched; before any of them, those whose
    # busy mark may have changed: nobody starts on the word of a mark that is out of date (rule 30).
    # Taken from the front, which a plain dictionary of 10,000 searches for through all the gaps before it.
    affected: OrderedDict[str, None] = field(default_factory=OrderedDict)
    unmarked: OrderedDict[str, None] = field(default_factory=OrderedDict)
    # Sessions whose plan may have changed.
    planned: dict[str, None] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    # The call's answer in words.
    reply: str | None = None
    # The reason why the run that a call asked for does not start, and when that reason ends, if known.
    held: str | None = None
    held_until: int | None = None

    def touch(self, session_id: str) -> None:
        self.affected[session_id] = None
        self.unmarked[session_id] = None

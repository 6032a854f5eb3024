"""One decision while it is made: the events of one observation, folded as they are emitted.

`take` and `dispatch` fill it. The reactor appends the entries as one transaction (rule 39). It carries
out looks at once, and everything else after the entries are durable.
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
    """One event to be appended to the log, with the seq that it will have."""

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
    # `affected`: sessions still to be dispatched, in the order in which they were touched. `unmarked`: sessions whose
    # busy mark may have changed. These come first, so that no session starts because of a stale mark (rule 30).
    # Ordered dictionaries, because finding the first key of a plain dictionary gets slow after many removals (10,000).
    affected: OrderedDict[str, None] = field(default_factory=OrderedDict)
    unmarked: OrderedDict[str, None] = field(default_factory=OrderedDict)
    # Sessions whose plan may have changed.
    planned: dict[str, None] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    # The answer to the call, as text.
    reply: str | None = None
    # The reason why the run that a call asked for does not start, and when that reason ends, if known.
    held: str | None = None
    held_until: int | None = None

    def touch(self, session_id: str) -> None:
        self.affected[session_id] = None
        self.unmarked[session_id] = None

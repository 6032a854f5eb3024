"""A small independent model of what sessions know, in plain dicts: one change per record, one state per seq.

The state machine of test_calls_state_machine.py applies each call to this model and compares after every step. The model
shares no code with the core. It replays its own changes, so that it can erase an old record or return to any record by
a list index.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

ERASED = "[erased]"

# A change is a kind and plain values. `nothing` is a record that changes no knowledge.
Change = tuple[object, ...]
NOTHING: Change = ("nothing",)


@dataclass(slots=True)
class Knowledge:
    """The knowledge of a session at one seq.

    Messages are named by (session, seq), so that their text can be erased.
    """

    facts: dict[str, str] = field(default_factory=dict)
    memory: dict[str, str] = field(default_factory=dict)
    handoff: str | None = None
    conversation: list[tuple[str, int]] = field(default_factory=list)
    # Number -> (key, base, ours, theirs).
    conflicts: dict[int, tuple[str, str | None, str | None, str | None]] = field(default_factory=dict)
    merges: dict[str, int] = field(default_factory=dict)
    # Messages since the start of the last run that ended for good. A fresh conversation begins with them.
    recent: list[tuple[str, int]] = field(default_factory=list)
    # Seq of that start, and of the start of the open run.
    dealt_from: int = 0
    started: int = 0

    def erase(self) -> Knowledge:
        """Return a copy with all text erased."""
        bare = copy.deepcopy(self)
        bare.facts = dict.fromkeys(bare.facts, ERASED)
        bare.memory = dict.fromkeys(bare.memory, ERASED)
        bare.handoff = None if bare.handoff is None else ERASED
        bare.conflicts = {number: (key, *map(blank, sides)) for number, (key, *sides) in bare.conflicts.items()}
        return bare


def blank(text: str | None) -> str | None:
    return None if text is None else ERASED


@dataclass(slots=True)
class Account:
    """The model of one session. `shut` holds the reasons why its log is closed."""

    id: str
    name: str
    parent: tuple[str, int] | None = None
    changes: list[Change] = field(default_factory=list)
    states: list[Knowledge] = field(default_factory=list)
    shut: set[str] = field(default_factory=set)
    checkpoints: dict[str, int] = field(default_factory=dict)
    mailbox: int = 0
    conflicts_opened: int = 0
    works: tuple[str | None, str | None] = (None, None)

    @property
    def seq(self) -> int:
        return len(self.changes)

    @property
    def now(self) -> Knowledge:
        return self.states[-1]

    def at(self, seq: int) -> Knowledge:
        return self.states[seq - 1]

    def add(self, change: Change) -> None:
        self.changes.append(change)
        before = self.states[-1] if self.states else Knowledge()
        self.states.append(apply(self.id, self.seq, before, change))

    def erase(self, seq: int) -> None:
        """Erase the text of one record, and compute every later state again."""
        self.changes[seq - 1] = blank_change(self.changes[seq - 1])
        changes, self.changes, self.states = self.changes, [], []
        for change in changes:
            self.add(change)


def apply(session: str, seq: int, before: Knowledge, change: Change) -> Knowledge:
    now = copy.deepcopy(before)
    match change:
        case ("fact", str(key), value):
            put(now.facts, key, value)
        case ("memory", str(key), value):
            put(now.memory, key, value)
        case ("message",):
            hear(now, session, seq)
        case ("note", str(text)):
            hear(now, session, seq)
            now.handoff = text
        case ("merged", dict(facts), dict(conflicts), str(summary), str(fork), int(fork_seq)):
            for key, value in facts.items():
                put(now.facts, key, value)
            now.conflicts |= conflicts
            now.merges[fork] = fork_seq
            if summary:
                hear(now, session, seq)
                now.handoff = f"{now.handoff}\n\n{summary}" if now.handoff else summary
        case ("resolved", int(number), str(key), value):
            put(now.facts, key, value)
            del now.conflicts[number]
        case ("compressed", int(kept)):
            now.conversation = now.conversation[len(now.conversation) - kept :]
        case ("whole", Knowledge() as past):
            dealt_from = now.dealt_from
            now = copy.deepcopy(past)
            # The last run is not rewound. Only messages that came after its start are new to the next run.
            now.dealt_from = dealt_from
            now.recent = [(who, when) for who, when in now.recent if who == session and when > dealt_from]
        case ("archived", Knowledge() as past):
            now = copy.deepcopy(past)
        case ("started", is_fresh):
            now.started = seq
            if is_fresh:
                now.memory = {}
            if is_fresh and now.dealt_from:
                now.conversation = list(now.recent)
        case ("ended",):
            now.dealt_from = now.started
            now.recent = [(who, when) for who, when in now.recent if when > now.dealt_from]
    return now


def put(table: dict[str, str], key: str, value: object) -> None:
    table.pop(key, None)
    if isinstance(value, str):
        table[key] = value


def hear(now: Knowledge, session: str, seq: int) -> None:
    now.conversation.append((session, seq))
    now.recent.append((session, seq))


def blank_change(change: Change) -> Change:
    match change:
        case ("fact" | "memory" as what, key, value):
            return (what, key, ERASED if value is not None else None)
        case ("note", _):
            return ("note", ERASED)
        case ("merged", dict(facts), dict(conflicts), summary, fork, fork_seq):
            bare = {number: (key, *map(blank, sides)) for number, (key, *sides) in conflicts.items()}
            return (
                "merged",
                {key: blank(value) for key, value in facts.items()},
                bare,
                ERASED if summary else "",
                fork,
                fork_seq,
            )
        case ("resolved", number, key, value):
            return ("resolved", number, key, ERASED if value is not None else None)
        case ("whole" | "archived" as what, Knowledge() as past):
            return (what, past.erase())
    return change


def merge(
    base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]
) -> tuple[dict[str, str | None], dict[str, tuple[str | None, ...]]]:
    """Merge three ways by brute force. Return the values taken (None: retracted) and the conflicts."""
    taken: dict[str, str | None] = {}
    questions: dict[str, tuple[str | None, ...]] = {}
    for key in sorted({*base, *ours, *theirs}):
        was, mine, other = base.get(key), ours.get(key), theirs.get(key)
        they_changed, we_changed = other != was, mine != was
        if they_changed and not we_changed:
            taken[key] = other
        elif they_changed and we_changed and mine != other:
            questions[key] = (was, mine, other)
    return taken, questions

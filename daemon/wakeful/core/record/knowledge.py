"""The knowledge of a session, as values: facts, memory, the conversation, the line of its records, open conflicts.

Messages may leave the assembled context, facts never do, and neither leaves the log. A `Recollection` is the
knowledge at a past position, which a fork or a rewind takes over. The event holds the whole recollection, so the
reducer never reads another log, and a fork of a million records copies none of them. Values and functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.record.todo import TodoList


def count_bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


class Fact(Struct, frozen=True, kw_only=True):
    """A small durable piece of knowledge. `seq` is the record that set it, `source` the record it was drawn from."""

    key: str
    value: str
    author: str
    seq: int
    rationale: str | None = None
    confidence: float | None = None
    source: int | None = None


class RecordRange(Struct, frozen=True):
    """A range of records of one log, both ends included. `last` is None if it goes up to the head of the log."""

    session: str
    first: int
    last: int | None = None


class Conversation(Struct, frozen=True, kw_only=True):
    """The messages that the assembled context holds: a summary of older messages, then the messages in `stretches`."""

    stretches: tuple[RecordRange, ...] = ()
    summary: str | None = None
    # The number of messages in the stretches, and their size.
    messages: int = 0
    size_bytes: int = 0
    # Messages that no finished run has handled. A fresh conversation begins with them.
    recent: int = 0
    recent_bytes: int = 0
    # Messages since the last run started. They become the recent ones when the run ends for good.
    late: int = 0
    late_bytes: int = 0

    def add(self, text: str) -> Conversation:
        size = count_bytes(text)
        return replace(
            self,
            messages=self.messages + 1,
            size_bytes=self.size_bytes + size,
            recent=self.recent + 1,
            recent_bytes=self.recent_bytes + size,
            late=self.late + 1,
            late_bytes=self.late_bytes + size,
        )

    def grow(self, text: str) -> Conversation:
        """Count text that an agent was given besides messages, such as the results of tools."""
        size = count_bytes(text)
        return replace(
            self,
            size_bytes=self.size_bytes + size,
            recent_bytes=self.recent_bytes + size,
            late_bytes=self.late_bytes + size,
        )

    def keep_late(self) -> Conversation:
        """Drop the messages the finished run has handled; keep those that arrived after it started."""
        return replace(self, recent=self.late, recent_bytes=self.late_bytes)


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation that is not the present one, as its last run left it.

    `cut_run` is the number of that run if it was interrupted or lost.
    """

    conversation: Conversation = Conversation()
    memory: dict[str, str] = {}
    size_tokens: int = 0
    cut_run: int | None = None


class Origin(Struct, frozen=True, kw_only=True):
    """The record at which a fork left its parent. `hash` is the hash of that record, to verify the lineage."""

    session: str
    name: str
    seq: int
    hash: str = ""


class Workspace(Struct, frozen=True, kw_only=True):
    """A fork's own folder for files.

    `base` is the blob that lists the files in it at the start. A merge compares with this list.
    """

    folder: str
    base: str


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A named seq to return to."""

    seq: int
    at: int
    author: str
    note: str | None = None


class Conflict(Struct, frozen=True, kw_only=True):
    """A fact that both sides changed since the fork. `ours` counts until the conflict is resolved."""

    number: int
    key: str
    base: str | None
    ours: str | None
    theirs: str | None
    fork: str
    theirs_rationale: str | None = None


class Recollection(Struct, frozen=True, kw_only=True):
    """The knowledge of a session at a past position.

    `line` lists the ranges of records, in its own log and its ancestors', that lead up to that position.
    """

    line: tuple[RecordRange, ...]
    facts: dict[str, Fact] = {}
    memory: dict[str, str] = {}
    handoff: str | None = None
    conversation: Conversation = Conversation()
    good: dict[str, str] = {}
    conflicts: tuple[Conflict, ...] = ()
    # Fork id -> its seq when it was last merged: the base of the next merge.
    merges: dict[str, int] = {}
    # `asker`: the person that `conversation` belongs to, None for the session itself. `talks`: the other conversations.
    asker: str | None = None
    talks: dict[str, StoredConversation] = {}
    todo: TodoList = ()


def close_lineage(line: tuple[RecordRange, ...], session: str, seq: int) -> tuple[RecordRange, ...]:
    """Return a session's line up to and including `seq` of its own log. An empty line stands for its own whole log."""
    *before, last = line or (RecordRange(session, 1),)
    return (*before, replace(last, last=seq))


def cut_lineage(line: tuple[RecordRange, ...], session: str, first: int) -> tuple[RecordRange, ...]:
    """Return the part of a line that is in the session's own log from `first` on, without abandoned branches."""
    own = (
        one
        for one in line or (RecordRange(session, 1),)
        if one.session == session and (one.last is None or one.last >= first)
    )
    return tuple(replace(one, first=max(one.first, first)) for one in own)


def split_stretches(
    stretches: tuple[RecordRange, ...], session: str, seq: int
) -> tuple[tuple[RecordRange, ...], tuple[RecordRange, ...]]:
    """Split stretches into those before a record and those from it on.

    Two stretches may contain the same record. Then the newer stretch is split.
    """
    for place in range(len(stretches) - 1, -1, -1):
        one = stretches[place]
        if one.session == session and one.first <= seq and (one.last is None or seq <= one.last):
            before = (*stretches[:place], replace(one, last=seq - 1)) if one.first < seq else stretches[:place]
            return before, (replace(one, first=seq), *stretches[place + 1 :])
    return stretches, ()


class MergedFacts(Struct, frozen=True, kw_only=True):
    """The changes that a merge makes to the facts of the receiving session."""

    taken: tuple[Fact, ...] = ()
    retracted: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def merge_facts(
    base: Mapping[str, Fact], ours: Mapping[str, Fact], theirs: Mapping[str, Fact], *, fork: str, numbers_from: int
) -> MergedFacts:
    """Merge facts three-way, key by key.

    If only one side changed a fact, its change counts. Equal changes are one change, and different changes are
    a conflict.
    """
    taken: list[Fact] = []
    retracted: list[str] = []
    conflicts: list[Conflict] = []
    for key in sorted(base.keys() | ours.keys() | theirs.keys()):
        was, mine, other = (_value(facts, key) for facts in (base, ours, theirs))
        if other in (was, mine):
            continue
        if mine != was:
            rationale = theirs[key].rationale if key in theirs else None
            number = numbers_from + len(conflicts)
            conflicts.append(
                Conflict(
                    number=number, key=key, base=was, ours=mine, theirs=other, fork=fork, theirs_rationale=rationale
                )
            )
        elif other is None:
            retracted.append(key)
        else:
            taken.append(theirs[key])
    return MergedFacts(taken=tuple(taken), retracted=tuple(retracted), conflicts=tuple(conflicts))


def _value(facts: Mapping[str, Fact], key: str) -> str | None:
    fact = facts.get(key)
    return fact.value if fact is not None else None


def drop_conflict(conflicts: Iterable[Conflict], number: int) -> tuple[Conflict, ...]:
    return tuple(conflict for conflict in conflicts if conflict.number != number)

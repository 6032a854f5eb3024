"""The events of the calls on history: checkpoints, rewinds, forks, merges, moves to another host and archives.

They belong to the union `Event` of events.py, and other modules import them from there. fold_history.py folds them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from wakeful.core.record.knowledge import Conflict, Fact, Recollection, RecordRange
from wakeful.core.record.todo import TodoItem


class CheckpointMarked(Struct, frozen=True, kw_only=True):
    """A checkpoint was marked: `mark` names the seq `position`, so that a rewind can return to it."""

    mark: str
    position: int
    note: str | None = None


class SessionRewound(Struct, frozen=True, kw_only=True):
    """The session goes on with its knowledge at `to`. Later records stay, on a branch that can be forked (rule 44).

    `versions` are the present versions of the level bindings. They count as seen, so the rewind starts no run.
    """

    to: int
    recollection: Recollection
    versions: dict[str, str] = {}
    # If files were rewound too: the blob that lists them before and after, as the record of a run does.
    record: str | None = None


class OutputsAdopted(Struct, frozen=True, kw_only=True):
    """The files that the rewind or merge of record `position` wrote count as the session's own writing (rule 44).

    `by` names the call, a rewind or a merge. `versions` are the versions of the outputs, by identity of the binding.
    """

    by: str
    position: int
    versions: dict[str, str]


class SessionForked(Struct, frozen=True, kw_only=True):
    """In the parent's log: a fork began at record `position`."""

    fork: str
    name: str
    position: int


class SessionMerged(Struct, frozen=True, kw_only=True):
    """A fork was merged: its facts three-way, its conversation as a summary, facts that both changed as conflicts."""

    fork: str
    name: str
    fork_seq: int
    taken: tuple[Fact, ...] = ()
    retracted: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    summary: str = ""
    # Path -> result for the file: taken, merged, conflict or kept, with the reason if there is one.
    files: dict[str, str] = {}
    # The blob that lists the files before and after the merge, and the base of the next merge.
    # None if no file was changed.
    record: str | None = None
    # The merged to-do list, None if it stays as it is.
    todo: tuple[TodoItem, ...] | None = None


class ConflictResolved(Struct, frozen=True, kw_only=True):
    """A conflict was resolved. `value` is None if the fact was removed."""

    number: int
    key: str
    value: str | None
    rationale: str | None = None


class ConversationCompressed(Struct, frozen=True, kw_only=True):
    """`summary` takes the place of older messages, `replaced`, in the assembled context. The log keeps them."""

    replaced: tuple[RecordRange, ...]
    kept: tuple[RecordRange, ...]
    summary: str
    messages: int
    kept_messages: int
    kept_bytes: int
    by: str


class SessionMigrated(Struct, frozen=True, kw_only=True):
    """Another agent or model works in the session from the next run on. None means the agent or model of the spec."""

    agent: str | None = None
    model: str | None = None
    old_agent: str | None = None
    old_model: str | None = None


class SessionFrozen(Struct, frozen=True, kw_only=True):
    """The session leaves for another host. No other record follows until the receipt comes or the move is given up
    (rule 45)."""

    move: str
    to: str


class SessionThawed(Struct, frozen=True, kw_only=True):
    """The move was given up. The bundle that was made for it must not be loaded."""

    move: str
    reason: str | None = None


class SessionDeparted(Struct, frozen=True, kw_only=True):
    """The receipt came back: the session lives on the other host now. Recorded only for receipts of older releases."""

    move: str
    receipt: str


class SessionArrived(Struct, frozen=True, kw_only=True):
    """The session arrived on the host it moved to, and lives there from this record on.

    The host that it left copies this record, so both logs stay one history and the session can come back.
    - `store`: the log that the session lives in now, None in logs of older releases.
    - `is_foreign`: the records before this one were made on another host.
    - `needs_trust`: why its spec does not count here before a person has reviewed it, as text.
    """

    move: str
    origin: str
    store: str | None = None
    is_foreign: bool = False
    needs_trust: str | None = None


class SessionArchived(Struct, frozen=True, kw_only=True):
    """The payloads of all records before this one were moved to a bundle. `state` is their fold."""

    bundle: str
    digest: str
    state: dict[str, Any]


class SessionRestored(Struct, frozen=True, kw_only=True):
    """The payloads came back from their bundle."""

    bundle: str


class PayloadErased(Struct, frozen=True, kw_only=True):
    """The payload of record `erased` is gone for good. `stand_in` is the payload without the erased words. A replay
    folds the stand-in, so positions and counts stay as they were."""

    erased: int
    kind: str
    stand_in: dict[str, Any]
    reason: str | None = None

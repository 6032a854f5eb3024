"""The system calls as values: one verb each, the same in CLI, API and event.

The API builds calls; `take` judges them. Each call is safe to repeat: the caller's key is unique per
session in the log, and a call that would change nothing says so instead of failing.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from wakeful.core.agents.steps import Step
from wakeful.core.record.knowledge import Fact, Recollection, RecordRange, Workspace
from wakeful.core.record.state import Session
from wakeful.core.record.todo import TodoChange, TodoList
from wakeful.core.spec.session import SessionSpec


class Activate(Struct, frozen=True, kw_only=True):
    name: str
    note: str | None = None
    fresh: bool = False


class Trace(Struct, frozen=True, kw_only=True):
    """Activate the session once, with a traced run. `observe`: nothing is denied, so the trace shows all accesses."""

    name: str
    observe: bool = False


class Resume(Struct, frozen=True, kw_only=True):
    name: str


class Suspend(Struct, frozen=True, kw_only=True):
    name: str


class Sleep(Struct, frozen=True, kw_only=True):
    name: str
    seconds: float | None = None
    until: int | None = None
    words: str | None = None


class SleepAll(Struct, frozen=True, kw_only=True):
    """Set the brake: every session sleeps until `ResumeAll`, also sessions that are declared later."""

    words: str | None = None
    name: str = ""


class ResumeAll(Struct, frozen=True, kw_only=True):
    name: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """Answer the question that a session asks a person. `rationale` says why."""

    name: str
    text: str
    rationale: str | None = None


class Interrupt(Struct, frozen=True, kw_only=True):
    name: str


class Cancel(Struct, frozen=True, kw_only=True):
    name: str


class Terminate(Struct, frozen=True, kw_only=True):
    name: str
    reason: str | None = None


class Open(Struct, frozen=True, kw_only=True):
    """Reopen a terminated session, or with `spec` open a new one that no file declares.

    `text` is the text that its file would have.
    """

    name: str
    again: bool = False
    spec: SessionSpec | None = None
    text: str | None = None
    text_digest: str = ""


class Rename(Struct, frozen=True, kw_only=True):
    name: str
    new: str


class Send(Struct, frozen=True, kw_only=True):
    """Send a message to a session. `sender` is the name of the sending session, None for a person."""

    name: str
    text: str
    wake: bool = True
    sender: str | None = None


class Deliver(Struct, frozen=True, kw_only=True):
    """Record a signed delivery to a webhook. `payload` is the blob of its body, None if the filter rejected it."""

    name: str
    binding: str
    sender: str
    delivery: str
    event: str | None = None
    size_bytes: int = 0
    payload: str | None = None
    suffix: str = ".json"
    is_filtered: bool = False
    reason: str | None = None


class Trust(Struct, frozen=True, kw_only=True):
    """Trust the session's spec, as it was shown to the person who calls."""

    name: str
    digest: str
    files: tuple[str, ...] = ()


class Note(Struct, frozen=True, kw_only=True):
    name: str
    text: str


class Remember(Struct, frozen=True, kw_only=True):
    """Set a fact, or with `for_now` a key of the present conversation's memory, which a fresh start clears."""

    name: str
    key: str
    value: str
    rationale: str | None = None
    confidence: float | None = None
    source: int | None = None
    for_now: bool = False


class Forget(Struct, frozen=True, kw_only=True):
    name: str
    key: str
    rationale: str | None = None
    for_now: bool = False


class Todo(TodoChange, frozen=True, kw_only=True):
    """Change the to-do list of a session."""

    name: str


class Ask(Struct, frozen=True, kw_only=True):
    """Ask the session's agent, or `agent` for this one message, and have the question answered now.

    `fresh`: in a new conversation.
    """

    name: str
    text: str
    agent: str | None = None
    fresh: bool = False


class Work(Struct, frozen=True, kw_only=True):
    """Record steps of an agent's run, in one transaction.

    Only the run under way makes this call, never a person. `run` is its number.
    """

    name: str
    run: int
    steps: tuple[Step, ...]


# -- calls on history. They carry past records that were read from the log. The log never changes,
# so no race can make these records stale.


class Save(Struct, frozen=True, kw_only=True):
    """Mark a checkpoint. `position` None stands for the session's last record."""

    name: str
    mark: str
    position: int | None = None
    note: str | None = None


class Rewind(Struct, frozen=True, kw_only=True):
    """Return a session to its knowledge at `to`.

    With `files`, the files written since then are restored too, once the rewind is durable. `record` lists these files,
    as they were when the session was at seq `at`.
    """

    name: str
    to: int
    past: Recollection
    files: bool = False
    record: str | None = None
    at: int | None = None


class Fork(Struct, frozen=True, kw_only=True):
    """Fork a session. `past` is the session at the position where the fork begins.

    With `fresh` the fork takes over facts and hand-off only. `root` is the fork's own folder, which it may write.
    If a workspace was made for the fork, `spec` is the parent's spec moved there, and `detached` lists the bindings
    that could not be moved.
    """

    name: str
    new: str
    past: Session
    origin_hash: str = ""
    fresh: bool = False
    root: str | None = None
    workspace: Workspace | None = None
    spec: SessionSpec | None = None
    detached: tuple[str, ...] = ()
    # Why the fork's spec does not count before a person has reviewed it, as text. None if it counts at once.
    needs_trust: str | None = None


class Merge(Struct, frozen=True, kw_only=True):
    """Merge `fork` into `name`.

    `base` and `base_todo` are the fork's facts and to-do list at its start or at its last merge.
    `record` is set if files are merged too. They are written once the merge is durable.
    """

    name: str
    fork: str
    base: dict[str, Fact]
    base_todo: TodoList = ()
    base_seq: int
    fork_seq: int
    summary: str = ""
    files: dict[str, str] = {}
    record: str | None = None
    # The log shows that the fork descends from `name`, directly or through sessions that were loaded from bundles.
    is_descended: bool = False


class Finish(Struct, frozen=True, kw_only=True):
    """Write the remaining files of the rewind or merge of record `position`, because the daemon died before the end.

    The call itself is not recorded.
    """

    name: str
    position: int
    words: str


class Resolve(Struct, frozen=True, kw_only=True):
    """Resolve an open conflict: by `ours`, `theirs`, or another value."""

    name: str
    number: int
    choice: Literal["ours", "theirs", "value"]
    value: str | None = None
    rationale: str | None = None


class Compress(Struct, frozen=True, kw_only=True):
    """Replace old messages by a summary. Refused if the session has gone on since `at`, the seq of the summary."""

    name: str
    at: int
    replaced: tuple[RecordRange, ...]
    kept: tuple[RecordRange, ...]
    summary: str
    messages: int
    kept_messages: int
    kept_bytes: int
    by: str


class Migrate(Struct, frozen=True, kw_only=True):
    """Let another agent or model work in the session. None means the agent or the model of the spec."""

    name: str
    agent: str | None = None
    model: str | None = None


class Freeze(Struct, frozen=True, kw_only=True):
    name: str
    move: str
    to: str


class Thaw(Struct, frozen=True, kw_only=True):
    name: str
    reason: str | None = None


class Depart(Struct, frozen=True, kw_only=True):
    """Take the receipt of a move.

    `past` is the session after the record of its arrival on the other host, which is already copied to this log.
    None if an older release gave the receipt.
    """

    name: str
    move: str
    receipt: str
    past: Session | None = None


class Arrive(Struct, frozen=True, kw_only=True):
    """Take in a session that was imported from the bundle of a move. `past` is the fold of its records."""

    name: str
    past: Session
    move: str
    origin: str
    store: str | None = None


class Archive(Struct, frozen=True, kw_only=True):
    """Archive a session. `at` is the seq at which the bundle was made."""

    name: str
    at: int
    bundle: str
    digest: str


class Restore(Struct, frozen=True, kw_only=True):
    name: str


class Erase(Struct, frozen=True, kw_only=True):
    """Erase the payload of record `seq`. `is_recorded`: the erasure is on record, but the bytes are not deleted yet."""

    name: str
    seq: int
    kind: str
    stand_in: dict[str, Any]
    reason: str | None = None
    is_recorded: bool = False


Call = (
    Activate
    | Trace
    | Resume
    | Suspend
    | Sleep
    | SleepAll
    | ResumeAll
    | Answer
    | Interrupt
    | Cancel
    | Terminate
    | Open
    | Rename
    | Send
    | Deliver
    | Trust
    | Note
    | Remember
    | Forget
    | Todo
    | Ask
    | Work
    | Save
    | Rewind
    | Fork
    | Merge
    | Finish
    | Resolve
    | Compress
    | Migrate
    | Freeze
    | Thaw
    | Depart
    | Arrive
    | Archive
    | Restore
    | Erase
)


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a call. `seq` is the call's first record in its session's log, None if the call changed nothing."""

    words: str
    seq: int | None = None
    # The call's key was known, so the words and the record are those of the first call.
    is_repeated: bool = False
    # `held`: why the requested run does not start, as text. `held_until`: the earliest moment at which that reason ends
    # by itself, in microseconds.
    held: str | None = None
    held_until: int | None = None


class Called(Struct, frozen=True, kw_only=True):
    """A call as an observation, with its author, and the key that makes it safe to repeat."""

    call: Call
    author: str
    key: str | None = None
    # The number of the run that made the call. None if a person made it.
    run: int | None = None

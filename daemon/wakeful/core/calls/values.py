"""The system calls as values: one verb each, the same in CLI, API and event (design.md, section 3).

The API builds them; `take` judges them. Each is safe to repeat: the caller's key is unique per
session in the log, and a call that would change nothing says so instead of failing.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from wakeful.core.agents.steps import Step
from wakeful.core.record.knowledge import Fact, Recollection, Stretch, Workspace
from wakeful.core.record.state import Session
from wakeful.core.record.todo import TodoChange, TodoList
from wakeful.core.spec.session import SessionSpec


class Activate(Struct, frozen=True, kw_only=True):
    name: str
    note: str | None = None
    fresh: bool = False


class Trace(Struct, frozen=True, kw_only=True):
    """Activate it once, traced. `observe`: with nothing denied, so that all it asks for is seen."""

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
    """The brake: every session, those declared later included, until `ResumeAll`."""

    words: str | None = None
    name: str = ""


class ResumeAll(Struct, frozen=True, kw_only=True):
    name: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """A person's answer to what the session asks. `rationale` says why."""

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

    `text` is what its file would say.
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
    """`sender` is the name of the sending session, None for a person."""

    name: str
    text: str
    wake: bool = True
    sender: str | None = None


class Deliver(Struct, frozen=True, kw_only=True):
    """A signed delivery to a webhook of the session. Its body is a blob already; None: the filter stopped it."""

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
    """A person trusts what the session's file says, as it was shown to them."""

    name: str
    digest: str
    files: tuple[str, ...] = ()


class Note(Struct, frozen=True, kw_only=True):
    name: str
    text: str


class Remember(Struct, frozen=True, kw_only=True):
    """A fact; with `for_now` a key of the present conversation's memory, which a fresh start clears."""

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
    """Put a message to the session's agent, or to `agent` for this one message, and have it answered now.

    `fresh`: in a new conversation.
    """

    name: str
    text: str
    agent: str | None = None
    fresh: bool = False


class Work(Struct, frozen=True, kw_only=True):
    """Steps of an agent's run, in one transaction.

    No person's call: the run under way makes it, `run` is its number.
    """

    name: str
    run: int
    steps: tuple[Step, ...]


# -- calls on history. They carry past records that were read from the log. The log never changes,
# so no race can make these records stale.


class Save(Struct, frozen=True, kw_only=True):
    """Mark a checkpoint: `position` None is where the session stands."""

    name: str
    mark: str
    position: int | None = None
    note: str | None = None


class Rewind(Struct, frozen=True, kw_only=True):
    """`files`: what was written in its name since goes back, too, once the rewind is durable.

    `record` lists these files, as they were found when the session stood at seq `at`."""

    name: str
    to: int
    past: Recollection
    files: bool = False
    record: str | None = None
    at: int | None = None


class Fork(Struct, frozen=True, kw_only=True):
    """`past` is the session at `at`.

    `fresh` takes facts and hand-off only. `root`: a place of its own, where it may write.

    Where a workspace was made for it, `spec` is the parent's, moved there, and `detached` what could not be moved.
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
    # Why its spec may not count before a person has looked at it, in words: a bundle brought it.
    needs_trust: str | None = None


class Merge(Struct, frozen=True, kw_only=True):
    """Bring `fork` back into `name`.

    `base` and `base_todo` are its facts and its to-do list where it was born or last merged.

    `record`: files come with it, which are written once the merge is durable.
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
    # The fork came of `name`, directly or through sessions that were loaded from bundles: the log says so.
    is_descended: bool = False


class Finish(Struct, frozen=True, kw_only=True):
    """Write what the rewind or merge of record `position` left unwritten: the daemon died before.

    Records nothing itself.
    """

    name: str
    position: int
    words: str


class Resolve(Struct, frozen=True, kw_only=True):
    """Settle an open conflict: `ours`, `theirs`, or a value of its own."""

    name: str
    number: int
    choice: Literal["ours", "theirs", "value"]
    value: str | None = None
    rationale: str | None = None


class Compress(Struct, frozen=True, kw_only=True):
    """`at` is the seq the summary was made at: a conversation that went on since is not compressed by it."""

    name: str
    at: int
    replaced: tuple[Stretch, ...]
    kept: tuple[Stretch, ...]
    summary: str
    messages: int
    kept_messages: int
    kept_bytes: int
    by: str


class Migrate(Struct, frozen=True, kw_only=True):
    """Let another agent or model work here; both None: as the spec says again."""

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
    """`past` is the session after the record of its arrival there, which is in the log here already.

    None: an older release gave the receipt.
    """

    name: str
    move: str
    receipt: str
    past: Session | None = None


class Arrive(Struct, frozen=True, kw_only=True):
    """A session that was imported from the bundle of a move. `past` is what its records fold to."""

    name: str
    past: Session
    move: str
    origin: str
    store: str | None = None


class Archive(Struct, frozen=True, kw_only=True):
    """`at` is the seq the bundle was cut at."""

    name: str
    at: int
    bundle: str
    digest: str


class Restore(Struct, frozen=True, kw_only=True):
    name: str


class Erase(Struct, frozen=True, kw_only=True):
    """`is_recorded`: the log says so already, and the bytes did not go then: they shall go now."""

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
    """The answer to a call. `seq` is the call's first record in its session's log; None: the call changed nothing."""

    words: str
    seq: int | None = None
    # The call's key was known: the words and the record are those of the first call.
    is_repeated: bool = False
    # The reason why the requested run does not start, in words, and its end in microseconds.
    # It does not end by itself before then.
    held: str | None = None
    held_until: int | None = None


class Called(Struct, frozen=True, kw_only=True):
    """A call as an observation: who called, and the key that makes it safe to repeat."""

    call: Call
    author: str
    key: str | None = None
    # The run the call came from, for its own session's log.
    run: int | None = None

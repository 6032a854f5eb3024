"""Everything that can be recorded: one frozen struct per kind, named noun + past participle.

`decide` makes them, the log keeps them, the reducer folds them. A kind, once released, is never
renamed and a field never changes its meaning: golden logs of every release must fold for ever.
The envelope (seq, time, author, run, hashes) belongs to the log, not to the event.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.observation import ChangeWord, Output, Usage
from wakeful.core.spec import SessionSpec

Outcome = Literal["succeeded", "failed", "cancelled", "interrupted", "lost"]
# Ordered by strength: the stronger replaces the weaker (rule 23).
StopWord = Literal["shutdown", "replace", "suspend", "interrupt", "cancel", "terminate"]
HoldWord = Literal["snoozed", "failed", "loop", "crashing"]


class ChangedPath(Struct, frozen=True):
    path: str
    change: ChangeWord


class Cause(Struct, frozen=True, kw_only=True):
    """One reason to run: which binding, from which version to which, by which paths."""

    binding: str
    kind: str
    key: str
    old: str | None = None
    new: str | None = None
    reason: str | None = None
    paths: tuple[ChangedPath, ...] = ()
    delta: Literal["known", "unknown"] = "unknown"
    commits: tuple[str, ...] = ()
    at: int = 0


class Hold(Struct, frozen=True, kw_only=True):
    """Why a session sleeps: always with words; `until` in microseconds, None until somebody acts."""

    kind: HoldWord
    words: str
    until: int | None = None
    length_seconds: float | None = None


class SessionOpened(Struct, frozen=True, kw_only=True):
    id: str
    name: str


class SessionRenamed(Struct, frozen=True, kw_only=True):
    old: str
    new: str


class SpecDeclared(Struct, frozen=True, kw_only=True):
    """`positions` are where new clock bindings start: the latest slot before the edit (rule 8)."""

    spec: SessionSpec
    version: str
    text_digest: str
    positions: dict[str, str] = {}


class SpecRemoved(Struct, frozen=True):
    pass


class SessionAdopted(Struct, frozen=True, kw_only=True):
    """First sight with `first: adopt`: what is there counts as seen."""

    versions: dict[str, str]


class ActivationRequested(Struct, frozen=True, kw_only=True):
    position: int
    note: str | None = None
    fresh: bool = False


class MessageAdded(Struct, frozen=True, kw_only=True):
    """A message arrived in this session's mailbox at `position`."""

    position: int
    sender: str
    text: str
    wake: bool = True
    chain: tuple[str, ...] = ()


class MessageSent(Struct, frozen=True, kw_only=True):
    receiver: str
    position: int
    text: str


class NoteAdded(Struct, frozen=True, kw_only=True):
    text: str


class FactSet(Struct, frozen=True, kw_only=True):
    key: str
    value: str
    rationale: str | None = None


class FactRetracted(Struct, frozen=True, kw_only=True):
    key: str
    rationale: str | None = None


class WakeRequested(Struct, frozen=True, kw_only=True):
    wake: int
    causes: tuple[Cause, ...]
    chain: tuple[str, ...] = ()


class WakeExtended(Struct, frozen=True, kw_only=True):
    """Later causes join the open wake under the same id (rule 20)."""

    wake: int
    causes: tuple[Cause, ...]
    chain: tuple[str, ...] = ()


class WakeWithdrawn(Struct, frozen=True, kw_only=True):
    """The wake is over without a run. `versions` count as seen where a person gave it up (rule 19).

    `is_cancelled`: the person also gave up what it had left half done, so readers are no longer held (rule 31).
    """

    wake: int
    reason: str
    versions: dict[str, str] = {}
    is_cancelled: bool = False


class RunStarted(Struct, frozen=True, kw_only=True):
    """The intention: durable before the process is. `versions` are what the run sees (rule 14)."""

    run: int
    run_id: str
    wake: int
    attempt: int
    incarnation: str
    versions: dict[str, str]
    causes: tuple[Cause, ...]
    chain: tuple[str, ...] = ()
    mixed: bool = False
    resumed_from: int | None = None
    # It serves only occurrences that were waiting already, so it is no sign of a loop (rule 34).
    is_backlog: bool = False


class RunStopRequested(Struct, frozen=True, kw_only=True):
    """Logged before the signal: a crash after it ends the run with that outcome (rule 23)."""

    run: int
    why: StopWord


class RunFinished(Struct, frozen=True, kw_only=True):
    """How a run ended. `is_final` moves the marks (rule 15); otherwise the wake stays open until `retry_at`."""

    run: int
    outcome: Outcome
    is_final: bool
    reason: str | None = None
    by: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    retry_at: int | None = None
    backoff_seconds: float | None = None
    written: dict[str, str] = {}
    assumed: bool = True
    touched: tuple[str, ...] = ()
    usage: Usage = Usage()
    output: Output = Output()


class SlotSkipped(Struct, frozen=True, kw_only=True):
    """Occurrences that will not run, and why: every slot is accounted for."""

    binding: str
    key: str
    slot: str
    count: int
    reason: str


class ClockRebased(Struct, frozen=True, kw_only=True):
    binding: str
    key: str
    old: str
    new: str


class SessionSuspended(Struct, frozen=True, kw_only=True):
    """At rest and armed."""

    reason: str


class SessionSlept(Struct, frozen=True, kw_only=True):
    hold: Hold


class SessionResumed(Struct, frozen=True, kw_only=True):
    """A hold is over. `is_forgiven`: a person said go on, so back-off and the loop guard start anew (rules 21, 34)."""

    reason: str
    is_forgiven: bool = False


class SessionTerminated(Struct, frozen=True, kw_only=True):
    reason: str | None = None


class SessionReopened(Struct, frozen=True, kw_only=True):
    reason: str | None = None


Event = (
    SessionOpened
    | SessionRenamed
    | SpecDeclared
    | SpecRemoved
    | SessionAdopted
    | ActivationRequested
    | MessageAdded
    | MessageSent
    | NoteAdded
    | FactSet
    | FactRetracted
    | WakeRequested
    | WakeExtended
    | WakeWithdrawn
    | RunStarted
    | RunStopRequested
    | RunFinished
    | SlotSkipped
    | ClockRebased
    | SessionSuspended
    | SessionSlept
    | SessionResumed
    | SessionTerminated
    | SessionReopened
)

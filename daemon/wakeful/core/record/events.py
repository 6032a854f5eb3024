"""Everything that can be recorded: one frozen struct per kind, named noun + past participle.

`decide` makes them, the log keeps them, the reducer folds them. A kind, once released, is never
renamed and a field never changes its meaning: golden logs of every release must fold for ever.
The envelope (seq, time, author, run, hashes) belongs to the log, not to the event.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from wakeful.core.agents.turns import (
    Answered,
    DownServer,
    Image,
    Purpose,
    SubSpent,
    SubWork,
    TokenUsage,
    ToolCall,
    ToolDefinition,
    WroteFile,
)
from wakeful.core.record.deliveries import DeliveryReceived as DeliveryReceived
from wakeful.core.record.knowledge import Conflict, Fact, Origin, Recollection, Stretch, Workspace
from wakeful.core.record.moves import SessionArrived as SessionArrived
from wakeful.core.record.moves import SessionDeparted as SessionDeparted
from wakeful.core.record.moves import SessionFrozen as SessionFrozen
from wakeful.core.record.moves import SessionThawed as SessionThawed
from wakeful.core.record.notifications import NotificationAbandoned as NotificationAbandoned
from wakeful.core.record.notifications import NotificationDelivered as NotificationDelivered
from wakeful.core.record.observations import ChangeWord, Enforced, KeptOutput, Output, StagedOutput, Traced, Usage
from wakeful.core.record.todo import TodoItem
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.budget import Periods
from wakeful.core.spec.session import SessionSpec

Outcome = Literal["succeeded", "failed", "cancelled", "interrupted", "lost"]
# Ordered by strength: the stronger replaces the weaker (rule 23).
StopWord = Literal["shutdown", "replace", "suspend", "interrupt", "cancel", "terminate"]
# How a run is traced: under the isolation its spec declares, or with nothing denied.
TraceWord = Literal["declared", "observed"]
# `apart`: a fork, or what a bundle brought, until somebody lets it go on (rule 43).
# `moved` stands in old archives alone.
# `budget`: spent until its period turns. `asking`: a person is asked before it runs.
HoldWord = Literal["snoozed", "failed", "loop", "crashing", "budget", "asking", "apart", "moved"]


class ChangedPath(Struct, frozen=True, gc=False):
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
    """A session's first record. A fork has an origin, and brings what it took over from its parent (rule 43)."""

    id: str
    name: str
    origin: Origin | None = None
    recollection: Recollection | None = None
    seen: dict[str, str] = {}
    is_first_taken: bool = False
    # The write bindings it must not use: they are its parent's.
    detached: tuple[str, ...] = ()
    workspace: Workspace | None = None
    # Why its spec may not count before a person has looked at it, in words.
    needs_trust: str | None = None


class SessionRenamed(Struct, frozen=True, kw_only=True):
    old: str
    new: str


class SpecDeclared(Struct, frozen=True, kw_only=True):
    """`positions` are where new clock bindings start: the latest slot before the edit (rule 8).

    `is_filed` False: no file declares it, a call did; it stands in the log alone. `text`: what its file would say.
    """

    spec: SessionSpec
    version: str
    text_digest: str
    positions: dict[str, str] = {}
    is_filed: bool = True
    text: str | None = None


class SpecRemoved(Struct, frozen=True):
    pass


class SpecTrusted(Struct, frozen=True, kw_only=True):
    """A person looked at a spec and trusts it as it stands: `digest` covers `files`, the spec and the code it names.

    The spec of a bundle counts from this record on. For what lies in files the record is one alone: the ledger decides.
    """

    digest: str
    files: tuple[str, ...] = ()


class SessionAdopted(Struct, frozen=True, kw_only=True):
    """First sight with `first: adopt`: what is there counts as seen."""

    versions: dict[str, str]


class ActivationRequested(Struct, frozen=True, kw_only=True):
    position: int
    note: str | None = None
    fresh: bool = False
    # Once, and then no more: the run that takes it in is traced.
    trace: TraceWord | None = None


class MessageAdded(Struct, frozen=True, kw_only=True):
    """A message arrived in this session's mailbox at `position`."""

    position: int
    sender: str
    text: str
    wake: bool = True
    chain: tuple[str, ...] = ()
    # The session by which words of strangers may have come into it; None: nobody's.
    untrusted_by: str | None = None
    # The agent that must answer this one message; None: the session's usual agent.
    agent: str | None = None
    # A question: whose it is, the activation that came with it, and whether it begins a new conversation.
    # None: a message that was sent.
    asker: str | None = None
    activation: int = 0
    is_fresh: bool = False


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
    confidence: float | None = None
    # The record it was drawn from.
    source: int | None = None


class FactRetracted(Struct, frozen=True, kw_only=True):
    key: str
    rationale: str | None = None


class MemorySet(Struct, frozen=True, kw_only=True):
    """A small key of the present conversation; `value` None takes it away."""

    key: str
    value: str | None


class TodoSet(Struct, frozen=True, kw_only=True):
    items: tuple[TodoItem, ...]


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
    `rationale`: why the person who was asked said no.
    """

    wake: int
    reason: str
    versions: dict[str, str] = {}
    is_cancelled: bool = False
    rationale: str | None = None


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
    # How many starts in a row, this one included, had to wait because they were too fast (rule 34 c).
    paced: int = 0
    # The conversation begins anew with what no run has dealt with yet: facts and hand-off stay, memory goes.
    is_fresh: bool = False
    trace: TraceWord | None = None
    # The agent of the run, as it was declared then. None: the run is a program.
    agent: AgentSpec | None = None
    # The run answers messages put to an agent by name, or questions. All other owed causes stay owed.
    is_aside: bool = False
    # The person in whose conversation the run works; None: in the session's own.
    asker: str | None = None
    # When the periods of its budgets began, by time zone: what is charged here counts from then.
    # None: in logs of older releases.
    periods: Periods | None = None


class RunStopRequested(Struct, frozen=True, kw_only=True):
    """Logged before the signal: a crash after it ends the run with that outcome (rule 23)."""

    run: int
    why: StopWord
    # A person's words, for the record of what follows the end of the run.
    reason: str | None = None


class RunReadopted(Struct, frozen=True, kw_only=True):
    """Its daemon is no more; another one goes on with it."""

    run: int
    incarnation: str


class OutputsStaged(Struct, frozen=True, kw_only=True):
    """A run has succeeded, and its outputs wait to be put in place. Nothing else happens to it then (rules 23, 27).

    The event also holds the facts of the run's end: a crash during landing must not lose them.
    """

    run: int
    outputs: tuple[StagedOutput, ...]
    exit_code: int | None = None
    usage: Usage = Usage()
    output: Output = Output()
    isolation: Enforced | None = None
    undeclared: tuple[str, ...] = ()
    trace: Traced | None = None
    workspace: str | None = None


class OutputsLanded(Struct, frozen=True, kw_only=True):
    """The staged outputs are in place. If others changed a file meanwhile, theirs stays and the run's is kept aside."""

    run: int
    kept: tuple[KeptOutput, ...] = ()


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
    # Of a run whose every write goes through us: each path, and the digest of what it was left with (rule 28).
    wrote: dict[str, str] = {}
    touched: tuple[str, ...] = ()
    # Of these, the inputs that the run may have touched itself, by what they are,
    # and their versions at its end (rule 34 b).
    self_fed: dict[str, str] = {}
    usage: Usage = Usage()
    output: Output = Output()
    # The blob that lists what it read and wrote, and where the contents are; None when nothing was kept.
    files: str | None = None
    isolation: Enforced | None = None
    undeclared: tuple[str, ...] = ()
    hint: str | None = None
    # None: it was not traced.
    trace: Traced | None = None
    # The bindings whose outputs others changed meanwhile, by what they are:
    # their seen stays where the run began (rule 27).
    conflicts: tuple[str, ...] = ()
    # The place of its own that it worked in, in words.
    workspace: str | None = None
    subagents: dict[str, SubSpent] = {}
    periods: Periods | None = None


class PromptAssembled(Struct, frozen=True, kw_only=True):
    """The first texts that the model of this run gets, as blobs: `instructions` are the rules,
    `opening` is the task.

    `tokens` is the estimated size of each part. No opening: the run goes on in the middle of a conversation.
    `window_tokens` is the context window of the model. If the daemon asked the model's server for it, `window_source`
    says where the answer came from.
    """

    run: int
    agent: str
    model: str
    instructions: str
    opening: str | None = None
    tokens: dict[str, int] = {}
    window_tokens: int | None = None
    window_source: str | None = None
    sub: SubWork | None = None


class TurnRequested(Struct, frozen=True, kw_only=True):
    """A request is about to be sent. It is charged at its worst until its answer says what it took."""

    run: int
    turn: int
    model: str
    input_tokens: int
    max_output_tokens: int
    # None: nobody knows what this model costs.
    usd: float | None = None
    purpose: Purpose = "work"
    # With the first request of a process, and whenever they are others.
    tools: tuple[ToolDefinition, ...] = ()
    # With the tools: MCP servers that are not there, and why. Absent in logs of older releases.
    servers_down: tuple[DownServer, ...] = ()
    sub: SubWork | None = None


class TurnAnswered(Struct, frozen=True, kw_only=True):
    """The answer of a model. A summary enters the conversation only by the event `conversation_compressed`."""

    run: int
    turn: int
    answer: Answered
    usage: TokenUsage
    usd: float | None = None
    purpose: Purpose = "work"
    periods: Periods | None = None
    sub: SubWork | None = None


class TurnMetered(Struct, frozen=True, kw_only=True):
    """An external agent's prompt under way: what it has taken until now. Its answer replaces this, as it replaces
    the worst case it began with."""

    run: int
    turn: int
    # The requests to its model within this prompt, as far as they can be told apart.
    requests: int
    usage: TokenUsage
    usd: float | None = None


class TurnFailed(Struct, frozen=True, kw_only=True):
    """The request brought no answer. `fault` is whose fault it was, in one word;
    `usage` is of an answer that was of no use, and was paid for."""

    run: int
    turn: int
    model: str
    fault: str
    words: str
    usage: TokenUsage | None = None
    usd: float | None = None
    periods: Periods | None = None
    sub: SubWork | None = None


class ToolCalled(Struct, frozen=True, kw_only=True):
    """The intention: on record before the effect. Without a `ToolReturned` after it, what it did is not known."""

    run: int
    call: ToolCall
    sub: SubWork | None = None


class ToolReturned(Struct, frozen=True, kw_only=True):
    run: int
    call: str
    name: str
    text: str
    is_error: bool = False
    # The bound files that the call wrote, each as the call left it.
    wrote: tuple[WroteFile, ...] = ()
    # By their contents, which are blobs. Absent in logs of older releases.
    images: tuple[Image, ...] = ()
    sub: SubWork | None = None


class QuestionAsked(Struct, frozen=True, kw_only=True):
    """An agent asks a person, and its run ends: the answer goes to `call` when the next one takes over.

    `is_permission`: a yes carries the call out, a no refuses it.
    """

    run: int
    call: str
    name: str
    text: str
    is_permission: bool = False


class WorkHalted(Struct, frozen=True, kw_only=True):
    """The agent cannot go on by itself: its run ends, and this is why. Its steps stay;
    the next run goes on from them."""

    run: int
    hold: Hold


class SubagentHalted(Struct, frozen=True, kw_only=True):
    """A sub-agent cannot go on: its work ends here, and this is why. The run goes on; its agent is told."""

    run: int
    sub: SubWork
    words: str


class SlotSkipped(Struct, frozen=True, kw_only=True):
    """Occurrences that will not run, and why: every slot is accounted for."""

    binding: str
    key: str
    slot: str
    count: int
    reason: str


class ClockRebased(Struct, frozen=True, kw_only=True):
    """The wall clock was set: the last slot that counts as seen is another one (rule 37)."""

    binding: str
    key: str
    old: str
    new: str
    # The slot of the run under way, where that is not `new`.
    run_slot: str | None = None


class SessionSuspended(Struct, frozen=True, kw_only=True):
    """At rest and armed."""

    reason: str


class SessionSlept(Struct, frozen=True, kw_only=True):
    hold: Hold


class SessionResumed(Struct, frozen=True, kw_only=True):
    """A hold is over. `is_forgiven`: a person said go on, so back-off and the loop guard start anew (rules 21, 34)."""

    reason: str
    is_forgiven: bool = False


class SessionBraked(Struct, frozen=True, kw_only=True):
    """Everything was put to sleep at once. Beside its own hold: whichever was there is there again afterwards."""

    words: str


class SessionReleased(Struct, frozen=True, kw_only=True):
    """Everything may go on."""


class QuestionAnswered(Struct, frozen=True, kw_only=True):
    """A person said yes to the run this wake asks for; a no withdraws the wake instead.
    Or an agent was answered: `call` waits for it. `rationale`: why they said so."""

    wake: int
    text: str
    call: str | None = None
    # Nobody said anything in time: it was denied by the daemon.
    is_unanswered: bool = False
    rationale: str | None = None


class SessionTerminated(Struct, frozen=True, kw_only=True):
    reason: str | None = None


class SessionReopened(Struct, frozen=True, kw_only=True):
    reason: str | None = None


# -- calls on history -------------------------------------------------------------------------


class CheckpointMarked(Struct, frozen=True, kw_only=True):
    """`position` has a name from now on: the seq to come back to."""

    mark: str
    position: int
    note: str | None = None


class SessionRewound(Struct, frozen=True, kw_only=True):
    """The session goes on from what it knew at `to`; the records since stay, on a branch that can be forked (rule 44).

    `versions` are the level bindings as looked at now: they count as seen, so going back starts no run.
    """

    to: int
    recollection: Recollection
    versions: dict[str, str] = {}
    # With its files: the blob that lists what it found and what it leaves, as the record of a run does.
    record: str | None = None


class OutputsAdopted(Struct, frozen=True, kw_only=True):
    """The files that the rewind or merge of record `position` wrote count as the session's own writing (rule 44).

    `by` says which of the two it was. `versions` are the versions found at its outputs, by the binding's identity.
    """

    by: str
    position: int
    versions: dict[str, str]


class SessionForked(Struct, frozen=True, kw_only=True):
    """In the parent's log: who left it, and at which of its records."""

    fork: str
    name: str
    position: int


class SessionMerged(Struct, frozen=True, kw_only=True):
    """A fork came back: its facts three-way, its conversation as a summary, what both changed as open conflicts."""

    fork: str
    name: str
    fork_seq: int
    taken: tuple[Fact, ...] = ()
    retracted: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    summary: str = ""
    # Path -> what became of it: taken, merged, conflict, kept; with the reason where there is one.
    files: dict[str, str] = {}
    # The blob that lists what its files held before and hold after it, and the base of the next merge;
    # None: no file was changed.
    record: str | None = None
    # The to-do list of both; None: it stays as it is.
    todo: tuple[TodoItem, ...] | None = None


class ConflictResolved(Struct, frozen=True, kw_only=True):
    """`value` None: there is no such fact any more."""

    number: int
    key: str
    value: str | None
    rationale: str | None = None


class ConversationCompressed(Struct, frozen=True, kw_only=True):
    """Older messages give way to `summary` in the assembled context; the log keeps them. `replaced` says which."""

    replaced: tuple[Stretch, ...]
    kept: tuple[Stretch, ...]
    summary: str
    messages: int
    kept_messages: int
    kept_bytes: int
    by: str


class SessionMigrated(Struct, frozen=True, kw_only=True):
    """Another agent or model works here from the next run on. None: as the spec says."""

    agent: str | None = None
    model: str | None = None
    old_agent: str | None = None
    old_model: str | None = None


class SessionArchived(Struct, frozen=True, kw_only=True):
    """The payloads of all records before this one were moved to a bundle; `state` is what they fold to."""

    bundle: str
    digest: str
    state: dict[str, Any]


class SessionRestored(Struct, frozen=True, kw_only=True):
    """The payloads came back from their bundle."""

    bundle: str


class PayloadErased(Struct, frozen=True, kw_only=True):
    """The payload of record `erased` is gone for good. `stand_in` is the same payload without what was to go: a replay
    folds it instead, so that positions and counts stay as they were."""

    erased: int
    kind: str
    stand_in: dict[str, Any]
    reason: str | None = None


# fmt: off
Event = (
    # Specs, and who opens a session.
    SessionOpened | SessionRenamed | SpecDeclared | SpecRemoved | SpecTrusted | SessionAdopted
    # Words and memory.
    | ActivationRequested | MessageAdded | MessageSent | DeliveryReceived | NoteAdded | FactSet | FactRetracted
    | MemorySet | TodoSet
    # Wakes and runs.
    | WakeRequested | WakeExtended | WakeWithdrawn | RunStarted | RunStopRequested | OutputsStaged | OutputsLanded
    | RunReadopted
    # The work of an agent.
    | PromptAssembled | TurnRequested | TurnAnswered | TurnMetered | TurnFailed | ToolCalled | ToolReturned
    | QuestionAsked | WorkHalted | SubagentHalted
    # The end of a run, and rest.
    | RunFinished | SlotSkipped | ClockRebased | SessionSuspended | SessionSlept | SessionResumed | SessionBraked
    | SessionReleased | QuestionAnswered
    | SessionTerminated | SessionReopened | NotificationDelivered | NotificationAbandoned
    # History.
    | CheckpointMarked | SessionRewound | OutputsAdopted | SessionForked | SessionMerged | ConflictResolved
    | ConversationCompressed
    # Moves and archives.
    | SessionMigrated | SessionFrozen | SessionThawed | SessionDeparted | SessionArrived | SessionArchived
    | SessionRestored | PayloadErased
)
# fmt: on

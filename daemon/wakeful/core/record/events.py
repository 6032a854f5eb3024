"""All events that can be recorded: one frozen struct per kind, named noun + past participle.

`decide` makes events, the log keeps them, the reducer folds them. A released kind is never renamed,
and its fields never change their meaning, because golden logs of every release must fold for ever.
The envelope (seq, time, author, run, hashes) belongs to the log, not to the event.
"""

from __future__ import annotations

from typing import Literal

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
from wakeful.core.record.history_events import (
    CheckpointMarked as CheckpointMarked,
)
from wakeful.core.record.history_events import (
    ConflictResolved as ConflictResolved,
)
from wakeful.core.record.history_events import (
    ConversationCompressed as ConversationCompressed,
)
from wakeful.core.record.history_events import (
    OutputsAdopted as OutputsAdopted,
)
from wakeful.core.record.history_events import (
    PayloadErased as PayloadErased,
)
from wakeful.core.record.history_events import (
    SessionArchived as SessionArchived,
)
from wakeful.core.record.history_events import (
    SessionArrived as SessionArrived,
)
from wakeful.core.record.history_events import (
    SessionDeparted as SessionDeparted,
)
from wakeful.core.record.history_events import (
    SessionForked as SessionForked,
)
from wakeful.core.record.history_events import (
    SessionFrozen as SessionFrozen,
)
from wakeful.core.record.history_events import (
    SessionMerged as SessionMerged,
)
from wakeful.core.record.history_events import (
    SessionMigrated as SessionMigrated,
)
from wakeful.core.record.history_events import (
    SessionRestored as SessionRestored,
)
from wakeful.core.record.history_events import (
    SessionRewound as SessionRewound,
)
from wakeful.core.record.history_events import (
    SessionThawed as SessionThawed,
)
from wakeful.core.record.knowledge import Origin, Recollection, Workspace
from wakeful.core.record.observations import ChangeWord, Enforced, KeptOutput, Output, StagedOutput, Traced, Usage
from wakeful.core.record.todo import TodoItem
from wakeful.core.record.webhook_deliveries import DeliveryReceived as DeliveryReceived
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.budget import Periods
from wakeful.core.spec.notifier import NotifyEvent
from wakeful.core.spec.session import SessionSpec

Outcome = Literal["succeeded", "failed", "cancelled", "interrupted", "lost"]
# Reasons to stop a run, weakest first. A stronger reason replaces a weaker one (rule 23).
StopWord = Literal["shutdown", "replace", "suspend", "interrupt", "cancel", "terminate"]
# The ways to trace a run: under the isolation that its spec declares, or with nothing denied.
TraceWord = Literal["declared", "observed"]
# The kinds of holds. `apart`: a fork, or a session from a bundle, until a person lets it go on (rule 43).
# `moved`: only in old archives. `budget`: its budget is spent until the next period. `asking`: a person must answer.
HoldWord = Literal["snoozed", "failed", "loop", "crashing", "budget", "asking", "apart", "moved"]


class ChangedPath(Struct, frozen=True, gc=False):
    path: str
    change: ChangeWord


class Cause(Struct, frozen=True, kw_only=True):
    """One reason to run: a binding, its old and new version, and the paths that changed."""

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
    """Why a session sleeps, always with a text. `until` is in microseconds, None if it does not end by itself."""

    kind: HoldWord
    words: str
    until: int | None = None
    length_seconds: float | None = None


class SessionOpened(Struct, frozen=True, kw_only=True):
    """A session's first record. A fork has an origin, and the knowledge that it took over from its parent (rule 43)."""

    id: str
    name: str
    origin: Origin | None = None
    recollection: Recollection | None = None
    seen: dict[str, str] = {}
    is_first_taken: bool = False
    # The write bindings that the fork must not use, because they are its parent's.
    detached: tuple[str, ...] = ()
    workspace: Workspace | None = None
    # Why the spec does not count before a person has reviewed it, as text. None if it counts at once.
    needs_trust: str | None = None


class SessionRenamed(Struct, frozen=True, kw_only=True):
    old: str
    new: str


class SpecDeclared(Struct, frozen=True, kw_only=True):
    """A spec was declared, by a file or by a call.

    `positions` are the start positions of new bindings. A clock binding starts at the latest slot before the edit, a
    binding on failures after the last run that ended before the edit (rule 8).
    `is_filed` is False if a call declared the spec, which is then only in the log. `text` is the text that its file
    would have.
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
    """A person reviewed a spec and trusts it as it is. `digest` covers `files`: the spec and the code that it names.

    The spec of a bundle counts from this record on. For a spec in a file this is only a record: the ledger decides.
    """

    digest: str
    files: tuple[str, ...] = ()


class SessionAdopted(Struct, frozen=True, kw_only=True):
    """A session with `first: adopt` was looked at for the first time. The present versions count as seen."""

    versions: dict[str, str]


class ActivationRequested(Struct, frozen=True, kw_only=True):
    position: int
    note: str | None = None
    fresh: bool = False
    # Only the next run, which deals with this activation, is traced.
    trace: TraceWord | None = None


class MessageAdded(Struct, frozen=True, kw_only=True):
    """A message arrived in this session's mailbox at `position`."""

    position: int
    sender: str
    text: str
    wake: bool = True
    chain: tuple[str, ...] = ()
    # The session through which untrusted text may have come into the message. None if there is none.
    untrusted_by: str | None = None
    # The agent that must answer this one message, None for the session's usual agent.
    agent: str | None = None
    # For a question: the person who asks, the activation that came with it, and whether it begins a new conversation.
    # `asker` is None if the message was sent.
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
    # The record that the fact was drawn from.
    source: int | None = None


class FactRetracted(Struct, frozen=True, kw_only=True):
    key: str
    rationale: str | None = None


class MemorySet(Struct, frozen=True, kw_only=True):
    """A small key of the present conversation was set. `value` None removes the key."""

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
    """The wake is over without a run. If a person gave it up, `versions` count as seen (rule 19).

    `is_cancelled`: the person also gave up the half-done outputs, so readers are no longer held (rule 31).
    `rationale`: why the person who was asked said no.
    """

    wake: int
    reason: str
    versions: dict[str, str] = {}
    is_cancelled: bool = False
    rationale: str | None = None


class RunStarted(Struct, frozen=True, kw_only=True):
    """The intention to run, durable before the process starts. `versions` are those that the run sees (rule 14)."""

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
    # All of its causes were already waiting before, so the run is not a sign of a loop (rule 34).
    is_backlog: bool = False
    # The number of starts in a row, this one included, that had to wait because they came too fast (rule 34 c).
    paced: int = 0
    # A new conversation begins with the messages that no run has dealt with yet. Facts and hand-off stay, memory is
    # cleared.
    is_fresh: bool = False
    trace: TraceWord | None = None
    # The agent of the run, as it was declared then. None if the run is a program.
    agent: AgentSpec | None = None
    # The run answers messages put to an agent by name, or questions. All other owed causes stay owed.
    is_aside: bool = False
    # The person in whose conversation the run works, None for the session's own.
    asker: str | None = None
    # The starts of the budget periods, by time zone, that amounts are charged to. None in logs of older releases.
    periods: Periods | None = None


class RunStopRequested(Struct, frozen=True, kw_only=True):
    """A stop was requested. It is logged before the signal, so the run gets this outcome even after a crash
    (rule 23)."""

    run: int
    why: StopWord
    # The reason that a person gave, for the record that follows the end of the run.
    reason: str | None = None


class RunReadopted(Struct, frozen=True, kw_only=True):
    """The daemon that started the run has ended; another daemon has taken the run over."""

    run: int
    incarnation: str


class OutputsStaged(Struct, frozen=True, kw_only=True):
    """A run has succeeded, and its outputs wait to be put in place. Its outcome is now certain (rules 23, 27).

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
    """The staged outputs are in place. Files that others changed meanwhile stay; the run's versions are kept aside."""

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
    # For a run that writes only through our tools: each written path, with the digest of its final content (rule 28).
    wrote: dict[str, str] = {}
    touched: tuple[str, ...] = ()
    # The inputs that the run may have touched itself, by identity of the binding, with their versions at its end
    # (rule 34 b).
    self_fed: dict[str, str] = {}
    usage: Usage = Usage()
    output: Output = Output()
    # The blob that lists the files that the run read and wrote, and where their contents are. None if nothing was kept.
    files: str | None = None
    isolation: Enforced | None = None
    undeclared: tuple[str, ...] = ()
    hint: str | None = None
    # None if the run was not traced.
    trace: Traced | None = None
    # The identities of the bindings whose outputs others changed meanwhile. Their seen stays at the start version
    # (rule 27).
    conflicts: tuple[str, ...] = ()
    # The run's own workspace, as text.
    workspace: str | None = None
    subagents: dict[str, SubSpent] = {}
    periods: Periods | None = None


class PromptAssembled(Struct, frozen=True, kw_only=True):
    """The first texts that the model of this run gets, as blobs: `instructions` are the rules,
    `opening` is the task.

    `opening` is None if the run goes on in the middle of a conversation. `tokens` is the estimated size of each part.
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
    """A request is about to be sent. Its worst case is reserved until its answer reports the real usage."""

    run: int
    turn: int
    model: str
    input_tokens: int
    max_output_tokens: int
    # None if the price of this model is not known.
    usd: float | None = None
    purpose: Purpose = "work"
    # The tools of the model, in the first request of a process and whenever they have changed.
    tools: tuple[ToolDefinition, ...] = ()
    # With the tools: MCP servers that cannot be reached, and why. Absent in logs of older releases.
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
    """The usage so far of an external agent's prompt that is under way. The usage in its answer replaces it."""

    run: int
    turn: int
    # The number of requests to its model within this prompt, as far as they can be told apart.
    requests: int
    usage: TokenUsage
    usd: float | None = None


class TurnFailed(Struct, frozen=True, kw_only=True):
    """The request brought no usable answer. `fault` names the side at fault in one word. `usage` is set if an unusable
    answer was paid for."""

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
    """The intention to call a tool, recorded before the effect. Without a `ToolReturned` the effect is unknown."""

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
    # The images that the tool returned; their contents are blobs. Absent in logs of older releases.
    images: tuple[Image, ...] = ()
    sub: SubWork | None = None


class QuestionAsked(Struct, frozen=True, kw_only=True):
    """An agent asks a person, and its run ends. The next run gets the answer as the result of `call`.

    `is_permission`: a yes carries the call out, a no refuses it.
    """

    run: int
    call: str
    name: str
    text: str
    is_permission: bool = False


class WorkHalted(Struct, frozen=True, kw_only=True):
    """The agent cannot go on by itself, so its run ends; `hold` says why. The next run continues from the last step."""

    run: int
    hold: Hold


class SubagentHalted(Struct, frozen=True, kw_only=True):
    """A sub-agent cannot go on, so its work ends; `words` say why. The run goes on, and its agent gets this reason."""

    run: int
    sub: SubWork
    words: str


class SlotSkipped(Struct, frozen=True, kw_only=True):
    """Slots that will not run, and why. Every slot is accounted for."""

    binding: str
    key: str
    slot: str
    count: int
    reason: str


class ClockRebased(Struct, frozen=True, kw_only=True):
    """The wall clock was set, so another slot counts as the last one seen (rule 37)."""

    binding: str
    key: str
    old: str
    new: str
    # The slot of the run under way, if it is not `new`.
    run_slot: str | None = None


class SessionSuspended(Struct, frozen=True, kw_only=True):
    """The session is at rest, and wakes when something that it waits for changes."""

    reason: str


class SessionSlept(Struct, frozen=True, kw_only=True):
    hold: Hold


class SessionResumed(Struct, frozen=True, kw_only=True):
    """A hold is over. `is_forgiven`: a person resumed it, so back-off and the loop guard are reset (rules 21, 34)."""

    reason: str
    is_forgiven: bool = False


class SessionBraked(Struct, frozen=True, kw_only=True):
    """The brake put every session to sleep. A session's own hold stays, and counts again after the release."""

    words: str


class SessionReleased(Struct, frozen=True, kw_only=True):
    """The brake was released."""


class QuestionAnswered(Struct, frozen=True, kw_only=True):
    """A person approved the run of this wake, or answered an agent. `call` is the agent's call that was waiting.

    A no to the run is recorded as `WakeWithdrawn` instead. `rationale` is the reason that the person gave.
    """

    wake: int
    text: str
    call: str | None = None
    # No person answered in time, so the daemon denied the question.
    is_unanswered: bool = False
    rationale: str | None = None


class SessionTerminated(Struct, frozen=True, kw_only=True):
    reason: str | None = None


class SessionReopened(Struct, frozen=True, kw_only=True):
    reason: str | None = None


# -- messages to people: folding these changes nothing, and a replay sends nothing again ---------


class NotificationDelivered(Struct, frozen=True, kw_only=True):
    """A notifier delivered a message about record `about`. After a crash it may have sent the message twice,
    with the same `delivery`."""

    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int = 1


class NotificationAbandoned(Struct, frozen=True, kw_only=True):
    """A notifier gave up a message about record `about`. `words` say why."""

    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int
    words: str


# fmt: off
Event = (
    # Specs, and the opening of a session.
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

"""A session's state: the fold of its log, as a frozen value that each event replaces.

`State` holds all sessions by id, and indexes that follow from them. All of it comes from the log. The versions that
the daemon sees now are in `core/looking/observed_state.py`: they are never logged, and are rebuilt by looking.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from wakeful.core.agents.steps import Progress
from wakeful.core.record.events import Cause, Hold, Outcome, OutputsLanded, OutputsStaged, StopWord, TraceWord
from wakeful.core.record.knowledge import (
    Checkpoint,
    Conflict,
    Conversation,
    Fact,
    Origin,
    Recollection,
    RecordRange,
    StoredConversation,
    Workspace,
    close_lineage,
)
from wakeful.core.record.observations import KeptOutput, Usage
from wakeful.core.record.todo import TodoList
from wakeful.core.record.webhook_deliveries import NO_DELIVERIES, Webhook
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import ADVANCING_KINDS
from wakeful.core.spec.budget import Spent
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import UnknownSession

GENERAL_POOL = ""
# The pool of agents. No spec can use this name for a pool.
AGENT_POOL = "\0agents"
# The key under which `seen` counts the activations that were dealt with.
ACTIVATION = "activation"


class OpenWake(Struct, frozen=True, kw_only=True):
    """The one open wake of a session (rule 20)."""

    wake: int
    requested_at: int
    causes: tuple[Cause, ...]
    chain: tuple[str, ...] = ()
    # The record that opened the wake.
    seq: int = 0
    # `failures` counts the failed runs of this wake, `attempt` only those on the `tried` versions (rule 21).
    attempt: int = 0
    failures: int = 0
    lost: int = 0
    tried: dict[str, str] | None = None
    retry_at: int | None = None
    backoff_seconds: float | None = None


class Stop(Struct, frozen=True):
    why: StopWord
    by: str
    reason: str | None = None


class OpenRun(Struct, frozen=True, kw_only=True):
    """A run under way, with the spec it started under (rule 26)."""

    run: int
    run_id: str
    wake: int
    attempt: int
    incarnation: str
    started_at: int
    versions: dict[str, str]
    causes: tuple[Cause, ...]
    spec: SessionSpec
    chain: tuple[str, ...] = ()
    mixed: bool = False
    resumed_from: int | None = None
    stop: Stop | None = None
    # The number of daemons that the run has had.
    daemons: int = 1
    # `staged`: the run has succeeded, and its outputs are to be put in place (rule 27). `landed`: they are in place.
    staged: OutputsStaged | None = None
    landed: OutputsLanded | None = None
    # The record that started the run.
    seq: int = 0
    # With `observed`, the run's spec differs from the session's.
    trace: TraceWord | None = None
    # The agent that works in the run, and its progress. `agent` is None if the run is a command.
    agent: AgentSpec | None = None
    is_aside: bool = False
    progress: Progress = Progress()
    # Why the agent could not go on.
    halt: Hold | None = None


class Question(Struct, frozen=True, kw_only=True):
    """The question of an agent, and the tool call that waits for the answer."""

    call: str
    name: str
    text: str
    is_permission: bool = False


class Unread(Struct, frozen=True):
    """A message that wakes: its position, and the agent that must answer it, None for the session's usual agent.

    A question has an `asker`, the activation that came with it, and the seq of its record."""

    position: int
    agent: str | None = None
    asker: str | None = None
    activation: int = 0
    is_fresh: bool = False
    seq: int = 0


class SelfFed(Struct, frozen=True):
    """An input that changed during each of the last `runs` runs and not between them. `left` is its version after the
    last of these runs."""

    runs: int
    left: str


class LastRun(Struct, frozen=True, kw_only=True):
    run: int
    outcome: Outcome
    reason: str | None
    started_at: int
    finished_at: int
    causes: tuple[Cause, ...]
    chain: tuple[str, ...]
    exit_code: int | None = None
    written: dict[str, str] = {}
    usage: Usage = Usage()
    # The number of daemons that the run had.
    daemons: int = 1
    # Outputs that were not put in place because others had changed them.
    kept: tuple[KeptOutput, ...] = ()
    # The record that ended the run.
    seq: int = 0
    trace: TraceWord | None = None
    # The attempt, and the versions it failed on for good (rule 21).
    attempt: int = 0
    failed_on: dict[str, str] | None = None


class Declaration(Struct, frozen=True, kw_only=True):
    """How a session came by its spec, and whether that spec counts."""

    is_declared: bool = False
    version: str = field(default="", name="spec_version")
    text_digest: str = ""
    # False if no file declares the session, and its spec is only in the log (a fork).
    is_filed: bool = True
    # Why the spec does not count, as text: a bundle brought it, and no person has reviewed it here.
    needs_trust: str | None = None
    # The last record that was made on another host. Specs up to it were never judged here.
    foreign_until: int = 0
    # The agent and the model that a migration set instead of those in the spec.
    agent: str | None = None
    model: str | None = None


class Marks(Struct, frozen=True, kw_only=True):
    """The versions that the session has dealt with, by the identity of each binding (rules 8, 14)."""

    seen: dict[str, str] = {}
    good: dict[str, str] = {}
    touched: tuple[str, ...] = ()
    # Bindings with an output of the last run that was not put in place, because others had changed it (rule 27).
    conflicted: tuple[str, ...] = ()
    is_first_taken: bool = False
    # The last run may have left its outputs half done, so readers are held (rules 28, 31).
    is_suspect: bool = False
    # Inputs that changed during the session's own runs without a known writer, by key (rule 34 b).
    self_fed: dict[str, SelfFed] = {}


class Tally(Struct, frozen=True, kw_only=True):
    """The counters of a session: wakes, runs, the latest starts, and the amounts spent."""

    wakes: int = 0
    runs: int = 0
    successes: int = 0
    # Runs that failed for good: no retry followed.
    failures: int = 0
    # Wall times of the latest starts, without retries and without backlog (rule 34 c).
    starts: tuple[int, ...] = ()
    # The number of latest starts in a row that had to wait because they came too fast (rule 34 c).
    paced: int = 0
    # Amounts spent from the session's budget, by period.
    spent: dict[str, Spent] = {}
    # Amounts that agents spent in this session from their own budgets, by agent and period.
    agents_spent: dict[str, dict[str, Spent]] = {}


class Activation(Struct, frozen=True, kw_only=True):
    """The latest activation that a person asked for, with its note and options."""

    position: int = field(default=0, name="activations")
    note: str | None = None
    # The next run begins a new conversation.
    is_fresh: bool = field(default=False, name="is_fresh_wanted")
    # The next run is traced.
    trace: TraceWord | None = field(default=None, name="trace_wanted")


class Mailbox(Struct, frozen=True, kw_only=True):
    """The messages that came in: how many, and which of them still wait for a run."""

    position: int = field(default=0, name="mailbox")
    # The position of the newest message that wakes, and the chain of runs that led to it.
    waking: int = field(default=0, name="mailbox_waking")
    chain: tuple[str, ...] = field(default=(), name="mailbox_chain")
    # The messages that wake and are not seen yet, in order. Kept only while one of them is a question
    # or is addressed to an agent by name.
    unread: tuple[Unread, ...] = ()
    # The session that untrusted text in a message came from, until a person approves a run that may act on the text.
    untrusted_by: str | None = None


class Knowledge(Struct, frozen=True, kw_only=True):
    """The knowledge of the session: facts, the hand-off, the to-do list and its conversations."""

    facts: dict[str, Fact] = {}
    handoff: str | None = None
    todo: TodoList = ()
    # The present conversation and its memory. `size_tokens`: the tokens that a model reads to continue it, as last
    # counted.
    conversation: Conversation = Conversation()
    memory: dict[str, str] = {}
    size_tokens: int = 0
    # `asker` is the person whose conversation is the present one, None for the session's own conversation.
    # `talks` are the other conversations by person; the key "" is the session's own.
    asker: str | None = None
    talks: dict[str, StoredConversation] = {}
    # The records that started and ended the last run that ended for good. Messages before its start are dealt with.
    dealt_from: int = 0
    dealt_until: int = 0


class Lineage(Struct, frozen=True, kw_only=True):
    """The history of the session's records: the origin of a fork, the checkpoints, and the forks merged into it."""

    origin: Origin | None = None
    # Write bindings of the parent that this fork must not use. The fork cannot run before it has a workspace or a spec
    # of its own.
    detached: tuple[str, ...] = ()
    # The folder that was made for a fork, which the fork may write.
    workspace: Workspace | None = None
    # The stretches of records that form the present branch, oldest first. Empty for all of the session's own records.
    line: tuple[RecordRange, ...] = ()
    checkpoints: dict[str, Checkpoint] = {}
    merges: dict[str, int] = {}
    conflicts: tuple[Conflict, ...] = ()
    # The highest number of a conflict so far. Numbers are never used twice, not even after a rewind.
    conflicts_opened: int = 0


class Move(Struct, frozen=True, kw_only=True):
    """The last move that brought the session to a host: the store it came to, and the id of the move.
    Both are None if the session never moved."""

    home: str | None = None
    arrived_by: str | None = None


class Terminated(Struct, frozen=True):
    """The session is closed for good; its record is kept."""


class Moving(Struct, frozen=True):
    """The session is frozen on its way to another host, until its receipt comes or the move is given up."""

    move: str
    to: str | None = None
    # The stage that the session returns to afterwards. None if it is then open.
    before: Terminated | None = None


class Departed(Struct, frozen=True):
    """The session lives on another host; this log is only its record. `move` is None if `Session.move` has the move's
    id."""

    move: str | None = None
    to: str | None = None
    before: Terminated | None = None


class Archived(Struct, frozen=True):
    """The session is archived: the payloads of its records are in a compressed bundle."""

    bundle: str
    # The stage that the session returns to afterwards. None if it is then open.
    before: Moving | Departed | Terminated | None = None


# A closed session accepts only the call that opens it again.
Closed = Moving | Departed | Terminated | Archived


class Session(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    opened_at: int
    last_active_at: int = 0
    seq: int = 0
    spec: SessionSpec | None = None
    declaration: Declaration = Declaration()
    marks: Marks = Marks()
    hold: Hold | None = None
    # The message of the brake, which put every session to sleep at once. None if it is not set.
    brake: str | None = None
    # The question that an agent asked a person. The run that asked it ends, and a later run gets the answer.
    question: Question | None = None
    # The number of the wake that a person approved.
    approved: int = 0
    wake: OpenWake | None = None
    run: OpenRun | None = None
    last_run: LastRun | None = None
    tally: Tally = Tally()
    activation: Activation = Activation()
    mailbox: Mailbox = Mailbox()
    # Webhooks by the identity of their binding.
    webhooks: dict[str, Webhook] = {}
    knowledge: Knowledge = Knowledge()
    lineage: Lineage = Lineage()
    move: Move = Move()
    # None if the session is open.
    closed: Closed | None = None

    @property
    def is_terminated(self) -> bool:
        """Was the session closed for good? It stays so while it is archived, and on its way to another host."""
        closed = self.closed
        while closed is not None and not isinstance(closed, Terminated):
            closed = closed.before
        return closed is not None

    @property
    def move_words(self) -> str | None:
        """Say why nothing is recorded here, if the session moves or moved. Its earlier reason to sleep is in `hold`."""
        match self.closed:
            case Departed():
                return "moved to another host; its log stays here"
            case Moving(to=to):
                return f"moving to {to or 'another host'}: frozen until its receipt comes"
            case Terminated() | Archived() | None:
                return None

    @property
    def trust_words(self) -> str | None:
        """Say why the session's spec, which is only in the log, does not count. None if it counts."""
        return (
            f"needs trust: {self.declaration.needs_trust} (wakeful trust {self.name} shows it)"
            if self.declaration.needs_trust is not None
            else None
        )

    @property
    def is_shut(self) -> bool:
        """Is the session closed? Its log then accepts only the call that opens it again."""
        return self.closed is not None

    def seen_from(self, store: str) -> Session:
        """Return the session as seen from a store. A session that lives in another store has departed from this one.

        The log is the same in both stores.
        """
        if self.move.home is None or self.move.home == store:
            return self
        match self.closed:
            case (None | Terminated()) as before:
                return replace(self, closed=Departed(before=before))
            case Archived(bundle=bundle, before=(None | Terminated()) as before):
                return replace(self, closed=Archived(bundle, Departed(before=before)))
            case Moving() | Departed() | Archived():
                return self

    def recollect(self) -> Recollection:
        """Return the knowledge that a fork from this position, or a rewind to it, takes over."""
        return Recollection(
            line=close_lineage(self.lineage.line, self.id, self.seq),
            facts=self.knowledge.facts,
            memory=self.knowledge.memory,
            handoff=self.knowledge.handoff,
            conversation=replace(
                self.knowledge.conversation,
                stretches=close_lineage(self.knowledge.conversation.stretches, self.id, self.seq),
            ),
            good=self.marks.good,
            conflicts=self.lineage.conflicts,
            merges=self.lineage.merges,
            asker=self.knowledge.asker,
            talks=self.knowledge.talks,
            todo=self.knowledge.todo,
        )

    @property
    def is_live(self) -> bool:
        """Can this session ever run?

        A session without `run` runs only for questions. A closed or undeclared session never runs.
        """
        return (
            self.declaration.is_declared
            and not self.is_shut
            and self.spec is not None
            and (self.spec.run is not None or self.is_asked)
        )

    @property
    def is_asked(self) -> bool:
        """Does a question wait for its answer?"""
        return any(one.asker is not None for one in self.list_unread())

    def needs_own_conversation(self, asker: str) -> bool:
        """Does a question of this person need another conversation? A shared conversation takes every question."""
        is_shared = self.spec is not None and self.spec.conversation == "continue"
        return asker != self.knowledge.asker and not (self.knowledge.asker is None and is_shared)

    def list_unread(self) -> tuple[Unread, ...]:
        """List the waking messages that no run has dealt with.

        Empty unless one of them is a question or is addressed to an agent by name.
        """
        if not self.mailbox.unread:
            return ()
        seen = int(self.marks.seen.get("message", "0"))
        return tuple(one for one in self.mailbox.unread if one.position > seen)

    def find_webhook(self, key: str) -> Webhook:
        return self.webhooks.get(key, NO_DELIVERIES)

    @property
    def is_armed(self) -> bool:
        """May wakes be requested? A disabled session can be owed a wake, but none is requested."""
        return self.is_live and self.spec is not None and self.spec.enabled

    @property
    def owner(self) -> str | None:
        """Return the agent that owns the session: the agent it was migrated to, else the one that its spec names."""
        return self.declaration.agent or (self.spec.agent if self.spec is not None else None)

    @property
    def pool(self) -> str | None:
        spec = self.run.spec if self.run else self.spec
        return spec.pool if spec else None


def is_ahead(position: str, than: str | None) -> bool:
    """Is `position` later than `than`? Counters compare as numbers, clock slots as text that sorts by time."""
    if than is None:
        return True
    if position.isdigit() and than.isdigit():
        return int(position) > int(than)
    return position > than


def only_advances(key: str) -> bool:
    """Are the marks of this key positions that only advance (rule 4)? A binding's identity begins with its kind
    (rule 8)."""
    return key == ACTIVATION or key.partition(" ")[0] in ADVANCING_KINDS


def advance_marks(marks: dict[str, str], versions: dict[str, str]) -> dict[str, str]:
    """Return the marks moved to these versions. Marks of ordered bindings never go back (rule 16)."""
    moved = dict(marks)
    for key, version in versions.items():
        if not only_advances(key) or is_ahead(version, moved.get(key)):
            moved[key] = version
    return moved


def keep_kind(marks: dict[str, str], *, is_ordered: bool) -> dict[str, str]:
    """Return only the marks of ordered bindings, or only those of level bindings."""
    return {key: mark for key, mark in marks.items() if only_advances(key) == is_ordered}


class DamagedSession(Session, frozen=True, kw_only=True):
    """A session with a record that cannot be read. It is folded as far as possible, without its run and wake.

    The session can be shown, but its log accepts nothing.
    """

    # A text that describes the damage.
    damage: str
    # The id of the run that was under way according to the readable records. Its processes are ended, and nothing is
    # recorded about it.
    left_run: str | None = None

    @property
    def is_shut(self) -> bool:
        return True

    @property
    def damage_words(self) -> str:
        return f"damaged: {self.damage}; it is read-only, and only a backup has what is lost (wakeful doctor)"


class State:
    """All sessions by id, their names, and the slots in use. Changed only by `put`."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.ids: dict[str, str] = {}
        self.running: set[str] = set()
        self.braked: set[str] = set()
        # Sessions with untrusted text in their mailbox.
        self.untrusted_mailboxes: set[str] = set()
        self.used: dict[str, int] = {}

    def put(self, session: Session) -> None:
        before = self.sessions.get(session.id)
        if before is not None and before.name != session.name and self.ids.get(before.name) == session.id:
            del self.ids[before.name]
        self.sessions[session.id] = session
        self.ids[session.name] = session.id
        (self.braked.discard if session.brake is None else self.braked.add)(session.id)
        (self.untrusted_mailboxes.discard if session.mailbox.untrusted_by is None else self.untrusted_mailboxes.add)(
            session.id
        )
        ended, begun = before.run if before is not None else None, session.run
        if ended is None and begun is not None:
            self.running.add(session.id)
            self._use_slots(begun, 1)
        elif ended is not None and begun is None:
            self.running.discard(session.id)
            self._use_slots(ended, -1)

    def _use_slots(self, run: OpenRun, step: int) -> None:
        """Count the slots of a run as used, or with a step of -1 as free: one of its kind, and one of its pool."""
        kind = GENERAL_POOL if run.agent is None else AGENT_POOL
        for pool in {kind, run.spec.pool or kind}:
            self.used[pool] = self.used.get(pool, 0) + step

    def by_name(self, name: str) -> Session:
        try:
            return self.sessions[self.ids[name]]
        except KeyError:
            raise UnknownSession(f"no session is called {name!r}; `wakeful list` shows those there are") from None

    def find_named(self, name: str) -> Session | None:
        session_id = self.ids.get(name)
        return self.sessions[session_id] if session_id is not None else None

    def get(self, session_id: str) -> Session:
        return self.sessions[session_id]

    def __iter__(self) -> Iterator[Session]:
        return iter(self.sessions.values())

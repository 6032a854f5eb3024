"""The steps of an agent's run as values: what the process that thinks reports, and what its run has come to.

Each step is recorded before the next one is taken: the process posts them (api/routes/agent_work.py), `judge_work`
turns them into events, the reducer folds them into `Progress`. Several that belong together are one call, and so one
transaction. A step with `sub` is one of a sub-agent.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from wakeful.core.agents.turns import (
    Answered,
    Asked,
    DownServer,
    Entry,
    Image,
    Purpose,
    SubSpent,
    SubWork,
    TokenUsage,
    ToolCall,
    ToolDefinition,
    WroteFile,
)
from wakeful.core.spec.agent import AgentSpec, ToolPolicy

# The tools that write files.
WRITING_TOOLS = ("write", "edit")
# The reason a run ends before its agent is done: its budget is spent, it asked a person, or it failed.
HaltWord = Literal["budget", "asking", "failed"]
# The note of the activation that comes with a question.
ASKED_BY = "asked by"
# In the hand-off of a run that had to stop: a run that goes on from there leaves its own.
STOPPED = "was stopped before it was done"
# The effect of a run on its session's hand-off: its last words replace it; it is kept but for what the agent sets; or
# it belongs to another agent.
HandOffRule = Literal["replaced", "kept", "withheld"]


class FoundWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a model takes in, as its server told the process, and the place that told it.

    No tokens: nobody told any.
    """

    tokens: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    source: Annotated[str, Meta(max_length=500)]


class Begin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process begins.

    `asks_window`: it can find out how much a local model takes in, and says `window` when it did.
    """

    asks_window: bool = False
    window: FoundWindow | None = None


class Assemble(Struct, frozen=True, kw_only=True, tag_field="step", tag="assemble"):
    """The prompt of the model is assembled. Only the daemon makes this step: a process may not post it."""

    agent: str
    model: str
    instructions: str
    opening: str | None = None
    tokens: dict[str, int] = {}
    window_tokens: int | None = None
    window_source: str | None = None
    sub: SubWork | None = None


class RequestTurn(Struct, frozen=True, kw_only=True, tag_field="step", tag="request"):
    """Ask to send a request of this size.

    Refused where its worst case is more than what is left to be spent: the run halts.
    """

    turn: int
    model: str
    input_tokens: int
    max_output_tokens: int
    purpose: Purpose = "work"
    # With the first request of a process, and whenever they are others.
    tools: tuple[ToolDefinition, ...] = ()
    # With the tools: MCP servers that are not there, and why.
    servers_down: tuple[DownServer, ...] = ()
    sub: SubWork | None = None


class RecordAnswer(Struct, frozen=True, kw_only=True, tag_field="step", tag="answer"):
    turn: int
    answer: Answered
    usage: TokenUsage
    purpose: Purpose = "work"
    # The cost by the program's own word. None: by the price of its tokens.
    usd: float | None = None
    sub: SubWork | None = None


class MeterTurn(Struct, frozen=True, kw_only=True, tag_field="step", tag="meter"):
    """The spending of an external agent's prompt until now. The run halts if it is more than the run may spend.

    `usd`: what the program itself says it cost. None: it says nothing, and the price of its tokens counts."""

    turn: int
    requests: int
    usage: TokenUsage
    usd: float | None = None


class RecordFault(Struct, frozen=True, kw_only=True, tag_field="step", tag="fault"):
    turn: int
    model: str
    fault: str
    words: str
    # The tokens of an answer that was of no use. None: nothing is known of it.
    usage: TokenUsage | None = None
    sub: SubWork | None = None


class CallTool(Struct, frozen=True, kw_only=True, tag_field="step", tag="call"):
    call: ToolCall
    sub: SubWork | None = None


class Around(Struct, frozen=True, kw_only=True):
    """The text on both sides of a page that a result shows from `start` to `end`.

    A secret may reach across the page's ends.
    """

    before: str
    after: str
    start: int
    end: int


class ReturnTool(Struct, frozen=True, kw_only=True, tag_field="step", tag="return"):
    call: str
    name: str
    text: str
    is_error: bool = False
    wrote: tuple[WroteFile, ...] = ()
    # Images that were kept before (POST /work/images).
    images: tuple[Image, ...] = ()
    sub: SubWork | None = None
    # For the search for secrets. It is not recorded.
    around: Around | None = None


class AskPerson(Struct, frozen=True, kw_only=True, tag_field="step", tag="ask"):
    call: str
    name: str
    text: str
    is_permission: bool = False


class Halt(Struct, frozen=True, kw_only=True, tag_field="step", tag="halt"):
    words: str
    # A sub-agent: its work ends, and the run goes on.
    sub: SubWork | None = None


Step = Assemble | RequestTurn | RecordAnswer | MeterTurn | RecordFault | CallTool | ReturnTool | AskPerson | Halt
# The steps whose words a request tells the model.
SentStep = RequestTurn | RecordAnswer | ReturnTool
# The steps that a process may post.
PostedStep = RequestTurn | RecordAnswer | MeterTurn | RecordFault | CallTool | ReturnTool | AskPerson | Halt


class Beginning(Struct, frozen=True, kw_only=True):
    """The data a run's process gets at its start: its identity, the model's instructions,
    the state of the conversation, and its permissions."""

    session: str
    run: int
    run_id: str
    agent: AgentSpec
    instructions: str
    entries: tuple[Entry, ...]
    # Calls of the last answer that nobody has begun, and what is said once they are done:
    # the opening of this run is the last of it.
    pending: tuple[ToolCall, ...] = ()
    later: tuple[Asked, ...] = ()
    # Call -> what a person said to it.
    permissions: dict[str, bool] = {}
    # The context window of its model, as the process found it.
    window: FoundWindow | None = None
    # The conversation is longer than its agent allows: the process summarises it before anything else.
    is_long: bool = False
    # The oldest turns, if they do not fit the model: `entries` have a mark in their place. The summariser reads them.
    left_out: tuple[Entry, ...] = ()
    # The text of the previous summary.
    summary: str | None = None
    objective: str | None = None
    # Small keys of this conversation.
    memory: dict[str, str] = {}
    hand_off: HandOffRule = "replaced"
    # The hand-off that stands, and whether this run left it, or one that it goes on from.
    standing_hand_off: str | None = None
    has_handed_off: bool = False
    # The number of requests that were sent already.
    turns: int = 0
    tools: dict[str, ToolPolicy] = {}
    # Further settings of the spec, for an external program that replaces our agent loop.
    env: dict[str, str] = {}
    root: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # Further permissions of the session: TCP ports or the whole network, and paths to read and to write.
    network: bool | tuple[int, ...] = False
    listens: tuple[int, ...] = ()
    # With a list of ports: a listed host is a name.
    looks_up_names: bool = False
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()
    # MCP servers that did not start in their time a moment ago: nothing waits for them.
    failing: tuple[DownServer, ...] = ()
    # Names of secrets for a program that thinks in our place: the session's, and the program's own;
    # none of those for its servers.
    secrets: tuple[str, ...] = ()
    # Hosts that its tool `fetch` may ask.
    fetch: tuple[str, ...] = ()
    # Nothing is denied here, so nothing narrower can be made.
    is_unisolated: bool = False


class Recorded(Struct, frozen=True, kw_only=True):
    """The daemon's answer to steps. `end`: why nothing more is to be begun, in words;
    the steps before it are on record.
    `is_limit`: no person wants that, and nobody is asked; the run failed or has nothing left to spend.

    `redacted`: answers, results and definitions of tools that held the value of a secret, as they were recorded. A
    model is sent these words and no others."""

    end: str | None = None
    is_limit: bool = False
    # Likewise, of the work of the sub-agent whose steps these are: the run goes on.
    sub_end: str | None = None
    redacted: tuple[SentStep, ...] = ()


class OwnFile(Struct, frozen=True, kw_only=True):
    """A path that this run wrote: what it found there first, and what it left there last."""

    base: str | None
    digest: str
    # Somebody else wrote in between: not all of the way from one to the other is this run's.
    is_mixed: bool = False

    def follow(self, wrote: WroteFile) -> OwnFile:
        return OwnFile(base=self.base, digest=wrote.digest, is_mixed=self.is_mixed or wrote.base != self.digest)


class Progress(Struct, frozen=True, kw_only=True):
    """How far an agent's run has come, and what it took."""

    turns: int = 0
    # Turns that made the conversation shorter.
    summaries: int = 0
    tokens: int = 0
    usd: float = 0.0
    # Tokens that no provider counted.
    estimated_tokens: int = 0
    # Of the request under way, at its worst; what it took replaces them.
    reserved_tokens: int = 0
    reserved_usd: float = 0.0
    # The sub-agent whose request that is; None: the run's own agent.
    reserved_by: str | None = None
    # By the names of sub-agents; and why their work cannot go on, by the call that it answers.
    subs: dict[str, SubSpent] = {}
    sub_halts: dict[str, str] = {}
    # By path, relative to root where it lies there.
    wrote: dict[str, OwnFile] = {}
    # Calls that write, begun and not come back: whether they did is not known.
    writing: tuple[str, ...] = ()

    @property
    def work_turns(self) -> int:
        return self.turns - self.summaries

    @property
    def spent_tokens(self) -> int:
        return self.tokens + self.reserved_tokens

    @property
    def spent_usd(self) -> float:
        return self.usd + self.reserved_usd

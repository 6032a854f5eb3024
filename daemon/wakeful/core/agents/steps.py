"""The steps of an agent's run as values: the reports of the agent process, and the progress of its run.

Each step is recorded before the next one is taken. The process posts steps (api/routes/agent_work.py),
calls/agent_steps.py turns them into events, and the reducer folds these into `Progress`. Steps that belong together are
one call, and so one transaction. A step with `sub` is a step of a sub-agent.
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
# The note of the activation that comes with a question.
ASKED_BY = "asked by"
# Words in the hand-off of a run that had to stop. A run that continues from there leaves its own hand-off.
STOPPED = "was stopped before it was done"
# The effect of a run on its session's hand-off. `replaced`: its last text replaces the hand-off. `kept`: the hand-off
# stays, unless the agent sets one. `withheld`: the hand-off belongs to another agent.
HandOffRule = Literal["replaced", "kept", "withheld"]


class FoundWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The context window of a model, as its server reported it to the process, and where the answer came from.

    `tokens` is None if no server reported a number.
    """

    tokens: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    source: Annotated[str, Meta(max_length=500)]


class Begin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent process begins.

    `asks_window`: the process can ask the server of a local model for its context window. `window` is the result.
    """

    asks_window: bool = False
    window: FoundWindow | None = None


class Assemble(Struct, frozen=True, kw_only=True, tag_field="step", tag="assemble"):
    """The prompt of the model is assembled. Only the daemon makes this step; a process must not post it."""

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

    If its worst case is more than the rest of a budget, the request is refused and the run halts.
    """

    turn: int
    model: str
    input_tokens: int
    max_output_tokens: int
    purpose: Purpose = "work"
    # The tools of the model, in the first request of a process and whenever they have changed.
    tools: tuple[ToolDefinition, ...] = ()
    # With the tools: MCP servers that cannot be reached, and why.
    servers_down: tuple[DownServer, ...] = ()
    sub: SubWork | None = None


class RecordAnswer(Struct, frozen=True, kw_only=True, tag_field="step", tag="answer"):
    turn: int
    answer: Answered
    usage: TokenUsage
    purpose: Purpose = "work"
    # The cost that the program reports. None if the cost follows from the price of the tokens.
    usd: float | None = None
    sub: SubWork | None = None


class MeterTurn(Struct, frozen=True, kw_only=True, tag_field="step", tag="meter"):
    """The usage of an external agent's prompt so far. The run halts if this usage exceeds a budget or the turn limit.

    `usd` is the cost that the program reports. None if the cost follows from the price of the tokens."""

    turn: int
    requests: int
    usage: TokenUsage
    usd: float | None = None


class RecordFault(Struct, frozen=True, kw_only=True, tag_field="step", tag="fault"):
    turn: int
    model: str
    fault: str
    words: str
    # The usage of an unusable answer, None if it is not known.
    usage: TokenUsage | None = None
    sub: SubWork | None = None


class CallTool(Struct, frozen=True, kw_only=True, tag_field="step", tag="call"):
    call: ToolCall
    sub: SubWork | None = None


class SurroundingText(Struct, frozen=True, kw_only=True):
    """The text before and after the page that a result shows from `start` to `end`.

    It is searched as well, because a secret may cross the beginning or the end of the page.
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
    # Images that were stored before (POST /work/images).
    images: tuple[Image, ...] = ()
    sub: SubWork | None = None
    # Only for the search for secrets; not recorded.
    around: SurroundingText | None = None


class AskPerson(Struct, frozen=True, kw_only=True, tag_field="step", tag="ask"):
    call: str
    name: str
    text: str
    is_permission: bool = False


class Halt(Struct, frozen=True, kw_only=True, tag_field="step", tag="halt"):
    words: str
    # Set if a sub-agent halts. Then only its work ends, and the run goes on.
    sub: SubWork | None = None


Step = Assemble | RequestTurn | RecordAnswer | MeterTurn | RecordFault | CallTool | ReturnTool | AskPerson | Halt
# The steps whose text is sent to the model in a request.
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
    # `pending`: calls of the last answer that have not begun. `later`: texts that the model gets once these calls are
    # done; the last of them is the opening of this run.
    pending: tuple[ToolCall, ...] = ()
    later: tuple[Asked, ...] = ()
    # Call -> the answer of a person, yes or no.
    permissions: dict[str, bool] = {}
    # The context window of the agent's model, as the process found it.
    window: FoundWindow | None = None
    # The conversation is longer than its agent allows, so the process summarises it before anything else.
    is_long: bool = False
    # The oldest turns, if they do not fit the model. `entries` have a mark in their place, and the summariser reads
    # them.
    left_out: tuple[Entry, ...] = ()
    # The text of the previous summary.
    summary: str | None = None
    objective: str | None = None
    # Small keys of this conversation.
    memory: dict[str, str] = {}
    hand_off: HandOffRule = "replaced"
    # The present hand-off, and whether it was left by this run or by a run that this one continues.
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
    # With a list of ports: a listed host is a name that must be looked up in DNS.
    looks_up_names: bool = False
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()
    # MCP servers that recently did not start in time. The process does not wait for them.
    failing: tuple[DownServer, ...] = ()
    # Names of the secrets that an external program gets: those of the session and its own, but not those of its MCP
    # servers.
    secrets: tuple[str, ...] = ()
    # Hosts that the agent's tool `fetch` may ask.
    fetch: tuple[str, ...] = ()
    # The run is not isolated, so its programs cannot be confined more narrowly either.
    is_unisolated: bool = False


class Recorded(Struct, frozen=True, kw_only=True):
    """The daemon's answer to steps.

    `end` says why no further step may begin; the earlier steps are on record. `is_limit`: the run ends because it
    failed or its budget is spent, not because of a person.
    `redacted` are answers, results and definitions of tools that held the value of a secret, as they were recorded.
    Only these texts may be sent to a model.
    """

    end: str | None = None
    is_limit: bool = False
    # Why the sub-agent that posted these steps must end its work. The run goes on.
    sub_end: str | None = None
    redacted: tuple[SentStep, ...] = ()


class OwnFile(Struct, frozen=True, kw_only=True):
    """A path that this run wrote: the digests before its first write and after its last one."""

    base: str | None
    digest: str
    # Another program wrote in between, so this run did not make the whole change.
    is_mixed: bool = False

    def follow(self, wrote: WroteFile) -> OwnFile:
        return OwnFile(base=self.base, digest=wrote.digest, is_mixed=self.is_mixed or wrote.base != self.digest)


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of an agent's run, and its usage so far."""

    turns: int = 0
    # The number of turns that summarised the conversation.
    summaries: int = 0
    tokens: int = 0
    usd: float = 0.0
    # Tokens that no provider counted.
    estimated_tokens: int = 0
    # The worst case of the request under way. Its real usage replaces it.
    reserved_tokens: int = 0
    reserved_usd: float = 0.0
    # The sub-agent whose request is under way, None for the run's own agent.
    reserved_by: str | None = None
    # `subs`: the usage by name of the sub-agent. `sub_halts`: why the work of a sub-agent cannot go on, by the call
    # that the sub-agent answers.
    subs: dict[str, SubSpent] = {}
    sub_halts: dict[str, str] = {}
    # The written files by path, relative to root if they are inside it.
    wrote: dict[str, OwnFile] = {}
    # Write calls that began and did not return. It is not known whether they wrote.
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

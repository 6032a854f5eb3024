"""Every key of a session, an agent and wakeful.yaml, as pydantic models at the YAML edge.

They type the text of yaml_text and carry the descriptions that the JSON Schema shows in editors; `build`
turns a valid SessionModel into the core's SessionSpec. What a key may be is said here and nowhere else; rules
between keys are in `build`, the words of a refusal in `translate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic_core import CoreSchema

from wakeful.core.spec.agent import Effort, FileHands, ToolPolicy
from wakeful.core.spec.session import (
    CatchUp,
    CommitLine,
    Compare,
    First,
    Isolation,
    Missing,
    Overlap,
    RunEnd,
    Sender,
    When,
    WorkspaceKind,
)
from wakeful.specs.notify_scalars import (
    Headers,
    MailAddress,
    MailAddresses,
    MailServer,
    NotifierNames,
    NotifyEvents,
    NotifyUrl,
)
from wakeful.specs.scalars import (
    Argv,
    BaseUrl,
    Boolean,
    Branch,
    Command,
    Count,
    Duration,
    Environment,
    FetchHosts,
    FilledText,
    FolderPath,
    HostNames,
    Hours,
    ListenAddress,
    ModelName,
    Money,
    Network,
    PathPattern,
    PathPatterns,
    PayloadFilter,
    People,
    Period,
    PlacePaths,
    PositiveDuration,
    Rate,
    RepositoryPath,
    SecretName,
    SecretNames,
    ServiceAddress,
    SessionName,
    Share,
    Size,
    Temperature,
    WholeNumber,
    Words,
    parse_server,
)


def _describe(default: Any, text: str, **bounds: Any) -> Any:
    return Field(default, description=text, **bounds)


class Keys(BaseModel):
    """A mapping of which every key is known."""

    # Built when the first file is read: a start that finds its readings kept does without (0.1 s).
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


# -- bindings -------------------------------------------------------------------------------------


class BindingKeys(Keys):
    wake: Boolean | None = _describe(
        None,
        "Whether a new version wakes the session. Default: true for what is read, false for access: write and service.",
    )
    settle: Duration | None = _describe(None, "How long it must be quiet before it is looked at. Default: 100ms.")
    settle_max: Duration | None = _describe(
        None,
        "Look after this long although it is not quiet. Default: 20 times settle, at least 2s; a file that is open "
        "for writing is then waited for up to 60s.",
    )
    stale: Literal["allow"] | None = _describe(None, "allow: run although the upstream session failed.")


class FileKeys(BindingKeys):
    file: PathPattern = _describe(
        ..., "A path or pattern: ** crosses folders, * and ? do not. Version: digest of matched paths and contents."
    )
    access: Literal["read", "write", "both"] = _describe(
        "read",
        "read; write: what the session produces; both (isolation: strict, run.workspace, or an agent without a "
        "shell): what it works on, and what others change in it wakes it.",
    )
    exclude: PathPatterns = _describe((), "Patterns to leave out, besides the default excludes.")
    compare: Compare = _describe("content", "What makes a version: content, stat (for huge data) or names.")
    missing: Missing = _describe("run", "A literal path that is not there: run all the same, or wait for it.")
    trust: Literal["untrusted"] | None = _describe(
        None, "untrusted: words of strangers come in by it; then secrets and a way out do not go together."
    )


class CommitsKeys(BindingKeys):
    commits: RepositoryPath = _describe(..., "A path inside the repository. Version: tree id of branch:path.")
    repo: FolderPath | None = _describe(None, "The repository. Default: the one around root.")
    branch: Branch | None = _describe(None, "A branch such as main or origin/main. Default: HEAD, the one checked out.")
    each_commit: Boolean = _describe(False, "true: every commit is one occurrence.")
    line: CommitLine | None = _describe(
        None,
        "With each_commit. first-parent: the commits of the branch's own line, a merge being one; all: also those "
        "that a merge brought. Default: first-parent.",
    )
    export: Boolean = _describe(False, "true: a clean copy of the new tree at $WAKEFUL_BINDING_<NAME>.")
    trust: Literal["untrusted"] | None = _describe(
        None, "untrusted: words of strangers come in by it; then secrets and a way out do not go together."
    )


class ClockKeys(BindingKeys):
    catch_up: CatchUp = _describe("once", "Slots missed while the daemon was down: run once, none, or all of them.")
    catch_up_window: PositiveDuration = _describe(7 * 86400.0, "How far back missed slots count. Default: 7d.")
    overlap: Overlap = _describe(
        "queue_one", "A slot that comes due during a run: queue_one, skip, or replace the run."
    )
    jitter: Duration = _describe(0.0, "Spread slots by up to this much, stable per session.")


class CronKeys(ClockKeys):
    cron: FilledText = _describe(..., 'Five fields, such as "0 6 1 * *". Version: latest slot due.')
    timezone: FilledText | None = _describe(
        None, "A zone such as Asia/Shanghai. Default: the session's, then the machine's."
    )


class EveryKeys(ClockKeys):
    every: Period = _describe(..., "A period such as 30m. Version: latest slot due.")


class MessageKeys(BindingKeys):
    message: Literal["any"] = _describe(..., "The session's mailbox; implied for every session that has a run.")
    trust: Literal["untrusted"] | None = _describe(
        None, "untrusted: words of strangers come in by it; then secrets and a way out do not go together."
    )


class SessionBindingKeys(BindingKeys):
    session: SessionName = _describe(..., "Another session. Version: its last successful run, or as `on` says.")
    on: RunEnd = _describe(
        "succeeded",
        "Which of its runs wake: succeeded, failed (no retry follows) or finished (either). A session that a failure "
        "wakes is not held back by it.",
    )


class ProbeKeys(BindingKeys):
    probe: Argv = _describe(..., "A command. Version: digest of its standard output.")
    check_every: Period = _describe(300.0, "How often the command is run. Default: 5m.")
    timeout: PositiveDuration = _describe(30.0, "How long it may take. Default: 30s.")
    trust: Literal["untrusted"] | None = _describe(
        None, "untrusted: words of strangers come in by it; then secrets and a way out do not go together."
    )


class ServiceKeys(BindingKeys):
    service: ServiceAddress = _describe(
        ..., "tcp://HOST:PORT, http://…, or mcp:NAME, a server of its agent: while it is down the session sleeps."
    )
    check_every: Period = _describe(30.0, "How often it is looked at. Default: 30s.")


class WebhookKeys(BindingKeys):
    webhook: Sender = _describe(
        ..., "Who delivers, and so which headers and signatures count. Version: the number of the last delivery."
    )
    secret: SecretNames | None = _describe(
        None,
        "The name of the secret that signs deliveries; a list while it is rotated; none: whoever reaches the address "
        "may deliver.",
    )
    only: PayloadFilter = _describe(
        {}, "Paths in the payload and their values, such as {action: opened}; `event` is the sender's name for it."
    )
    tolerance: PositiveDuration = _describe(300.0, "How far a signed time may be from ours. Default: 5m.")
    max_size: Size = _describe(1_000_000, "The largest payload. Default: 1MB.", ge=1, le=25_000_000)
    trust: Literal["untrusted", "trusted"] = _describe(
        "untrusted",
        "untrusted: payloads hold words of strangers; then secrets and a way out do not go together. trusted: its "
        "sender alone writes them.",
    )


BINDING_MODELS: dict[str, type[BindingKeys]] = {
    "file": FileKeys,
    "commits": CommitsKeys,
    "cron": CronKeys,
    "every": EveryKeys,
    "message": MessageKeys,
    "session": SessionBindingKeys,
    "probe": ProbeKeys,
    "service": ServiceKeys,
    "webhook": WebhookKeys,
}


def find_kind(value: Any) -> str | None:
    """The one kind a binding names; None where it names none or several (`translate` says which)."""
    if not isinstance(value, dict):
        return None
    kinds = [kind for kind in BINDING_MODELS if kind in value]
    return kinds[0] if len(kinds) == 1 else None


AnyBindingKeys = Annotated[
    Annotated[FileKeys, Tag("file")]
    | Annotated[CommitsKeys, Tag("commits")]
    | Annotated[CronKeys, Tag("cron")]
    | Annotated[EveryKeys, Tag("every")]
    | Annotated[MessageKeys, Tag("message")]
    | Annotated[SessionBindingKeys, Tag("session")]
    | Annotated[ProbeKeys, Tag("probe")]
    | Annotated[ServiceKeys, Tag("service")]
    | Annotated[WebhookKeys, Tag("webhook")],
    Discriminator(find_kind),
]


# -- sessions -------------------------------------------------------------------------------------


class RunLimitKeys(Keys):
    memory: Size | None = _describe(
        None, "Of each process, or of the whole run where it has a control group. Default: none.", ge=1024 * 1024
    )
    processes: Count | None = _describe(None, "At a time. Default: limits.processes of wakeful.yaml, 1000.", ge=1)
    cpu: PositiveDuration | None = _describe(None, "CPU time of each process, in whole seconds. Default: none.", ge=1.0)
    files: Count | None = _describe(None, "Open files of each process. Default: the daemon's.", ge=16)
    file_size: Size | None = _describe(None, "The largest file it may write. Default: none.", ge=1024)


class AllowKeys(Keys):
    read: PlacePaths = _describe((), "Files and folders it may read besides its bindings.")
    write: PlacePaths = _describe((), "Files and folders it may read and write besides its bindings.")


class RunKeys(Keys):
    command: Command | None = _describe(None, "The program and its words; never a shell string.")
    script: FilledText | None = _describe(
        None, "Several lines for sh -eu; values reach it only through the environment."
    )
    prompt: FilledText | None = _describe(None, "What the session's agent is asked.")
    cwd: FolderPath | None = _describe(None, "The folder it runs in. Default: root.")
    env: Environment = _describe({}, "Extra variables, never secrets.")
    timeout: PositiveDuration = _describe(
        3600.0, "Then SIGTERM, and after grace the whole tree is killed. Default: 1h."
    )
    grace: Duration = _describe(10.0, "Time between SIGTERM and the kill. Default: 10s.")
    retries: WholeNumber | None = _describe(
        None, "Tries again on the same versions. Default: 2; for a prompt, 0.", ge=0, le=100
    )
    check: Argv | None = _describe(None, "A command that must exit 0 for the run to count as succeeded.")
    workspace: WorkspaceKind | None = _describe(
        None,
        "worktree: it works in a checkout of its own; copy: in a copy of what it binds. What it wrote lands after "
        "success. Default: in place.",
    )
    limits: RunLimitKeys | None = _describe(
        None, "What it may use at most, such as {memory: 1GB, processes: 100, file_size: 1GB}."
    )


class RetentionKeys(Keys):
    keep: PositiveDuration | None = _describe(None, "What is older may be archived, such as 90d.")
    runs: Annotated[Count, Field(ge=1)] | None = _describe(None, "So many of the latest runs stay at hand.")
    size: Size | None = _describe(None, "What is beyond this size, such as 1GB, may be archived.", ge=1024)


class AmountKeys(Keys):
    wall: PositiveDuration | None = _describe(None, "Time from start to end, such as 10m.")
    cpu: PositiveDuration | None = _describe(None, "Time of a processor, over all its processes.")
    written: Size | None = _describe(None, "What it writes to disk, such as 1GB.", ge=1)
    tokens: Annotated[Count, Field(ge=1)] | None = _describe(None, "Tokens of a model.")
    usd: Money | None = _describe(None, "Money, such as 0.50.")


class PeriodKeys(AmountKeys):
    runs: Annotated[Count, Field(ge=1)] | None = _describe(None, "Runs, tries anew included.")


class BudgetKeys(Keys):
    run: AmountKeys | None = _describe(None, "What one run may use.")
    hour: PeriodKeys | None = _describe(None, "What all runs of an hour may use.")
    day: PeriodKeys | None = _describe(None, "What all runs of a day may use.")
    month: PeriodKeys | None = _describe(None, "What all runs of a month may use.")


class PoolKeys(Keys):
    pool: FilledText = _describe(..., "A pool of wakeful.yaml.")


@dataclass(frozen=True, eq=False)
class _OrShort:
    """Beside its own schema a value has these: asked for when a schema is made,
    since making one takes a start some time."""

    schema: dict[str, Any]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(core_schema)]}


def _short_for(key: str, schema: dict[str, Any]) -> tuple[BeforeValidator, _OrShort]:
    """A mapping that may be written as its one usual value: `concurrency: gpu` for `concurrency: {pool: gpu}`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {key: value}), _OrShort(schema)


class SessionKeys(Keys):
    """A session: who works in it, what it reads and writes, what may wake it."""

    agent: SessionName | None = _describe(None, "The owner: agents/<name>.yaml.")
    objective: FilledText | None = _describe(None, "What the session is for, in one sentence.")
    priority: WholeNumber = _describe(
        50, "0 to 100, higher first; waiting raises it slowly. Default: 50.", ge=0, le=100
    )
    tags: Words = _describe((), "Words to filter by.")
    enabled: Boolean = _describe(True, "false: declared, held as `sleeping: disabled`.")
    root: FolderPath | None = _describe(
        None, "What relative paths resolve against. Default: the folder that holds sessions.d/."
    )
    bindings: dict[str, AnyBindingKeys] = _describe({}, "What is read, written, used or waited for: name -> binding.")
    when: When = _describe(
        "any", "any waking binding is new, all of them are, or changed: the clock wakes only if another is new."
    )
    pace: Duration = _describe(0.0, "At most one run per this long; changes collect meanwhile.")
    window: Hours | None = _describe(None, 'Hours such as "08:00-20:00"; outside them changes collect.')
    timezone: FilledText | None = _describe(None, "The zone of window and of cron bindings. Default: the machine's.")
    first: First | None = _describe(None, "At first sight: run, or adopt what is there as seen.")
    run: RunKeys | None = _describe(None, "What happens on a wake. Absent: a place where people and sessions talk.")
    conversation: Literal["fresh", "continue"] = _describe("fresh", "Each run starts fresh, or continues.")
    people: People = _describe(
        {}, "Name or uid -> maintainer, contributor or observer. Default: who declared it maintains it."
    )
    retention: RetentionKeys | None = _describe(
        None, "What stays at hand, such as {keep: 90d, runs: 500, size: 1GB}; then archive."
    )
    budget: BudgetKeys | None = _describe(
        None, "What it may spend, such as {run: {wall: 10m}, hour: {runs: 6}}; spent, it sleeps until the period turns."
    )
    approve: Literal["before_run"] | None = _describe(
        None, "before_run: it sleeps with the question until a person says yes."
    )
    ask_timeout: PositiveDuration | None = _describe(
        None, "How long a question to a person waits, such as 2h; then it is denied. Default: its agent's."
    )
    network: Network = _describe(False, "false, true, or a list of HOST:PORT it may connect to. Default: false.")
    fetch: FetchHosts = _describe(
        (),
        "Hosts that the agent's tool fetch may ask, such as [docs.example.org, '*.example.org']; true: "
        "any that is public. Default: none.",
    )
    secrets: SecretNames = _describe(
        (), "Names of secrets it receives as files, such as [gh-token]; see wakeful secret."
    )
    tools: dict[str, ToolPolicy] = _describe(
        {}, "Narrows the agent's tools here: name -> allow, ask or deny. Default: the agent's."
    )
    isolation: Isolation = _describe(
        "standard",
        "strict: a view of its own by bubblewrap, its outputs put in place after success; standard: it reaches its "
        "bindings and the system alone; "
        "observe: everything, and what standard would deny is recorded; none: "
        "everything (both need allow_unisolated in wakeful.yaml).",
    )
    allow: AllowKeys | None = _describe(
        None, "What it may reach besides its bindings, such as {read: [~/.netrc], write: [~/.cache/tool]}."
    )
    notify: NotifierNames | None = _describe(
        None, "Notifiers of wakeful.yaml that tell people about it, such as [ops], or none. Default: all of them."
    )
    for_each: PathPattern | None = _describe(
        None,
        "In a template <name>@.yaml: a glob; one session <name>@<stem> for each file, "
        "{path} and {stem} usable in values.",
    )
    concurrency: Annotated[PoolKeys, *_short_for("pool", {"type": "string"})] | None = _describe(
        None, "A lock or pool shared with other sessions: a name, or {pool: gpu}."
    )


# -- agents and the daemon ------------------------------------------------------------------------


class PromptKeys(Keys):
    text: FilledText | None = None
    file: FolderPath | None = _describe(None, "The file that holds the prompt, from the folder that holds sessions.d/.")


class ModelKeys(Keys):
    model: ModelName = _describe(
        ..., "PROVIDER:NAME; the provider is anthropic, openai, openai-chat, openai-compatible or google."
    )
    key: SecretName | None = _describe(None, "The name of the secret that opens it.")
    base_url: BaseUrl | None = _describe(None, "Its address, where that is not the provider's own.")


_MODEL_SCHEMA: dict[str, Any] = {"type": "string", "description": "PROVIDER:NAME such as anthropic:claude-sonnet-4-5."}
ModelChoice = Annotated[ModelKeys, *_short_for("model", _MODEL_SCHEMA)]
ModelChoices = Annotated[
    tuple[ModelChoice, ...],
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    _OrShort({"type": ["string", "object"]}),
]


class ModelSettingKeys(Keys):
    temperature: Temperature | None = _describe(None, "0 to 2; higher varies more. Default: the provider's.")
    effort: Effort | None = _describe(None, "How long it thinks: low, medium or high. Default: the provider's.")
    max_output: Count | None = _describe(None, "Tokens of one answer at most. Default: 8192.", ge=1, le=1_000_000)
    images: Boolean | None = _describe(
        None, "Whether the model takes images. Default: true; of openai-compatible: false."
    )


class McpKeys(Keys):
    command: Argv | None = _describe(None, "A program that speaks MCP over its standard input and output.")
    url: BaseUrl | None = _describe(None, "The address of a server.")
    key: SecretName | None = _describe(None, "The name of a secret, sent to the address as a bearer token.")
    env: Environment = _describe(
        {}, "Variables for the program, never secrets. HOME, unless named here, is a folder of the session's own."
    )
    secrets: SecretNames = _describe((), "Names of secrets that the program gets as variables of these names.")
    start_timeout: PositiveDuration | None = _describe(
        None, "A run waits so long for its tools, and then goes on without them. Default: 10s."
    )


McpChoice = Annotated[
    McpKeys,
    BeforeValidator(parse_server),
    _OrShort({"type": ["array", "string"], "items": {"type": "string"}, "minItems": 1}),
]


class TokenWindowKeys(Keys):
    tokens: Count | None = _describe(
        None,
        "How much the model takes in. Default: 200,000; of an openai-compatible model its server is asked.",
        ge=1_000,
        le=100_000_000,
    )
    compress_at: Share | None = _describe(
        None, "Above so many tokens, or such a part, the conversation is compressed. Default: 80%."
    )
    compress_by: ModelChoice | None = _describe(
        None, "A cheaper model that writes the summaries. Default: the agent's own."
    )


class AgentLimitKeys(Keys):
    turns: Count | None = _describe(None, "Requests of one run. Default: 50.", ge=1, le=10_000)
    repeats: Count | None = _describe(None, "The same call of a tool, one after the other. Default: 3.", ge=2, le=1_000)
    silence: PositiveDuration | None = _describe(
        None, "How long a provider may say nothing, before an answer and in its middle. Default: 2m.", le=86_400.0
    )


class AcpKeys(Keys):
    command: Argv = _describe(
        ..., "A program that speaks the Agent Client Protocol over its standard input and output."
    )
    key: SecretName | None = _describe(
        None, "The name of a secret the program needs, handed to it as a variable of that name."
    )
    env: Environment = _describe(
        {}, "Variables for the program, never secrets. HOME, unless named here, is a folder of the session's own."
    )
    login: FilledText | None = _describe(
        None, "The way to log in that the program is told to take, by its own name for it, such as gemini-api-key."
    )
    mode: FilledText | None = _describe(
        None, "The mode the program works in, by its own name for it, such as read-only. Default: the program's."
    )
    files: FileHands | None = _describe(
        None,
        "ours: it is offered our hands for files, which keep to the bindings; own: it opens files itself. Default: "
        "ours.",
    )


_ARGV_SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1}


class AgentKeys(Keys):
    """An agent: a role that owns sessions, and works in those that ask it something."""

    prompt: Annotated[PromptKeys, *_short_for("text", {"type": "string"})] | None = _describe(
        None, "What the agent is told: text, or {file: …}."
    )
    model: ModelName | None = _describe(
        None, "PROVIDER:NAME; the provider is anthropic, openai, openai-chat, openai-compatible or google."
    )
    key: SecretName | None = _describe(
        None, "The name of the secret that opens the model. Default: ANTHROPIC_API_KEY and the like."
    )
    base_url: BaseUrl | None = _describe(None, "The model's address, where that is not the provider's own.")
    fallback: ModelChoices | None = _describe(
        None, "Models to turn to when the first one fails: one or a list, each as text or {model, key, base_url}."
    )
    settings: ModelSettingKeys | None = _describe(None, "temperature, effort, max_output, images.")
    tools: dict[str, ToolPolicy] = _describe(
        {}, "Name -> allow, ask or deny; mcp:SERVER or mcp:SERVER/TOOL for those of a server."
    )
    mcp: dict[str, McpChoice] = _describe(
        {},
        "Servers with further tools: name -> command, {command, env, secrets, start_timeout}, or {url, key, "
        "start_timeout}.",
    )
    subagents: list[FilledText] = _describe([], "The agents that it may give a piece of work in its runs, by name.")
    budget: BudgetKeys | None = _describe(None, "What it may spend in all its sessions together.")
    context: TokenWindowKeys | None = _describe(None, "tokens, compress_at, compress_by.")
    skills: tuple[FilledText, ...] | None = _describe(
        None,
        "Folders of skills: each holds SKILL.md, or folders that do. The model is told their names and descriptions, "
        "and reads them when it needs them.",
    )
    limits: AgentLimitKeys | None = _describe(
        None, "turns, repeats, silence: when a run that does not come to its end is stopped."
    )
    ask_timeout: PositiveDuration | None = _describe(
        None, "How long a question to a person waits, such as 2h; then it is denied. Default: as long as it takes."
    )
    acp: Annotated[AcpKeys, *_short_for("command", _ARGV_SCHEMA)] | None = _describe(
        None,
        "An external agent over the Agent Client Protocol, which brings its own model: program and arguments, or "
        "{command, key, env, login, mode, files}.",
    )


class ConcurrencyKeys(Keys):
    commands: WholeNumber | None = _describe(
        None, "Runs of commands at a time. Default: number of cores.", ge=1, le=10_000
    )
    agents: WholeNumber | None = _describe(None, "Runs of agents at a time. Default: 2.", ge=1, le=10_000)


class PriceKeys(Keys):
    input: Rate = _describe(..., "USD for a million tokens that go in.")
    output: Rate = _describe(..., "USD for a million tokens that come out.")
    cached: Rate | None = _describe(
        None, "USD for a million tokens that go in and that the provider still had. Default: as input."
    )
    cache_write: Rate | None = _describe(
        None, "USD for a million tokens that go in and that the provider puts into its cache. Default: as input."
    )


class SizeLevels(Keys):
    warn: Size | None = _describe(None, "Above this `doctor` says so.", ge=1)
    hard: Size | None = _describe(None, "More than this is refused.", ge=1024)


class CountLevels(Keys):
    warn: Count | None = _describe(None, "Above this `doctor` says so.", ge=1)
    hard: Count | None = _describe(None, "More than this is refused.", ge=1)


class KeptSize(Keys):
    hard: Size = Field(description="More than this is not kept; 0: nothing is.", ge=0)


class KeptCount(Keys):
    hard: Count = Field(description="More than this is not kept; 0: nothing is.", ge=0)


class MostCount(Keys):
    hard: Count = Field(description="A run that has more is ended.", ge=1)


_SizeLimit = Annotated[SizeLevels, *_short_for("hard", {"type": "string"})] | None
_CountLimit = Annotated[CountLevels, *_short_for("hard", {"type": "integer", "minimum": 1})] | None
_MostLimit = Annotated[MostCount, *_short_for("hard", {"type": "integer", "minimum": 1})] | None
_KeptSizeLimit = Annotated[KeptSize, *_short_for("hard", {"anyOf": [{"type": "string"}, {"const": 0}]})] | None
_KeptCountLimit = Annotated[KeptCount, *_short_for("hard", {"type": "integer", "minimum": 0})] | None


class LimitKeys(Keys):
    payload: _SizeLimit = _describe(None, "What one record holds. Default: {warn: 256KiB, hard: 1MiB}.")
    message: _SizeLimit = _describe(None, "One message. Default: {warn: 64KiB, hard: 256KiB}.")
    note: _SizeLimit = _describe(None, "One hand-off. Default: {warn: 16KiB, hard: 256KiB}.")
    fact: _SizeLimit = _describe(None, "One fact's value. Default: {warn: 16KiB, hard: 256KiB}.")
    facts: _CountLimit = _describe(None, "Facts of a session. Default: {warn: 1000, hard: 10000}.")
    conversation: _SizeLimit = _describe(None, "A session's conversation. Default: {warn: 4MiB, hard: 64MiB}.")
    output: _SizeLimit = _describe(None, "Output kept of a run: head and tail. Default: {warn: 1MiB, hard: 2MiB}.")
    records: _CountLimit = _describe(None, "Records of a session. Default: {warn: 1000000, hard: 10000000}.")
    deliveries: _CountLimit = _describe(
        None, "Deliveries to a webhook that its session has not seen. Default: {warn: 1000, hard: 10000}."
    )
    mailbox: _CountLimit = _describe(None, "Messages a session has not seen. Default: {warn: 1000, hard: 10000}.")
    tokens: _CountLimit = _describe(
        None,
        "What an agent's model takes in to go on; above `warn`, `list` suggests a fresh start. Default: {warn: "
        "100000, hard: 10000000}.",
    )
    kept_file: _KeptSizeLimit = _describe(None, "One file whose content is kept. Default: 8MiB; 0: none is.")
    kept_run: _KeptSizeLimit = _describe(None, "New contents of files kept of one run. Default: 64MiB; 0: none are.")
    kept_files: _KeptCountLimit = _describe(
        None, "Files of one run whose contents are new and kept. Default: 2000; 0: none are."
    )
    processes: _MostLimit = _describe(
        None, "Processes of one run at a time, where run.limits.processes of its spec does not say. Default: 1000."
    )


class HttpKeys(Keys):
    listen: ListenAddress = _describe(..., "HOST:PORT such as 127.0.0.1:8420, or off. Port 0: any free one.")
    hosts: HostNames = _describe(
        (), "Further names under which browsers reach it, such as a reverse proxy's; exact, with the port."
    )
    beyond_loopback: Boolean = _describe(False, "true: listen may be an address that other machines reach.")
    certificate: FolderPath | None = _describe(None, "The TLS certificate, a PEM file; from the folder of this file.")
    key: FolderPath | None = _describe(None, "Its private key, a PEM file that others cannot read.")


class PeopleKeys(Keys):
    """`people` in wakeful.yaml: which accounts of the machine may use the control socket, and who they are."""

    accounts: dict[str, str] = _describe(
        {}, "Account of this machine -> the person it is (wakeful people), such as {ben: ben}. Default: none."
    )
    socket_group: str | None = _describe(
        None, "The group whose members may reach the control socket. Default: only the daemon's own account."
    )


class EmailKeys(Keys):
    to: MailAddresses = _describe(..., "Who gets it: one address or a list.")
    from_: MailAddress = Field(alias="from", description="The address it comes from.")
    server: MailServer = _describe(..., "smtp://HOST:PORT, with TLS by STARTTLS, or smtps://HOST:PORT.")
    user: FilledText | None = _describe(None, "The account at the server. Default: none, nobody logs in.")
    secret: SecretName | None = _describe(None, "The name of the secret that is the password of user.")
    tls: Boolean = _describe(
        True, "false: a server without TLS is used all the same. A server on this machine needs none."
    )


class NotifierKeys(Keys):
    command: Argv | None = _describe(None, "A program that gets the message as JSON on standard input.")
    webhook: NotifyUrl | None = _describe(None, "An address that gets it as JSON, signed by Standard Webhooks.")
    email: EmailKeys | None = _describe(None, "Mail by SMTP: {to, from, server, user, secret}.")
    ntfy: NotifyUrl | None = _describe(None, "A topic of ntfy, such as https://ntfy.sh/TOPIC.")
    url: NotifyUrl | None = _describe(None, "Any address; {secret} in it stands for the secret.")
    desktop: Boolean | None = _describe(None, "true: the desktop of the daemon's user, by notify-send.")
    secret: SecretName | None = _describe(
        None, "The name of a secret: it signs a webhook, and is the token of ntfy and url."
    )
    method: Literal["POST", "PUT", "PATCH"] | None = _describe(None, "With url. Default: POST.")
    headers: Headers | None = _describe(None, "With url: further headers, such as {X-Team: ops}.")
    body: Any = _describe(
        None,
        "With url: what is sent instead of wakeful's JSON, such as {text: '{title}: {words} {link}'}; filled in are "
        "{title}, {words}, {session}, {event}, {seq}, {look}, {link}, {id}.",
    )
    on: NotifyEvents | None = _describe(None, "Which events: failed, asks, sleeping, budget, recovered. Default: all.")
    digest: PositiveDuration | None = _describe(
        None, "Gather messages so long, such as 5m, and send them as one. Default: at once; a flood becomes one."
    )


class MetricsKeys(Keys):
    """What `/metrics` tells beside its usual numbers."""

    sessions: PathPatterns = _describe(
        (), "Sessions that are told one by one, at most 500: names, or patterns such as hr/*."
    )


class OtelKeys(Keys):
    endpoint: BaseUrl = _describe(..., "A collector that takes OTLP over HTTP, such as http://127.0.0.1:4318.")
    service_name: FilledText = _describe("wakeful", "Our name there. Default: wakeful.")


class DaemonKeys(Keys):
    """wakeful.yaml: the daemon's own settings."""

    concurrency: Annotated[ConcurrencyKeys, *_short_for("commands", {"type": "integer", "minimum": 1})] | None = (
        _describe(None, "Runs at a time: a number for commands, or {commands: 4, agents: 2}.")
    )
    defaults: dict[str, Any] = _describe({}, "Merged under every spec.")
    pools: dict[str, Annotated[WholeNumber, Field(ge=1, le=10_000)]] = _describe({}, "Name -> runs at a time.")
    prices: dict[str, PriceKeys] = _describe(
        {},
        "What models cost, such as {anthropic:claude-sonnet-4-5: {input: 3, output: 15}}; "
        "a * at the end stands for all that begin so.",
    )
    limits: LimitKeys | None = _describe(None, "What is kept and what is taken at most.")
    retention: RetentionKeys | None = _describe(
        None, "For sessions that say nothing of their own, such as {keep: 90d}."
    )
    loop_depth: WholeNumber = _describe(8, "Longest chain of sessions waking each other. Default: 8.", ge=1, le=1000)
    stop_grace: Duration = _describe(30.0, "How long runs may go on when the daemon stops. Default: 30s.")
    hints: Literal["auto", "inotify", "watchfiles", "poll"] = _describe("auto", "How changes are noticed sooner.")
    notify: dict[str, NotifierKeys] = _describe(
        {},
        "Who is told when a person should look: name -> {command}, {webhook, secret}, {email}, {ntfy}, {url} or "
        "{desktop: true}, with on and digest.",
    )
    trust: Literal["followed", "pinned"] = _describe(
        "followed", "pinned: no spec counts before `wakeful trust NAME`. Default: followed as they are edited."
    )
    people: PeopleKeys | None = _describe(
        None, "Other accounts of this machine that may use the control socket, as people. Default: none."
    )
    allow_unisolated: Boolean = _describe(False, "true: sessions may say isolation: none or observe. Default: false.")
    http: Annotated[HttpKeys, *_short_for("listen", {"type": "string"})] | None = _describe(
        None, "Where the HTTP API listens on TCP, such as 127.0.0.1:8420. off: never. Default: until you open it."
    )
    metrics: MetricsKeys | None = _describe(None, "What Prometheus is told of single sessions.")
    otel: Annotated[OtelKeys, *_short_for("endpoint", {"type": "string"})] | None = _describe(
        None, "Where traces are sent, such as http://127.0.0.1:4318; needs pip install 'wakeful[otel]'."
    )

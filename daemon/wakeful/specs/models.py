"""Every key of a session and of an agent, as pydantic models of the YAML. The keys of wakeful.yaml are in
settings_models.py.

The models give types to the text of yaml_text, and have the descriptions that the JSON Schema shows in editors. Only
this module defines which values a key may have. `spec_builder` turns valid `SessionKeys` into the core's SessionSpec,
and checks the rules between keys. `model_errors` has the messages of refusals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic_core import CoreSchema

from wakeful.core.spec.agent import Effort, FileAccess, ToolPolicy
from wakeful.core.spec.bindings import (
    CatchUp,
    CommitLine,
    Compare,
    Missing,
    Overlap,
    RunEnd,
    Sender,
)
from wakeful.core.spec.session import First, Isolation, When, WorkspaceKind
from wakeful.specs.notify_scalars import (
    NotifierNames,
)
from wakeful.specs.value_parsers import (
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
    Hours,
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


def describe(default: Any, text: str, **bounds: Any) -> Any:
    return Field(default, description=text, **bounds)


class Keys(BaseModel):
    """A mapping that has only known keys."""

    # Models are built when the first file is read. A start whose readings are all cached saves 0.1 s.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


# -- bindings -------------------------------------------------------------------------------------


_UNTRUSTED = (
    "untrusted: it brings text of strangers; the session may then not have both secrets and a way to send data out."
)


class BindingKeys(Keys):
    wake: Boolean | None = describe(
        None,
        "Whether a new version wakes the session. Default: true for what is read, false for access: write and service.",
    )
    settle: Duration | None = describe(None, "How long it must be quiet before it is looked at. Default: 100ms.")
    settle_max: Duration | None = describe(
        None,
        "Look after this long although it is not quiet. Default: 20 times settle, at least 2s; a file that is open "
        "for writing is then waited for up to 60s.",
    )
    stale: Literal["allow"] | None = describe(None, "allow: run although the upstream session failed.")


class FileKeys(BindingKeys):
    file: PathPattern = describe(
        ..., "A path or pattern: ** crosses folders, * and ? do not. Version: digest of matched paths and contents."
    )
    access: Literal["read", "write", "both"] = describe(
        "read",
        "read; write: what the session produces; both (isolation: strict, run.workspace, or an agent without a "
        "shell): what it works on, and what others change in it wakes it.",
    )
    exclude: PathPatterns = describe((), "Patterns to leave out, besides the default excludes.")
    compare: Compare = describe("content", "What makes a version: content, stat (for huge data) or names.")
    missing: Missing = describe("run", "A literal path that is not there: run all the same, or wait for it.")
    trust: Literal["untrusted"] | None = describe(None, _UNTRUSTED)


class CommitsKeys(BindingKeys):
    commits: RepositoryPath = describe(..., "A path inside the repository. Version: tree id of branch:path.")
    repo: FolderPath | None = describe(None, "The repository. Default: the one around root.")
    branch: Branch | None = describe(None, "A branch such as main or origin/main. Default: HEAD, the one checked out.")
    each_commit: Boolean = describe(False, "true: every commit is one occurrence.")
    line: CommitLine | None = describe(
        None,
        "With each_commit. first-parent: the commits of the branch's own line, a merge being one; all: also those "
        "that a merge brought. Default: first-parent.",
    )
    export: Boolean = describe(False, "true: a clean copy of the new tree at $WAKEFUL_BINDING_<NAME>.")
    trust: Literal["untrusted"] | None = describe(None, _UNTRUSTED)


class ClockKeys(BindingKeys):
    catch_up: CatchUp = describe("once", "Slots missed while the daemon was down: run once, none, or all of them.")
    catch_up_window: PositiveDuration = describe(7 * 86400.0, "How far back missed slots count. Default: 7d.")
    overlap: Overlap = describe("queue_one", "A slot that comes due during a run: queue_one, skip, or replace the run.")
    jitter: Duration = describe(0.0, "Spread slots by up to this much, stable per session.")


class CronKeys(ClockKeys):
    cron: FilledText = describe(..., 'Five fields, such as "0 6 1 * *". Version: latest slot due.')
    timezone: FilledText | None = describe(
        None, "A zone such as Asia/Shanghai. Default: the session's, then the machine's."
    )


class EveryKeys(ClockKeys):
    every: Period = describe(..., "A period such as 30m. Version: latest slot due.")


class MessageKeys(BindingKeys):
    message: Literal["any"] = describe(..., "The session's mailbox; implied for every session that has a run.")
    trust: Literal["untrusted"] | None = describe(None, _UNTRUSTED)


class SessionBindingKeys(BindingKeys):
    session: SessionName = describe(..., "Another session. Version: its last successful run, or as `on` says.")
    on: RunEnd = describe(
        "succeeded",
        "Which of its runs wake: succeeded, failed (no retry follows) or finished (either). A session that a failure "
        "wakes is not held back by it.",
    )


class ProbeKeys(BindingKeys):
    probe: Argv = describe(..., "A command. Version: digest of its standard output.")
    check_every: Period = describe(300.0, "How often the command is run. Default: 5m.")
    timeout: PositiveDuration = describe(30.0, "How long it may take. Default: 30s.")
    trust: Literal["untrusted"] | None = describe(None, _UNTRUSTED)


class ServiceKeys(BindingKeys):
    service: ServiceAddress = describe(
        ..., "tcp://HOST:PORT, http://…, or mcp:NAME, a server of its agent: while it is down the session sleeps."
    )
    check_every: Period = describe(30.0, "How often it is looked at. Default: 30s.")


class WebhookKeys(BindingKeys):
    webhook: Sender = describe(
        ...,
        "The sender; it decides which headers and signatures are checked. Version: the number of the last delivery.",
    )
    secret: SecretNames | None = describe(
        None,
        "The name of the secret that signs deliveries; a list while it is rotated; none: any program that can reach "
        "the address may deliver.",
    )
    only: PayloadFilter = describe(
        {}, "Paths in the payload and their values, such as {action: opened}; `event` is the sender's name for it."
    )
    tolerance: PositiveDuration = describe(300.0, "How far a signed time may be from ours. Default: 5m.")
    max_size: Size = describe(1_000_000, "The largest payload. Default: 1MB.", ge=1, le=25_000_000)
    trust: Literal["untrusted", "trusted"] = describe(
        "untrusted",
        f"{_UNTRUSTED} trusted: only its sender writes the payloads.",
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
    """Return the one kind that a binding names. None if it names none or several, which `translate` explains."""
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
    memory: Size | None = describe(
        None, "Of each process, or of the whole run where it has a control group. Default: none.", ge=1024 * 1024
    )
    processes: Count | None = describe(None, "At a time. Default: limits.processes of wakeful.yaml, 1000.", ge=1)
    cpu: PositiveDuration | None = describe(None, "CPU time of each process, in whole seconds. Default: none.", ge=1.0)
    files: Count | None = describe(None, "Open files of each process. Default: the daemon's.", ge=16)
    file_size: Size | None = describe(None, "The largest file it may write. Default: none.", ge=1024)


class AllowKeys(Keys):
    read: PlacePaths = describe((), "Files and folders it may read besides its bindings.")
    write: PlacePaths = describe((), "Files and folders it may read and write besides its bindings.")


class RunKeys(Keys):
    command: Command | None = describe(None, "The program and its words; never a shell string.")
    script: FilledText | None = describe(
        None, "Several lines for sh -eu; values reach it only through the environment."
    )
    prompt: FilledText | None = describe(None, "What the session's agent is asked.")
    cwd: FolderPath | None = describe(None, "The folder it runs in. Default: root.")
    env: Environment = describe({}, "Extra variables, never secrets.")
    timeout: PositiveDuration = describe(3600.0, "Then SIGTERM, and after grace the whole tree is killed. Default: 1h.")
    grace: Duration = describe(10.0, "Time between SIGTERM and the kill. Default: 10s.")
    retries: WholeNumber | None = describe(
        None, "Tries again on the same versions. Default: 2; for a prompt, 0.", ge=0, le=100
    )
    check: Argv | None = describe(None, "A command that must exit 0 for the run to count as succeeded.")
    workspace: WorkspaceKind | None = describe(
        None,
        "worktree: it works in a checkout of its own; copy: in a copy of what it binds. What it wrote lands after "
        "success. Default: in place.",
    )
    limits: RunLimitKeys | None = describe(
        None, "What it may use at most, such as {memory: 1GB, processes: 100, file_size: 1GB}."
    )


class RetentionKeys(Keys):
    keep: PositiveDuration | None = describe(None, "What is older may be archived, such as 90d.")
    runs: Annotated[Count, Field(ge=1)] | None = describe(None, "So many of the latest runs stay at hand.")
    size: Size | None = describe(None, "What is beyond this size, such as 1GB, may be archived.", ge=1024)


class AmountKeys(Keys):
    wall: PositiveDuration | None = describe(None, "Time from start to end, such as 10m.")
    cpu: PositiveDuration | None = describe(None, "Time of a processor, over all its processes.")
    written: Size | None = describe(None, "What it writes to disk, such as 1GB.", ge=1)
    tokens: Annotated[Count, Field(ge=1)] | None = describe(None, "Tokens of a model.")
    usd: Money | None = describe(None, "Money, such as 0.50.")


class PeriodKeys(AmountKeys):
    runs: Annotated[Count, Field(ge=1)] | None = describe(None, "Runs, tries anew included.")


class BudgetKeys(Keys):
    run: AmountKeys | None = describe(None, "What one run may use.")
    hour: PeriodKeys | None = describe(None, "What all runs of an hour may use.")
    day: PeriodKeys | None = describe(None, "What all runs of a day may use.")
    month: PeriodKeys | None = describe(None, "What all runs of a month may use.")


class PoolKeys(Keys):
    pool: FilledText = describe(..., "A pool of wakeful.yaml.")


@dataclass(frozen=True, eq=False)
class _OrShort:
    """Adds a short form to the JSON Schema of a value.

    It is computed only when a schema is made, because that takes time.
    """

    schema: dict[str, Any]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(core_schema)]}


def short_for(key: str, schema: dict[str, Any]) -> tuple[BeforeValidator, _OrShort]:
    """Accept the one usual value in place of a mapping: `concurrency: gpu` for `concurrency: {pool: gpu}`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {key: value}), _OrShort(schema)


class SessionKeys(Keys):
    """A session: who works in it, what it reads and writes, what may wake it."""

    agent: SessionName | None = describe(None, "The owner: agents/<name>.yaml.")
    objective: FilledText | None = describe(None, "What the session is for, in one sentence.")
    priority: WholeNumber = describe(50, "0 to 100, higher first; waiting raises it slowly. Default: 50.", ge=0, le=100)
    tags: Words = describe((), "Words to filter by.")
    enabled: Boolean = describe(True, "false: declared, held as `sleeping: disabled`.")
    root: FolderPath | None = describe(
        None, "What relative paths resolve against. Default: the folder that holds sessions.d/."
    )
    bindings: dict[str, AnyBindingKeys] = describe({}, "What is read, written, used or waited for: name -> binding.")
    when: When = describe(
        "any", "any waking binding is new, all of them are, or changed: the clock wakes only if another is new."
    )
    pace: Duration = describe(0.0, "At most one run per this long; changes collect meanwhile.")
    window: Hours | None = describe(None, 'Hours such as "08:00-20:00"; outside them changes collect.')
    timezone: FilledText | None = describe(None, "The zone of window and of cron bindings. Default: the machine's.")
    first: First | None = describe(None, "When first declared: run, or adopt the present versions as seen.")
    run: RunKeys | None = describe(None, "What happens on a wake. Absent: the session is only for conversations.")
    conversation: Literal["fresh", "continue"] = describe("fresh", "Each run starts fresh, or continues.")
    people: People = describe(
        {}, "Name or uid -> maintainer, contributor or observer. Default: the person who declared it is maintainer."
    )
    retention: RetentionKeys | None = describe(
        None, "What stays at hand, such as {keep: 90d, runs: 500, size: 1GB}; then archive."
    )
    budget: BudgetKeys | None = describe(
        None,
        "What it may spend, such as {run: {wall: 10m}, hour: {runs: 6}}; once spent, it sleeps until the next period.",
    )
    approve: Literal["before_run"] | None = describe(
        None, "before_run: it sleeps with the question until a person says yes."
    )
    ask_timeout: PositiveDuration | None = describe(
        None, "How long a question to a person waits, such as 2h; then it is denied. Default: its agent's."
    )
    network: Network = describe(False, "false, true, or a list of HOST:PORT it may connect to. Default: false.")
    fetch: FetchHosts = describe(
        (),
        "Hosts that the agent's tool fetch may ask, such as [docs.example.org, '*.example.org']; true: "
        "any that is public. Default: none.",
    )
    secrets: SecretNames = describe(
        (), "Names of secrets it receives as files, such as [gh-token]; see wakeful secret."
    )
    tools: dict[str, ToolPolicy] = describe(
        {}, "Narrows the agent's tools here: name -> allow, ask or deny. Default: the agent's."
    )
    isolation: Isolation = describe(
        "standard",
        "strict: a view of its own by bubblewrap, its outputs put in place after success; standard: it reaches its "
        "bindings and the system alone; "
        "observe: everything, and what standard would deny is recorded; none: "
        "everything (both need allow_unisolated in wakeful.yaml).",
    )
    allow: AllowKeys | None = describe(
        None, "What it may reach besides its bindings, such as {read: [~/.netrc], write: [~/.cache/tool]}."
    )
    notify: NotifierNames | None = describe(
        None, "Notifiers of wakeful.yaml that tell people about it, such as [ops], or none. Default: all of them."
    )
    for_each: PathPattern | None = describe(
        None,
        "In a template <name>@.yaml: a glob; one session <name>@<stem> for each file, "
        "{path} and {stem} usable in values.",
    )
    concurrency: Annotated[PoolKeys, *short_for("pool", {"type": "string"})] | None = describe(
        None, "A lock or pool shared with other sessions: a name, or {pool: gpu}."
    )


# -- agents ------------------------------------------------------------------------


class PromptKeys(Keys):
    text: FilledText | None = None
    file: FolderPath | None = describe(None, "The file that holds the prompt, from the folder that holds sessions.d/.")


class ModelKeys(Keys):
    model: ModelName = describe(
        ..., "PROVIDER:NAME; the provider is anthropic, openai, openai-chat, openai-compatible or google."
    )
    key: SecretName | None = describe(None, "The name of the secret with its API key.")
    base_url: BaseUrl | None = describe(None, "Its address, where that is not the provider's own.")


_MODEL_SCHEMA: dict[str, Any] = {"type": "string", "description": "PROVIDER:NAME such as anthropic:claude-sonnet-4-5."}
ModelChoice = Annotated[ModelKeys, *short_for("model", _MODEL_SCHEMA)]
ModelChoices = Annotated[
    tuple[ModelChoice, ...],
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    _OrShort({"type": ["string", "object"]}),
]


class ModelSettingKeys(Keys):
    temperature: Temperature | None = describe(None, "0 to 2; higher varies more. Default: the provider's.")
    effort: Effort | None = describe(None, "How long it thinks: low, medium or high. Default: the provider's.")
    max_output: Count | None = describe(None, "Tokens of one answer at most. Default: 8192.", ge=1, le=1_000_000)
    images: Boolean | None = describe(
        None, "Whether the model takes images. Default: true; of openai-compatible: false."
    )


class McpKeys(Keys):
    command: Argv | None = describe(None, "A program that speaks MCP over its standard input and output.")
    url: BaseUrl | None = describe(None, "The address of a server.")
    key: SecretName | None = describe(None, "The name of a secret, sent to the address as a bearer token.")
    env: Environment = describe(
        {}, "Variables for the program, never secrets. HOME, unless named here, is a folder of the session's own."
    )
    secrets: SecretNames = describe((), "Names of secrets that the program gets as variables of these names.")
    start_timeout: PositiveDuration | None = describe(
        None, "A run waits so long for its tools, and then goes on without them. Default: 10s."
    )


McpChoice = Annotated[
    McpKeys,
    BeforeValidator(parse_server),
    _OrShort({"type": ["array", "string"], "items": {"type": "string"}, "minItems": 1}),
]


class TokenWindowKeys(Keys):
    tokens: Count | None = describe(
        None,
        "Tokens that the model can read. Default: 200,000; of an openai-compatible model its server is asked.",
        ge=1_000,
        le=100_000_000,
    )
    compress_at: Share | None = describe(
        None, "Above so many tokens, or such a part, the conversation is compressed. Default: 80%."
    )
    compress_by: ModelChoice | None = describe(
        None, "A cheaper model that writes the summaries. Default: the agent's own."
    )


class AgentLimitKeys(Keys):
    turns: Count | None = describe(None, "Requests of one run. Default: 50.", ge=1, le=10_000)
    repeats: Count | None = describe(None, "The same call of a tool, one after the other. Default: 3.", ge=2, le=1_000)
    silence: PositiveDuration | None = describe(
        None, "How long a provider may say nothing, before an answer and in its middle. Default: 2m.", le=86_400.0
    )


class AcpKeys(Keys):
    command: Argv = describe(..., "A program that speaks the Agent Client Protocol over its standard input and output.")
    key: SecretName | None = describe(
        None, "The name of a secret the program needs, handed to it as a variable of that name."
    )
    env: Environment = describe(
        {}, "Variables for the program, never secrets. HOME, unless named here, is a folder of the session's own."
    )
    login: FilledText | None = describe(
        None, "The way to log in that the program is told to take, by its own name for it, such as gemini-api-key."
    )
    mode: FilledText | None = describe(
        None, "The mode the program works in, by its own name for it, such as read-only. Default: the program's."
    )
    files: FileAccess | None = describe(
        None,
        "ours: it is offered our file tools, which keep to the bindings; own: it opens files itself. Default: ours.",
    )


_ARGV_SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1}


class AgentKeys(Keys):
    """An agent: a role that owns sessions, and works in those that ask it something."""

    prompt: Annotated[PromptKeys, *short_for("text", {"type": "string"})] | None = describe(
        None, "What the agent is told: text, or {file: …}."
    )
    model: ModelName | None = describe(
        None, "PROVIDER:NAME; the provider is anthropic, openai, openai-chat, openai-compatible or google."
    )
    key: SecretName | None = describe(
        None, "The name of the secret with the API key. Default: ANTHROPIC_API_KEY and the like."
    )
    base_url: BaseUrl | None = describe(None, "The model's address, where that is not the provider's own.")
    fallback: ModelChoices | None = describe(
        None, "Models to turn to when the first one fails: one or a list, each as text or {model, key, base_url}."
    )
    settings: ModelSettingKeys | None = describe(None, "temperature, effort, max_output, images.")
    tools: dict[str, ToolPolicy] = describe(
        {}, "Name -> allow, ask or deny; mcp:SERVER or mcp:SERVER/TOOL for those of a server."
    )
    mcp: dict[str, McpChoice] = describe(
        {},
        "Servers with further tools: name -> command, {command, env, secrets, start_timeout}, or {url, key, "
        "start_timeout}.",
    )
    subagents: list[FilledText] = describe([], "The agents that it may give a piece of work in its runs, by name.")
    budget: BudgetKeys | None = describe(None, "What it may spend in all its sessions together.")
    context: TokenWindowKeys | None = describe(None, "tokens, compress_at, compress_by.")
    skills: tuple[FilledText, ...] | None = describe(
        None,
        "Folders of skills: each holds SKILL.md, or folders that do. The model is told their names and descriptions, "
        "and reads them when it needs them.",
    )
    limits: AgentLimitKeys | None = describe(
        None, "turns, repeats, silence: when a run that does not come to its end is stopped."
    )
    ask_timeout: PositiveDuration | None = describe(
        None, "How long a question to a person waits, such as 2h; then it is denied. Default: as long as it takes."
    )
    acp: Annotated[AcpKeys, *short_for("command", _ARGV_SCHEMA)] | None = describe(
        None,
        "An external agent over the Agent Client Protocol, which brings its own model: program and arguments, or "
        "{command, key, env, login, mode, files}.",
    )

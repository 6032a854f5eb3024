"""A session's spec as frozen values. `specs/` parses YAML into them, and the log stores them.

The code that builds a spec (`specs/`, or a test) has checked it, so every spec is valid. Durations
are seconds, paths are text relative to `root` (or absolute), and nothing here knows YAML.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from wakeful.core.spec.agent import ToolPolicy
from wakeful.core.spec.bindings import AnyBinding, FileBinding, WebhookBinding
from wakeful.core.spec.budget import Budget, Price
from wakeful.core.spec.http_settings import HttpChoice
from wakeful.core.spec.limits import Limits
from wakeful.core.spec.notifier import Notifier

When = Literal["any", "all", "changed"]
First = Literal["run", "adopt"]
Role = Literal["maintainer", "contributor", "observer"]
Isolation = Literal["strict", "standard", "observe", "none"]
WorkspaceKind = Literal["worktree", "copy"]

DEFAULT_EXCLUDES = (
    ".git",
    "__pycache__",
    "node_modules",
    ".venv",
    "*.swp",
    "*~",
    ".~lock.*#",
    "~$*",
    ".#*",
    "#*#",
    "*.tmp",
)
# A secret's name must suit a file and a variable. systemd credentials usually have such names, too.
SECRET_NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"
# The mark at the end of a template's name. In the names of its sessions, it separates the template from the stem.
TEMPLATE_MARK = "@"


def say_missing(name: str, what: str = "secret") -> str:
    """Return the message about a secret that is not set, with the command that sets it."""
    return f"needs a {what}: {name} (wakeful secret set {name})"


def find_template(name: str) -> str | None:
    """Return the template that a session's name belongs to (`hr/ticket@17` -> `hr/ticket@`).

    The name of a template belongs to itself. None for all other names.
    """
    folder, slash, last = name.rpartition("/")
    head, mark, _ = last.partition(TEMPLATE_MARK)
    return f"{folder}{slash}{head}{mark}" if mark else None


def is_refused(name: str, refused: Mapping[str, str]) -> bool:
    """Was the file that declares this name refused? That is its own file, or the file of its template."""
    return name in refused or (bool(refused) and find_template(name) in refused)


class RunLimits(Struct, frozen=True, kw_only=True):
    """The resource limits of a run. None for no limit."""

    memory_bytes: int | None = None
    processes: int | None = None
    cpu_seconds: float | None = None
    open_files: int | None = None
    file_bytes: int | None = None


def _is_name(host: str) -> bool:
    """Must this host be looked up in DNS? An empty host, `localhost` and IP addresses need no lookup."""
    if host in ("", "localhost"):
        return False
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


class Confinement(Struct, frozen=True, kw_only=True):
    """The access a run has besides its bindings, and how it is enforced. Paths are absolute, or relative to root."""

    level: Isolation = "standard"
    # True for the network of the machine, False for none, or the addresses that a run may reach (`host:port`).
    # `:port` is a port that a run itself listens on.
    network: bool | tuple[str, ...] = False
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()

    @property
    def ports(self) -> bool | tuple[int, ...]:
        """Return the part of `network` that can be enforced: for addresses, only their TCP ports."""
        return (
            self.network
            if isinstance(self.network, bool)
            else tuple(int(address.rpartition(":")[2]) for address in self.network)
        )

    @property
    def listened_ports(self) -> tuple[int, ...]:
        """List the ports that runs may listen on. Empty unless `network` is a list of addresses."""
        return (
            ()
            if isinstance(self.network, bool)
            else tuple(int(address[1:]) for address in self.network if address.startswith(":"))
        )

    @property
    def looks_up_names(self) -> bool:
        """Must a listed host be looked up in DNS? IP addresses and `localhost` need no lookup."""
        return not isinstance(self.network, bool) and any(
            _is_name(address.rpartition(":")[0]) for address in self.network
        )

    @property
    def is_enforced(self) -> bool:
        """Is a run restricted at all?"""
        return self.level not in ("none", "observe")


class RunSpec(Struct, frozen=True, kw_only=True):
    """The fields that every kind of run shares."""

    cwd: str | None = None
    env: dict[str, str] = {}
    timeout_seconds: float = 3600.0
    grace_seconds: float = 10.0
    retries: int = 2
    check: tuple[str, ...] | None = None
    limits: RunLimits = RunLimits()
    # The kind of private workspace. Outputs are put in place after success. None if the run works in place.
    workspace: WorkspaceKind | None = None


class CommandRun(RunSpec, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A command as a list of words, never a shell string."""

    argv: tuple[str, ...]


class ScriptRun(RunSpec, frozen=True, kw_only=True, tag_field="kind", tag="script"):
    """Several lines for `sh -eu`; values reach it only through the environment."""

    text: str


class PromptRun(RunSpec, frozen=True, kw_only=True, tag_field="kind", tag="prompt"):
    """The prompt for the session's agent. A failed run is not retried unless the spec sets `retries`: each try costs
    money."""

    prompt: str
    retries: int = 0


AnyRun = CommandRun | ScriptRun | PromptRun


class Window(Struct, frozen=True):
    """Minutes of the day in a time zone. A window whose end is before its start crosses midnight."""

    start_minute: int
    end_minute: int
    timezone: str


class Retention(Struct, frozen=True, kw_only=True):
    """The part of a session that stays at hand. Records beyond a bound may be archived. None for no bound."""

    keep_seconds: float | None = None
    runs: int | None = None
    size_bytes: int | None = None


class SessionSpec(Struct, frozen=True, kw_only=True):
    """One session as declared. `root` is absolute; all other paths may be relative to it."""

    name: str
    root: str
    agent: str | None = None
    objective: str | None = None
    priority: int = 50
    tags: tuple[str, ...] = ()
    enabled: bool = True
    bindings: tuple[AnyBinding, ...] = ()
    when: When = "any"
    pace_seconds: float = 0.0
    window: Window | None = None
    first: First | None = None
    run: AnyRun | None = None
    conversation: Literal["fresh", "continue"] = "fresh"
    pool: str | None = None
    # The script inside root that `command` names. It is an implied waking binding (docs/specs.md).
    program: str | None = None
    # Names of secrets. Their values are in no spec, no state and no event.
    secrets: tuple[str, ...] = ()
    # Name or uid -> role. A person who is not named here is a maintainer.
    people: dict[str, Role] = {}
    retention: Retention | None = None
    confinement: Confinement = Confinement()
    budget: Budget | None = None
    # A person is asked before every run.
    is_approved_first: bool = False
    # Seconds until an unanswered question to a person is denied. None for the setting of its agent.
    ask_timeout_seconds: float | None = None
    # Policies of tools, which can only narrow the agent's own policies.
    tools: dict[str, ToolPolicy] = {}
    # Hosts that the agent's tool `fetch` may ask, as HOST:PORT, *.HOST:PORT or *:PORT.
    # They open the network to no other program.
    fetch: tuple[str, ...] = ()
    # Names of notifiers. None for all notifiers, empty for none.
    notify: tuple[str, ...] | None = None

    def binding(self, name: str) -> AnyBinding | None:
        return next((binding for binding in self.bindings if binding.name == name), None)

    @property
    def files(self) -> tuple[FileBinding, ...]:
        return tuple([binding for binding in self.bindings if type(binding) is FileBinding])

    @property
    def webhooks(self) -> tuple[WebhookBinding, ...]:
        return tuple([binding for binding in self.bindings if type(binding) is WebhookBinding])

    @property
    def written_patterns(self) -> tuple[str, ...]:
        return tuple(binding.pattern for binding in self.files if binding.access != "read")

    @property
    def is_staged(self) -> bool:
        """Has a run a private write area, whose contents are put in place after its success (rule 27)?"""
        return self.confinement.level == "strict" or (self.run is not None and self.run.workspace is not None)


def observe_spec(spec: SessionSpec) -> SessionSpec:
    """Return the spec with an isolation that denies nothing."""
    return msgspec.structs.replace(spec, confinement=msgspec.structs.replace(spec.confinement, level="observe"))


def _describe_what(run: AnyRun) -> object:
    match run:
        case CommandRun(argv=argv):
            return argv
        case ScriptRun(text=text):
            return text
        case PromptRun(prompt=prompt):
            return {"prompt": prompt}


def digest_noticed(spec: SessionSpec) -> str:
    """Return the version of the binding `spec`: a digest of all that a run can notice (rule 9), not timing or order."""
    run = spec.run
    noticed: dict[str, object] = {
        "agent": spec.agent,
        "objective": spec.objective,
        "bindings": sorted(
            (binding.name, binding.identity, getattr(binding, "access", "read"), binding.wake)
            for binding in spec.bindings
        ),
        "run": None
        if run is None
        else {
            "what": _describe_what(run),
            "cwd": run.cwd,
            "env": sorted(run.env.items()),
            "check": run.check,
        },
        "conversation": spec.conversation,
    }
    # Keys without a value are left out, so that versions from before these keys existed stay the same.
    if spec.confinement.network:
        noticed["network"] = spec.confinement.network
    if run is not None and run.workspace is not None:
        noticed["workspace"] = run.workspace
    if spec.fetch:
        noticed["fetch"] = spec.fetch
    if spec.tools:
        noticed["tools"] = sorted(spec.tools.items())
    return hashlib.blake2b(msgspec.json.encode(noticed), digest_size=16).hexdigest()


class MetricsSettings(Struct, frozen=True, kw_only=True):
    """`sessions`: names and patterns of the sessions that `/metrics` reports one by one."""

    sessions: tuple[str, ...] = ()


class OtelSettings(Struct, frozen=True, kw_only=True):
    """The collector that traces are sent to, by OTLP over HTTP, and our name there."""

    endpoint: str
    service_name: str = "wakeful"


class Settings(Struct, frozen=True, kw_only=True):
    """`wakeful.yaml`: the daemon's own settings, every key resolved to its default."""

    concurrency: int = 2
    # The most runs of agents at a time. They wait for a model most of the time, and take no slot of commands.
    agent_concurrency: int = 2
    pools: dict[str, int] = {}
    # The prices that come with wakeful, overridden by those in wakeful.yaml.
    prices: dict[str, Price] = {}
    loop_depth: int = 8
    stop_grace_seconds: float = 30.0
    hints: Literal["auto", "inotify", "watchfiles", "poll"] = "auto"
    limits: Limits = Limits()
    # The retention of sessions whose spec sets none.
    retention: Retention = Retention()
    # Sessions may use `isolation: none` and `isolation: observe`.
    allow_unisolated: bool = False
    # `pinned`: no spec counts before a person has trusted its present content, wherever its file is.
    trust: Literal["followed", "pinned"] = "followed"
    http: HttpChoice = None
    # Account of the machine that may use the control socket -> the person it belongs to. Empty if only the daemon's own
    # account may.
    accounts: dict[str, str] = {}
    # The group whose members may reach the control socket. None if only the daemon's own account may.
    socket_group: str | None = None
    notifiers: tuple[Notifier, ...] = ()
    metrics: MetricsSettings = MetricsSettings()
    # None if the environment decides where traces are sent, or that they are not sent.
    otel: OtelSettings | None = None

    @property
    def output_limit_bytes(self) -> int:
        return self.limits.output.hard

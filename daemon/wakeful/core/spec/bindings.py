"""The kinds of bindings: what a session depends on, as frozen values, each kind with its options.

The class of a kind has the properties that other modules ask for: its description, its path, its command, whether it
is a condition, whether its versions only advance. `Binding` has the value that most kinds share; the other kinds
override it. The targets that the daemon looks at for bindings are in `core/looking/targets.py`.
A binding's `identity` follows from its content, not from its name (docs/rules.md, rule 8). It begins with the kind.
"""

from __future__ import annotations

import posixpath
from typing import ClassVar, Literal, get_args

import msgspec
from msgspec import Struct

from wakeful.core.spec.agent import MCP_TOOL_PREFIX

Access = Literal["read", "write", "both"]
Compare = Literal["content", "stat", "names"]
Missing = Literal["run", "wait"]
CatchUp = Literal["once", "none", "all"]
Overlap = Literal["queue_one", "skip", "replace"]
# The commits that `each_commit` counts: those of the branch's own line, or also those that merges brought.
CommitLine = Literal["first-parent", "all"]
# Senders whose headers and signatures a webhook binding understands.
Sender = Literal["standard", "github", "gitlab", "stripe", "slack"]
# The ends of another session's runs that a `session` binding counts. `finished` counts both successes and failures.
RunEnd = Literal["succeeded", "failed", "finished"]

DEFAULT_SETTLE_SECONDS = 0.1
LEAST_SETTLE_MAX_SECONDS = 2.0
SETTLE_MAX_FACTOR = 20
# Names that the core gives to its own causes and bindings. A spec must not use them.
RESERVED_BINDINGS = ("spec", "program", "first", "activation", "mailbox")


def find_settle_max(settle_seconds: float) -> float:
    """Return the longest time that a look waits for quiet, if a spec has no `settle_max`."""
    return max(LEAST_SETTLE_MAX_SECONDS, SETTLE_MAX_FACTOR * settle_seconds)


class Binding(Struct, frozen=True, kw_only=True):
    """The fields of every kind of binding. `wake` is already resolved: the parser knows each kind's default.

    Every kind has its own `identity` and `description`. The description names the target as the spec does.
    """

    # A condition never wakes its session. While it is not met, the session sleeps.
    is_condition: ClassVar[bool] = False
    # The versions are positions that only advance: numbers or times. They are owed if they are ahead of seen (rule 4).
    only_advances: ClassVar[bool] = False
    # The versions are slots of a clock.
    is_clock: ClassVar[bool] = False

    name: str
    wake: bool = True
    stale_allowed: bool = False
    settle_seconds: float = DEFAULT_SETTLE_SECONDS
    settle_max_seconds: float = 2.0
    # The binding brings untrusted text into the session (`trust: untrusted`).
    is_untrusted: bool = False

    @property
    def kind(self) -> str:
        """Return the key that declares the binding in a spec, such as `file` or `cron`."""
        return str(self.__struct_config__.tag)

    @property
    def is_ordered(self) -> bool:
        """Is the binding owed by position, not by difference (rule 4)?"""
        return self.only_advances

    @property
    def starts_at_declaration(self) -> bool:
        """Does the binding ignore everything before its declaration? It then causes no first run (rule 25)."""
        return self.only_advances

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command that the daemon starts to look at the target. Empty if it looks in another way."""
        return ()

    def find_path(self, root: str) -> str | None:
        """Return the path that runs find in `$WAKEFUL_BINDING_<NAME>`. None if the binding has none."""
        return None


class FileBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """Paths that match a pattern: `**` crosses folders, `*` and `?` do not."""

    pattern: str
    access: Access = "read"
    exclude: tuple[str, ...] = ()
    compare: Compare = "content"
    missing: Missing = "run"

    @property
    def identity(self) -> str:
        # An output and an input are different things, even at one path: a change of an output is drift,
        # a change of an input is a cause (rule 7).
        word = "output" if self.access == "write" else "file"
        return " ".join((word, self.pattern, self.compare, *(f"!{text}" for text in self.exclude)))

    @property
    def description(self) -> str:
        return self.pattern

    def find_path(self, root: str) -> str | None:
        """Return the absolute path, or the absolute pattern."""
        return posixpath.join(root, self.pattern)


class CommitsBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="commits"):
    """The tree of branch:path. `branch` None stands for HEAD, `repo` None for the repository that contains root."""

    path: str
    repo: str | None = None
    branch: str | None = None
    each_commit: bool = False
    export: bool = False
    line: CommitLine = "first-parent"

    @property
    def identity(self) -> str:
        mode = "each" if self.each_commit else "tree"
        # The default is left out, so that versions seen before this key existed stay seen.
        line = " all" if self.line == "all" else ""
        return f"commits {self.repo or '.'} {self.branch or 'HEAD'}:{self.path} {mode}{line}"

    @property
    def description(self) -> str:
        where = f" in {self.repo}" if self.repo else ""
        return f"{self.path} on {self.branch or 'HEAD'}{where}"

    @property
    def is_ordered(self) -> bool:
        return self.each_commit

    def find_path(self, root: str) -> str | None:
        return posixpath.normpath(posixpath.join(root, self.repo or "", self.path))


class CronBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="cron"):
    """Slots of a cron expression in a time zone. They are shifted by up to `jitter_seconds`, always equally for one
    session."""

    only_advances: ClassVar[bool] = True
    is_clock: ClassVar[bool] = True

    expression: str
    timezone: str
    catch_up: CatchUp = "once"
    catch_up_window_seconds: float = 7 * 86400.0
    overlap: Overlap = "queue_one"
    jitter_seconds: float = 0.0

    @property
    def identity(self) -> str:
        return f"cron {self.expression} {self.timezone}"

    @property
    def description(self) -> str:
        return f"{self.expression} {self.timezone}"


class EveryBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="every"):
    """Slots one period apart, at multiples of the period since 1970, until the clock is set. They survive restarts
    (rule 37)."""

    only_advances: ClassVar[bool] = True
    is_clock: ClassVar[bool] = True

    period_seconds: float
    catch_up: CatchUp = "once"
    catch_up_window_seconds: float = 7 * 86400.0
    overlap: Overlap = "queue_one"
    jitter_seconds: float = 0.0

    @property
    def identity(self) -> str:
        return f"every {self.period_seconds:g}s"

    @property
    def description(self) -> str:
        return _say_period(self.period_seconds)


class MessageBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="message"):
    """The session's own mailbox."""

    only_advances: ClassVar[bool] = True

    @property
    def identity(self) -> str:
        return "message"

    @property
    def description(self) -> str:
        return "its mailbox"


class SessionBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="session"):
    """The runs of another session that ended in the way `on` says. A failure counts only if no retry follows it."""

    only_advances: ClassVar[bool] = True

    session: str
    on: RunEnd = "succeeded"

    @property
    def identity(self) -> str:
        # The default is left out, so that versions seen before this key existed stay seen.
        return f"session {self.session}" if self.on == "succeeded" else f"session {self.session} {self.on}"

    @property
    def counts_failures(self) -> bool:
        """Does a failure of the other session wake this one? Then that failure must not hold this one (rule 31)."""
        return self.on != "succeeded"

    @property
    def description(self) -> str:
        return self.session if self.on == "succeeded" else f"{self.session}, when it has {self.on}"

    @property
    def starts_at_declaration(self) -> bool:
        return self.counts_failures


class ProbeBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="probe"):
    """A command whose standard output is the version."""

    argv: tuple[str, ...]
    check_every_seconds: float = 300.0
    timeout_seconds: float = 30.0

    @property
    def identity(self) -> str:
        return "probe " + msgspec.json.encode(self.argv).decode()

    @property
    def description(self) -> str:
        return " ".join(self.argv)

    @property
    def command(self) -> tuple[str, ...]:
        return self.argv


class ServiceBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="service"):
    """A condition: while the service is down the session sleeps. Never a cause."""

    is_condition: ClassVar[bool] = True

    url: str
    check_every_seconds: float = 30.0
    timeout_seconds: float = 5.0

    @property
    def identity(self) -> str:
        return f"service {self.url}"

    @property
    def server(self) -> str | None:
        """Return the name of the agent's MCP server that the binding checks. None if it checks an address."""
        return self.url.removeprefix(MCP_TOOL_PREFIX) if self.url.startswith(MCP_TOOL_PREFIX) else None

    @property
    def description(self) -> str:
        return self.url


class WebhookBinding(Binding, frozen=True, kw_only=True, tag_field="kind", tag="webhook"):
    """Deliveries that another program posts to the binding's own address."""

    only_advances: ClassVar[bool] = True

    sender: Sender
    # Names of the secrets that sign deliveries; any of them counts. Empty if they are not signed (`secret: none`).
    secrets: tuple[str, ...] = ()
    # Path in the payload -> the values that let a delivery through. `event` is the sender's name for what happened.
    only: dict[str, tuple[str, ...]] = {}
    # The most seconds that the time in a signature may differ from ours.
    tolerance_seconds: float = 300.0
    max_size_bytes: int = 1_000_000

    @property
    def identity(self) -> str:
        # The address that a sender knows ends with this name. A new secret or filter does not change the identity, so
        # waiting deliveries stay.
        return f"webhook {self.name}"

    @property
    def description(self) -> str:
        return f"{self.sender}, signed with {' or '.join(self.secrets) if self.secrets else 'nothing'}"


AnyBinding = (
    FileBinding
    | CommitsBinding
    | CronBinding
    | EveryBinding
    | MessageBinding
    | SessionBinding
    | ProbeBinding
    | ServiceBinding
    | WebhookBinding
)
ClockBinding = CronBinding | EveryBinding
# Kinds whose versions only advance.
ADVANCING_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(AnyBinding) if kind.only_advances)


def _say_period(seconds: float) -> str:
    """Write a period as a spec would: 30m rather than 1800s."""
    size, unit = next(
        (one for one in ((86400, "d"), (3600, "h"), (60, "m")) if seconds >= one[0] and seconds % one[0] == 0), (1, "s")
    )
    return f"{seconds / size:g}{unit}"

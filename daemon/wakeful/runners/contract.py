"""What the reactor asks of a runner, and what a runner promises.

`RunOrder` is everything one run needs, as a value: a runner reads no spec, no state and no log.
The intention to run is durable before `start` is called; what happened comes back as exactly one
`ProcessEnded` per started run, through the `report` given at construction, always on the loop and
never from inside `start` or `stop`. Runners never decide: outcomes, retries and holds are the core's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from wakeful.core.observations import Enforceable, ProcessEnded, ProcessOwner, RunAttached, RunRecovered, Usage
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.budget import Amounts
from wakeful.core.spec.session import Confinement, RunLimits
from wakeful.errors import InternalError
from wakeful.secrets.store import Secret

# From weak to strong; a stronger stop replaces a weaker one, never the other way round (rule 23).
StopWord = Literal["interrupt", "terminate", "kill"]
Report = Callable[[ProcessEnded | RunRecovered | RunAttached], None]


class WorkspaceOrder(Struct, frozen=True, kw_only=True):
    """A place that was laid out for one run to work in, where `root` of its order lies, instead of `real_root`."""

    # What it is, for the record: `copy`, or a worktree and of which commit.
    words: str
    folder: str
    real_root: str
    # What lands: patterns of write bindings, each with its own excludes.
    outputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # What it borrows from elsewhere, to be read: the objects of a repository.
    borrowed: tuple[str, ...] = ()
    commit: str | None = None


class RunOrder(Struct, frozen=True, kw_only=True):
    """One run. Either `argv`, or `script`: text for `sh -eu`, handed over as a file and never interpolated."""

    session: str
    name: str
    run: int
    run_id: str
    attempt: int = 0
    argv: tuple[str, ...] = ()
    script: str | None = None
    root: str
    cwd: str
    env: dict[str, str] = {}
    timeout_seconds: float
    grace_seconds: float
    check: tuple[str, ...] | None = None
    # Kept between the runs of the session.
    scratch: str
    # TMPDIR: the session's own, emptied after each run.
    temporary: str
    # Private to this run, removed after it.
    folder: str
    # Where the outputs of a run that is strict or has a workspace wait until they are put in place; None: it writes
    # directly, whatever its level.
    staging: str | None = None
    workspace: WorkspaceOrder | None = None
    # The JSON document that WAKEFUL_CAUSES names.
    causes: bytes
    # The paths that WAKEFUL_CHANGED lists.
    changed: tuple[str, ...] = ()
    # Binding name -> path, for WAKEFUL_BINDING_<NAME>.
    bindings: dict[str, str] = {}
    socket: str
    # Handed over as files in its own folder; neither an argument nor a variable holds a value.
    secrets: tuple[Secret, ...] = ()
    # Opens the control socket for this session alone; reaches the run as a file, never as a variable.
    token: str
    output_limit_bytes: int
    limits: RunLimits = RunLimits()
    # At a time, where its own limits do not say.
    most_processes: int = 1_000
    confinement: Confinement = Confinement()
    # What its bindings mean, as patterns under root: what is read, and what is written; repositories (or None: the one
    # around root) with the bound path; and the script of the project that it runs.
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    repositories: tuple[tuple[str | None, str], ...] = ()
    program: str | None = None
    # The words of each MCP server that is a program: started by the process that thinks, in root.
    servers: tuple[tuple[str, ...], ...] = ()
    # What it asks for outside its reach is to be found out; where that cannot be done here, it does not run.
    is_traced: bool = False
    # What is left of its session's budget.
    allowance: Amounts = Amounts()
    # It is the program that thinks: a server that has it in memory may fork it instead of starting it.
    is_agent: bool = False

    def __post_init__(self) -> None:
        if bool(self.argv) == (self.script is not None):
            raise InternalError(
                f"run {self.run_id}: an order has either an argv or a script, found {self.argv!r}, {self.script!r}"
            )


class LiveUsage(Usage, frozen=True, kw_only=True):
    """What a run used until now, and what its processes hold in memory at this moment; never recorded."""

    # Summed over the tree: pages that several share count for each.
    rss_bytes: int = 0
    processes: int = 0


class OutputLanding(Protocol):
    """Puts staged outputs in place. Everything but `close` returns at once and is called on the loop."""

    def land(self, session: Session, run: OpenRun) -> None:
        """Begin, or go on where an earlier daemon left off; the end of it is reported as `LandingEnded`."""

    def discard(self, run_id: str) -> None:
        """The run is over, whatever became of it."""

    async def close(self) -> None:
        """Return when nothing is being written any more."""


class LevelWatch(Protocol):
    """Reports whether a level of isolation can be had here."""

    async def keep(self) -> None:
        """Look again and again, until cancelled."""


class Runner(Protocol):
    """One way of running. Everything but `recover` and `close` returns at once and is called on the loop."""

    def foresee(self, order: RunOrder) -> None:
        """A start with this very order is likely within a moment: find out what it needs. Starts nothing and touches
        nothing but the run's own folders; `forget` comes where no start does."""

    def start(self, order: RunOrder) -> None:
        """Start the run's process now. A failure to start is reported as any other end, never raised."""

    def stop(self, run_id: str, how: StopWord, grace_seconds: float) -> None:
        """SIGINT, SIGTERM or SIGKILL; when the grace is over, the whole tree is killed. Safe to repeat."""

    async def recover(self, lost: Mapping[str, str]) -> None:
        """Of these runs (run id -> session id) an earlier daemon left something: go on with those that were kept for
        us, end the others, and report each once, as `RunAttached` or `RunRecovered`."""

    def keeps(self, run_id: str) -> bool:
        """Would this run outlive the daemon?"""

    def forget(self, run_id: str) -> None:
        """Its end is recorded: whatever was kept of it for a later daemon,
        or found out for a start that never came, goes."""

    def unready(self, session: str) -> None:
        """Its spec is another, or gone: whatever was made ready for its next run goes."""

    def usage(self, run_id: str) -> LiveUsage | None:
        """What the run's process tree has used until now; None when it is not under way here."""

    def warm_up(self, libraries: Iterable[str]) -> None:
        """Agents are about: have a server read what their runs need, by the names of providers. Returns at once."""

    def enforceable(self) -> Enforceable:
        """What isolation means on this machine."""

    def find_tracing_obstacle(self) -> str | None:
        """Why no run can be traced here, in words with what mends it; None where one can. Blocks."""

    def owner(self, pid: int) -> ProcessOwner | None:
        """The run that a process belongs to, of this daemon or another; None: to no run.

        Raises ProcessLookupError when the process is gone.
        """

    def follow(self, run_id: str) -> AsyncIterator[bytes]:
        """The output kept so far, then what comes, until the run ends; nothing when it is not under way here."""

    async def close(self, grace_seconds: float) -> None:
        """Interrupt every run, and return when each of them was reported."""

    async def leave(self) -> None:
        """As `close`, but what is kept for a later daemon is left as it is: nothing of it is ended or reported."""

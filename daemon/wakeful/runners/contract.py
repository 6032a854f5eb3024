"""The port between the reactor and a runner: its requests, and the runner's promises.

`RunOrder` is everything one run needs, as a value: a runner reads no spec, no state and no log. There is one way to
start a run: `prepare(order)` returns a ticket, and `ticket.launch()` starts the process. The intention to run is
durable before `launch`; `prepare` may come before that, and then does the work that nobody could notice. The end comes
back as exactly one `ProcessEnded` per launched run, through the `report` given at construction, always on the loop and
never from inside `launch` or `stop`. Runners never decide: outcomes, retries and holds are the core's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from wakeful.core.record.observations import Enforceable, ProcessEnded, ProcessOwner, RunAttached, RunRecovered, Usage
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

    # The kind of workspace, for the record: `copy`, or a worktree and its commit.
    words: str
    folder: str
    real_root: str
    # The outputs that land: patterns of write bindings, each with its own excludes.
    outputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Places elsewhere that the run reads: the objects of a repository.
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
    # The bindings' meaning, as patterns under root: `reads` and `writes`. Each repository (None: the one around root)
    # comes with its bound path. `program` is the script of the project that the run starts.
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    repositories: tuple[tuple[str | None, str], ...] = ()
    program: str | None = None
    # The words of each MCP server that is a program: started by the process that thinks, in root.
    servers: tuple[tuple[str, ...], ...] = ()
    # Find out which accesses outside its reach it asks for. Where that cannot be done here, it does not run.
    is_traced: bool = False
    # The rest of its session's budget.
    allowance: Amounts = Amounts()

    def __post_init__(self) -> None:
        if bool(self.argv) == (self.script is not None):
            raise InternalError(
                f"run {self.run_id}: an order has either an argv or a script, found {self.argv!r}, {self.script!r}"
            )


class LiveUsage(Usage, frozen=True, kw_only=True):
    """The usage of a run until now, with the memory of its processes at this moment; never recorded."""

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

    async def settle(self) -> None:
        """Return when a first trial that was begun is over."""

    async def keep(self) -> None:
        """Look again and again, until cancelled."""


class Ticket(Protocol):
    """A run that can be started, once. On the loop."""

    def launch(self) -> None:
        """Start the run's process now. A failure to start is reported as any other end, never raised."""

    def discard(self) -> None:
        """No start comes: release what was prepared. Safe to repeat, and after `launch`."""


class Preparation(Protocol):
    """The one way to start a run."""

    def prepare(self, order: RunOrder) -> Ticket:
        """Do early what can be done before the run is on record.

        Starts no program of the run, and touches nothing but the run's own folders. Never raises: an error is found
        again by the launch, which reports it.
        """


class Runner(Preparation, Protocol):
    """One way of running. What is not `async` returns at once and is called on the loop, unless it says otherwise."""

    async def settle(self) -> None:
        """Return when it was tried what this machine lets runs do. Awaited once, before the first run."""

    def stop(self, run_id: str, how: StopWord, grace_seconds: float) -> None:
        """SIGINT, SIGTERM or SIGKILL; when the grace is over, the whole tree is killed. Safe to repeat."""

    async def recover(self, lost: Mapping[str, str]) -> None:
        """Of these runs (run id -> session id) an earlier daemon left something: go on with those that were kept for
        us, end the others, and report each once, as `RunAttached` or `RunRecovered`."""

    def keeps(self, run_id: str) -> bool:
        """Would this run outlive the daemon?"""

    def forget(self, run_id: str) -> None:
        """Its end is recorded: release what was kept of it for a later daemon."""

    def usage(self, run_id: str) -> LiveUsage | None:
        """The usage of the run's process tree until now; None when it is not under way here."""

    def enforceable(self) -> Enforceable:
        """Which parts of isolation this machine can enforce. Blocks; called in any thread."""

    def find_tracing_obstacle(self) -> str | None:
        """Why no run can be traced here, in words with what mends it; None where one can. Blocks."""

    def owner(self, pid: int) -> ProcessOwner | None:
        """The run that a process belongs to, of this daemon or another; None: to no run.

        Raises ProcessLookupError when the process is gone.
        """

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        """The process of a run that has the other end of a TCP connection, in words; None: none has.

        `local` is our end. Called in any thread.
        """

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        """The user who has the other end of a TCP connection; None: a user of another machine. Called in any thread."""

    def follow(self, run_id: str) -> AsyncIterator[bytes]:
        """The output kept so far, then what comes, until the run ends; nothing when it is not under way here."""

    async def close(self, grace_seconds: float) -> None:
        """Interrupt every run, and return when each of them was reported."""

    async def leave(self) -> None:
        """As `close`, but what is kept for a later daemon is left as it is: nothing of it is ended or reported."""

"""The port between the reactor and a runner: its requests, and the runner's promises.

`RunOrder` holds everything one run needs. A runner reads no spec, no state and no log. To start a run, call
`prepare(order)`, which returns a ticket, then `ticket.launch()`. The intention to run is durable before `launch`.
`prepare` may come earlier, and has no effect outside the run's own folders. Each launched run is reported exactly once,
as `ProcessEnded`, through the `report` given at construction. The report comes on the loop, never from inside `launch`
or `stop`. Runners never decide: outcomes, retries and holds are the core's.
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
    """A folder made for one run to work in. The order's `root` lies in it and stands for `real_root`."""

    # The kind of workspace, as recorded: `copy`, or a worktree and its commit.
    words: str
    folder: str
    real_root: str
    # The outputs that are put in place after the run: patterns of write bindings, each with its own excludes.
    outputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Paths outside `folder` that the run may read: the objects of a repository.
    borrowed: tuple[str, ...] = ()
    commit: str | None = None


class RunOrder(Struct, frozen=True, kw_only=True):
    """One run: either `argv`, or `script`, which is text for `sh -eu`, passed as a file and never interpolated."""

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
    # The folder that keeps the outputs of a run that is strict or has a workspace until they are put in place. None if
    # the run writes directly, whatever its level.
    staging: str | None = None
    workspace: WorkspaceOrder | None = None
    # The JSON document that WAKEFUL_CAUSES names.
    causes: bytes
    # The paths that WAKEFUL_CHANGED lists.
    changed: tuple[str, ...] = ()
    # Binding name -> path, for WAKEFUL_BINDING_<NAME>.
    bindings: dict[str, str] = {}
    socket: str
    # Passed as files in the run's own folder. No argument and no variable holds a secret's value.
    secrets: tuple[Secret, ...] = ()
    # Opens the control socket for this session only. Passed to the run as a file, never as a variable.
    token: str
    output_limit_bytes: int
    limits: RunLimits = RunLimits()
    # The most processes at a time, if `limits.processes` is None.
    most_processes: int = 1_000
    confinement: Confinement = Confinement()
    # `reads` and `writes` are the patterns of the bindings, under root. `repositories` holds pairs of a repository
    # (None for the one around root) and its bound path. `program` is the script of the project that the run starts.
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    repositories: tuple[tuple[str | None, str], ...] = ()
    program: str | None = None
    # The command line of each MCP server that is a program. The agent's process starts these servers, in root.
    servers: tuple[tuple[str, ...], ...] = ()
    # Record which accesses outside its reach the run asks for. If this machine cannot trace, the run does not start.
    is_traced: bool = False
    # The rest of its session's budget.
    allowance: Amounts = Amounts()

    def __post_init__(self) -> None:
        if bool(self.argv) == (self.script is not None):
            raise InternalError(
                f"run {self.run_id}: an order has either an argv or a script, found {self.argv!r}, {self.script!r}"
            )


class LiveUsage(Usage, frozen=True, kw_only=True):
    """The usage of a run until now, with the memory of its processes at this moment. Never recorded."""

    # Summed over the process tree. A page that several processes share counts once for each.
    rss_bytes: int = 0
    processes: int = 0


class OutputLanding(Protocol):
    """Puts staged outputs in place. Every method except `close` returns at once and is called on the loop."""

    def land(self, session: Session, run: OpenRun) -> None:
        """Start to put a run's outputs in place, or resume for an earlier daemon. Reports `LandingEnded` at the end."""

    def discard(self, run_id: str) -> None:
        """Remove the staged outputs of a run that is over, whatever its outcome."""

    async def close(self) -> None:
        """Return when no output is being written any more."""


class LevelWatch(Protocol):
    """Checks whether this machine can provide a level of isolation."""

    async def settle(self) -> None:
        """Return when the first trial, if one was begun, is over."""

    async def keep(self) -> None:
        """Repeat the check until cancelled."""


class Ticket(Protocol):
    """A run that can be started once. Its methods are called on the loop."""

    def launch(self) -> None:
        """Start the run's process now. A failure to start is reported as any other end, never raised."""

    def discard(self) -> None:
        """Release everything that was prepared, because the run will not start. Safe to repeat, and after `launch`."""


class Preparation(Protocol):
    """Prepares runs. Every start of a run goes through it."""

    def prepare(self, order: RunOrder) -> Ticket:
        """Do the work that can be done before the run is recorded.

        Starts no program of the run, and touches only the run's own folders. Never raises, because `launch` meets the
        same error again and reports it.
        """


class Runner(Preparation, Protocol):
    """Starts and ends runs.

    A method returns at once and is called on the loop, unless it is a coroutine or its docstring says otherwise.
    """

    async def settle(self) -> None:
        """Test what this machine allows runs to do. Awaited once, before the first run."""

    def stop(self, run_id: str, how: StopWord, grace_seconds: float) -> None:
        """Send SIGINT, SIGTERM or SIGKILL. When the grace is over, kill the whole tree. Safe to repeat."""

    async def recover(self, lost: Mapping[str, str]) -> None:
        """Take over the runs that an earlier daemon left (run id -> session id).

        Go on with the runs that it kept for a later daemon, and end the others. Report each run once, as `RunAttached`
        or `RunRecovered`.
        """

    def keeps(self, run_id: str) -> bool:
        """Would this run outlive the daemon?"""

    def forget(self, run_id: str) -> None:
        """Release everything that was kept for a later daemon about this run, because the run's end is recorded."""

    def usage(self, run_id: str) -> LiveUsage | None:
        """Return the usage of the run's process tree until now; None if this daemon does not run it."""

    def enforceable(self) -> Enforceable:
        """Return the parts of isolation that this machine can enforce. Blocking; called in any thread."""

    def find_tracing_obstacle(self) -> str | None:
        """Describe why no run can be traced here, and how to mend it; None if runs can be traced. Blocking."""

    def owner(self, pid: int) -> ProcessOwner | None:
        """Find the run, of this daemon or another, that a process belongs to; None if it belongs to no run.

        Raises ProcessLookupError if the process is gone.
        """

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        """Describe the process of a run that has the other end of a TCP connection; None if no run has it.

        `local` is the daemon's end. May be called from any thread.
        """

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        """Find the user who has the other end of a TCP connection; None if it is on another machine.

        May be called from any thread.
        """

    def follow(self, run_id: str) -> AsyncIterator[bytes]:
        """Yield the output kept so far, then new output until the run ends. Empty if this daemon does not run it."""

    async def close(self, grace_seconds: float) -> None:
        """Interrupt every run, and return when each has been reported."""

    async def leave(self) -> None:
        """Close, but neither end nor report the runs that are kept for a later daemon."""

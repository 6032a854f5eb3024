"""The interface of the daemon that the API uses: the only connection between the routes and the loop.

`service.api_service` implements it. The tests have a small implementation of it. Everything is called on the
loop, unless a method says otherwise. Reads change nothing. A `call` returns when it is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wakeful.api.live_answers import LiveWords, Said
from wakeful.core.calls.call_types import Call, Reply, Work
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.path_reports import Bounds, Compared, PathMeaning
from wakeful.core.record.observations import Enforceable, Moment, ProcessOwner, Usage
from wakeful.core.record.state import Session
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import UnknownSession
from wakeful.eventlog.contract import DaemonLog, Record
from wakeful.monitoring.measures import Monitoring
from wakeful.notifications.delivery_loop import Notifications
from wakeful.run_files.replay import Replays
from wakeful.secrets.known_secrets import Known
from wakeful.system.blobs import Blobs
from wakeful.trust.trust_review import TrustReview
from wakeful.workspaces.fork_workspaces import Workspaces


class Places(Protocol):
    """The paths of this daemon: its specs, its state folder, and its control socket."""

    @property
    def specs(self) -> Path: ...
    @property
    def state(self) -> Path: ...
    @property
    def socket(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """The meaning of one path for one binding."""

    session: str
    binding: str
    meaning: PathMeaning
    # Wall time of the binding's last look, in microseconds. 0 before its first look.
    looked_at: int


@dataclass(frozen=True, slots=True)
class FollowLine:
    """A durable record for followers, with the name that its session had when the record was read for them."""

    session: str
    record: Record
    # The record's position in the log of all sessions.
    position: int
    # A cache of the encoded line, by output format. All followers share this cache.
    written: dict[tuple[bool, bool], bytes] = field(default_factory=dict, compare=False, repr=False)


# Does a follower want this record of this session?
RecordFilter = Callable[[Session, Record], bool]


@dataclass(frozen=True, slots=True)
class LiveLine:
    """A piece of an answer in progress, with the name of its session. `run` is 0 if no run has started yet."""

    session: str
    run: int
    said: Said


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The run that a token was given to. It may make calls for its own session, and for no other."""

    session_id: str
    name: str
    run: int

    @property
    def run_id(self) -> str:
        return f"{self.session_id}.{self.run}"


class Service(Protocol):
    """The daemon, as the API uses it."""

    # Read only.
    core: Core
    log: DaemonLog
    version: str
    pid: int
    # Microseconds UTC.
    started_at: int
    blobs: Blobs
    replays: Replays
    workspaces: Workspaces
    trust: TrustReview
    notifications: Notifications
    live_words: LiveWords
    monitoring: Monitoring

    @property
    def places(self) -> Places: ...

    async def call(
        self, call: Call, *, author: str, key: str | None, run: int | None, digest: bytes | None = None
    ) -> Reply:
        """Carry out a call and return its answer when it is durable. Raises CallerError if the call is refused.

        `digest` is the digest of the request. It is recorded with the idempotency key."""
        ...

    def submit(self, call: Work, *, author: str, key: str | None, run: int | None) -> Awaitable[Reply]:
        """Judge steps of a run now. Raises CallerError if they are refused. The awaited result comes when they are
        durable.
        """
        ...

    def moment(self) -> Moment: ...

    async def recorded_so_far(self) -> None:
        """Return when all earlier decisions are in the log."""

    async def report_written(self, session_id: str, paths: Iterable[str]) -> None:
        """Record that a rewind or merge wrote these paths, so that they count as the session's own writes (rule 44).

        Returns when the record is durable.
        """

    def refold(self, session_id: str) -> None:
        """Fold a session from the log again after a payload was erased, so that its text leaves memory as well."""

    def forget_contents(self) -> None:
        """Drop the cached contents of runs' files, because blobs were removed."""

    async def read_specs(self) -> None:
        """Read sessions.d again now. Returns when the core has decided about the changes."""

    def read_spec(self, name: str, text: str) -> SessionSpec:
        """Parse a spec, and judge it like a file of sessions.d. Raises CallerError if it is refused. Blocking. Any
        thread."""
        ...

    def report_spec_again(self, name: str) -> None:
        """Declare a session's spec again, because the session was reopened or has come back. It then follows its file
        again.
        """

    def secrets(self) -> tuple[list[Known], str]:
        """Look at every secret again. Returns the secrets, and the folder of those that are files."""
        ...

    def read_secret(self, name: str) -> bytes:
        """Read the current value of a secret. Raises OperatorError if it is missing or refused."""
        ...

    def redact(self, value: Any) -> Any:
        """Replace the values of secrets by their names, in a text or in a value that contains texts. Any thread."""
        ...

    def redact_part(self, before: str, text: str, after: str) -> str:
        """Redact `text`. A secret that begins in `before` or ends in `after` is found as well. Any thread."""
        ...

    def problems(self) -> dict[str, str]:
        """Return the reasons why specs were refused, by file or by session name."""
        ...

    def defects(self) -> dict[str, int]:
        """Return the text of each unexpected exception in the sources, with its count."""
        ...

    def explain_path(self, path: str) -> list[PathVerdict]: ...

    def describe_target(self, key: str) -> str | None:
        """Describe how a target is watched and what the last look found. None if no binding uses the target."""
        ...

    async def compare_commits(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        """Compare two versions of a commits target, with contents. If that is impossible, the result has the reason."""
        ...

    def usage(self, session_id: str) -> Usage | None:
        """Return the resources that the current run has used so far. None if no run is under way."""
        ...

    def output(self, session_id: str, run: int) -> tuple[bytes, bytes, int]:
        """Read the head, the tail and the true length of a run's output. Raises CallerError if none was kept.

        Blocking. Any thread.
        """
        ...

    def follow_output(self, session_id: str) -> AsyncIterator[bytes]:
        """Yield the current run's output so far, then further output until the run ends."""
        ...

    def follow(
        self,
        names: set[str] | None,
        *,
        is_live: bool = False,
        after: int | None = None,
        is_wanted: RecordFilter | None = None,
        pause_seconds: float = 0.0,
    ) -> AsyncIterator[list[FollowLine | LiveLine]]:
        """Yield the records of these sessions (None for all) as they become durable, from now on or after a position.
        Records that are available together are yielded as one list.

        - `is_live`: also yield the text of agents while they write it.
        - `is_wanted`: yield only these records.
        - `pause_seconds`: wait this long for more records before each list.
        """
        ...

    def listen(self, heard: asyncio.Event) -> AbstractContextManager[None]:
        """Set the event whenever something was decided or recorded, until the context ends."""
        ...

    def enforceable(self) -> Enforceable:
        """Return the parts of isolation that this machine can enforce. Blocking; called in any thread."""
        ...

    def find_tracing_obstacle(self) -> str | None:
        """Return the reason why no run can be traced here, with its remedy. None if runs can be traced. Blocking."""
        ...

    def owner_of_process(self, pid: int) -> ProcessOwner | None:
        """Find the run that a process belongs to, of this daemon or another. None if it belongs to no run.

        Raises ProcessLookupError if the process has exited.
        """
        ...

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        """Describe the process of a run that holds the other end of a TCP connection. None if no run holds it.

        `local` is our end of the connection. Any thread.
        """
        ...

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        """Find the user at the other end of a TCP connection. None if it is on another machine. Any thread."""
        ...

    def run_identity(self, token: str) -> RunIdentity | None:
        """Find the open run that this token was given to. None if there is none."""
        ...

    def find_rename_obstacle(self, old: str, new: str) -> str | None:
        """Return the reason why a session's file cannot be renamed. None if it can."""
        ...

    def rename_spec(self, old: str, new: str) -> None:
        """Rename a session's file. Raises OSError if that fails. The caller then calls `read_specs`."""

    def stop(self) -> None: ...


def find_named(service: Service, name: str) -> Session:
    """Find the session of this name. Raises UnknownSession. If a refused spec has this name, the message has the
    problem of the spec.
    """
    refuse_refused(service, name)
    return service.core.state.by_name(name)


async def know_agent(service: Service, name: str | None) -> None:
    """Read the specs again if no agent of this name is known. A person may name an agent right after saving its
    file."""
    if name is not None and name not in service.core.agents:
        await service.read_specs()


def refuse_refused(service: Service, name: str) -> None:
    """Raise UnknownSession if the name belongs to a refused new spec. Such a session does not exist, and the caller
    needs to know what is wrong with the spec."""
    problem = None if name in service.core.state.ids else service.problems().get(name)
    if problem is not None:
        # A message is one line, but each problem of the file is a separate line.
        raise UnknownSession(f"{name} is refused: {'; and '.join(problem.splitlines())}")

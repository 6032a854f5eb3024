"""The daemon as the API knows it: the one facade between the socket and the loop.

`service.facade` implements it, the tests have a small one of their own, and the routes know nothing else. Everything is
called on the loop. Reading never changes anything; `call` is the only way in, and it returns when the call is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wakeful.api.live_words import LiveWords, Said
from wakeful.core.calls.values import Call, Reply, Work
from wakeful.core.deciding.machine import Core
from wakeful.core.looking.path_reports import Bounds, Compared, PathMeaning
from wakeful.core.record.observations import Enforceable, Moment, ProcessOwner, Usage
from wakeful.core.record.state import Session
from wakeful.core.spec.session import SessionSpec
from wakeful.eventlog.contract import DaemonLog, Record
from wakeful.monitoring.monitoring import Monitoring
from wakeful.notifications.desk import NotificationDesk
from wakeful.run_files.replay import Replays
from wakeful.secrets.known import Known
from wakeful.system.blobs import Blobs
from wakeful.trust.desk import TrustDesk
from wakeful.workspaces.fork_workspaces import Workspaces


class Places(Protocol):
    """Where this daemon reads specs, keeps its state and listens."""

    @property
    def specs(self) -> Path: ...
    @property
    def state(self) -> Path: ...
    @property
    def socket(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """One binding's answer to "what about this path?"."""

    session: str
    binding: str
    meaning: PathMeaning
    # Wall time of the binding's last look in microseconds; 0 when it was not looked at yet.
    looked_at: int


@dataclass(frozen=True, slots=True)
class FollowLine:
    """A record as it became durable, with the name its session had then."""

    session: str
    record: Record
    # Its position in the order of all sessions.
    position: int
    # The line as it was written, by the form in which it was asked for. All followers share the line.
    written: dict[tuple[bool, bool], bytes] = field(default_factory=dict, compare=False, repr=False)


# Whether somebody who follows wants to see this record of this session.
RecordFilter = Callable[[Session, Record], bool]


@dataclass(frozen=True, slots=True)
class LiveLine:
    """Words in flight, with the name of their session; `run` 0: of a run that has not started."""

    session: str
    run: int
    said: Said


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The run that a token was given to. It may speak for its own session, and for no other."""

    session_id: str
    name: str
    run: int

    @property
    def run_id(self) -> str:
        return f"{self.session_id}.{self.run}"


class Service(Protocol):
    """The daemon as the API knows it."""

    # For reading alone.
    core: Core
    log: DaemonLog
    version: str
    pid: int
    # Microseconds UTC.
    started_at: int
    blobs: Blobs
    replays: Replays
    workspaces: Workspaces
    trust: TrustDesk
    notifications: NotificationDesk
    live_words: LiveWords
    monitoring: Monitoring

    @property
    def places(self) -> Places: ...

    async def call(
        self, call: Call, *, author: str, key: str | None, run: int | None, digest: bytes | None = None
    ) -> Reply:
        """Carry a call out and return its answer once it is durable; raises CallerError.

        `digest` is that of the request, kept with its key."""
        ...

    def submit(self, call: Work, *, author: str, key: str | None, run: int | None) -> Awaitable[Reply]:
        """Judge steps of a run now, or raise CallerError; what is returned is to be awaited: they are durable then."""
        ...

    def moment(self) -> Moment: ...

    async def recorded_so_far(self) -> None:
        """Return when everything decided before is in the log."""

    async def report_written(self, session_id: str, paths: Iterable[str]) -> None:
        """A rewind or merge of this session has written these paths: they become its own (rule 44).

        Returns when that is durable.
        """

    def refold(self, session_id: str) -> None:
        """Fold a session from the log again after a payload was erased, so that its words leave the memory as well."""

    def forget_contents(self) -> None:
        """Forget what is remembered of the files of runs, because blobs were removed."""

    async def read_specs(self) -> None:
        """Read sessions.d again now; returns when the differences are decided upon."""

    def read_spec(self, name: str, text: str) -> SessionSpec:
        """A spec from its text, judged as a file of sessions.d would be; raises CallerError. Blocks; any thread."""
        ...

    def report_spec_again(self, name: str) -> None:
        """Declare a session's spec anew: the session is open again, or has come back, and follows its file."""

    def secrets(self) -> tuple[list[Known], str]:
        """Every secret as it stands now, looked at anew, and the folder of those that are files."""
        ...

    def read_secret(self, name: str) -> bytes:
        """The value of a secret as it is now; raises OperatorError where it is missing or refused."""
        ...

    def redact(self, value: Any) -> Any:
        """A text, or a value with texts in it, without the values of secrets: each is replaced by its name.

        Called in any thread.
        """
        ...

    def redact_part(self, before: str, text: str, after: str) -> str:
        """`text` without the values of secrets, also of those that reach into what stands before or after it.

        Called in any thread.
        """
        ...

    def problems(self) -> dict[str, str]:
        """Specs that were not taken, by file or name, in words."""
        ...

    def defects(self) -> dict[str, int]:
        """Unexpected exceptions met while looking, in words, and how often each was met."""
        ...

    def explain_path(self, path: str) -> list[PathVerdict]: ...

    def describe_target(self, key: str) -> str | None:
        """How a target is watched and what was found there, in words; None when nobody follows it."""
        ...

    async def compare_commits(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        """Two versions of a commits target beside each other, with contents; why not, where that cannot be."""
        ...

    def usage(self, session_id: str) -> Usage | None:
        """The resources that the present run has used so far; None when none is under way."""
        ...

    def output(self, session_id: str, run: int) -> tuple[bytes, bytes, int]:
        """Head, tail and true length of a run's output; raises CallerError when none was kept.

        Blocks; called in any thread.
        """
        ...

    def follow_output(self, session_id: str) -> AsyncIterator[bytes]:
        """The present run's output so far, then what comes, until the run ends."""
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
        """Records of these sessions (None: of all) as they become durable, from now on or after a position.
        Those that are there together come together.

        `is_live`: and the words of their agents, as they come. `is_wanted`: only these records. `pause_seconds`: how
        long to wait for more of them.
        """
        ...

    def listen(self, heard: asyncio.Event) -> AbstractContextManager[None]:
        """Inside, the event is set whenever something was decided or recorded."""
        ...

    def enforceable(self) -> Enforceable:
        """The parts of isolation that this machine can enforce. Blocks; any thread."""
        ...

    def find_tracing_obstacle(self) -> str | None:
        """Why no run can be traced here, in words with what mends it. Blocks."""
        ...

    def owner_of_process(self, pid: int) -> ProcessOwner | None:
        """The run that a process belongs to, of this daemon or another; None: to no run.

        Raises ProcessLookupError when the process is gone.
        """
        ...

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        """The process of a run that has the other end of a TCP connection, in words; None: none has.

        `local` is our end of it. Called in any thread.
        """
        ...

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        """The user who has the other end of a TCP connection; None: a user of another machine. Called in any thread."""
        ...

    def run_identity(self, token: str) -> RunIdentity | None:
        """The open run this token was given to; None when there is none."""
        ...

    def find_rename_obstacle(self, old: str, new: str) -> str | None:
        """Why a session's file cannot get its new name, in words; None: it can."""
        ...

    def rename_spec(self, old: str, new: str) -> None:
        """Give a session's file its new name; raises OSError where that cannot be done. `read_specs` is to follow."""

    def stop(self) -> None: ...

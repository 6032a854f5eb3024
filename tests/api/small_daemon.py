"""A small daemon for tests of the API: the real core, a log in memory and the real socket, in a thread of its own.

Only the edges are replaced. Looks are answered from a table, and a run ends when the test calls `finish`. The class
implements the API's `Service`, so the code between the socket and the core is the code that ships.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from wait_conditions import PATIENCE_SECONDS
from wakeful import __version__
from wakeful.api.contract import FollowLine, LiveLine, PathVerdict, RecordFilter, RunIdentity
from wakeful.api.live_answers import LiveWords
from wakeful.api.operations.follow import RecordPages, follow_records
from wakeful.api.server import ControlSocket
from wakeful.core.calls.call_types import Call, Called, Reply, Work
from wakeful.core.decide import decide
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.path_reports import Found
from wakeful.core.looking.targets import FileTarget
from wakeful.core.observation_handlers import Observation
from wakeful.core.record.observations import (
    DaemonStarted,
    Declaration,
    Enforceable,
    FilesWritten,
    Gap,
    LookResult,
    Moment,
    Output,
    PathChange,
    ProcessEnded,
    ProcessOwner,
    SpecsRead,
    TargetLooked,
    TargetsHinted,
    Usage,
)
from wakeful.core.spec.bindings import AnyBinding, FileBinding
from wakeful.core.spec.http_settings import HttpSettings, TcpAddress
from wakeful.core.spec.session import CommandRun, SessionSpec, Settings
from wakeful.errors import CallerError
from wakeful.eventlog.codec import encode
from wakeful.eventlog.contract import Append, DaemonLog, Draft
from wakeful.eventlog.memory_engine import MemoryLog
from wakeful.history.repeated_calls import find_first, name_call
from wakeful.monitoring.measures import Monitoring
from wakeful.notifications.channels.program import Programs
from wakeful.notifications.channels.send import ChannelSender
from wakeful.notifications.delivery_loop import Notifications
from wakeful.notifications.ledger import LedgerFiles
from wakeful.secrets.redact import Redactor
from wakeful.sources.git.checkouts import Checkouts
from wakeful.system.blobs import Blobs
from wakeful.trust.ledger import Ledger
from wakeful.trust.spec_reader import SpecFolderReader
from wakeful.trust.trust_review import TrustReview
from wakeful.workspaces.fork_workspaces import Workspaces

T = TypeVar("T")


OpenLog = Callable[[Path], DaemonLog]


@dataclass(frozen=True)
class Places:
    specs: Path
    state: Path
    socket: Path


def declare(name: str, *bindings: AnyBinding, root: str = "/project", **keys: Any) -> SessionSpec:
    """Return the spec of a session that runs a command. The session does not retry."""
    keys.setdefault("run", CommandRun(argv=("true",), retries=0))
    return SessionSpec(name=name, root=root, bindings=bindings, **keys)


def reads(name: str, pattern: str, **keys: Any) -> FileBinding:
    return FileBinding(name=name, pattern=pattern, settle_seconds=0, settle_max_seconds=0, **keys)


def writes(name: str, pattern: str, **keys: Any) -> FileBinding:
    return reads(name, pattern, access="write", wake=False, **keys)


class SmallDaemon:
    def __init__(self, folder: Path, *, version: str = __version__, open_log: OpenLog | None = None) -> None:
        """`open_log` makes a log in files, for tests that look at those files. Without it the log is in memory."""
        self.places = Places(folder / "sessions.d", folder / "state", folder / "run" / "wakeful.sock")
        self.core = Core()
        self.version, self.pid, self.started_at = version, 4711, time.time_ns() // 1000
        self.places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log: DaemonLog = open_log(self.places.state) if open_log is not None else MemoryLog()
        self.blobs = Blobs(str(self.places.state / "blobs"))
        self.workspaces = Workspaces(self.blobs, str(self.places.state), Checkouts())
        ledger = Ledger(self.places.state / "trust")
        self.trust = TrustReview(ledger, SpecFolderReader(self.places.specs, ledger))
        self.versions: dict[str, str] = {}
        self.changes: dict[str, tuple[PathChange, ...]] = {}
        self.kept: dict[tuple[str, int], tuple[bytes, bytes, int]] = {}
        self.live_output: list[bytes] = []
        self.tokens: dict[str, RunIdentity] = {}
        # The run that the calling process belongs to, and whether that process has already ended.
        self.owner: ProcessOwner | None = None
        # The user of the browser that calls over TCP.
        self.browser_uid: int | None = os.getuid()
        self.is_caller_gone = False
        self.wrong: dict[str, str] = {}
        # The defects found while looking, with their counts.
        self.met: dict[str, int] = {}
        self.renamed: list[tuple[str, str]] = []
        self._last_look: dict[str, str] = {}
        self._inbox: deque[Observation] = deque()
        self._listeners: set[asyncio.Event] = set()
        self._pages = RecordPages(self)
        self.redactor = Redactor()
        self.live_words = LiveWords(lambda: self.redactor)
        self.notifications = Notifications(
            self.core,
            self.log,
            LedgerFiles(self.places.state),
            ChannelSender(Programs(str(folder), {}, lambda path: None), lambda name: b"", "here"),
            host="here",
            observe=self._inbox.append,
            say=lambda words: None,
            redact=self.redact,
            read_wall=lambda: time.time_ns() // 1000,
        )
        self.monitoring = Monitoring(self.core)

    # -- the loop ------------------------------------------------------------------------------

    def moment(self) -> Moment:
        return Moment(time.time_ns() // 1000, time.monotonic(), time.monotonic())

    async def recorded_so_far(self) -> None:
        """Return at once. `_record` awaits every append, so nothing is pending."""

    async def observe(self, observation: Observation) -> None:
        self._inbox.append(observation)
        while self._inbox:
            await self._record(decide(self.core, self._inbox.popleft(), self.moment()))

    async def _record(self, decision: Decision, digest: bytes | None = None) -> None:
        sessions = dict.fromkeys(entry.session for entry in decision.entries)
        appends = []
        for session in sessions:
            own = [entry for entry in decision.entries if entry.session == session]
            drafts = tuple(
                Draft(*encode(entry.event), author=entry.author, run=entry.run, parent=entry.parent) for entry in own
            )
            key = next((e.key for e in own if e.key), None)
            appends.append(Append(session, own[0].seq - 1, drafts, key=key, digest=digest))
        if appends:
            await self.log.append(appends, decision.moment.wall)
            for listener in self._listeners:
                listener.set()
        self._inbox.extend(self._answer(look.target, look.generation) for look in decision.looks)

    def _answer(self, key: str, generation: int) -> TargetLooked:
        target = self.core.looked.targets[key].target
        name = target.pattern if isinstance(target, FileTarget) else key
        version = self.versions.get(name, "a" * 32)
        previous, self._last_look[key] = self._last_look.get(key), version
        return TargetLooked(
            LookResult(
                target=key,
                generation=generation,
                version=version,
                previous=previous,
                changes=self.changes.get(name, ()),
                stamp=version,
            )
        )

    # -- actions of a test -----------------------------------------------------------------------

    async def declare(self, *specs: SessionSpec) -> None:
        await self.observe(SpecsRead(declared=tuple(Declaration(spec, "text") for spec in specs)))

    async def change(self, pattern: str, version: str, *paths: PathChange) -> None:
        """Give a pattern another version and hint at its targets, so that the next look finds the change."""
        self.versions[pattern], self.changes[pattern] = version, paths
        keys = tuple(
            k for k, look in self.core.looked.targets.items() if getattr(look.target, "pattern", "") == pattern
        )
        await self.observe(TargetsHinted(keys))

    async def finish(self, name: str, exit_code: int = 0, output: bytes = b"") -> None:
        """End the session's current run."""
        session = self.core.state.by_name(name)
        assert session.run is not None, f"{name} does not run"
        self.kept[(session.id, session.run.run)] = (output, b"", len(output))
        usage = Usage(wall_seconds=1.5, cpu_seconds=0.5)
        ended = ProcessEnded(
            session=session.id, run_id=session.run.run_id, exit_code=exit_code, usage=usage, output=Output()
        )
        await self.observe(ended)

    def give_token(self, name: str) -> str:
        session = self.core.state.by_name(name)
        assert session.run is not None
        token = f"token-of-{name}"
        self.tokens[token] = RunIdentity(session.id, name, session.run.run)
        return token

    # -- the facade of the API -------------------------------------------------------------------

    async def call(
        self, call: Call, *, author: str, key: str | None, run: int | None, digest: bytes | None = None
    ) -> Reply:
        session_id = self.core.state.ids.get(call.name, call.name)
        if key is not None and find_first(self.log, self.core.state, name_call(call, digest), key) is not None:
            return Reply(words="done already", is_repeated=True)
        decision = decide(self.core, Called(call=call, author=author, key=key, run=run), self.moment())
        await self._record(decision, digest)
        while self._inbox:
            await self._record(decide(self.core, self._inbox.popleft(), self.moment()))
        seq = next((entry.seq for entry in decision.entries if entry.session == session_id), None)
        return Reply(words=decision.reply or "done", seq=seq, held=decision.held, held_until=decision.held_until)

    def submit(self, call: Work, *, author: str, key: str | None, run: int | None) -> Awaitable[Reply]:
        return self.call(call, author=author, key=key, run=run)

    async def report_written(self, session_id: str, paths: Iterable[str]) -> None:
        await self.observe(FilesWritten(session=session_id, paths=tuple(paths)))

    def report_spec_again(self, name: str) -> None:
        """Do nothing. No file declares a session here."""

    async def read_specs(self) -> None:
        pass

    def redact(self, value: Any) -> Any:
        return value

    def redact_part(self, before: str, text: str, after: str) -> str:
        return text

    def problems(self) -> dict[str, str]:
        return self.wrong

    def defects(self) -> dict[str, int]:
        return self.met

    def explain_path(self, path: str) -> list[PathVerdict]:
        looks = self.core.looked.targets.values()
        return [
            PathVerdict(self.core.state.get(one).name, "input", Found(is_there=True), look.looked_at)
            for look in looks
            for one in look.subscribers
            if isinstance(look.target, FileTarget) and f"{look.target.root}/{look.target.pattern}" == path
        ]

    def describe_target(self, key: str) -> str | None:
        return "watched by events"

    def usage(self, session_id: str) -> Usage | None:
        return (
            Usage(cpu_seconds=0.25, max_rss_bytes=30_000_000)
            if self.core.state.get(session_id).run is not None
            else None
        )

    def output(self, session_id: str, run: int) -> tuple[bytes, bytes, int]:
        try:
            return self.kept[(session_id, run)]
        except KeyError:
            raise CallerError(f"run {run} has no output yet") from None

    async def follow_output(self, session_id: str) -> AsyncIterator[bytes]:
        for piece in self.live_output:
            yield piece
        while self.core.state.get(session_id).run is not None:
            await asyncio.sleep(0.005)

    def follow(
        self,
        names: set[str] | None,
        *,
        is_live: bool = False,
        after: int | None = None,
        is_wanted: RecordFilter | None = None,
        pause_seconds: float = 0.0,
    ) -> AsyncIterator[list[FollowLine | LiveLine]]:
        return follow_records(
            self,
            self._pages,
            self._listeners,
            names,
            is_live=is_live,
            after=after,
            is_wanted=is_wanted,
            pause_seconds=pause_seconds,
        )

    @contextlib.contextmanager
    def listen(self, heard: asyncio.Event) -> Iterator[None]:
        self._listeners.add(heard)
        try:
            yield
        finally:
            self._listeners.discard(heard)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def enforceable(self) -> Enforceable:
        return Enforceable(
            landlock=7,
            unenforced=("stat", "TCP by port (Linux 6.7 can)"),
            gaps=(Gap("TCP by port", "a list opens every port", "Linux 6.7"),),
            is_shielding=False,
        )

    def find_tracing_obstacle(self) -> str | None:
        return None

    def owner_of_process(self, pid: int) -> ProcessOwner | None:
        if self.is_caller_gone:
            raise ProcessLookupError
        return self.owner

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        return None if self.owner is None else self.owner.sign or "a process of a run"

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        return self.browser_uid

    def run_identity(self, token: str) -> RunIdentity | None:
        return self.tokens.get(token)

    def find_rename_obstacle(self, old: str, new: str) -> str | None:
        return None

    def rename_spec(self, old: str, new: str) -> None:
        self.renamed.append((old, new))

    def stop(self) -> None:
        pass


class RunningDaemon:
    """Serve a SmallDaemon from a thread. `do` runs a coroutine on its loop and waits for the result."""

    def __init__(self, folder: Path, *, version: str = __version__, open_log: OpenLog | None = None) -> None:
        self._folder, self._version, self._open_log = folder, version, open_log
        self._loop = asyncio.new_event_loop()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="small daemon", daemon=True)

    def __enter__(self) -> "RunningDaemon":
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _live(self) -> None:
        self.small = SmallDaemon(self._folder, version=self._version, open_log=self._open_log)
        await self.small.observe(DaemonStarted(incarnation="test", settings=Settings(concurrency=4)))
        await self.small.observe(SpecsRead())
        async with ControlSocket(self.small, self.small.places.socket) as self.control:
            self._ready.set()
            await self._over.wait()
        self.small.log.close()

    @property
    def socket(self) -> Path:
        return self.small.places.socket

    def open_tcp(self, settings: HttpSettings | None = None) -> str:
        """Listen on a free port of loopback, unless the settings name one. Return the address."""

        async def open_port() -> str:
            self.control.follow_http(settings or HttpSettings(listen=TcpAddress("127.0.0.1", 0)))
            assert self.control.tcp.url is not None
            return self.control.tcp.url

        return asyncio.run_coroutine_threadsafe(open_port(), self._loop).result(PATIENCE_SECONDS)

    def do(self, action: Callable[[SmallDaemon], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(action(self.small), self._loop).result(PATIENCE_SECONDS)

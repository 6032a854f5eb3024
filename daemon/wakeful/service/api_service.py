"""The daemon as the API uses it: implements `api.service.Service` over the reactor and the edges.

`daemon.py` passes it to the control socket. Its readings never change anything. The state of a session changes only
through the reactor. Everything is called on the loop unless its port says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wakeful import __version__
from wakeful.api.contract import FollowLine, LiveLine, PathVerdict, RecordFilter, RunIdentity
from wakeful.api.live_answers import LiveWords
from wakeful.api.operations.follow import RecordPages, follow_records
from wakeful.core.calls.call_types import Call, Rename, Reply, Work
from wakeful.core.looking.path_reports import Bounds, Compared
from wakeful.core.record.observations import Enforceable, FilesWritten, Moment, ProcessOwner, Usage
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import CallerError
from wakeful.eventlog.contract import DaemonLog
from wakeful.history.positions import fold_at
from wakeful.history.run_output import read_output
from wakeful.monitoring.measures import Monitoring
from wakeful.notifications.delivery_loop import Notifications
from wakeful.run_files.content_recorder import Keeper
from wakeful.run_files.replay import Replays
from wakeful.runners.contract import LevelWatch, OutputLanding, Runner
from wakeful.secrets.known_secrets import Known, KnownSecrets
from wakeful.service.log_printer import LogPrinter
from wakeful.service.reactor import Reactor, Signal, read_moment
from wakeful.service.run_starter import RunStarter
from wakeful.service.shutdown import Shutdown
from wakeful.settings import Places, read_settings
from wakeful.sources.contract import DiskWatch, Sources, SpecWatch, WallClock
from wakeful.specs.folder_reading import read_text
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.value_parsers import find_local_zone
from wakeful.system.blobs import Blobs
from wakeful.trust.trust_review import TrustReview
from wakeful.workspaces.fork_workspaces import Workspaces


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges of a running daemon, each used only through its contract. The wiring constructs them."""

    sources: Sources
    specs: SpecWatch[Any]
    landing: OutputLanding
    strictness: LevelWatch
    room: DiskWatch
    clock: WallClock
    runner: Runner
    starter: RunStarter
    blobs: Blobs
    keeper: Keeper
    replays: Replays
    workspaces: Workspaces
    trust: TrustReview
    printer: LogPrinter
    secrets: KnownSecrets
    notifications: Notifications
    log: DaemonLog
    # The socket that systemd has opened for this daemon. None if the daemon opens its own.
    handed_over: socket.socket | None = None


class ApiService:
    """Answers the API. The reactor tells `decided` and `recorded`. `ending` knows whether the daemon stops."""

    def __init__(
        self,
        places: Places,
        reactor: Reactor,
        edges: Edges,
        live_words: LiveWords,
        monitoring: Monitoring,
        decided: Signal,
        recorded: Signal,
        ending: Shutdown,
    ) -> None:
        self.places = places
        self.core = reactor.core
        self.log = edges.log
        self.blobs = edges.blobs
        self.replays = edges.replays
        self.workspaces = edges.workspaces
        self.trust = edges.trust
        self.notifications = edges.notifications
        self.live_words = live_words
        self.monitoring = monitoring
        self.version = __version__
        self.pid = os.getpid()
        self.started_at = time.time_ns() // 1000
        self._reactor = reactor
        self._edges = edges
        self._specs = edges.specs
        self._decided = decided
        self._recorded = recorded
        self._ending = ending
        self._pages = RecordPages(self)

    # -- calls --------------------------------------------------------------------------------

    def moment(self) -> Moment:
        return read_moment()

    async def recorded_so_far(self) -> None:
        await self._reactor.recorded_so_far()

    async def call(
        self,
        call: Call,
        *,
        author: str,
        key: str | None = None,
        run: int | None = None,
        digest: bytes | None = None,
    ) -> Reply:
        if isinstance(call, Rename):
            # A reading under way may have found the file under its old name.
            self._specs.outdate()
        return await self._reactor.call(call, author=author, key=key, run=run, digest=digest)

    def submit(self, call: Work, *, author: str, key: str | None, run: int | None) -> Awaitable[Reply]:
        return self._reactor.submit(call, author=author, key=key, run=run)

    async def report_written(self, session_id: str, paths: Iterable[str]) -> None:
        # Reports of the last files may still be in the watcher's queue. Without them the look would find only a part of
        # the written files, and readers would start on that part.
        self._edges.sources.hear()
        self._reactor.observe(FilesWritten(session=session_id, paths=tuple(paths)))
        # Looks take milliseconds, and the core gives up on one that hangs.
        await self._decided.wait_until(
            lambda: session_id not in self.core.looked.writing or self._ending.stopping.is_set()
        )
        await self._reactor.recorded_so_far()

    def refold(self, session_id: str) -> None:
        self._reactor.refold(fold_at(self.log, session_id, self.core.state.get(session_id).seq))

    def stop(self) -> None:
        self._ending.stop()

    # -- specs --------------------------------------------------------------------------------

    async def read_specs(self) -> None:
        await self._specs.read()

    def read_spec(self, name: str, text: str) -> SessionSpec:
        settings, defaults, _ = read_settings(self.places.specs)
        specs = os.path.abspath(self.places.specs)
        around = Surroundings(
            os.path.dirname(specs),
            find_local_zone(os.environ),
            frozenset(settings.pools),
            str(self.places.state),
            specs,
        )
        try:
            return read_text(text.encode(), name, f"{name}.yaml", around, defaults)[0]
        except RefusedSpec as refusal:
            raise CallerError("; ".join(problem.text for problem in refusal.problems)) from refusal

    def report_spec_again(self, name: str) -> None:
        self._specs.report_again(name)

    def _spec_file(self, name: str) -> Path:
        return self.places.specs / f"{name}.yaml"

    def find_rename_obstacle(self, old: str, new: str) -> str | None:
        source, target = self._spec_file(old), self._spec_file(new)
        if target.exists():
            return f"{target} exists already; choose a free name"
        if old in self.core.state.ids and not source.exists():
            return (
                f"{old} has no file of its own to be renamed; write {source} first, or rename what its template finds"
            )
        return None

    def rename_spec(self, old: str, new: str) -> None:
        source, target = self._spec_file(old), self._spec_file(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        self._specs.outdate()

    def problems(self) -> dict[str, str]:
        return dict(self.core.looked.refused)

    # -- sources ------------------------------------------------------------------------------

    def defects(self) -> dict[str, int]:
        return self._edges.sources.list_defects()

    def explain_path(self, path: str) -> list[PathVerdict]:
        verdicts = []
        for key, meaning in self._edges.sources.explain(path):
            look = self.core.looked.targets.get(key)
            for session_id in sorted(look.subscribers) if look is not None else ():
                session = self.core.state.get(session_id)
                for bound in self.core.looked.bounds.get(session_id, ()):
                    if bound.target == key:
                        verdicts.append(PathVerdict(session.name, bound.name, meaning, look.looked_at if look else 0))
        return verdicts

    def describe_target(self, key: str) -> str | None:
        return self._edges.sources.describe(key)

    async def compare_commits(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        return await self._edges.sources.compare(key, old, new, bounds)

    # -- runs ---------------------------------------------------------------------------------

    def usage(self, session_id: str) -> Usage | None:
        run = self.core.state.get(session_id).run
        return self._edges.runner.usage(run.run_id) if run is not None else None

    def output(self, session_id: str, run: int) -> tuple[bytes, bytes, int]:
        found = read_output(self.log, self._edges.blobs, self.core.state.get(session_id), run)
        return found.head, found.tail, found.total_bytes

    def follow_output(self, session_id: str) -> AsyncIterator[bytes]:
        run = self.core.state.get(session_id).run
        return self._edges.runner.follow(run.run_id if run is not None else "")

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
            self._recorded.listeners,
            names,
            is_live=is_live,
            after=after,
            is_wanted=is_wanted,
            pause_seconds=pause_seconds,
        )

    @contextlib.contextmanager
    def listen(self, heard: asyncio.Event) -> Iterator[None]:
        signals = (self._decided.listeners, self._recorded.listeners)
        for listeners in signals:
            listeners.add(heard)
        try:
            yield
        finally:
            for listeners in signals:
                listeners.discard(heard)

    def enforceable(self) -> Enforceable:
        return self._edges.runner.enforceable()

    def find_tracing_obstacle(self) -> str | None:
        return self._edges.runner.find_tracing_obstacle()

    def owner_of_process(self, pid: int) -> ProcessOwner | None:
        return self._edges.runner.owner(pid)

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        return self._edges.runner.owner_of_connection(local, remote)

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        return self._edges.runner.user_of_connection(local, remote)

    def run_identity(self, token: str) -> RunIdentity | None:
        return self._edges.starter.identity(token)

    def forget_contents(self) -> None:
        self._edges.keeper.forget()

    # -- secrets ------------------------------------------------------------------------------

    def read_secret(self, name: str) -> bytes:
        return self._edges.secrets.hand_out((name,))[0].value

    def redact(self, value: Any) -> Any:
        return self._edges.secrets.redact(value)

    def redact_part(self, before: str, text: str, after: str) -> str:
        return self._edges.secrets.redact_part(before, text, after)

    def secrets(self) -> tuple[list[Known], str]:
        return self._edges.secrets.list_known(), self._edges.secrets.places.folder

"""Passes on the reports of the edges: sources, the runner, the specs, the disk, the log's writer.

An edge is constructed before the reactor that decides its reports. So it reports to an `ObservationPort`, which the
wiring connects last. Most reports first pass through one more part: `Keeper` for the files of runs, the screen for
secrets, or the log printer. Everything here is called on the loop unless it says otherwise, and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from wakeful.api.live_answers import LiveWords
from wakeful.core.deciding.acting_agent import gather_team
from wakeful.core.deciding.decision import Entry
from wakeful.core.deciding.plan import Look
from wakeful.core.deciding.working_state import Core
from wakeful.core.observation_handlers import Observation
from wakeful.core.record.observations import (
    AgentsRead,
    DiskSpaceSeen,
    ProcessEnded,
    RunAttached,
    RunRecovered,
    SettingsRead,
    SpecsRead,
    TargetLooked,
    TargetsHinted,
)
from wakeful.core.record.state import Session
from wakeful.core.spec.session import PromptRun, SessionSpec
from wakeful.errors import OperatorError
from wakeful.eventlog.contract import StoreFailed, StoreGone
from wakeful.eventlog.sqlite import exit_process
from wakeful.notifications.delivery_loop import Notifications
from wakeful.run_files.content_recorder import Keeper
from wakeful.run_files.replay import ReplayEnds
from wakeful.runners.contract import OutputLanding
from wakeful.runners.isolation.bubblewrap import StrictnessWatch
from wakeful.runners.isolation.written_places import WrittenPlaces, list_written_by
from wakeful.runners.run.runner import CommandRunner
from wakeful.secrets.known_secrets import KnownSecrets
from wakeful.service.log_printer import LogPrinter, is_last_failure
from wakeful.service.reactor import Signal
from wakeful.service.run_starter import RunStarter
from wakeful.settings import ProjectReading
from wakeful.sources.contract import Sources, SpecWatch
from wakeful.sources.files.source import FileSource
from wakeful.sources.hints.watcher_choice import HintsSwitch
from wakeful.system.journal import WARNING
from wakeful.trust.possible_writers import PossibleWriters
from wakeful.trust.spec_reader import SpecFolderReader


class ObservationPort:
    """Passes observations to the reactor.

    Edges get it before the reactor exists. `connect` is called before the first edge reports.
    """

    def __init__(self) -> None:
        self._take: Callable[[Observation], None] | None = None
        self._is_closed = False

    def connect(self, take: Callable[[Observation], None]) -> None:
        self._take = take

    def close(self) -> None:
        """Pass nothing on any more, because a decision could no longer be recorded."""
        self._is_closed = True

    def __call__(self, observation: Observation) -> None:
        if self._is_closed:
            return
        assert self._take is not None, "wiring connects the port before anything reports"
        self._take(observation)


class StoreReports:
    """Reports of the log's writer. They arrive on the writer's thread, from the moment the log is open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._daemon: StoreListener | None = None

    def connect(self, daemon: StoreListener) -> None:
        """Connect the daemon. Called before the next turn of the loop, so that no report comes too early."""
        self._daemon = daemon

    def end(self, failed: StoreFailed) -> None:
        """End the daemon.

        If only the files are gone, it can still end in good order. If writes fail, it exits at once.
        """
        if not isinstance(failed, StoreGone):
            exit_process(failed)
        self._loop.call_soon_threadsafe(self._abandon, failed)

    def warn(self, words: str) -> None:
        self._loop.call_soon_threadsafe(self._warn, words)

    def _abandon(self, failed: StoreFailed) -> None:
        assert self._daemon is not None
        self._daemon.abandon(failed)

    def _warn(self, words: str) -> None:
        assert self._daemon is not None
        self._daemon.warn(words)


class StoreListener(Protocol):
    """The daemon, as the log's writer uses it."""

    def abandon(self, gone: OperatorError) -> None: ...
    def warn(self, words: str) -> None: ...


class FileReports:
    """Reports of files and commits. The keeper may wait for such a report before it closes a run."""

    def __init__(self, observe: ObservationPort, keeper: Keeper) -> None:
        self._observe = observe
        self._keeper = keeper

    def report(self, observation: TargetsHinted | TargetLooked) -> None:
        self._observe(observation)
        self._keeper.attend_soon()


class DefectReports:
    """Unexpected exceptions in looks, each reported once."""

    def __init__(self, printer: LogPrinter, loop: asyncio.AbstractEventLoop) -> None:
        self._printer = printer
        self._loop = loop

    def tell(self, words: str, error: BaseException) -> None:
        self._printer.say(words, priority=WARNING)
        # The traceback goes to the same place as those of libraries, without the values of secrets.
        self._loop.call_exception_handler({"message": words, "exception": error})


class RunReports:
    """Reports of the runner.

    The end of a replay goes only to the replay. The end of a run waits until the run's files are kept.
    """

    def __init__(
        self,
        observe: ObservationPort,
        replay_ends: ReplayEnds,
        files: FileSource,
        possible_writers: PossibleWriters,
        keeper: Keeper,
    ) -> None:
        self._observe = observe
        self._replay_ends = replay_ends
        self._files = files
        self._possible_writers = possible_writers
        self._keeper = keeper

    def report(self, end: ProcessEnded | RunRecovered | RunAttached) -> None:
        if isinstance(end, RunAttached):
            self._observe(end)
            return
        if self._replay_ends.take(end):
            return
        # A change that was made and undone during the run may still be in the watcher's queue. It must be processed
        # first (rule 17).
        self._files.hear()
        self._possible_writers.end(end.session)
        self._keeper.end(end)


class SpecReports:
    """Reports of a reading of the specs: screened for secrets, observed, and printed if a person must act."""

    def __init__(
        self,
        observe: ObservationPort,
        core: Core,
        known: KnownSecrets,
        strictness: StrictnessWatch,
        hints: HintsSwitch,
        printer: LogPrinter,
        spec_reader: SpecFolderReader,
        runner: CommandRunner,
        notifications: Notifications,
        settings_read: Signal,
    ) -> None:
        self._observe = observe
        self._core = core
        self._known = known
        self._strictness = strictness
        self._hints = hints
        self._printer = printer
        self._spec_reader = spec_reader
        self._runner = runner
        self._notifications = notifications
        self._settings_read = settings_read

    def guard_projects(self) -> None:
        """Protect the specs of attached projects from runs, before their sessions can start."""
        self._runner.guard(tuple(one.folder for one in self._spec_reader.folders if one.project is not None))

    def keep_parsed(self) -> None:
        """Save the parsed specs for the next start. Blocking.

        Nothing is saved if a spec contains the value of a secret.
        """
        if not self._known.has_specs_with_secrets:
            self._spec_reader.keep()

    def report(self, observation: SpecsRead | SettingsRead | AgentsRead) -> None:
        match observation:
            case SettingsRead():
                self._report_settings(observation)
            case AgentsRead():
                self._report_agents(observation)
            case SpecsRead():
                self._report_specs(observation)
        self._notifications.note_reading()

    def _report_settings(self, observation: SettingsRead) -> None:
        self._observe(observation)
        self._notifications.take_settings(observation.settings.notifiers)
        self._settings_read.tell()
        try:
            self._hints.choose(observation.settings.hints)
        except OperatorError as problem:
            self._printer.say(f"{problem}; changes are noticed as before")

    def _report_agents(self, observation: AgentsRead) -> None:
        screened = self._known.screen_agents(observation)
        self._observe(screened)
        self._known.look()
        for name in screened.refused.keys() - observation.refused.keys():
            self._printer.say(screened.refused[name], name=f"agents/{name}", priority=WARNING)

    def _report_specs(self, observation: SpecsRead) -> None:
        screened = self._known.screen(observation, self._list_keys(observation))
        self._strictness.look(one.spec for one in screened.declared)
        self._observe(screened)
        for name, words in self._core.looked.refused.items():
            if name in screened.refused:
                # Print one problem per line, as `check` does.
                for line in words.split("\n"):
                    self._printer.say(line, name=name, priority=WARNING)
        for one in screened.declared:
            if one.needs_trust is not None:
                self._printer.say(f"sleeps: {one.needs_trust}", name=one.spec.name, priority=WARNING)

    def _list_keys(self, read: SpecsRead) -> set[str]:
        """List the names of the secrets (keys) that the agents of these specs need."""
        asked = (one.spec.agent or "" for one in read.declared if isinstance(one.spec.run, PromptRun))
        agents = (self._core.agents.get(name) for name in asked)
        return {key for agent in agents if agent is not None for key in gather_team(self._core, agent).secrets}


class DiskSpaceReports:
    """Reports of the free space on the disk that holds the log."""

    def __init__(self, observe: ObservationPort, core: Core, printer: LogPrinter) -> None:
        self._observe = observe
        self._core = core
        self._printer = printer

    def report(self, observation: DiskSpaceSeen) -> None:
        was_short = self._core.looked.shortage is not None
        self._observe(observation)
        if observation.words is not None and not was_short:
            self._printer.say(f"new runs wait for {observation.words}", priority=WARNING)
        elif observation.words is None:
            self._printer.say("there is disk space again; runs go on")


class SpecReading:
    """Reads the specs in a thread, and tells `PossibleWriters` when each reading begins and ends.

    A run that ended before a reading began need not be considered at the next reading.
    """

    def __init__(self, spec_reader: SpecFolderReader, possible_writers: PossibleWriters) -> None:
        self._spec_reader = spec_reader
        self._possible_writers = possible_writers

    def read(self) -> ProjectReading:
        self._possible_writers.begin()
        reading = self._spec_reader.read()
        self._possible_writers.turn()
        return reading


class DelayedLooks:
    """Delays looks while specs that a hint named are being read.

    If a template declares a session for a file, the file may also be the session's input. If the file is removed, the
    session must be undeclared before its input is found missing. A reading takes some milliseconds, 0.1 s with 10,000
    specs.
    """

    def __init__(self, sources: Sources, specs: SpecWatch[Any]) -> None:
        self._sources = sources
        self._specs = specs
        self._waiting: list[Look] = []

    def look(self, look: Look) -> None:
        if self._specs.hinted is None:
            self._sources.look(look)
            return
        if not self._waiting:
            self._specs.hinted.add_done_callback(lambda _: self._look_at_all())
        self._waiting.append(look)

    def _look_at_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for look in waiting:
            self._sources.look(look)


class ProgramTrust:
    """Checks before every run that its programs are what a person trusted.

    If a program changed, all specs are read again at once. The end of the refused run is reported after that, so that
    its session sleeps before its run is reported as failed.
    """

    def __init__(self, spec_reader: SpecFolderReader, specs: SpecWatch[Any], observe: ObservationPort) -> None:
        self._spec_reader = spec_reader
        self._specs = specs
        self._observe = observe
        self._readings: set[asyncio.Future[None]] = set()

    def find_distrust(self, name: str) -> str | None:
        words = self._spec_reader.find_changed_program(name)
        if words is not None:
            reading = asyncio.ensure_future(self._specs.read())
            self._readings.add(reading)
            reading.add_done_callback(self._readings.discard)
        return words

    def report(self, end: ProcessEnded) -> None:
        """Report the end of a run that was not started."""
        if not self._readings:
            self._observe(end)
            return
        # The end is reported even if a reading fails. Otherwise the run would never end.
        asyncio.gather(*self._readings, return_exceptions=True).add_done_callback(lambda _: self._observe(end))


class WrittenSpecs:
    """The places that runs of any recorded session may write.

    Files that a session wrote before it was closed or undeclared still exist.
    """

    def __init__(self, sessions: Iterable[Session]) -> None:
        self.places = WrittenPlaces()
        self._specs: dict[str, SessionSpec] = {}
        for session in sessions:
            self.note(session)

    def note(self, session: Session) -> None:
        if session.spec is None or self._specs.get(session.id) is session.spec:
            return
        self._specs[session.id] = session.spec
        # A run that is under way may write the places of its own spec.
        specs = (session.spec, *((session.run.spec,) if session.run is not None else ()))
        self.places.declare(session.id, session.name, (place for spec in specs for place in list_written_by(spec)))


class SessionReports:
    """Reports of the reactor about one session: its spec changed, or its run is over."""

    def __init__(
        self,
        core: Core,
        written: WrittenSpecs,
        starter: RunStarter,
        landing: OutputLanding,
        live_words: LiveWords,
    ) -> None:
        self._core = core
        self._written = written
        self._starter = starter
        self._landing = landing
        self._live_words = live_words
        # The sessions of which a run failed for good, for `--once`.
        self.failed: set[str] = set()

    def redeclared(self, session_id: str) -> None:
        self._written.note(self._core.state.get(session_id))

    def finished(self, entry: Entry) -> None:
        self._starter.forget(entry.session, entry.run)
        self._live_words.close_run(entry.session, entry.run or 0)
        self._landing.discard(f"{entry.session}.{entry.run}")
        if is_last_failure(entry.event):
            self.failed.add(entry.session)

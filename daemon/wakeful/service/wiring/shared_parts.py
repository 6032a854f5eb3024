"""The parts that all edges share: the folded state, the port to the reactor, the secrets, the log printer, the places.

`assembly.py` builds them first and passes them to every function that constructs an edge.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
import time
from dataclasses import dataclass

from wakeful.bundles.blob_archive import BlobArchive
from wakeful.bundles.scratch_files import remove_unfinished
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.session import Settings
from wakeful.eventlog.contract import DaemonLog
from wakeful.runners.isolation.reach import Protected
from wakeful.runners.process.procfs import can_tell_ends
from wakeful.runners.run.kept_runs import KeptRuns
from wakeful.runners.run.run_folders import open_run_folders
from wakeful.secrets.known_secrets import KnownSecrets, RedactingFormatter
from wakeful.secrets.store import SecretPlaces, take_secret_places
from wakeful.service.log_printer import LogPrinter, Repeats, RepeatsFilter, Style
from wakeful.service.lookups import list_needed_secrets
from wakeful.service.reports import (
    ObservationPort,
    WrittenSpecs,
)
from wakeful.settings import Places, find_settings_file, settings_home
from wakeful.sources.hints.watcher_choice import HintsSwitch
from wakeful.system.blobs import Blobs
from wakeful.system.journal import WARNING, find_journal
from wakeful.system.systemd import HandedOver, find_keeper


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts that all edges share: the folded state, the port to the reactor, the secrets, the log printer."""

    places: Places
    loop: asyncio.AbstractEventLoop
    core: Core
    log: DaemonLog
    observe: ObservationPort
    known: KnownSecrets
    printer: LogPrinter
    hints: HintsSwitch
    blobs: Blobs
    # The sessions as they were folded at the start.
    sessions: tuple[Session, ...]
    run_folders: str
    # The runs that outlive the daemon. None if runs end with it.
    kept: KeptRuns | None
    written: WrittenSpecs
    protected: Protected

    @property
    def state(self) -> str:
        return str(self.places.state)

    @property
    def left(self) -> frozenset[str]:
        """The runs that an earlier daemon left and that go on."""
        return self.kept.left if self.kept is not None else frozenset()


def build_shared_parts(
    places: Places,
    log: DaemonLog,
    sessions: list[Session],
    handed_over: HandedOver,
    settings: Settings,
    style: Style | None,
) -> SharedParts:
    core, observe = Core(sessions), ObservationPort()
    known = _build_secrets(
        core, observe, take_secret_places(str(settings_home(os.environ) / "wakeful" / "secrets"), os.environ)
    )
    printer = LogPrinter(
        is_terminal=sys.stdout.isatty(),
        journal=find_journal() if style is None else None,
        style=style or "text",
        redact=known.redact_text,
    )
    if logging.lastResort is not None:
        say = functools.partial(printer.say, priority=WARNING)
        logging.lastResort.filters[:] = [RepeatsFilter(Repeats(time.monotonic), say)]
    for damaged in (session for session in sessions if isinstance(session, DamagedSession)):
        printer.say(damaged.damage_words, name=damaged.name, priority=WARNING)
    blobs = Blobs(f"{places.state}/blobs", BlobArchive(places.state / "archive" / "outputs"), known)
    blobs.remove_unfinished()
    remove_unfinished(places.state / "scratch")
    kept, written = _find_kept(handed_over, sessions), WrittenSpecs(sessions)
    run_folders = open_run_folders(str(places.state), os.environ, kept.left if kept is not None else frozenset())
    return SharedParts(
        places=places,
        loop=asyncio.get_running_loop(),
        core=core,
        log=log,
        observe=observe,
        known=known,
        printer=printer,
        hints=HintsSwitch(settings.hints),
        blobs=blobs,
        sessions=tuple(sessions),
        run_folders=run_folders,
        kept=kept,
        written=written,
        protected=_find_protected(places, run_folders, known, written),
    )


def _find_kept(handed_over: HandedOver, sessions: list[Session]) -> KeptRuns | None:
    """Construct the store of runs that outlive the daemon, with those that the log knows.

    None if runs end with the daemon.
    """
    store = find_keeper()
    if store is None or not can_tell_ends():
        return None
    kept = KeptRuns(store, handed_over.stored)
    kept.drop_others(session.run.run_id for session in sessions if session.run is not None)
    return kept


def _build_secrets(core: Core, observe: ObservationPort, places: SecretPlaces) -> KnownSecrets:
    """Construct the screen for secrets.

    Every observation and call passes through it, and so does the error output of libraries.
    """
    known = KnownSecrets(places, observe, functools.partial(list_needed_secrets, core))
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(RedactingFormatter(known))
    return known


def _find_protected(places: Places, run_folders: str, known: KnownSecrets, written: WrittenSpecs) -> Protected:
    """Find the places that no run may change.

    They include the files that start the daemon and the files that decide what it trusts. No run may even read
    `hidden`.
    """
    settings = find_settings_file(places.specs)
    own = settings_home(os.environ)
    return Protected(
        specs=str(places.specs),
        state=str(places.state),
        hidden=tuple(
            place for place in (known.places.folder, known.places.credentials, run_folders) if place is not None
        ),
        rest=(
            run_folders,
            str(places.socket),
            str(settings),
            str(own / "wakeful"),
            str(own / "systemd"),
            "/etc/systemd",
        ),
        written=written.places,
    )

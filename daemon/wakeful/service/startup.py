"""`wakeful daemon`, from its arguments to its exit code.

Locks the state folder, opens the log, lets `wiring/` construct the daemon, and awaits `Daemon.live` (daemon.py).
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path
from socket import socket as Socket

from wakeful.errors import OperatorError
from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.state_lock import StateLock, lock_state
from wakeful.runners.process.children import become_subreaper
from wakeful.runners.process.process_mark import ProcessMark
from wakeful.runners.process.procfs import can_tell_ends
from wakeful.service.log_printer import Style
from wakeful.service.reports import (
    StoreReports,
)
from wakeful.service.wiring.assembly import build_daemon
from wakeful.settings import Places, resolve_places
from wakeful.system.blocking_pool import Pool
from wakeful.system.process_tuning import bound_allocator
from wakeful.system.state_folder import find_project
from wakeful.system.systemd import HandedOver, take_handed_over
from wakeful.views.narration import visible

# The number of threads for blocking work that has no threads of its own: reading the log for people, bundles, copies of
# files, specs.
_BLOCKING_CALLS = 8


def run_daemon(
    *,
    specs: str | None,
    state: str | None,
    socket: str | None,
    once: bool,
    log: Style | None = None,
    http: str | None = None,
) -> int:
    """Run `wakeful daemon`. Returns the exit code."""
    handed_over = take_handed_over()
    places = _place_socket(
        resolve_places({"specs": specs, "state": state, "socket": socket, "http": http}, os.environ, Path.cwd()),
        handed_over.listener,
        socket,
    )
    if not (state or os.environ.get("WAKEFUL_STATE") or os.environ.get("STATE_DIRECTORY")):
        _tell_other_project(places)
    _find_specs(places.specs, is_named=bool(specs or os.environ.get("WAKEFUL_SPECS")))
    # A core dump would contain every secret that the daemon knows. Runs may raise the limit for themselves.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    lock = lock_state(places.state)
    bound_allocator()
    # A start makes a million lasting objects. Repeated searches for cycles among them took a fifth of its time.
    gc.disable()
    try:
        origin = become_subreaper()
        _watch_children()
        return asyncio.run(_live(places, lock, handed_over, once, log, origin))
    finally:
        lock.release()


def _watch_children() -> None:
    """Watch children by descriptors, because Python before 3.12 starts a thread for each child of asyncio, and threads
    may be exhausted.
    """
    if sys.version_info < (3, 12) and can_tell_ends():
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def _place_socket(places: Places, handed_over: Socket | None, named: str | None) -> Places:
    """Use the path that systemd listens on. A path that the user gave instead would have no listener."""
    if handed_over is None:
        return places
    path = handed_over.getsockname()
    if named and os.path.realpath(places.socket) != os.path.realpath(path):
        raise OperatorError(
            f"systemd listens on {path} for this daemon, and --socket says {places.socket}: leave --socket out, "
            "or change ListenStream="
        )
    return replace(places, socket=Path(path))


def _tell_other_project(places: Places) -> None:
    """Print that commands given here look for another daemon.

    A project's state folder is used only if it is named.
    """
    project = find_project().folder
    if project is not None and Path(project) != places.state:
        words = (
            f"wakeful: the log of this daemon is in {places.state}. Commands given here look for the daemon of "
            f"{project}: to start that one, add --state {project}"
        )
        print(visible(words, 1000), file=sys.stderr, flush=True)


def _find_specs(folder: Path, *, is_named: bool) -> None:
    """Make the default folder of specs if it is missing.

    A folder that the user named must exist, because a missing folder would undeclare every session.
    """
    if folder.is_dir():
        return
    if is_named:
        raise OperatorError(
            f"{folder} is not a folder; name the one that holds your specs with --specs, or make it first"
        )
    folder.mkdir(parents=True)


async def _live(
    places: Places,
    lock: StateLock,
    handed_over: HandedOver,
    is_once: bool,
    style: Style | None,
    origin: ProcessMark | None,
) -> int:
    loop = asyncio.get_running_loop()
    try:
        loop.set_default_executor(Pool(_BLOCKING_CALLS, "blocking"))
    except OSError as error:
        words = "end some programs, or raise the limit of processes (TasksMax=, ulimit -u) or memory"
        raise OperatorError(
            f"the system gives the daemon no threads to work with ({error.strerror}): {words}"
        ) from error
    store = StoreReports(loop)
    log = open_log(places.state, lock=lock, on_fatal=store.end, tell=store.warn)
    if log.read_only is not None:
        raise OperatorError(
            f"{places.state}: {log.read_only}; nothing is written to it. "
            "Look at it with: wakeful doctor; go back to a backup with: wakeful restore BACKUP"
        )
    daemon = build_daemon(places, log, handed_over, is_once=is_once, style=style, origin=origin)
    store.connect(daemon)
    return await daemon.live()

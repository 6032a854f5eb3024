"""`weakened.py RULE daemon …` runs the daemon with one rule as it was before it was a defence, or on a machine that lacks one.

The attacks of the security tests succeed here and fail at the daemon as it is: that shows that the rule holds them, and nothing else. Every daemon
started here waits long for a request, so that an attack that takes its time on a busy machine does not fail for that reason alone.
"""

from __future__ import annotations

import os
import sys

from msgspec.structs import replace

from wakeful.api.gate import callers as peers
from wakeful.api.gate import connections, gate, protocol
from wakeful.cli import main
from wakeful.core.deciding import loop_guard
from wakeful.core.record.observations import ProcessOwner
from wakeful.runners import preparation
from wakeful.runners.isolation import path_answers, program_places, reach
from wakeful.runners.isolation import written_places as writing
from wakeful.runners.outputs import landing
from wakeful.runners.process import environment
from wakeful.runners.process.process_mark import mark_of, read_run
from wakeful.runners.run import run_folders as place
from wakeful.runners.run import runner as command
from wakeful.trust.spec_reader import SpecFolderReader


def know_by_number() -> None:
    """Who calls was read from /proc by the number of the process, at each request."""

    async def answer(self: gate.Gate, scope: gate.Scope, receive: gate.Receive, send: gate.Send) -> None:
        peer = scope["state"]["peer"]
        if isinstance(peer, peers.Peer):
            try:
                standing = self._service.owner_of_process(peer.pid)
            except ProcessLookupError:
                standing = peers.Unknown(peers.GONE)
            scope["state"]["peer"] = peers.Peer(peer.uid, peer.pid, standing)
        await as_it_is(self, scope, receive, send)

    as_it_is = gate.Gate.__call__
    gate.Gate.__call__ = answer  # type: ignore[method-assign]
    gate.find_absence = lambda connection, peer: None  # type: ignore[assignment]


def know_own_runs_alone() -> None:
    """A process was a run's only if this daemon had the run under way."""

    def owner(self: command.CommandRunner, pid: int) -> ProcessOwner | None:
        live = {mark_of(self._around.state, run_id): run_id for run_id in (*self._left, *self._runs, *self._probes)}
        run_id = read_run(pid, live, self._around.state)
        return (
            None if run_id is None else ProcessOwner(run_id=run_id, mark=mark_of(self._around.state, run_id), sign="")
        )

    command.CommandRunner.owner = owner  # type: ignore[method-assign]


def count_nobody() -> None:
    """Every connection had a place until all were taken."""
    connections.MOST_OF_ONE_RUN = connections.MOST_CONNECTIONS
    connections.KEPT_SHARE = 0.0
    connections.FEWEST_KEPT = 0


def spend_every_descriptor() -> None:
    """As many connections were accepted as there were places, whatever the limit of open files."""
    connections.find_most = lambda: (connections.MOST_CONNECTIONS, connections.MOST_PARTING)


def pace_from_the_twentieth_start() -> None:
    """A session is paced from 20 starts a minute on, since a busy machine does not make the 120 of the rule."""
    loop_guard.COMMANDS = replace(loop_guard.COMMANDS, starts_a_minute=20)


def leave_folders_to_the_umask() -> None:
    """A folder that vanished returned with its parents as `os.makedirs` makes them."""
    for module in (place, environment, preparation):
        module.make_private = lambda path: os.makedirs(path, 0o700, exist_ok=True)  # type: ignore[attr-defined]


def believe_everybody() -> None:
    """What a run or a project wrote led to programs as a person's own files do."""
    program_places._Derivation._find_trust = lambda self, path: program_places.Trust.PERSON  # type: ignore[method-assign]


def lead_anywhere() -> None:
    """And files of a project led out of it, to folders and to whole homes."""
    believe_everybody()
    derivation = program_places._Derivation
    follow, take = derivation._follow, derivation._take
    derivation._follow = lambda self, path, trust, *around, **more: follow(
        self, path, program_places.Trust.PERSON, *around, **more
    )  # type: ignore[method-assign]
    derivation._take = lambda self, path, bound, *source: take(self, path, None, *source)  # type: ignore[method-assign]
    derivation._is_too_wide = lambda self, real: False  # type: ignore[method-assign]
    path_answers.PathAnswers.is_program = path_answers.PathAnswers.is_there  # type: ignore[method-assign]


def follow_planted_links() -> None:
    """A symbolic link inside the project led a session's binding to any other part of the project, whoever made the link."""
    reach.resolve_links = lambda path: (os.path.realpath(path), [])


def pin_no_reach() -> None:
    """Trust covered the spec and its program alone, and not the places that the program leads to."""
    SpecFolderReader.find_reach = lambda self, spec, agent: ()  # type: ignore[method-assign]


def mount_nothing() -> None:
    """A machine that lets neither the daemon nor a user namespace mount: what lies beside an output cannot be shielded."""
    for module in (command, reach, writing):
        module.can_shield = lambda: False  # type: ignore[attr-defined]


def land_anywhere() -> None:
    """Outputs landed outside of root, through links, and where no run may write."""
    landing.find_astray = lambda *_: None  # type: ignore[assignment]


def ask_nobody_over_tcp() -> None:
    """A token over TCP was a person's, whoever showed it."""
    command.CommandRunner.owner_of_connection = lambda self, local, remote: None  # type: ignore[method-assign]


def change_nothing() -> None:
    """The daemon as it is."""


if __name__ == "__main__":
    protocol.HEAD_SECONDS = 600.0
    globals()[sys.argv.pop(1)]()
    main()

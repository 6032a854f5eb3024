"""`weakened_daemon.py RULE daemon …` runs the daemon with one defence missing or in its old form.

Some rules take away a feature of the machine instead. The attacks of the security tests succeed at this daemon and fail
at the usual one. This proves that the defence stops them. Every daemon started here waits long for the head of a
request, so that no attack fails only because the machine is busy.
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
    """The old rule: at each request, the caller is judged by its process number, read from /proc."""

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
    """The old rule: a process belongs to a run only if this daemon has the run under way."""

    def owner(self: command.CommandRunner, pid: int) -> ProcessOwner | None:
        live = {mark_of(self._around.state, run_id): run_id for run_id in (*self._left, *self._runs, *self._probes)}
        run_id = read_run(pid, live, self._around.state)
        return (
            None if run_id is None else ProcessOwner(run_id=run_id, mark=mark_of(self._around.state, run_id), sign="")
        )

    command.CommandRunner.owner = owner  # type: ignore[method-assign]


def count_nobody() -> None:
    """Without limits for one run: all connections may be taken by one program."""
    connections.MOST_OF_ONE_RUN = connections.MOST_CONNECTIONS
    connections.KEPT_SHARE = 0.0
    connections.FEWEST_KEPT = 0


def spend_every_descriptor() -> None:
    """Without the count of descriptors: the limit of open files does not matter."""
    connections.find_most = lambda: (connections.MOST_CONNECTIONS, connections.MOST_REFUSED_OPEN)


def pace_from_the_twentieth_start() -> None:
    """A session is paced from 20 starts a minute on, because a busy machine does not reach the rule's 120."""
    loop_guard.COMMANDS = replace(loop_guard.COMMANDS, starts_a_minute=20)


def leave_folders_to_the_umask() -> None:
    """A folder that is made again has the modes of `os.makedirs`, also for its parents."""
    for module in (place, environment, preparation):
        module.make_private = lambda path: os.makedirs(path, 0o700, exist_ok=True)  # type: ignore[attr-defined]


def believe_everybody() -> None:
    """Files that a run or a project wrote open further programs, as a person's own files do."""
    program_places._Derivation._find_trust = lambda self, path: program_places.Trust.PERSON  # type: ignore[method-assign]


def lead_anywhere() -> None:
    """In addition, files of a project open folders outside of it, also whole homes."""
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
    """A link inside the project leads a session's binding to any other part of the project, whoever made the link."""
    reach.resolve_links = lambda path: (os.path.realpath(path), [])


def pin_no_reach() -> None:
    """Trust covers only the spec and its program, not the places that the program reaches."""
    SpecFolderReader.find_reach = lambda self, spec, agent: ()  # type: ignore[method-assign]


def mount_nothing() -> None:
    """Neither the daemon nor a user namespace can mount, so that specs beside an output cannot be shielded."""
    for module in (command, reach, writing):
        module.can_shield = lambda: False  # type: ignore[attr-defined]


def land_anywhere() -> None:
    """Outputs land outside of root, through links, and in places that no run may write."""
    landing.find_landing_obstacle = lambda *_: None  # type: ignore[assignment]


def ask_nobody_over_tcp() -> None:
    """A token over TCP counts as a person's, whichever process shows it."""
    command.CommandRunner.owner_of_connection = lambda self, local, remote: None  # type: ignore[method-assign]


def change_nothing() -> None:
    """The usual daemon."""


if __name__ == "__main__":
    protocol.HEAD_SECONDS = 600.0
    globals()[sys.argv.pop(1)]()
    main()

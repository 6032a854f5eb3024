"""Starts the process of a recorded run.

It prepares the run's token, the exported trees of its commits bindings, the payloads of its webhooks, its workspace and
its order. The reactor calls `start` once `run_started` is durable, and `forget` when the end of the run is recorded. It
calls `prepare` before `start`, while the record is being written. This does the early part of a start, which has no
visible effect. The module decides nothing: a failed start is reported like any other end. Everything is called on the
loop.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from wakeful.api.contract import RunIdentity
from wakeful.core.deciding.owed import find_new_messages
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.targets import target_of
from wakeful.core.record.events import MessageAdded
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.errors import OperatorError, WakefulError
from wakeful.run_files.content_recorder import Keeper
from wakeful.run_files.webhook_payloads import lay_out_payloads
from wakeful.runners.contract import Runner, RunOrder, Ticket, WorkspaceOrder
from wakeful.secrets.known_secrets import KnownSecrets, decide_secrets
from wakeful.secrets.store import Secret
from wakeful.sources.contract import Sources
from wakeful.system.blobs import Blobs
from wakeful.system.private_files import make_private
from wakeful.views.causes import view_causes_file
from wakeful.workspaces.run_workspaces import RunPlace, RunPlaces

# Returns why a run must not start: its program is not the one that a person trusted. None if it may start.
FindDistrust = Callable[[str], str | None]


# Reads the messages that no earlier run has handled, each with its time.
ReadReceived = Callable[[Session, OpenRun], Sequence[tuple[int, MessageAdded]]]


class MakeOrder(Protocol):
    """The signature of `make_order` of `runners/run/orders.py`, with its locations filled in."""

    def __call__(
        self,
        session: Session,
        run: OpenRun,
        *,
        token: str,
        causes: bytes,
        exports: dict[str, str],
        output_limit_bytes: int,
        most_processes: int,
        secrets: tuple[Secret, ...],
        workspace: WorkspaceOrder | None,
    ) -> RunOrder: ...


class _EarlyStart(msgspec.Struct, frozen=True):
    """A ticket, and the values of its order. It is used only for a start with the same values."""

    session: Session
    run: OpenRun
    secrets: tuple[Secret, ...]
    token: str
    ticket: Ticket


class RunStarter:
    """Starts runs, and maps tokens to runs while the runs last. `folder` contains the private folders of runs."""

    def __init__(
        self,
        core: Core,
        sources: Sources,
        runner: Runner,
        make_order: MakeOrder,
        note_written: Callable[[Session], None],
        folder: str,
        report: Callable[[ProcessEnded], None],
        keeper: Keeper,
        known: KnownSecrets,
        find_distrust: FindDistrust,
        places: RunPlaces,
        tokens: Mapping[str, str] = {},
        read_received: ReadReceived = lambda session, run: [],
        blobs: Blobs | None = None,
    ) -> None:
        """`tokens` are those of runs that an earlier daemon left, by run id.

        Each token is valid until the end of its run is recorded.
        """
        self._core = core
        self._sources = sources
        self._runner = runner
        self._make_order = make_order
        self._note_written = note_written
        self._folder = folder
        self._report = report
        self._keeper = keeper
        self._known = known
        self._find_distrust = find_distrust
        self._places = places
        self._read_received = read_received
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        running = (core.state.get(session_id) for session_id in core.state.running)
        left = (
            (session, session.run) for session in running if session.run is not None and session.run.run_id in tokens
        )
        self._identities = {tokens[run.run_id]: RunIdentity(session.id, session.name, run.run) for session, run in left}
        self._preparing: set[asyncio.Task[None]] = set()
        self._early: dict[str, _EarlyStart] = {}

    def prepare(self, session: Session, run: OpenRun) -> None:
        """Prepare a run while its start is being recorded.

        Nothing visible happens before the start is recorded. An error here is reported by the start.
        """
        seen, until = find_new_messages(session, run)
        # The text of a message is read from the log, and may not be there yet.
        if _needs_files(run) or run.agent is not None or until > seen:
            return
        try:
            given = self._known.hand_out(decide_secrets(run.spec, run.agent))
            order = self._order(session, run, given, {}, None)
            ticket = self._runner.prepare(order)
        except Exception:
            # The start tries the same again, and then ends the run with a message. An error here would end the daemon.
            return
        self._early[run.run_id] = _EarlyStart(session, run, given, order.token, ticket)

    def start(self, session: Session, run: OpenRun) -> None:
        if _is_stopped(run):
            # A stop was requested while the start was being recorded. Report in the next loop turn, because a plan step
            # must not be re-entered.
            self._loop.call_soon(self._report, _end_unbegun(session, run))
            return
        if not _needs_files(run):
            try:
                self._start_process(session, run, {}, None)
            except Exception as error:
                # Only this run fails, and the others go on. Report in the next loop turn, because a plan step must not
                # be re-entered.
                self._loop.call_soon(self._end_for, session, run, "it could not be started", error)
            return
        preparing = self._loop.create_task(self._prepare_and_start(session, run), name=f"prepare {run.run_id}")
        self._preparing.add(preparing)
        preparing.add_done_callback(self._preparing.discard)

    def readopt(self, session: Session, run: OpenRun) -> None:
        """Take over a run that an earlier daemon started and that goes on under this one."""
        self._keeper.resume(session, run, self._sources.find)

    def identity(self, token: str) -> RunIdentity | None:
        return self._identities.get(token)

    def forget(self, session_id: str, run: int | None) -> None:
        """Forget a run that is over: its token becomes invalid, and its exported trees are removed."""
        self._identities = {
            token: one for token, one in self._identities.items() if (one.session_id, one.run) != (session_id, run)
        }
        if (early := self._early.pop(f"{session_id}.{run}", None)) is not None:
            early.ticket.discard()
        self._runner.forget(f"{session_id}.{run}")
        trees = f"{self._folder}/{session_id}.{run}.trees"
        if os.path.isdir(trees):
            self._loop.run_in_executor(None, shutil.rmtree, trees)

    async def stop_preparing(self) -> None:
        """Start nothing from now on. The next daemon removes files that are only half laid out."""
        self._places.close()
        for preparing in self._preparing:
            preparing.cancel()
        await asyncio.gather(*self._preparing, return_exceptions=True)

    def close(self) -> None:
        # The folder may already have been removed.
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _prepare_and_start(self, session: Session, run: OpenRun) -> None:
        what = "the tree of a binding could not be exported"
        try:
            exports = await self._export(run, bindings) if (bindings := _list_exports(run)) else {}
            if run.spec.webhooks:
                what = "the payloads of a webhook could not be laid out"
                exports |= await self._lay_out_payloads(session, run)
            what = "its workspace could not be made"
            place = await self._places.make(run.spec, run.run_id) if _has_workspace(run) else None
            what = "it could not be started"
            present = self._core.state.get(session.id).run
            if present is None or _is_stopped(present):
                self._report(_end_unbegun(session, run))
                return
            self._start_process(session, run, exports, place)
        except Exception as error:
            self._end_for(session, run, what, error)

    def _end_for(self, session: Session, run: OpenRun, what: str, error: Exception) -> None:
        """Report the failure of a run whose start failed inside the daemon, because nothing else would end this run.

        The traceback of a defect goes to the daemon's output.
        """
        words = str(error)
        if isinstance(error, MemoryError):
            words = "the daemon found no memory for it; end some programs, or give it more (MemoryMax=, ulimit -v)"
        elif not isinstance(error, WakefulError | OSError):
            self._loop.call_exception_handler({"message": f"{run.run_id}: a defect of wakeful", "exception": error})
            words = f"a defect of wakeful: {type(error).__name__}: {error}; the daemon's output has the details"
        self._end_failed(session, run, f"{what}: {words}")

    def _end_failed(self, session: Session, run: OpenRun, problem: str) -> None:
        if self._runner.usage(run.run_id) is not None:
            # The process began before it failed, so its own end is recorded.
            self._runner.stop(run.run_id, "kill", 0.0)
            return
        self._report(ProcessEnded(session=session.id, run_id=run.run_id, problem=problem))

    async def _export(self, run: OpenRun, bindings: list[CommitsBinding]) -> dict[str, str]:
        """Export a clean copy of each new tree to a folder of this run, which is removed with it."""
        folder = f"{self._folder}/{run.run_id}.trees"
        exports = {binding.name: f"{folder}/{binding.name}" for binding in bindings}
        make_private(self._folder)
        os.mkdir(folder, 0o700)
        for binding in bindings:
            target = target_of(run.spec, binding)
            assert target is not None
            await self._sources.export(target.key, run.versions[binding.identity], exports[binding.name])
        return exports

    async def _lay_out_payloads(self, session: Session, run: OpenRun) -> dict[str, str]:
        """Make a folder for each webhook, with a file for each delivery that no run has handled."""
        assert self._blobs is not None
        # Next to the exported trees, because isolation opens that folder to the run, and it is removed with the run.
        folder = f"{self._folder}/{run.run_id}.trees"
        make_private(self._folder)
        return await self._loop.run_in_executor(None, lay_out_payloads, self._blobs, session, run, folder)

    def _start_process(self, session: Session, run: OpenRun, exports: dict[str, str], place: RunPlace | None) -> None:
        if (distrust := self._find_distrust(session.name)) is not None:
            self._loop.call_soon(self._report, ProcessEnded(session=session.id, run_id=run.run_id, problem=distrust))
            return
        try:
            given = self._known.hand_out(decide_secrets(run.spec, run.agent))
        except OperatorError as error:
            # The secret was removed after the decision. Report in the next loop turn, because a plan step must not be
            # re-entered.
            problem = ProcessEnded(session=session.id, run_id=run.run_id, problem=str(error))
            self._loop.call_soon(self._known.look)
            self._loop.call_soon(self._report, problem)
            return
        self._keeper.save_outputs(session, run, self._sources.peek)
        early = self._early.pop(run.run_id, None)
        if early is not None and early.session is session and early.run is run and early.secrets == given:
            token, ticket = early.token, early.ticket
        else:
            if early is not None:
                early.ticket.discard()
            order = self._order(session, run, given, exports, place)
            token, ticket = order.token, self._runner.prepare(order)
        self._identities[token] = RunIdentity(session.id, session.name, run.run)
        ticket.launch()
        # After the spawn, because keeping the run's files must not delay its first instruction.
        self._keeper.begin(session, run, self._sources.find)

    def _order(
        self, session: Session, run: OpenRun, given: tuple[Secret, ...], exports: dict[str, str], place: RunPlace | None
    ) -> RunOrder:
        # A session from a bundle was declared on another host, so its written places are declared here.
        self._note_written(session)
        return self._make_order(
            session,
            run if place is None else msgspec.structs.replace(run, spec=place.spec),
            token=secrets.token_urlsafe(24),
            causes=msgspec.json.encode(view_causes_file(session, run, self._read_received(session, run))),
            exports=exports,
            output_limit_bytes=self._core.settings.output_limit_bytes,
            most_processes=self._core.settings.limits.processes.hard,
            secrets=given,
            workspace=None if place is None else place.order,
        )


def _list_exports(run: OpenRun) -> list[CommitsBinding]:
    return [b for b in run.spec.bindings if isinstance(b, CommitsBinding) and b.export and b.identity in run.versions]


def _needs_files(run: OpenRun) -> bool:
    """Must files be made for the run before it starts: exported trees, payloads of webhooks, a workspace?"""
    return bool(_list_exports(run)) or _has_workspace(run) or bool(run.spec.webhooks)


def _has_workspace(run: OpenRun) -> bool:
    return run.spec.run is not None and run.spec.run.workspace is not None


def _is_stopped(run: OpenRun) -> bool:
    """Was the run stopped before there was a process to signal? Then it is not started at all."""
    return run.stop is not None and run.stop.why != "suspend"


def _end_unbegun(session: Session, run: OpenRun) -> ProcessEnded:
    return ProcessEnded(session=session.id, run_id=run.run_id, problem="stopped before it began")

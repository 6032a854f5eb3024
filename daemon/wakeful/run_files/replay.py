"""Runs a recorded run again, in a temporary copy of the files that it found, and compares the files of both runs.

The API finds the record and calls `prepare`, then `carry_out`. The same runner as for every run starts, limits and ends
the process. A replay belongs to no session: it is not recorded, takes no slot, and cannot call the daemon.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.record.events import RunFinished
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.session import PromptRun
from wakeful.errors import CallerError
from wakeful.run_files.file_record import RunFiles, read_record
from wakeful.run_files.replay_comparison import compare_files, compare_output
from wakeful.run_files.replay_folder import (
    Missing,
    copy_programs,
    copy_scratch,
    redirect,
    refuse_outside,
    write_recorded_files,
)
from wakeful.run_files.webhook_payloads import lay_out_payloads
from wakeful.runners.contract import Runner, RunOrder
from wakeful.system.blobs import Blobs
from wakeful.system.private_files import make_private


class MakeOrder(Protocol):
    """Makes the order of a replay. Its scratch and private folders are in `folder`. It has no socket and no token."""

    def __call__(
        self, session: Session, run: OpenRun, folder: str, *, causes: bytes, exports: dict[str, str]
    ) -> RunOrder: ...


class Recorded(Struct, frozen=True, kw_only=True):
    """The run to be replayed: the session when it started, its end, its causes document, and the scratch folder."""

    session: Session
    finished: RunFinished
    causes: bytes
    scratch: str


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """The options of a replay: another command, a verdict even if contents are missing, a folder to keep the copy."""

    command: tuple[str, ...] | None = None
    is_partial: bool = False
    keep: str | None = None


class Prepared(Struct, frozen=True, kw_only=True):
    """A replay that is ready to run in its copy."""

    recorded: Recorded
    wish: ReplayOptions
    files: RunFiles
    run: OpenRun
    folder: str
    copy: str
    missing: tuple[Missing, ...]
    # The present files that the other command names, copied for the replay.
    brought: tuple[str, ...] = ()
    # The folder with the payloads of deliveries, by binding.
    exports: dict[str, str] = {}


class ReplayEnds:
    """The ends of replays that a caller waits for.

    The runner's reports pass through it first, so it is constructed before the runner.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ProcessEnded]] = {}

    def expect(self, run_id: str) -> asyncio.Future[ProcessEnded]:
        ended = self._waiting[run_id] = asyncio.get_running_loop().create_future()
        return ended

    def take(self, ended: object) -> bool:
        """Is this the end of a replay? If so, pass it to the caller that waits for it."""
        if not isinstance(ended, ProcessEnded) or (waiting := self._waiting.pop(ended.run_id, None)) is None:
            return False
        if not waiting.done():
            waiting.set_result(ended)
        return True


class Replays:
    """Carries out replays with the daemon's own runner. Constructed on the loop."""

    def __init__(self, blobs: Blobs, state: str, make_order: MakeOrder, runner: Runner, ends: ReplayEnds) -> None:
        self._blobs = blobs
        self._folder = f"{state}/replays"
        self._make_order = make_order
        self._runner = runner
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._cleaning: set[asyncio.Task[None]] = set()
        # Remove the copies that a dead daemon left behind.
        shutil.rmtree(self._folder, ignore_errors=True)

    async def prepare(self, recorded: Recorded, wish: ReplayOptions) -> Prepared:
        """Make the copy, in a thread. Raises CallerError if the run cannot be replayed."""
        folder = f"{self._folder}/{secrets.token_hex(6)}"
        try:
            return await asyncio.to_thread(prepare, self._blobs, recorded, wish, folder)
        except BaseException:
            self._clean(folder)
            raise

    async def carry_out(self, prepared: Prepared) -> AsyncIterator[dict[str, Any]]:
        """Yield the missing contents, then the report. If the caller stops listening, the replay is killed."""
        run_id = prepared.run.run_id
        ended: asyncio.Future[ProcessEnded] | None = None
        try:
            yield view_prepared(prepared)
            began = time.monotonic()
            ended = self._ends.expect(run_id)
            order = self._make_order(
                prepared.recorded.session,
                prepared.run,
                prepared.folder,
                causes=prepared.recorded.causes,
                exports=prepared.exports,
            )
            self._runner.prepare(order).launch()
            # Shielded, because a caller that stops listening must not cancel the future that `_clean` awaits.
            end = await asyncio.shield(ended)
            report = await asyncio.to_thread(judge, self._blobs, prepared, end)
            yield report | {"seconds": round(time.monotonic() - began, 3)}
        finally:
            # Nothing may be awaited here, because the caller may be gone and this task cancelled.
            if ended is not None and not ended.done():
                self._runner.stop(run_id, "kill", 0.0)
            self._clean(prepared.folder, ended)

    def _clean(self, folder: str, ended: asyncio.Future[ProcessEnded] | None = None) -> None:
        async def clean() -> None:
            if ended is not None:
                await ended
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

        cleaning = self._loop.create_task(clean(), name="clean up after a replay")
        self._cleaning.add(cleaning)
        cleaning.add_done_callback(self._cleaning.discard)


def prepare(blobs: Blobs, recorded: Recorded, wish: ReplayOptions, folder: str) -> Prepared:
    """Make the copy for a replay. Blocking. Raises CallerError if the run cannot be replayed."""
    run = recorded.session.run
    if run is None or run.spec.run is None or recorded.finished.files is None:
        raise CallerError(
            f"the files of run {recorded.finished.run} were not kept; only runs with file bindings can be replayed"
        )
    if isinstance(run.spec.run, PromptRun) and wish.command is None:
        raise CallerError(
            f"run {recorded.finished.run} was an agent's, whose answers would differ today; "
            "replay it with a command instead"
        )
    refuse_outside(run.spec)
    if wish.keep is not None and os.path.lexists(wish.keep):
        raise CallerError(f"{wish.keep} exists already; name a folder that does not")
    files = read_record(blobs, recorded.finished.files)
    copy = f"{folder}/root"
    make_private(copy)
    missing = write_recorded_files(blobs, files, run.spec, run.versions, copy)
    lack = copy_scratch(recorded.scratch, f"{folder}/scratch/{recorded.session.id}")
    brought = copy_programs(run.spec, wish.command, copy) if wish.command is not None else []
    # A person allowed the recorded run to be observed instead of confined. The replay uses the spec's own isolation.
    spec = recorded.session.spec if run.trace == "observed" and recorded.session.spec is not None else run.spec
    run_id = f"replay-{os.path.basename(folder)}"
    return Prepared(
        recorded=recorded,
        wish=wish,
        files=files,
        run=replace(run, run_id=run_id, spec=redirect(spec, copy, wish.command), trace=None),
        folder=folder,
        copy=copy,
        missing=(
            *missing,
            *((lack,) if lack is not None else ()),
            *(Missing(f"secret {name}", "a replay gets no secrets") for name in run.spec.secrets),
        ),
        brought=tuple(brought),
        exports=lay_out_payloads(blobs, recorded.session, run, f"{folder}/{run_id}.trees"),
    )


def judge(blobs: Blobs, prepared: Prepared, end: ProcessEnded) -> dict[str, Any]:
    """Make the report. It is `same` only if the replay ended as the recorded run and left the same files. Blocking."""
    finished = prepared.recorded.finished
    files = compare_files(blobs, prepared.files, prepared.run.spec, prepared.copy)
    output = compare_output(blobs, finished.output, end.output)
    has_ended_alike = (finished.exit_code, finished.signal) == (end.exit_code, end.signal)
    is_same = has_ended_alike and all(file["verdict"] == "same" for file in files)
    # The output counts only for a run that writes no files. Other runs may well print the time of day.
    if not any(one.is_written for one in prepared.files.bindings):
        is_same = is_same and output["verdict"] == "same"
    if prepared.wish.keep is not None:
        shutil.move(prepared.copy, prepared.wish.keep)
    return {
        "same": is_same,
        "exit_code": {"recorded": finished.exit_code, "now": end.exit_code},
        "signal": {"recorded": finished.signal, "now": end.signal},
        "problem": end.problem,
        "files": files,
        "output": output,
        "kept": prepared.wish.keep,
    }


def view_prepared(prepared: Prepared) -> dict[str, Any]:
    return {
        "name": prepared.recorded.session.name,
        "run": prepared.run.run,
        "missing": [{"what": one.what, "reason": one.reason} for one in prepared.missing],
        "brought": list(prepared.brought),
    }

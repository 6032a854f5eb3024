"""Starts a probe like a run of its session: with the session's secrets and isolation, and with the mark of a run.

Wiring passes `CommandRunner.launch_probe` to the source of probes, which reads the output of a probe. A probe may read
the paths that its session binds. It may write only to its own temporary folder and to the paths that `allow` opens. Its
folders are removed when it ends. A probe has no token, so the control socket refuses it.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from msgspec.structs import replace

from wakeful.core.looking.targets import ProbeTarget
from wakeful.runners.contract import RunOrder
from wakeful.runners.preparation import Preparation, Prepared
from wakeful.runners.process.environment import check_program, fill_folder, make_folders
from wakeful.runners.process.process_mark import mark_children, mark_of
from wakeful.runners.process.program import Surroundings

# The prefix of those WAKEFUL_ variables of a run that a probe gets too.
_TOLD_PREFIX = "WAKEFUL_SECRET_"


class ProbePlaces(NamedTuple):
    """The folders in which probes, like runs, get their temporary and private folders."""

    temporary: str
    folders: str


@asynccontextmanager
async def launch_probe(
    name: str, target: ProbeTarget, preparation: Preparation, places: ProbePlaces
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Start the probe, with both outputs piped. The caller must end it before leaving the block.

    The probe's processes carry the mark of a run with the id `name`. Raises OperatorError, OSError and ValueError.
    """
    around = preparation.around
    order = _make_order(name, target, places, around)
    try:
        prepared = await _prepare(order, preparation)
        try:
            environment = {
                name: value
                for name, value in prepared.environment.items()
                if not name.startswith("WAKEFUL_") or name.startswith(_TOLD_PREFIX)
            }
            check_program(order.argv[0], order.cwd, environment)

            def spawn(prefix: Sequence[str] = (), fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    (*prefix, *order.argv),
                    cwd=order.cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=fds,
                )

            # Do not await in this block: until it ends, every process that the daemon spawns gets the probe's mark.
            with mark_children(mark_of(around.state, order.run_id)):
                popen = prepared.launch(spawn)
            around.children.spawned(popen.pid)
            try:
                yield popen
            finally:
                around.children.gone(popen.pid)
        finally:
            prepared.close()
    finally:
        _remove(order)


def _make_order(name: str, target: ProbeTarget, places: ProbePlaces, around: Surroundings) -> RunOrder:
    """Make a probe's order, with the fields from which its confinement is derived.

    The level `observe` becomes `none`: it denies nothing, and no part of wakeful reads its reports about a probe.
    """
    confinement = (
        target.confinement if target.confinement.level != "observe" else replace(target.confinement, level="none")
    )
    return RunOrder(
        session=name,
        name=name,
        run=0,
        run_id=name,
        argv=target.argv,
        root=target.root,
        cwd=target.root,
        timeout_seconds=target.timeout_seconds,
        grace_seconds=0.0,
        scratch=f"{places.temporary}/{name}",
        temporary=f"{places.temporary}/{name}",
        folder=f"{places.folders}/{name}",
        causes=b"",
        socket=f"{places.folders}/{name}/no-daemon",
        token="",
        secrets=around.secrets.hand_out(target.secrets) if around.secrets is not None else (),
        output_limit_bytes=0,
        confinement=confinement,
        reads=target.reads,
        repositories=target.repositories,
    )


async def _prepare(order: RunOrder, preparation: Preparation) -> Prepared:
    """Prepare in a thread, because every path is examined. If cancelled meanwhile, close the preparation."""
    around = preparation.around
    preparing = around.loop.run_in_executor(around.pool, _prepare_blocking, order, preparation)
    try:
        return await asyncio.shield(preparing)
    except asyncio.CancelledError:
        (await preparing).close()
        raise


def _prepare_blocking(order: RunOrder, preparation: Preparation) -> Prepared:
    make_folders(order)
    fill_folder(order)
    return preparation.confine(order, preparation.begin(order))


def _remove(order: RunOrder) -> None:
    for folder in (order.folder, order.temporary):
        shutil.rmtree(folder, ignore_errors=True)

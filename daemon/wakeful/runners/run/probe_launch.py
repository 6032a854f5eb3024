"""Starts a probe as the runs of its session are started: with its secrets, under its isolation,
and known to be no person.

`CommandRunner.launch_probe` is handed by wiring to the source of probes, which reads what it prints. A probe writes
nothing but a temporary folder of its own and what `allow` opens; it reads what its session binds. Its folders go with
it. It has no token, so the control socket refuses it.
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
from wakeful.runners.prepare.preparation import Preparation, Prepared
from wakeful.runners.process.environment import check_program, fill_folder, make_folders
from wakeful.runners.process.mark import mark_of, marking
from wakeful.runners.process.program import Surroundings

# Of the variables that a run is given by us, those that mean something to a probe.
_TOLD_PREFIX = "WAKEFUL_SECRET_"


class ProbePlaces(NamedTuple):
    """The folders that hold the temporary and private folders of probes, as of runs."""

    temporary: str
    folders: str


@asynccontextmanager
async def launch_probe(
    name: str, target: ProbeTarget, preparation: Preparation, places: ProbePlaces
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The program, started, with both outputs piped; who leaves this has ended it.

    Raises OperatorError, OSError and ValueError.

    Its processes carry the mark of a run that is called `name`."""
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

            # No await between these: the mark is this process's for a moment.
            with marking(mark_of(around.state, order.run_id)):
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

    `observe` becomes `none`: it denies a run nothing, and nobody reads the accesses that it would report of a probe.
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
    """Off the loop: every place is looked at. Given up meanwhile, nothing of it stays open."""
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

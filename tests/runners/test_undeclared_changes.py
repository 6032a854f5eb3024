"""Undeclared changes beside an output are reported with the run.

Left out is only a file that another run declares and wrote meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.conftest import Bench
from wait_conditions import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(not probe_abi(), reason="no Landlock: nothing is opened")]
STANDARD = Confinement(level="standard")


def writing(bench: Bench, text: str, output: str, **changes: object) -> RunOrder:
    """Return an order for a run that declares one file of out/, which opens that folder."""
    return bench.shell(text, **({"confinement": STANDARD, "writes": (output,), "session": output} | changes))


async def wait_for(path: Path) -> None:
    await eventually_async(path.exists, what=str(path))


async def test_a_neighbours_output_is_not_told_as_a_change_of_mine(bench: Bench) -> None:
    """Two sessions write into one folder at the same time, each its declared file. Neither gets a report."""
    slow = bench.start(writing(bench, "echo 1 > out/slow; until [ -e out/quick ]; do sleep 0.01; done", "out/slow"))
    await wait_for(bench.root / "out" / "slow")
    quick = await bench.run(writing(bench, "echo 1 > out/quick", "out/quick"))
    assert (quick.undeclared, (await bench.end_of(slow)).undeclared) == ((), ())


async def test_what_nobody_declares_is_told_to_both(bench: Bench) -> None:
    """Either run could have made the change, so both get the report."""
    slow = bench.start(writing(bench, "echo 1 > out/slow; until [ -e out/stray ]; do sleep 0.01; done", "out/slow"))
    await wait_for(bench.root / "out" / "slow")
    quick = await bench.run(writing(bench, "echo 1 > out/quick; echo 1 > out/stray", "out/quick"))
    assert (quick.undeclared, (await bench.end_of(slow)).undeclared) == (("out/stray",), ("out/stray",))


async def test_what_is_done_to_a_neighbour_that_rests_is_told(bench: Bench) -> None:
    """A declared path excuses other sessions neither before its own session runs nor after."""
    early = await bench.run(writing(bench, "echo forged > out/quick", "out/slow"))
    assert early.undeclared == ("out/quick",)
    slow = bench.start(
        writing(bench, "until [ -e out/quick.done ]; do sleep 0.01; done; echo forged > out/quick", "out/slow")
    )
    await bench.run(writing(bench, "echo 1 > out/quick", "out/quick"))
    # The clock of file timestamps ticks every few milliseconds. The forgery comes a tick later.
    ended = os.stat(bench.root / "out" / "quick").st_ctime_ns

    def has_ticked() -> bool:
        (bench.root / "tick").write_text("")
        return os.stat(bench.root / "tick").st_ctime_ns > ended + 20_000_000

    await eventually_async(has_ticked, what="a later stamp")
    (bench.root / "out" / "quick.done").write_text("")
    assert set((await bench.end_of(slow)).undeclared) == {"out/quick", "out/quick.done"}


async def test_an_output_behind_a_link_is_still_declared(bench: Bench) -> None:
    """Links outside and inside root lead to the output. The run's own output is still a declared one."""
    link = bench.folder / "link"
    link.symlink_to(bench.root)
    (bench.root / "real").mkdir()
    (bench.root / "out").symlink_to("real")
    ended = await bench.run(writing(bench, "echo 1 > out/x; echo 1 > out/y", "out/x", root=str(link)))
    assert (ended.exit_code, [os.path.basename(path) for path in ended.undeclared]) == (0, ["y"])

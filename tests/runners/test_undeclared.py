"""What changed beside an output is told with the run, and only what another run declares and wrote meanwhile is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.conftest import Bench
from waiting import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(not probe_abi(), reason="no Landlock: nothing is opened")]
STANDARD = Confinement(level="standard")


def writing(bench: Bench, text: str, output: str, **changes: object) -> RunOrder:
    """A run that declares one file of out/, which opens that folder."""
    return bench.shell(text, **({"confinement": STANDARD, "writes": (output,), "session": output} | changes))


async def wait_for(path: Path) -> None:
    await eventually_async(path.exists, what=str(path))


async def test_a_neighbours_output_is_not_told_as_a_change_of_mine(bench: Bench) -> None:
    """Two sessions write into one folder, at the same time, each what it declares: nobody is told of anything."""
    slow = bench.start(writing(bench, "echo 1 > out/slow; until [ -e out/quick ]; do sleep 0.01; done", "out/slow"))
    await wait_for(bench.root / "out" / "slow")
    quick = await bench.run(writing(bench, "echo 1 > out/quick", "out/quick"))
    assert (quick.undeclared, (await bench.end_of(slow)).undeclared) == ((), ())


async def test_what_nobody_declares_is_told_to_both(bench: Bench) -> None:
    """Who it was cannot be known: each of them could have been."""
    slow = bench.start(writing(bench, "echo 1 > out/slow; until [ -e out/stray ]; do sleep 0.01; done", "out/slow"))
    await wait_for(bench.root / "out" / "slow")
    quick = await bench.run(writing(bench, "echo 1 > out/quick; echo 1 > out/stray", "out/quick"))
    assert (quick.undeclared, (await bench.end_of(slow)).undeclared) == (("out/stray",), ("out/stray",))


async def test_what_is_done_to_a_neighbour_that_rests_is_told(bench: Bench) -> None:
    """That a path is declared by somebody excuses nobody else: not before that one ran, and not after."""
    early = await bench.run(writing(bench, "echo forged > out/quick", "out/slow"))
    assert early.undeclared == ("out/quick",)
    slow = bench.start(
        writing(bench, "until [ -e out/quick.done ]; do sleep 0.01; done; echo forged > out/quick", "out/slow")
    )
    await bench.run(writing(bench, "echo 1 > out/quick", "out/quick"))
    # The stamp of a file is of a clock that ticks every few milliseconds: the forgery comes a tick later.
    ended = os.stat(bench.root / "out" / "quick").st_ctime_ns

    def has_ticked() -> bool:
        (bench.root / "tick").write_text("")
        return os.stat(bench.root / "tick").st_ctime_ns > ended + 20_000_000

    await eventually_async(has_ticked, what="a later stamp")
    (bench.root / "out" / "quick.done").write_text("")
    assert set((await bench.end_of(slow)).undeclared) == {"out/quick", "out/quick.done"}


async def test_an_output_behind_a_link_is_still_declared(bench: Bench) -> None:
    """People name their folders by links, of root and inside of it; their own output is no stranger there."""
    link = bench.folder / "link"
    link.symlink_to(bench.root)
    (bench.root / "real").mkdir()
    (bench.root / "out").symlink_to("real")
    ended = await bench.run(writing(bench, "echo 1 > out/x; echo 1 > out/y", "out/x", root=str(link)))
    assert (ended.exit_code, [os.path.basename(path) for path in ended.undeclared]) == (0, ["y"])

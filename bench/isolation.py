"""The cost of isolation for a run, compared with the same run without it.

Measured are the times to the first instruction, to the reported end, and from a save. Rounds alternate, so that other
load on the machine affects all alike. Each level is a session of its own, with pauses between its runs. "beside the
specs" is the slowest case of `standard`: an output in the folder that holds sessions.d. If the daemon may mount, it
shields that folder by a mount namespace. The bar of `strict` is bubblewrap alone, measured in the same run, plus 3 ms.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import latency
from latency import Contestant
from place import daemon
from spawn import LONGEST_SECONDS, Rounds, build, read_clock
from table import Bar, Row, print_table
from wakeful.core.spec.session import Confinement
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch, find_obstacle
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected, make_plan
from wakeful.runners.process.children import become_subreaper

SECTION = "isolation of a run"
ROUNDS = 100
WARM_UP = 20
SAVES = 100
PAUSE_SECONDS = 0.12
FLOOR = "bubblewrap alone, the same arguments"
# The bars of a whole run, from its start to its reported end, as an addition to a run without isolation.
DEAREST_MS = 1.0
DEAREST_STRICT_MS = 3.0
SPEC = latency.SPEC + "isolation: {level}\n"


async def take_turns() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        become_subreaper()
        os.makedirs(f"{folder}/project/sessions.d")
        rounds = Rounds(folder, build(folder))
        ways = {
            "none": functools.partial(rounds.by_runner, Confinement(level="none")),
            "standard": rounds.by_runner,
            "standard, an output": functools.partial(rounds.by_runner, output="out/report.md"),
            "standard, an output beside the specs": functools.partial(rounds.by_runner, output="project/report.md"),
        }
        if find_obstacle() is None:
            ways["strict"] = functools.partial(rounds.by_runner, Confinement(level="strict"))
            ways["bare Popen"] = rounds.by_popen
            ways[FLOOR] = functools.partial(by_bubblewrap, rounds)
            ways["strict, an output"] = functools.partial(
                rounds.by_runner, Confinement(level="strict"), output="out/report.md"
            )
        taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                taken[name].append(await asyncio.wait_for(way(), LONGEST_SECONDS))
                await asyncio.sleep(PAUSE_SECONDS)
        await rounds.close()
    bare = taken.pop("bare Popen", [])
    floor = _find_more(taken[FLOOR], bare)["end", 5] if FLOOR in taken else 0.0
    return [_make_row(name, rounds, bare if name == FLOOR else taken["none"], floor) for name, rounds in taken.items()]


async def by_bubblewrap(rounds: Rounds) -> tuple[float, float, float]:
    """Measure the floor of `strict`: prepare the view, let a bare Popen start bubblewrap in it, and wait.

    It is compared with a bare Popen of the program itself.
    """
    order, environment = rounds.order(Confinement(level="strict")), {"PATH": os.environ["PATH"]}
    for folder in (order.folder, order.scratch, order.temporary):
        os.makedirs(folder, exist_ok=True)
    launch = BubblewrapLaunch(
        order, environment, make_plan(order, environment, Protected()).conclude_view(order.folder), None
    )

    def spawn(prefix: Sequence[str] = (), fds: Sequence[int] = ()) -> tuple[float, float, subprocess.Popen[bytes]]:
        began = time.monotonic()
        process = subprocess.Popen(
            (*prefix, *order.argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=fds,
        )
        return began, time.monotonic(), process

    began, called, process = launch(spawn)
    output, _ = process.communicate()
    ended = time.monotonic()
    launch.close()
    shutil.rmtree(order.folder)
    first = read_clock(output)
    return first - began, called - began, ended - first


def _measure(rounds: list[tuple[float, float, float]], which: str) -> list[float]:
    """Return the milliseconds to the first instruction, or to the reported end."""
    return [(first + (after if which == "end" else 0.0)) * 1e3 for first, _, after in rounds[WARM_UP:]]


def _find_more(
    rounds: list[tuple[float, float, float]], bare: list[tuple[float, float, float]]
) -> dict[tuple[str, int], float]:
    """Return how many milliseconds longer than `bare` it took, for the best tenth and for the median."""
    return {
        (which, tenths): _cut(_measure(rounds, which), tenths) - _cut(_measure(bare, which), tenths)
        for which in ("first", "end")
        for tenths in (1, 5)
    }


def _make_row(
    name: str, rounds: list[tuple[float, float, float]], bare: list[tuple[float, float, float]], floor: float
) -> Row:
    """Make the row of the difference of the medians.

    The best tenth is less affected by other load on the machine.
    """
    p50 = {which: _cut(_measure(rounds, which), 5) for which in ("first", "end")}
    note = f"first instruction after {p50['first']:.2f} ms, reported end after {p50['end']:.2f} ms"
    if name == "none":
        return Row(SECTION, "none: a whole run", p50["end"], "ms p50", note=note)
    more = _find_more(rounds, bare)
    note += f"; first instruction {more['first', 5]:+.2f} ms, best tenth: first {more['first', 1]:+.2f}, end {more['end', 1]:+.2f} ms"
    if name == FLOOR:
        return Row(SECTION, f"{name}: more than a bare Popen", more["end", 5], "ms p50", note=note)
    bar = Bar("<=", floor + DEAREST_STRICT_MS if name.startswith("strict") else DEAREST_MS)
    return Row(SECTION, f"{name}: more than none", more["end", 5], "ms p50", bar, note)


def _cut(values: list[float], tenths: int) -> float:
    return statistics.quantiles(values, n=10)[tenths - 1]


def race() -> list[Row]:
    """Measure from a save to the first instruction, through the whole daemon, with and without isolation."""
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        stamp = latency.build(Path(text))
        assert stamp is not None
        racing = []
        for level in ("none", "standard"):
            folder = Path(text) / level
            folder.mkdir()
            latency.plant(folder, 100)
            (folder / "stamps").touch()
            place = stack.enter_context(daemon(folder))
            (folder / "wakeful.yaml").write_text("allow_unisolated: true\n")
            for number in range(latency.SESSIONS):
                spec = SPEC.format(
                    pattern=f"watched/**/f{number}.txt", stamp=stamp, stamps=folder / "stamps", level=level
                )
                (place.specs / f"bench-{number}.yaml").write_text(spec)
            place.start()
            racing.append(Contestant(level, folder))
            racing[-1].warm_up()
        for number in range(SAVES):
            for contestant in racing:
                contestant.play(number)
                time.sleep(latency.PAUSE_SECONDS)
    return [
        Row(
            SECTION,
            f"saved -> first instruction, {one.name}",
            statistics.median(one.took),
            "ms p50",
            note=f"p95 {_p95(one.took):.2f}",
        )
        for one in racing
    ]


def _p95(took: list[float]) -> float:
    return statistics.quantiles(took, n=20)[18]


def measure() -> list[Row]:
    if shutil.which("cc") is None or not probe_abi():
        return [Row(SECTION, "standard", None, "ms p50", note="needs a C compiler (cc) and a kernel with Landlock")]
    return [*asyncio.run(take_turns()), *race()]


if __name__ == "__main__":
    print_table(measure())

"""An ended run is freed with its last reference.

No object of it waits in a cycle for the garbage collector, which stops the whole daemon while it works.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from runners.conftest import Bench
from wait_conditions import eventually_async
from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.spec.session import Confinement, RunLimits
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.run.live_run import LiveRun
from wakeful.runners.run.probe_launch import ProbePlaces

pytestmark = pytest.mark.asyncio
LEVELS = ("none", "observe", "standard") if find_obstacle() else ("none", "observe", "standard", "strict")

ORDERS: dict[str, Callable[[Bench], RunOrder]] = {
    **{
        f"isolation {level}": lambda bench, level=level: bench.shell("echo said", confinement=Confinement(level=level))
        for level in LEVELS
    },
    "a failing run": lambda bench: bench.shell("echo said; exit 3"),
    "a check": lambda bench: bench.shell("echo said", check=("sh", "-c", "echo good")),
    "no such program": lambda bench: bench.order("/nonexistent"),
    "no such folder": lambda bench: bench.shell("true", cwd="/nonexistent"),
    "its time is over": lambda bench: bench.shell("sleep 300", timeout_seconds=0.05, grace_seconds=0.05),
    "it ignores the end of its time": lambda bench: bench.shell(
        "trap '' TERM; sleep 1 & wait; sleep 300", timeout_seconds=0.3, grace_seconds=0.05
    ),
    "limits": lambda bench: bench.shell("echo said; sleep 0.3", limits=RunLimits(processes=20)),
    "a daemon of its own": lambda bench: bench.shell("setsid sleep 300 & echo said"),
    "much to say": lambda bench: bench.python("print('x' * 100_000)"),
}


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    gc.collect()
    # Hidden from the collections below. Otherwise the modules of other tests cost a second each time.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def find_cycles() -> list[str]:
    """Return the names of our objects that only a collection frees.

    These are instances, frames held by a traceback, and types that ctypes made for us.
    """
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [name for one in gc.garbage if (name := name_ours(one)) is not None]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def name_ours(one: object) -> str | None:
    if isinstance(one, FrameType):
        return f"frame of {one.f_code.co_qualname}" if "/wakeful/" in one.f_code.co_filename else None
    if isinstance(one, type) and issubclass(one, ctypes.Array):
        return one.__qualname__
    return type(one).__qualname__ if type(one).__module__.startswith("wakeful.") else None


def find_live(run_id: str) -> weakref.ref[LiveRun]:
    return next(weakref.ref(one) for one in gc.get_objects() if type(one) is LiveRun and one.order.run_id == run_id)


async def run_and_lose(bench: Bench, order: RunOrder) -> None:
    bench.start(order)
    live = find_live(order.run_id)
    await bench.end_of(order.run_id)
    # Threads release their work a moment after they have reported its end.
    await eventually_async(lambda: live() is None, what="the end of the run's object")
    assert find_cycles() == []


@pytest.mark.parametrize("name", ORDERS)
async def test_an_ended_run_is_freed_at_once(bench: Bench, name: str) -> None:
    await run_and_lose(bench, ORDERS[name](bench))


async def test_a_stopped_run_is_freed_at_once(bench: Bench) -> None:
    order = bench.shell("sleep 300")
    bench.start(order)
    live = find_live(order.run_id)
    bench.runner.stop(order.run_id, "interrupt", 30.0)
    bench.runner.stop(order.run_id, "kill", 0.0)
    await bench.end_of(order.run_id)
    await eventually_async(lambda: live() is None, what="the end of the run's object")
    assert find_cycles() == []


@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_of_a_probe_is_left(bench: Bench, level: str) -> None:
    places = ProbePlaces(str(bench.state / "temporary"), str(bench.state / "runs"))

    async def ask(*argv: str) -> None:
        target = ProbeTarget(
            key="p",
            root=str(bench.root),
            argv=argv,
            check_every_seconds=1.0,
            timeout_seconds=60.0,
            confinement=Confinement(level=level),
        )
        async with bench.runner.launch_probe(target, places) as popen:
            await asyncio.to_thread(popen.communicate)

    await ask("sh", "-c", "echo said")
    with pytest.raises((OperatorError, OSError)):
        await ask("/nonexistent")
    await asyncio.sleep(0)
    assert find_cycles() == []

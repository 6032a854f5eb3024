"""A daemon that runs the orders it reads from its input one after the other, and says after each which processes wait for the next."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct

from waiting import eventually_async
from wakeful.runners.contract import RunOrder
from wakeful.runners.process.children import Children, become_subreaper
from wakeful.runners.run.runner import CommandRunner
from wakeful.system.blobs import Blobs


class Waits(Struct):
    """`space` is the namespace that they are in."""

    pids: tuple[int, ...]
    space: str


async def run_each(state: str, orders: Iterable[RunOrder], tell: Callable[[Waits], None]) -> None:
    """Each is asked for when the one before was told of."""
    become_subreaper()
    reports: asyncio.Queue[object] = asyncio.Queue()
    runner = CommandRunner(report=reports.put_nowait, blobs=Blobs(f"{state}/blobs"), state=state, children=Children())
    views = runner._around.views
    asked = iter(orders)
    while (order := await asyncio.to_thread(next, asked, None)) is not None:
        runner.start(order)
        await reports.get()
        view = await eventually_async(
            lambda: (found := views._waiting.get(order.session)) is not None and found.pids and found
        )
        tell(Waits(view.pids, os.readlink(f"/proc/{view.pids[-1]}/ns/pid")))


def read_orders() -> Iterator[RunOrder]:
    for line in sys.stdin.buffer:
        yield msgspec.json.decode(line, type=RunOrder)


if __name__ == "__main__":
    asyncio.run(
        run_each(sys.argv[1], read_orders(), lambda waits: print(msgspec.json.encode(waits).decode(), flush=True))
    )

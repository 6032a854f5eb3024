"""A daemon to be killed: starts the orders it reads from its input, says `started`, then what it would report, and waits for its end."""

import asyncio
import sys
from functools import partial

import msgspec

from wakeful.runners.contract import RunOrder
from wakeful.runners.process.children import Children, become_subreaper
from wakeful.runners.run.runner import CommandRunner
from wakeful.system.blobs import Blobs


async def main(state: str) -> None:
    become_subreaper()
    runner = CommandRunner(
        report=partial(print, flush=True), blobs=Blobs(f"{state}/blobs"), state=state, children=Children()
    )
    for order in msgspec.json.decode(sys.stdin.buffer.read(), type=list[RunOrder]):
        runner.prepare(order).launch()
    print("started", flush=True)
    # Nobody killed it: the test that should have is broken.
    await asyncio.sleep(600)


asyncio.run(main(sys.argv[1]))

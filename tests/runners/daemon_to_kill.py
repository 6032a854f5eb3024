"""A daemon for a test to kill.

It starts the orders that it reads from its input, prints `started` and then its reports, and waits for its end.
"""

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
    # Reached only if the test did not kill this process, and so is broken.
    await asyncio.sleep(600)


asyncio.run(main(sys.argv[1]))

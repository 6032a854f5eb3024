"""From `start` to the command's first instruction, compared with a bare Popen and posix_spawn in one run.

The child is a C program whose `main` writes its monotonic clock, so that the start of an interpreter is not measured.
Rounds alternate, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from table import Row, print_table
from wakeful.core.record.observations import ProcessEnded, RunRecovered
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.reach import Protected
from wakeful.runners.process.children import Children, become_subreaper
from wakeful.runners.run.run_folders import open_run_folders
from wakeful.runners.run.runner import CommandRunner
from wakeful.system.blobs import Blobs

SECTION = "start of a run -> its first instruction"
ROUNDS = 400
LONGEST_SECONDS = 30
FIRST_INSTRUCTION = """
#include <time.h>
#include <unistd.h>
int main(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return write(1, &t, sizeof t) != sizeof t; }
"""


def build(folder: str) -> str:
    source, program = f"{folder}/first.c", f"{folder}/first"
    with open(source, "w") as file:
        file.write(FIRST_INSTRUCTION)
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)
    return program


def read_clock(output: bytes) -> float:
    seconds, nanoseconds = struct.unpack("qq", output)
    return seconds + nanoseconds / 1e9


class Rounds:
    """Starts one child in each of three ways.

    Each way returns seconds: from the start to the first instruction, the call itself, and from the first instruction
    to the end.
    """

    def __init__(self, folder: str, program: str) -> None:
        self._program = program
        self._folder = folder
        self._blobs = Blobs(f"{folder}/blobs")
        self._reports: asyncio.Queue[ProcessEnded | RunRecovered] = asyncio.Queue()
        self._number = 0
        self._runs = open_run_folders(folder, os.environ)
        self._flusher = ThreadPoolExecutor(1)
        self._record = os.open(f"{folder}/record", os.O_WRONLY | os.O_CREAT)
        self._runner = CommandRunner(
            report=self._reports.put_nowait,
            blobs=self._blobs,
            state=folder,
            children=Children(),
            protected=Protected(specs=f"{folder}/project/sessions.d"),
        )

    def _flush(self) -> None:
        os.pwrite(self._record, bytes(4096), 0)
        os.fdatasync(self._record)

    async def close(self) -> None:
        await self._runner.close(0)
        self._flusher.shutdown()
        os.close(self._record)
        os.rmdir(self._runs)

    async def by_posix_spawn(self) -> tuple[float, float, float]:
        reader, writer = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
        began = time.monotonic()
        pid = os.posix_spawn(self._program, [self._program], os.environ, file_actions=actions, setsid=True)
        called = time.monotonic()
        os.waitpid(pid, 0)
        ended = time.monotonic()
        os.close(writer)
        first = read_clock(os.read(reader, 16))
        os.close(reader)
        return first - began, called - began, ended - first

    async def by_popen(self) -> tuple[float, float, float]:
        began = time.monotonic()
        process = subprocess.Popen(
            [self._program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, cwd="/"
        )
        called = time.monotonic()
        first = read_clock(process.stdout.read())
        process.wait()
        ended = time.monotonic()
        process.stdout.close()
        return first - began, called - began, ended - first

    async def by_runner(
        self, confinement: Confinement = Confinement(), output: str | None = None
    ) -> tuple[float, float, float]:
        """Start a run as the daemon does: it is prepared while the record of the start is flushed.

        `output` is a file that the run declares to write.
        """
        order = self.order(confinement, output)
        began = time.monotonic()
        flushing = asyncio.get_running_loop().run_in_executor(self._flusher, self._flush)
        ticket = self._runner.prepare(order)
        await flushing
        ticket.launch()
        called = time.monotonic()
        report = await self._reports.get()
        ended = time.monotonic()
        first = read_clock(self._blobs.get(report.output.head))
        return first - began, called - began, ended - first

    def order(self, confinement: Confinement, output: str | None = None) -> RunOrder:
        """Return the order of a run.

        Each way is a session of its own, because a run uses what earlier runs of its session found out.
        """
        self._number += 1
        session = f"{confinement.level}-{'output' if output else 'plain'}-{(output or '').count('project')}"
        return RunOrder(
            session=session, name=session, run=self._number, run_id=f"run-{self._number}", argv=(self._program,), root=self._folder, cwd="",
            timeout_seconds=60, grace_seconds=5, scratch=f"{self._folder}/scratch", folder=f"{self._runs}/{self._number}",
            causes=b"{}" * 200, changed=("a.csv",) * 10, bindings={"salaries": "/x"}, socket="/s", token="t", output_limit_bytes=1 << 20,
            temporary=f"{self._folder}/temporary", reads=("first",), writes=(output,) if output else (), confinement=confinement,
            staging=f"{self._folder}/staged/{self._number}" if output else None,
        )  # fmt: skip


def make_rows(name: str, rounds: list[tuple[float, float, float]]) -> list[Row]:
    first, call, end = (sorted(column) for column in zip(*rounds, strict=True))
    p95 = first[int(len(first) * 0.95)] * 1e3
    note = f"p95 {p95:.3f}, the call {statistics.median(call) * 1e3:.3f}, end noticed after {statistics.median(end) * 1e3:.3f}"
    return [Row(SECTION, name, statistics.median(first) * 1e3, "ms p50", note=note)]


async def take_turns() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        become_subreaper()
        rounds = Rounds(folder, build(folder))
        ways: dict[str, Callable[[], Awaitable[tuple[float, float, float]]]] = {
            "posix_spawn": rounds.by_posix_spawn,
            "bare Popen": rounds.by_popen,
            "CommandRunner": rounds.by_runner,
        }
        taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                taken[name].append(await asyncio.wait_for(way(), LONGEST_SECONDS))
        await rounds.close()
    return [row for name, values in taken.items() for row in make_rows(name, values[20:])]


def measure() -> list[Row]:
    if shutil.which("cc") is None:
        return [Row(SECTION, "CommandRunner", None, "ms p50", note="needs a C compiler (cc)")]
    return asyncio.run(take_turns())


if __name__ == "__main__":
    print_table(measure())

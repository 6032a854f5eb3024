"""A command runner in the test's own process, with real children, and its reports."""

import ctypes
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from wait_conditions import eventually_async
from wakeful.core.record.observations import Output, ProcessEnded, RunRecovered
from wakeful.runners.contract import RunOrder
from wakeful.runners.process import procfs
from wakeful.runners.process.children import Children, become_subreaper
from wakeful.runners.run.runner import CommandRunner
from wakeful.system.blobs import Blobs

_PR_SET_CHILD_SUBREAPER = 36


class Bench:
    """The runner under test, orders for it, and its reports."""

    def __init__(self, folder: Path, **named: object) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.root = folder / "root"
        self.root.mkdir()
        self.state.mkdir()
        self.reports: list[ProcessEnded | RunRecovered] = []
        self.blobs = Blobs(str(self.state / "blobs"))
        self.children = Children()
        self.runner = CommandRunner(
            report=self.reports.append, blobs=self.blobs, state=str(self.state), children=self.children, **named
        )
        self._runs = 0
        self._started: set[str] = set()

    def order(self, *argv: str, **changes: object) -> RunOrder:
        self._runs += 1
        values = dict(
            session="s-1", name="payroll", run=self._runs, run_id=f"run-{self._runs}", argv=argv, root=str(self.root),
            cwd="", timeout_seconds=30.0, grace_seconds=5.0, scratch=str(self.state / "scratch"),
            folder=str(self.state / "runs" / str(self._runs)), temporary=str(self.state / "temporary"), writes=("**",), causes=b"{}", socket="/nowhere/socket", token="secret",
            output_limit_bytes=1 << 20,
        )  # fmt: skip
        return RunOrder(**(values | changes))

    def python(self, text: str, **changes: object) -> RunOrder:
        return self.order(sys.executable, "-c", text, **changes)

    def shell(self, text: str, **changes: object) -> RunOrder:
        return self.order(script=text, **changes)

    def start(self, order: RunOrder) -> str:
        self.runner.prepare(order).launch()
        self._started.add(order.run_id)
        return order.run_id

    def under_way(self) -> set[str]:
        return self._started - {report.run_id for report in self.reports}

    async def run(self, order: RunOrder) -> ProcessEnded:
        return await self.end_of(self.start(order))

    async def end_of(self, run_id: str) -> ProcessEnded:
        def find() -> ProcessEnded | None:
            return next((report for report in self.reports if report.run_id == run_id), None)

        return await eventually_async(find, what=f"the end of {run_id}")

    def output(self, ended: ProcessEnded) -> bytes:
        return self.text_of(ended.output)

    def text_of(self, output: Output) -> bytes:
        return b"".join(self.blobs.get(address) for address in (output.head, output.tail) if address)

    async def number_in(self, name: str) -> int:
        """Return the pid that a run writes into a file of its root."""
        path = self.root / name
        text = await eventually_async(lambda: path.exists() and path.read_text().strip(), what=f"{name} written")
        return int(text)

    @staticmethod
    def is_alive(pid: int) -> bool:
        stat = procfs.read_stat(pid)
        return stat is not None and stat.is_alive


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Make this process a subreaper, as the daemon is. Undone afterwards, because all tests share the process."""
    limits = resource.getrlimit(resource.RLIMIT_RTTIME)
    become_subreaper()
    yield
    resource.setrlimit(resource.RLIMIT_RTTIME, limits)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@asynccontextmanager
async def open_bench(folder: Path, **named: object) -> AsyncIterator[Bench]:
    """Open a bench and end its runs afterwards. `named` goes to the runner."""
    bench = Bench(folder, **named)
    await bench.runner.settle()
    yield bench
    for run_id in bench.under_way():
        bench.runner.stop(run_id, "kill", 0)
    await bench.runner.close(0)


@pytest_asyncio.fixture
async def bench(tmp_path: Path, subreaper: None) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path) as bench:
        yield bench

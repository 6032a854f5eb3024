"""The end of a run waits for its outputs to be stored, and never for its inputs, which are stored later."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.simulated_world import World as CoreWorld
from core.spec_builders import read, session, write
from run_files.recorded_runs import World as Files
from wait_conditions import eventually_async
from wakeful.core.deciding.working_state import Lane
from wakeful.core.record.observations import OutputsKept, ProcessEnded, RunRecovered
from wakeful.run_files import content_recorder as keeper_module
from wakeful.run_files import pending_contents as backlog_module
from wakeful.run_files.capture import TOO_MUCH, Limits, WantedContent
from wakeful.run_files.content_recorder import Keeper
from wakeful.run_files.file_record import Entry, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.pending_contents import Backlog
from wakeful.sources.files.entry import Seen
from wakeful.system import blobs as blobs_module
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

pytestmark = pytest.mark.asyncio

OUTPUT = b"what the run wrote"


class HeldBlobs(Blobs):
    """Real blobs whose backlog stands still while the gate is shut. They record what each thread added."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.gate = threading.Event()
        self.slow_disk = threading.Event()
        self.slow_disk.set()
        self.added: list[bytes] = []

    def add(self, content: bytes) -> str:
        if threading.current_thread().name.startswith("contents-later"):
            self.gate.wait(60)
        else:
            self.added.append(content)
        return super().add(content)

    def flush(self, addresses=None) -> None:
        self.slow_disk.wait(60)
        super().flush(addresses)


@dataclass
class LookSeen:
    members: dict[str, Seen]
    version: str | None = "v"
    is_stale: bool = False
    stamp: str = field(init=False)

    def __post_init__(self) -> None:
        self.stamp = repr(sorted((path, seen.digest) for path, seen in self.members.items()))


class Desk:
    """A session in a real core that reads in/* and writes out/*. Its files are real, and the test plays its process."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.files = Files(folder)
        self.blobs = HeldBlobs(str(folder / "held"))
        self.core = CoreWorld(session("s", read("in/*", name="in"), write("out/*", name="out")), files={"in/0": "0"})
        self.core.look()
        self.said: list[str] = []
        self.kept_at_end: list[bool] = []
        self.limits = limits or Limits()
        self.keeper = self.make_keeper()

    def make_keeper(self) -> Keeper:
        return Keeper(self.core.core, self.blobs, self.observe, self.said.append, lambda: self.limits)

    def find(self, target: str) -> LookSeen:
        """Look at the present files of a target."""
        folder = (
            "out"
            if any(one.target == target and one.name == "out" for one in self.core.core.looked.bounds[self.id])
            else "in"
        )
        names = [f"{folder}/{path.name}" for path in (self.files.root / folder).glob("*")]
        return LookSeen(self.files.look(*names))

    @property
    def id(self) -> str:
        return self.core.session("s").id

    def observe(self, report: ProcessEnded | RunRecovered | OutputsKept) -> None:
        if isinstance(report, OutputsKept):
            outputs = {entry.address for entry in self.entries("out", "after", report.files)} if report.files else set()
            self.kept_at_end.append(
                bool(outputs) and all(address and self.blobs.is_kept(address) for address in outputs)
            )
        self.core.observe(report)

    async def run(self, inputs: int, output: bytes = OUTPUT) -> str:
        """Take a run from its start to `run_finished`, and return the `files` of that record."""
        for number in range(inputs):
            self.files.write(f"in/{number}", f"input {number}")
        if self.core.session("s").run is None:
            self.core.write("in/0", f"news {len(self.finished)}")
            self.core.look()
        session, run = self.core.session("s"), self.core.session("s").run
        before = len(self.finished)
        self.keeper.save_outputs(session, run, self.find)
        self.keeper.begin(session, run, self.find)
        self.files.write("out/result", output)
        self.keeper.end(ProcessEnded(session=self.id, run_id=run.run_id, exit_code=0))
        self.core.answer_all()
        self.keeper.attend()
        await eventually_async(lambda: len(self.finished) > before)
        return self.finished[-1].files

    @property
    def finished(self) -> list:
        return self.core.events("s", "run_finished")

    def entries(self, binding: str, side: str, files: str) -> tuple[Entry, ...]:
        found = next(one for one in read_record(self.blobs, files).bindings if one.name == binding)
        return read_entries(self.blobs, getattr(found, side))

    def count_kept(self, files: str) -> int:
        return sum(
            entry.address is not None and self.blobs.is_kept(entry.address)
            for entry in self.entries("in", "before", files)
        )


async def close(desk: Desk) -> None:
    desk.blobs.gate.set()
    desk.blobs.slow_disk.set()
    await desk.keeper.close()


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every flush of a file or of all, by the thread that waited for it.

    However slow the disk is, none comes after the end that waited for it.
    """
    monkeypatch.setattr(keeper_module, "LONGEST_WAIT_SECONDS", 600.0)
    seen: list[str] = []
    for name in ("_sync", "_sync_file_system"):

        def spy(path: str, *, call=getattr(blobs_module, name)) -> None:
            seen.append(threading.current_thread().name)
            call(path)

        monkeypatch.setattr(blobs_module, name, spy)
    return seen


def _count_awaited(flushes: list[str]) -> int:
    """Count without the flushes seconds after the end, which are in a thread that no run waits for."""
    return sum(not name.startswith("contents-later") for name in flushes)


async def test_a_run_with_1000_fresh_inputs_is_closed_before_any_of_them_is_read(
    tmp_path: Path, flushes: list[str]
) -> None:
    """The end waits for the output, the lists and the record. The flushes are those of a run without inputs."""
    (tmp_path / "none").mkdir()
    (tmp_path / "many").mkdir()
    none, many = Desk(tmp_path / "none"), Desk(tmp_path / "many")
    await none.run(0)
    awaited_without = _count_awaited(flushes)
    files = await many.run(1000)
    # There are fewer on a machine so busy that the end of a run stops waiting for the disk.
    assert _count_awaited(flushes) <= 2 * awaited_without
    assert not any(content.startswith(b"input") for content in many.blobs.added) and OUTPUT in many.blobs.added
    assert len(many.entries("in", "before", files)) == 1000 and many.count_kept(files) == 0
    many.blobs.gate.set()
    await eventually_async(lambda: many.count_kept(files) == 1000)
    assert {entry.not_kept for entry in many.entries("in", "before", files)} == {None}
    for desk in (none, many):
        assert desk.kept_at_end == [True] and desk.said == []
        await close(desk)


async def test_a_run_with_nothing_new_is_closed_without_a_flush(tmp_path: Path, flushes: list[str]) -> None:
    desk = Desk(tmp_path)
    desk.blobs.gate.set()
    await desk.run(3)
    assert [name for name in flushes if not name.startswith("contents-later")]
    flushes.clear()
    await desk.run(3)
    assert [name for name in flushes if not name.startswith("contents-later")] == [] and desk.kept_at_end == [
        True,
        True,
    ]
    await close(desk)


async def test_a_disk_that_takes_its_time_does_not_hold_a_run_for_long(tmp_path: Path) -> None:
    """The record names the outputs, which are written. Only a power cut in that moment could lose them."""
    desk = Desk(tmp_path)
    desk.blobs.slow_disk.clear()
    files = await desk.run(1)
    assert files is not None and desk.kept_at_end == [True]
    await close(desk)
    assert len(desk.finished) == 1, "the flush that came later reports nothing anew"


async def test_a_daemon_that_stops_gives_up_what_waits_and_loses_nothing_it_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "CLOSING_SECONDS", 0.0)
    is_closing = threading.Event()

    class ClosingPool(Pool):
        def shutdown(self, *options: bool, **named: bool) -> None:
            is_closing.set()
            super().shutdown(*options, **named)

    with monkeypatch.context() as patch:
        patch.setattr(backlog_module, "Pool", ClosingPool)
        desk = Desk(tmp_path)
    files = await desk.run(100)
    closing = asyncio.create_task(desk.keeper.close())
    await eventually_async(is_closing.is_set, what="the contents that wait given up")
    desk.blobs.gate.set()
    await closing
    assert desk.count_kept(files) <= 1 and desk.kept_at_end == [True] and desk.said == []
    # The next daemon's run finds the same inputs, and stores them.
    desk.keeper = desk.make_keeper()
    later = await desk.run(100)
    await eventually_async(lambda: desk.count_kept(later) == desk.count_kept(files) == 100)
    await close(desk)


async def test_a_daemon_that_stops_keeps_what_it_can_in_a_moment(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    files = await desk.run(100)
    await close(desk)
    assert desk.count_kept(files) == 100


async def test_what_is_new_beyond_the_bounds_of_a_run_is_listed_and_gets_its_turn(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Limits(run_files=60))
    desk.blobs.gate.set()
    files = await desk.run(100)
    assert sorted(entry.not_kept or "" for entry in desk.entries("in", "before", files)) == [""] * 60 + [TOO_MUCH] * 40
    await eventually_async(lambda: desk.count_kept(files) == 60)
    later = await desk.run(100)
    await eventually_async(lambda: desk.count_kept(later) == 100)
    await close(desk)


async def test_more_than_may_wait_is_given_up_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "MOST_WAITING", 3)
    path = tmp_path / "file"
    path.write_text("x")
    blobs, lost = HeldBlobs(str(tmp_path / "blobs")), []
    (seen,) = Files(tmp_path).look("../file").values()
    backlog = Backlog(blobs, lost.append)
    backlog.add([WantedContent(str(path), seen.digest, seen.size)] * 2)
    backlog.add([WantedContent(str(path), seen.digest, seen.size)] * 2)
    assert len(lost) == 1 and "more than 3 would wait" in lost[0]
    blobs.gate.set()
    backlog.close()
    backlog.add([WantedContent(str(path), seen.digest, seen.size)])
    assert blobs.sizes().blobs == 1 and len(lost) == 1


async def test_contents_give_way_to_looks_and_are_kept_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    blobs = Blobs(str(tmp_path / "blobs"))
    asked, eased = threading.Event(), threading.Event()

    def is_pressed() -> bool:
        asked.set()
        return not eased.is_set()

    (seen,) = Files(tmp_path).look("../file").values()
    backlog = Backlog(blobs, pytest.fail, is_pressed)
    backlog.add([WantedContent(str(path), seen.digest, seen.size)])
    assert asked.wait(60) and blobs.sizes().blobs == 0
    eased.set()
    await eventually_async(lambda: blobs.sizes().blobs == 1)
    backlog.close()


async def test_contents_that_runs_found_give_way_to_runs_that_wait_for_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "LONGEST_WAY_SECONDS", 600.0)
    desk = Desk(tmp_path)
    desk.blobs.gate.set()
    # The waiting run is in a pool that other runs fill.
    desk.core.core.state.used["full"] = 1
    desk.core.core.ready.put("another", 0.0, Lane("full", is_agent=False))
    files = await desk.run(3)
    assert desk.count_kept(files) == 0
    desk.core.core.ready.remove("another")
    await eventually_async(lambda: desk.count_kept(files) == 3)
    await close(desk)


async def test_contents_give_way_for_a_bounded_time_and_not_to_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    (seen,) = Files(tmp_path).look("../file").values()
    stopped = Backlog(blobs := Blobs(str(tmp_path / "blobs")), pytest.fail, lambda: True)
    stopped.add([WantedContent(str(path), seen.digest, seen.size)])
    stopped.close()
    assert blobs.sizes().blobs == 1
    monkeypatch.setattr(backlog_module, "LONGEST_WAY_SECONDS", 0.05)
    patient = Backlog(others := Blobs(str(tmp_path / "others")), pytest.fail, lambda: True)
    patient.add([WantedContent(str(path), seen.digest, seen.size)])
    await eventually_async(lambda: others.sizes().blobs == 1)
    patient.close()

"""A run's tree is ended through its control group where groups are available. Elsewhere no group is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wait_conditions import PATIENCE_SECONDS, eventually_async
from wakeful.core.spec.session import Confinement, RunLimits
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.process import cgroup, procfs
from wakeful.runners.process.cgroup import Cgroups
from wakeful.runners.process.process_mark import mark_of
from wakeful.runners.run.runner import CommandRunner


def find_own() -> Path | None:
    """Return the folder of the group that the tests run in, or None."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((words[1] for words in mounts if words[2] == "cgroup2"), None)
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for number, _, path in groups if number == "0"), None)
    return None if mount is None or own is None else Path(mount) / own.lstrip("/")


@pytest.fixture
def cgroups():
    """Make a group below the one the tests run in, as systemd's delegation would."""
    own = find_own()
    if own is None:
        pytest.skip("no cgroup v2 here")
    folder = f"{own}/wakeful-test-{os.getpid()}"
    try:
        os.mkdir(folder)
    except OSError as error:
        pytest.skip(f"cgroup v2 is not writable here: {error}")
    yield Cgroups(folder)
    os.rmdir(folder)


@pytest.mark.asyncio
async def test_a_run_lives_in_a_group_of_its_own_which_is_gone_after_it(bench, cgroups):
    runner = CommandRunner(
        report=bench.reports.append, blobs=bench.blobs, state=str(bench.state), children=bench.children, cgroups=cgroups
    )
    order = bench.shell(
        "until grep '^0::.*/wakeful-1' /proc/self/cgroup; do sleep 0.01; done; (setsid env -i sleep 600 &)"
    )
    runner.prepare(order).launch()
    ended = await bench.end_of(order.run_id)
    assert b"/wakeful-1" in bench.output(ended)
    await eventually_async(lambda: not cgroups.marks())
    await runner.close(0)


@pytest.mark.skipif(find_obstacle() is not None, reason="nothing can be isolated strictly here")
@pytest.mark.asyncio
async def test_a_strict_run_is_in_its_group(bench, cgroups):
    """The group has the run's program, which is not the process of bubblewrap."""
    runner = CommandRunner(
        report=bench.reports.append, blobs=bench.blobs, state=str(bench.state), children=bench.children, cgroups=cgroups
    )
    for _ in range(2):
        order = bench.shell(
            "until grep '^0::.*/wakeful-1' /proc/self/cgroup; do sleep 0.01; done",
            confinement=Confinement(level="strict"),
            writes=(),
        )
        runner.prepare(order).launch()
        ended = await bench.end_of(order.run_id)
        assert f"/wakeful-{mark_of(os.path.realpath(bench.state), order.run_id):x}".encode() in bench.output(ended)
    await runner.close(0)


@pytest.mark.asyncio
async def test_runs_too_short_to_enter_their_group_end_as_all_others(bench, cgroups):
    runner = CommandRunner(
        report=bench.reports.append, blobs=bench.blobs, state=str(bench.state), children=bench.children, cgroups=cgroups
    )
    orders = [bench.order("true") for _ in range(30)]
    for order in orders:
        runner.prepare(order).launch()
    for order in orders:
        assert (await bench.end_of(order.run_id)).exit_code == 0
    await runner.close(0)
    assert not cgroups.marks()


@pytest.mark.asyncio
async def test_recovery_finds_members_of_the_group_by_its_name(bench, cgroups):
    mark = mark_of(os.path.realpath(bench.state), "lost")
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    bench.children.spawned(process.pid)
    cgroups.enter(mark, process.pid)
    runner = CommandRunner(
        report=bench.reports.append, blobs=bench.blobs, state=str(bench.state), children=bench.children, cgroups=cgroups
    )
    await runner.recover({"lost": "s-1"})
    assert process.wait(PATIENCE_SECONDS) == -15
    bench.children.gone(process.pid)
    await eventually_async(lambda: cgroups.remove(mark))
    await runner.close(0)


@pytest.mark.asyncio
async def test_cpu_time_is_counted_for_a_run_whoever_spent_it(bench, cgroups):
    """Processes that left the run's tree and ended count against its limit. Only the group has measured them."""
    runner = CommandRunner(
        report=bench.reports.append, blobs=bench.blobs, state=str(bench.state), children=bench.children, cgroups=cgroups
    )
    # Each process uses a fifth of a second. It daemonises, and ends before the next look adds up the time.
    burn = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nwhile time.process_time() < 0.2: pass"
    entered = "until grep -q wakeful- /proc/self/cgroup; do sleep 0.01; done"
    order = bench.shell(
        f"{entered}; for i in 1 2 3 4 5 6 7 8 9; do {sys.executable} -c '{burn}'; sleep 0.4; done",
        limits=RunLimits(cpu_seconds=1.0),
        timeout_seconds=120,
    )
    runner.prepare(order).launch()
    ended = await bench.end_of(order.run_id)
    assert ended.problem is not None and "1 s of CPU time" in ended.problem
    await runner.close(0)


def test_a_run_is_bounded_before_it_enters_a_group_that_can_bound_it(tmp_path):
    """The kernel applies some limits of a spec to a whole group. The files of missing controllers are skipped."""
    folder = tmp_path / "wakeful-1000000000000001"
    folder.mkdir()
    for name in ("cgroup.procs", "memory.max", "memory.oom.group", "pids.max"):
        (folder / name).touch()
    Cgroups(str(tmp_path)).enter(0x1000000000000001, 42, RunLimits(memory_bytes=50_000_000, processes=8))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "cgroup.procs": "42", "memory.max": "50000000", "memory.oom.group": "1", "pids.max": "8",
    }  # fmt: skip


def test_a_tree_that_nobody_delegated_is_not_taken():
    """root may write to every group, but systemd is still the only writer of a group that was not delegated."""
    own = find_own()
    is_delegated = own is not None and any(
        name.endswith(".delegate")
        and os.getxattr(folder, name) == b"1"
        and os.access(folder, os.W_OK)
        and (folder / "cgroup.kill").exists()
        for folder in (own, own.parent)
        for name in os.listxattr(folder)
    )
    assert (cgroup.find_delegated() is not None) == is_delegated


def test_groups_that_are_not_there_have_no_members_and_need_no_removal(tmp_path):
    nothing = Cgroups(str(tmp_path))
    nothing.kill(1)
    assert nothing.members(1) == []
    assert nothing.remove(1)


def test_the_parent_of_a_process_is_read_behind_any_name(tmp_path):
    assert procfs.read_stat(os.getpid()).parent == os.getppid()
    assert procfs.read_stat(2**22 + 1) is None

"""No process that a run started outlives it, and no other process is touched."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from wait_conditions import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.runners.process import procfs
from wakeful.runners.process.children import Children
from wakeful.runners.process.process_mark import OWN, mark_of, read_mark

pytestmark = pytest.mark.asyncio

# A classic daemon: two forks, its own session, no environment, no inherited file, and SIGTERM ignored.
DAEMONISE = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for fd in range(3):
    os.close(fd)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import os,sys,time; open(sys.argv[1]+'.new','w').write(str(os.getpid())); os.rename(sys.argv[1]+'.new', sys.argv[1]); time.sleep(600)"
os.execve(sys.executable, [sys.executable, "-c", code, sys.argv[1]], {})
"""


def _daemonise(bench, name, then="exit 0"):
    program = bench.root / "daemonise.py"
    program.write_text(DAEMONISE)
    wait = f"while ! test -f {name}; do sleep 0.01; done"
    return bench.shell(f"{sys.executable} daemonise.py {name}\n{wait}\n{then}")


async def test_a_daemonised_grandchild_with_a_cleared_environment_is_gone_when_the_run_is_reported(bench):
    ended = await bench.run(_daemonise(bench, "pid"))
    assert (ended.exit_code, ended.problem) == (0, None)
    pid = await bench.number_in("pid")
    assert procfs.read_stat(pid) is None


async def test_a_background_child_that_holds_the_output_open_does_not_hold_up_the_end(bench):
    ended = await bench.run(bench.shell("sleep 600 & echo $! > pid; echo done"))
    assert (ended.exit_code, bench.output(ended)) == (0, b"done\n")
    assert procfs.read_stat(await bench.number_in("pid")) is None


async def test_a_killed_run_takes_its_whole_tree_along(bench):
    run_id = bench.start(
        _daemonise(bench, "pid", "trap '' TERM; setsid sleep 600 & echo $! > second; while :; do sleep 1; done")
    )
    pids = [await bench.number_in(name) for name in ("pid", "second")]
    bench.runner.stop(run_id, "terminate", 0.1)
    await bench.end_of(run_id)
    assert [procfs.read_stat(pid) for pid in pids] == [None, None]


async def test_the_orphan_of_a_live_run_is_left_alone_when_another_run_ends(bench):
    first = bench.start(_daemonise(bench, "pid", "while :; do sleep 1; done"))
    pid = await bench.number_in("pid")
    await bench.run(bench.shell("exit 0"))
    bench.runner.tidy()
    assert bench.is_alive(pid)
    bench.runner.stop(first, "kill", 0)
    await bench.end_of(first)
    assert not bench.is_alive(pid)


async def test_children_of_the_daemon_itself_are_never_touched_and_keep_their_exit_status(bench):
    plain = subprocess.Popen(["sleep", "600"])
    apart = subprocess.Popen(["sleep", "600"], start_new_session=True)
    ended = subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=True)
    await eventually_async(lambda: not bench.is_alive(ended.pid))
    try:
        await bench.run(bench.shell("exit 0"))
        bench.runner.tidy()
        assert bench.is_alive(plain.pid)
        assert bench.is_alive(apart.pid)
        assert ended.wait() == 7
    finally:
        for process in (plain, apart):
            process.kill()
            process.wait()


async def test_a_stray_that_shed_every_mark_is_ended_once_no_run_can_own_it(bench):
    shed = "import resource as r; r.setrlimit(r.RLIMIT_RTTIME, (r.RLIM_INFINITY,)*2)\n"
    (bench.root / "shed.py").write_text(shed + DAEMONISE)
    # A confined run could not remove its mark at all.
    free = Confinement(level="none")
    ended = await bench.run(
        bench.shell(f"{sys.executable} shed.py pid\nwhile ! test -f pid; do sleep 0.01; done", confinement=free)
    )
    assert ended.exit_code == 0
    pid = await bench.number_in("pid")
    await eventually_async(lambda: procfs.read_stat(pid) is None, what="the stray ended and reaped")


async def test_an_orphan_that_ends_by_itself_during_a_run_is_reaped_before_the_run_ends(bench):
    run_id = bench.start(bench.shell("(setsid sh -c 'echo $$ > pid' &)\nwhile :; do sleep 1; done"))
    pid = await bench.number_in("pid")
    await eventually_async(lambda: not bench.is_alive(pid))

    def is_reaped() -> bool:
        # The daemon adopts it only after the shell that started it has ended.
        bench.runner.tidy()
        return procfs.read_stat(pid) is None

    await eventually_async(is_reaped)
    assert run_id in bench.under_way()


async def test_an_orphan_comes_to_us_whichever_thread_spawned_its_parent(bench):
    """The kernel gives orphans to the daemon's first thread.

    The end of a run lists the children of that thread only.
    """
    is_over = threading.Event()
    spawned: list[int] = []

    def spawn() -> None:
        parent = subprocess.run(["sh", "-c", "sleep 600 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
        spawned.append(int(parent.stdout))
        is_over.wait()

    thread = threading.Thread(target=spawn)
    thread.start()
    try:
        await eventually_async(lambda: spawned and spawned[0] in procfs.orphans_of(os.getpid()))
        assert spawned[0] in Children().adopted()
    finally:
        is_over.set()
        thread.join()
        os.kill(spawned[0], signal.SIGKILL)
        os.waitpid(spawned[0], 0)


@pytest.mark.long
async def test_two_hundred_runs_leave_no_zombie_and_no_descriptor(bench):
    await bench.run(bench.shell("(setsid sleep 600 &) ; echo x"))
    descriptors = len(os.listdir("/proc/self/fd"))
    children = set(procfs.children_of(os.getpid()))
    for _ in range(20):
        ids = [bench.start(bench.shell("(setsid sleep 600 &) ; echo $WAKEFUL_RUN")) for _ in range(10)]
        for run_id in ids:
            assert (await bench.end_of(run_id)).exit_code == 0
    assert set(procfs.children_of(os.getpid())) <= children
    # A folder may be open in the thread that removes it, now or at the first count.
    await eventually_async(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert len(bench.reports) == 201


async def test_every_descendant_carries_the_mark_of_its_run_and_the_daemon_its_own(bench):
    run_id = bench.start(_daemonise(bench, "pid", "while :; do sleep 1; done"))
    pid = await bench.number_in("pid")
    assert read_mark(pid) == mark_of(os.path.realpath(bench.state), run_id)
    assert read_mark(os.getpid()) == OWN

"""After a daemon died by kill -9, the next one ends the leftovers of its runs, and nothing else."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from wait_conditions import PATIENCE_SECONDS, eventually_async
from wakeful.core.record.observations import RunRecovered
from wakeful.runners.process import orphans, procfs

pytestmark = pytest.mark.asyncio
DYING_DAEMON = Path(__file__).with_name("daemon_to_kill.py")


async def _leave_behind(bench, orders):
    """Start these runs by another daemon and kill it. Each run writes its pid into a file named after the run."""
    daemon = subprocess.Popen(
        [sys.executable, DYING_DAEMON, bench.state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    bench.children.spawned(daemon.pid)
    try:
        daemon.stdin.write(msgspec.json.encode(orders))
        daemon.stdin.close()
        assert daemon.stdout.readline() == b"started\n"
        pids = [await bench.number_in(order.run_id) for order in orders]
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        bench.children.gone(daemon.pid)
    assert all(bench.is_alive(pid) for pid in pids)
    return pids


def _recovered(bench):
    return sorted(report.run_id for report in bench.reports if isinstance(report, RunRecovered))


async def test_live_runs_of_a_dead_daemon_are_ended_together_and_reported_once_each(bench):
    orders = [bench.shell("echo $$ > $WAKEFUL_RUN.new; mv $WAKEFUL_RUN.new $WAKEFUL_RUN; sleep 600") for _ in range(64)]
    pids = await _leave_behind(bench, orders)
    await bench.runner.recover({order.run_id: order.session for order in orders})
    assert not any(bench.is_alive(pid) for pid in pids)
    await eventually_async(lambda: _recovered(bench) == sorted(order.run_id for order in orders))
    bench.runner.tidy()


async def test_a_daemonised_process_with_a_cleared_environment_is_found_and_killed_after_the_grace(bench, monkeypatch):
    monkeypatch.setattr(orphans, "GRACE_SECONDS", 0.2)
    code = "import os,signal,time; signal.signal(15, 1); open('{0}.new','w').write(str(os.getpid())); os.rename('{0}.new','{0}'); time.sleep(600)"
    order = bench.order("true")
    order = msgspec.structs.replace(
        order,
        argv=("sh", "-c", '(setsid env -i "$0" -c "$1" &); exec sleep 600', sys.executable, code.format(order.run_id)),
    )
    (pid,) = await _leave_behind(bench, [order])
    await bench.runner.recover({order.run_id: order.session})
    assert not bench.is_alive(pid)
    await eventually_async(lambda: _recovered(bench) == [order.run_id])
    bench.runner.tidy()


async def test_a_process_known_only_by_its_environment_is_found_when_its_scratch_folder_confirms_it(bench):
    def sleeper(scratch):
        environment = {"PATH": os.environ["PATH"], "WAKEFUL_RUN": "lost", "WAKEFUL_SCRATCH": scratch}
        process = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
        bench.children.spawned(process.pid)
        return process

    ours = sleeper(str(bench.state / "scratch"))
    another = sleeper("/var/lib/another/scratch")
    try:
        await bench.runner.recover({"lost": "s-1"})
        assert ours.wait(PATIENCE_SECONDS) == -15
        assert another.poll() is None
    finally:
        for process in (ours, another):
            process.kill()
            process.wait()
            bench.children.gone(process.pid)


async def test_a_run_that_left_nothing_is_reported_and_other_runs_are_not_touched(bench):
    live = bench.start(bench.shell("echo $$ > alive; sleep 600"))
    pid = await bench.number_in("alive")
    await bench.runner.recover({"never-seen": "s-9", live: "s-1"})
    await eventually_async(lambda: bench.reports)
    assert bench.reports == [RunRecovered(session="s-9", run_id="never-seen")]
    assert bench.is_alive(pid)


async def test_recovery_that_is_closed_while_it_waits_comes_to_an_end(bench, monkeypatch):
    monkeypatch.setattr(orphans, "GRACE_SECONDS", 3600)
    monkeypatch.setattr(orphans, "_LONGEST_PAUSE_SECONDS", 0.05)
    order = bench.shell(
        "trap '' TERM; echo $$ > $WAKEFUL_RUN.new; mv $WAKEFUL_RUN.new $WAKEFUL_RUN; while :; do sleep 0.05; done"
    )
    (pid,) = await _leave_behind(bench, [order])
    recovery = asyncio.create_task(bench.runner.recover({order.run_id: order.session}), name="recovery")
    await eventually_async(lambda: procfs.read_stat(pid) is not None)
    await bench.runner.close(0)
    await asyncio.wait_for(recovery, PATIENCE_SECONDS)
    assert _recovered(bench) == []
    bench.runner.tidy()

"""Runs forked by a warm server: confined, watched, ended and reported as those that were started, and independent of its life."""

import ast
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from runners.conftest import Bench
from waiting import eventually_async
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.spec.session import Confinement
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.prepare.warm_server import WarmServer

pytestmark = pytest.mark.asyncio
SERVER = (sys.executable, str(Path(__file__).parent / "warm_run.py"))


@pytest_asyncio.fixture
async def warm(tmp_path: Path, subreaper: None) -> AsyncIterator[Bench]:
    """A bench whose runner has a warm server that is ready."""
    server = WarmServer(SERVER, {"PATH": os.environ["PATH"]})
    os.environ["CANARY"] = "of the daemon"
    bench = Bench(tmp_path, warm=server)
    bench.server = server  # type: ignore[attr-defined]
    bench.runner.warm_up(())
    await eventually_async(server.is_ready)
    yield bench
    await bench.runner.close(1.0)
    del os.environ["CANARY"]


def do(bench: Bench, text: str, **changes: object) -> ProcessEnded:
    # Cold, it would say so and fail: what passes was forked.
    return bench.order("/bin/sh", "-c", "echo cold; exit 9", env={"DO": text}, is_agent=True, **changes)  # type: ignore[return-value]


async def test_a_forked_run_is_the_daemons_own_child_with_nothing_of_the_servers(warm: Bench) -> None:
    """Its own process group, its own environment, its root, and no descriptor but its output."""
    ended = await warm.run(do(warm, "tell me"))
    assert ended.exit_code == 0, warm.output(ended)
    told = ast.literal_eval(warm.output(ended).decode())
    assert told["parent"] == os.getpid() and told["group"] and told["cwd"] == str(warm.root)
    assert told["own"] == ended.run_id and not told["leak"]
    # The listing has one open itself.
    assert told["fds"] == [0, 1, 2, 3]


@pytest.mark.skipif(not probe_abi(), reason="this kernel has no Landlock")
async def test_a_forked_run_reaches_what_its_order_says_and_nothing_else(warm: Bench) -> None:
    outside = warm.folder / "outside.txt"
    outside.write_text("not for it")
    inside = warm.root / "inside.txt"
    inside.write_text("for it")
    assert (await warm.run(do(warm, f"read {inside}"))).exit_code == 0
    for text in (f"read {outside}", f"write {warm.folder}/new.txt", "read /etc/shadow"):
        assert (await warm.run(do(warm, text))).exit_code == 126, text
    assert not (warm.folder / "new.txt").exists()
    # The attack works where nothing is denied.
    assert (await warm.run(do(warm, f"read {outside}", confinement=Confinement(level="none")))).exit_code == 0


async def test_the_whole_tree_of_a_forked_run_ends_with_it(warm: Bench) -> None:
    pidfile = warm.root / "pid"
    run_id = warm.start(do(warm, f"wait {pidfile}"))
    pid = int(await eventually_async(lambda: pidfile.exists() and pidfile.read_text()))
    warm.runner.stop(run_id, "interrupt", 60.0)
    ended = await warm.end_of(run_id)
    assert ended.exit_code == 128 + signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


async def test_a_run_goes_on_when_its_server_dies_and_the_next_one_starts_cold(warm: Bench) -> None:
    pidfile = warm.root / "pid"
    run_id = warm.start(do(warm, f"wait {pidfile}"))
    await eventually_async(lambda: pidfile.exists() and pidfile.read_text())
    os.kill(warm.server.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    cold = await warm.run(do(warm, "tell me"))
    assert warm.output(cold) == b"cold\n" and cold.exit_code == 9
    assert run_id in warm.under_way()
    warm.runner.warm_up(())
    await eventually_async(warm.server.is_ready)  # type: ignore[attr-defined]
    assert (await warm.run(do(warm, "tell me"))).exit_code == 0
    warm.runner.stop(run_id, "kill", 0.0)
    await warm.end_of(run_id)


async def test_a_warm_server_is_heard_by_a_daemon_of_many_descriptors(subreaper: None) -> None:
    """Above 1023, which select cannot look at."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2048), most[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    server = WarmServer(SERVER, {"PATH": os.environ["PATH"]})
    try:
        assert max(held) > 1023
        server.warm_up(())
        await eventually_async(server.is_ready)
    finally:
        server.close()
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)

"""Runs forked by a warm server: confined, watched, ended and reported as those that were started, and independent of its life."""

import ast
import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from runners.conftest import Bench
from waiting import eventually_async
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import StopWord
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.prepare import warm_server
from wakeful.runners.prepare.warm_server import WarmServer
from wakeful.runners.process.children import Children

pytestmark = pytest.mark.asyncio
SERVER = (sys.executable, str(Path(__file__).parent / "warm_run.py"))


@pytest_asyncio.fixture
async def warm(tmp_path: Path, subreaper: None) -> AsyncIterator[Bench]:
    """A bench whose runner has a warm server that is ready."""
    server = WarmServer(SERVER, {"PATH": os.environ["PATH"]}, Children())
    os.environ["CANARY"] = "of the daemon"
    bench = Bench(tmp_path, warm=server)
    bench.server = server  # type: ignore[attr-defined]
    server.hold("the test", ())
    await eventually_async(lambda: server.is_ready)
    yield bench
    await bench.runner.close(1.0)
    del os.environ["CANARY"]


def do(bench: Bench, text: str, **changes: object) -> ProcessEnded:
    # Cold, it would say so and fail: what passes was forked.
    return bench.order("/bin/sh", "-c", "echo cold; exit 9", env={"DO": text}, is_agent=True, **changes)  # type: ignore[return-value]


def list_children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


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


async def test_a_run_goes_on_when_its_server_dies_and_the_next_one_has_another(warm: Bench) -> None:
    pidfile = warm.root / "pid"
    run_id = warm.start(do(warm, f"wait {pidfile}"))
    await eventually_async(lambda: pidfile.exists() and pidfile.read_text())
    before = warm.server.pid  # type: ignore[attr-defined]
    os.kill(before, signal.SIGKILL)
    await eventually_async(lambda: warm.server.pid is None)  # type: ignore[attr-defined]
    assert (await warm.run(do(warm, "tell me"))).exit_code == 0
    assert run_id in warm.under_way() and warm.server.pid not in (None, before)  # type: ignore[attr-defined]
    warm.runner.stop(run_id, "kill", 0.0)
    await warm.end_of(run_id)


@pytest.mark.parametrize("argv", [("/bin/false",), ("/nonexistent",)])
async def test_a_run_starts_cold_where_there_is_no_server(
    tmp_path: Path, subreaper: None, argv: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path, warm=WarmServer(argv, {}, Children()))
    ended = await bench.run(do(bench, "tell me"))
    assert bench.output(ended) == b"cold\n" and ended.exit_code == 9
    await bench.runner.close(1.0)


async def test_a_server_that_does_not_answer_blocks_nobody(warm: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on, and the run starts cold in the end."""
    monkeypatch.setattr(warm_server, "PATIENCE_SECONDS", 3.0)
    server: WarmServer = warm.server  # type: ignore[attr-defined]
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    began = time.monotonic()
    run_id = warm.start(do(warm, "tell me"))
    # Blocked, it would return when the server is given up.
    assert time.monotonic() - began < 3.0
    other = await warm.run(warm.shell("true"))
    assert other.exit_code == 0 and run_id in warm.under_way()
    assert warm.output(await warm.end_of(run_id)) == b"cold\n"


async def test_a_run_that_is_stopped_while_it_is_forked_ends(warm: Bench) -> None:
    server: WarmServer = warm.server  # type: ignore[attr-defined]
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    run_id = warm.start(do(warm, f"wait {warm.root / 'pid'}"))
    await asyncio.sleep(0.05)
    warm.runner.stop(run_id, "kill", 0.0)
    os.kill(server.pid, signal.SIGCONT)
    ended = await warm.end_of(run_id)
    assert ended.signal == signal.SIGKILL or ended.problem == "stopped before it began"


@pytest.mark.parametrize("how", ["kill", "interrupt"])
async def test_a_stop_reaches_a_fork_that_is_slow_to_lead_its_group(
    tmp_path: Path, subreaper: None, how: StopWord
) -> None:
    server = WarmServer(SERVER, {"PATH": os.environ["PATH"], "SLOW_TO_LEAD": "0.3"}, Children())
    bench = Bench(tmp_path, warm=server)
    server.hold("the test", ())
    await eventually_async(lambda: server.is_ready)
    before = list_children()
    run_id = bench.start(do(bench, f"wait {bench.root / 'pid'}"))
    await eventually_async(lambda: list_children() - before, what="the fork, which is ours once its parent is gone")
    bench.runner.stop(run_id, how, 0.0 if how == "kill" else 600.0)
    ended = await bench.end_of(run_id)
    assert (ended.signal, ended.exit_code) == ((signal.SIGKILL, None) if how == "kill" else (None, 128 + signal.SIGINT))
    await bench.runner.close(1.0)


async def test_a_server_ends_by_itself_when_no_run_of_an_agent_was_under_way_for_a_while(
    warm: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session at rest costs no process; the next run has a server again."""
    server: WarmServer = warm.server  # type: ignore[attr-defined]
    monkeypatch.setattr(warm_server, "IDLE_SECONDS", 0.1)
    pidfile = warm.root / "pid"
    run_id = warm.start(do(warm, f"wait {pidfile}"))
    await eventually_async(lambda: pidfile.exists() and pidfile.read_text())
    server.release("the test")
    await asyncio.sleep(0.3)
    before = server.pid
    assert before is not None
    warm.runner.stop(run_id, "kill", 0.0)
    await warm.end_of(run_id)
    await eventually_async(lambda: server.pid is None and not os.path.exists(f"/proc/{before}"))
    assert (await warm.run(do(warm, "tell me"))).exit_code == 0


async def test_a_server_has_the_libraries_of_all_runs_it_is_held_by(warm: Bench) -> None:
    """One that lacks some is replaced, once."""
    server: WarmServer = warm.server  # type: ignore[attr-defined]
    before = server.pid
    assert (await warm.run(do(warm, "tell me", libraries=("a",)))).exit_code == 0
    other = server.pid
    assert other != before
    for libraries in ((), ("a",)):
        assert (await warm.run(do(warm, "tell me", libraries=libraries))).exit_code == 0
    assert server.pid == other


async def test_a_warm_server_is_heard_by_a_daemon_of_many_descriptors(subreaper: None) -> None:
    """Above 1023, which select cannot look at."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2048), most[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    server = WarmServer(SERVER, {"PATH": os.environ["PATH"]}, Children())
    try:
        assert max(held) > 1023
        server.hold("the test", ())
        await eventually_async(lambda: server.is_ready)
    finally:
        server.close()
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)

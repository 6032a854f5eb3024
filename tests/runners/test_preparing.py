"""What is found out before a run begins, in the combinations that specs allow: levels, checks, workspaces, traces, stops, defects."""

from __future__ import annotations

import asyncio
import os

import pytest
from waiting import eventually_async

from runners.conftest import Bench
from wakeful.core.spec import Confinement
from wakeful.runners import preparing
from wakeful.runners.contract import RunOrder, StopWord
from wakeful.runners.isolation import bubblewrap, system
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(probe_abi() == 0, reason="this kernel has no Landlock: nothing can be confined here")]

OBSTACLE = bubblewrap.find_obstacle()
STRICT = pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}")


def confined(bench: Bench, script: str, *, level: str = "standard", **changes: object) -> RunOrder:
    """Reads `in.txt`, writes `out/`."""
    (bench.root / "in.txt").write_text("in")
    (bench.root / "out").mkdir(exist_ok=True)
    values = {"reads": ("in.txt",), "writes": ("out/**",), "confinement": Confinement(level=level), "cwd": str(bench.root), "staging": str(bench.state / "staged")}
    return bench.shell(script, **(values | changes))


async def test_a_check_is_confined_as_its_command_was_though_etc_was_looked_at_anew_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What narrows /etc for a run is there for as long as the run is, however often others had a newer one."""
    monkeypatch.setattr(system, "_STALE_SECONDS", -1.0)
    check = ("sh", "-c", "cat in.txt && ! cat /etc/shadow")
    run_id = bench.start(confined(bench, "while [ ! -e out/go ]; do sleep 0.01; done", check=check))
    for _ in range(4):
        assert (await bench.run(confined(bench, "true"))).exit_code == 0
    (bench.root / "out/go").touch()
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)


@pytest.mark.parametrize(("level", "is_traced"), [pytest.param("strict", False, marks=STRICT), ("observe", False), ("standard", True), pytest.param("strict", True, marks=STRICT)])
@pytest.mark.parametrize("how", ["interrupt", "terminate", "kill"])
async def test_a_stop_while_a_run_is_being_prepared_begins_nothing(bench: Bench, level: str, is_traced: bool, how: StopWord) -> None:
    """There is no process to signal yet, and there will be none; what would have landed does not."""
    run_id = bench.start(confined(bench, "echo ran > out/ran", level=level, is_traced=is_traced))
    bench.runner.stop(run_id, how, 5.0)
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.problem, ended.output.total_bytes) == (None, "stopped before it began", 0)
    assert not (bench.root / "out/ran").exists() and ended.staged == (() if level == "strict" else None)


@pytest.mark.parametrize("level", ["standard", "observe", pytest.param("strict", marks=STRICT)])
async def test_a_defect_while_a_run_is_being_prepared_ends_it_in_words(bench: Bench, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Nobody else would ever end it. Whoever runs the daemon is told where it was."""

    def fail() -> str | None:
        raise RuntimeError("half a thought")

    monkeypatch.setattr(preparing, "find_obstacle", fail)
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(said))
    ended = await bench.run(confined(bench, "echo ran > out/ran", level=level, is_traced=True))
    assert ended.exit_code is None and "a defect of wakeful: RuntimeError: half a thought" in str(ended.problem)
    await eventually_async(lambda: told)
    assert len(told) == 1 and not (bench.root / "out/ran").exists()


async def test_what_cannot_be_traced_leaves_nothing_open(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace that is refused, in a view of its own or not, ends before anything was opened, copied or staged for it."""
    monkeypatch.setattr(preparing, "find_obstacle", lambda: "no strace here")
    await bench.run(confined(bench, "true"))
    before = len(os.listdir("/proc/self/fd"))
    for level in ("standard", "strict", "none") * 5:
        ended = await bench.run(confined(bench, "true", level=level, is_traced=True))
        assert ended.problem == "no strace here", level
    # A thread may be about to remove a folder, or wait for the next run: what leaks once leaks fifteen times.
    assert len(os.listdir("/proc/self/fd")) < before + 5 and not (bench.state / "staged").exists()

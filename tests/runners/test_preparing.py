"""What is found out before a run begins, in the combinations that specs allow: levels, checks, workspaces, traces, stops, defects."""

from __future__ import annotations

import pytest

from runners.conftest import Bench
from wakeful.core.spec import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation import system
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(probe_abi() == 0, reason="this kernel has no Landlock: nothing can be confined here")]


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

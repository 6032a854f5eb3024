"""The loop ends rather than go on with half a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from waiting import eventually_async
from wakeful.core.machine import Core
from wakeful.core.observation import DaemonStarted, Declaration, SpecsRead
from wakeful.core.spec import CommandRun, SessionSpec, Settings
from wakeful.eventlog.sqlite import open_log
from wakeful.reactor import Outside, Reactor


@pytest.mark.asyncio
async def test_a_plan_that_cannot_be_carried_out_after_it_was_recorded_ends_the_daemon(tmp_path: Path) -> None:
    """Its session would stay `running` for ever, with nothing that runs."""
    log = open_log(tmp_path / "state")
    reactor = Reactor(Core([]), log, snapshots={})
    met: list[BaseException] = []

    def start(*_: object) -> None:
        raise RuntimeError("a defect")

    ignore = lambda *_: None  # noqa: E731
    reactor.outside = Outside(follow=ignore, forget=ignore, look=ignore, start=start, wake_at=ignore, runner=None, fatal=met.append)  # type: ignore[arg-type]
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        spec = SessionSpec(name="first", objective="Begin.", root=str(tmp_path), run=CommandRun(argv=("true",)), first="run")
        reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
        await eventually_async(lambda: bool(met), what="the end of the daemon")
        assert str(met[0]) == "a defect"
    finally:
        reactor.close()
        log.close()

"""The loop ends rather than go on with half a plan, and what it showed is found in the log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from waiting import eventually_async
from wakeful.core.machine import Core
from wakeful.core.observation import DaemonStarted, Declaration, SpecsRead
from wakeful.core.spec import CommandRun, SessionSpec, Settings
from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.writer import Writer
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


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is written before it is set."""
    is_there, write = threading.Event(), Writer._write

    def write_when_there(*arguments: Any) -> Any:
        is_there.wait(60)
        return write(*arguments)

    monkeypatch.setattr(Writer, "_write", write_when_there)
    yield is_there
    is_there.set()


@pytest.mark.asyncio
async def test_what_was_decided_is_in_the_log_for_whoever_waits_for_it_and_for_no_longer(tmp_path: Path, disk: threading.Event) -> None:
    """A reader of the log finds what the list showed it, also while more and more is decided."""
    log = open_log(tmp_path / "state")
    reactor = Reactor(Core([]), log, snapshots={})
    ignore = lambda *_: None  # noqa: E731
    reactor.outside = Outside(follow=ignore, forget=ignore, look=ignore, start=ignore, wake_at=ignore, runner=None, fatal=ignore)  # type: ignore[arg-type]
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        for number in range(3):
            spec = SessionSpec(name=f"s{number}", objective="Begin.", root=str(tmp_path))
            reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
            (session,) = [session for session in reactor.core.state if session.name == spec.name]
            assert log.head(session.id).seq < session.seq, "decided, and on its way to disk"
            waiting = asyncio.create_task(reactor.recorded_so_far())
            await asyncio.sleep(0)
            # Decided after the question was asked: nobody waits for that.
            later = SessionSpec(name=f"later{number}", objective="Begin.", root=str(tmp_path))
            reactor.observe(SpecsRead(declared=(Declaration(later, "digest"),)))
            disk.set()
            await waiting
            assert log.head(session.id).seq == session.seq
            await reactor.settled()
            disk.clear()
    finally:
        disk.set()
        reactor.close()
        log.close()


@pytest.mark.asyncio
async def test_what_a_start_needs_is_found_out_while_it_is_being_recorded_and_nothing_starts_before(tmp_path: Path, disk: threading.Event) -> None:
    log = open_log(tmp_path / "state")
    reactor = Reactor(Core([]), log, snapshots={})
    met: list[tuple[str, int, bool]] = []

    def note(word: str):
        return lambda session, run: met.append((word, run.run, log.head(session.id).seq >= session.seq))

    ignore = lambda *_: None  # noqa: E731
    reactor.outside = Outside(
        follow=ignore, forget=ignore, look=ignore, foresee=note("foreseen"), start=note("started"), wake_at=ignore, runner=None, fatal=ignore  # type: ignore[arg-type]
    )
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        spec = SessionSpec(name="first", objective="Begin.", root=str(tmp_path), run=CommandRun(argv=("true",)), first="run")
        reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
        assert met == [("foreseen", 1, False)], "decided, and on its way to disk"
        disk.set()
        await eventually_async(lambda: len(met) > 1, what="the start")
        assert met == [("foreseen", 1, False), ("started", 1, True)]
    finally:
        disk.set()
        reactor.close()
        log.close()

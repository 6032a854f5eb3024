"""The reactor ends rather than continue with half a plan, and a decision it has shown is found in the log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wait_conditions import eventually, eventually_async
from wakeful.core.calls.call_types import Note, ResumeAll, Send, SleepAll
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.observations import DaemonStarted, Declaration, SpecsRead
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.session import CommandRun, SessionSpec, Settings
from wakeful.errors import CallerError
from wakeful.eventlog.group_commit import Group
from wakeful.eventlog.memory_engine import MemoryLog
from wakeful.eventlog.sqlite import open_log
from wakeful.service.reactor import Reactor, ReactorPorts


@pytest.mark.asyncio
async def test_a_plan_that_cannot_be_carried_out_after_it_was_recorded_ends_the_daemon(tmp_path: Path) -> None:
    """Otherwise the session would stay `running` for ever, without a process."""
    log = MemoryLog()
    met: list[BaseException] = []

    def start(*_: object) -> None:
        raise RuntimeError("a defect")

    ignore = lambda *_: None  # noqa: E731
    outside = ReactorPorts(
        follow=ignore, forget=ignore, look=ignore, start=start, wake_at=ignore, runner=None, fatal=met.append
    )  # type: ignore[arg-type]
    reactor = Reactor(Core([]), log, outside, snapshots={})
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        spec = SessionSpec(
            name="first", objective="Begin.", root=str(tmp_path), run=CommandRun(argv=("true",)), first="run"
        )
        reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
        await eventually_async(lambda: bool(met), what="the end of the daemon")
        assert str(met[0]) == "a defect"
    finally:
        reactor.close()
        log.close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event. The log writes nothing until it is set."""
    is_there, plan = threading.Event(), Group.add

    def plan_when_there(*arguments: Any) -> Any:
        is_there.wait(60)
        return plan(*arguments)

    # The writing thread calls this before it writes.
    monkeypatch.setattr(Group, "add", plan_when_there)
    yield is_there
    is_there.set()


@pytest.mark.asyncio
async def test_what_was_decided_is_in_the_log_for_whoever_waits_for_it_and_for_no_longer(
    tmp_path: Path, disk: threading.Event
) -> None:
    """A reader of the log finds what the list showed, also while the core decides more."""
    log = open_log(tmp_path / "state")
    ignore = lambda *_: None  # noqa: E731
    outside = ReactorPorts(
        follow=ignore, forget=ignore, look=ignore, start=ignore, wake_at=ignore, runner=None, fatal=ignore
    )  # type: ignore[arg-type]
    reactor = Reactor(Core([]), log, outside, snapshots={})
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        for number in range(3):
            spec = SessionSpec(name=f"s{number}", objective="Begin.", root=str(tmp_path))
            reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
            (session,) = [session for session in reactor.core.state if session.name == spec.name]
            assert log.head(session.id).seq < session.seq, "decided, and on its way to disk"
            waiting = asyncio.create_task(reactor.recorded_so_far())
            await asyncio.sleep(0)
            # This is decided after the question, so `waiting` does not wait for it.
            later = SessionSpec(name=f"later{number}", objective="Begin.", root=str(tmp_path))
            reactor.observe(SpecsRead(declared=(Declaration(later, "digest"),)))
            disk.set()
            await waiting
            assert log.head(session.id).seq == session.seq
            await reactor.recorded_so_far()
            disk.clear()
    finally:
        disk.set()
        reactor.close()
        log.close()


@pytest.mark.asyncio
async def test_what_a_start_needs_is_found_out_while_it_is_being_recorded_and_nothing_starts_before(
    tmp_path: Path, disk: threading.Event
) -> None:
    log = open_log(tmp_path / "state")
    met: list[tuple[str, int, bool]] = []

    def note(word: str):
        return lambda session, run: met.append((word, run.run, log.head(session.id).seq >= session.seq))

    ignore = lambda *_: None  # noqa: E731
    outside = ReactorPorts(
        follow=ignore,
        forget=ignore,
        look=ignore,
        prepare=note("prepared"),
        start=note("started"),
        wake_at=ignore,
        runner=None,
        fatal=ignore,  # type: ignore[arg-type]
    )
    reactor = Reactor(Core([]), log, outside, snapshots={})
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        spec = SessionSpec(
            name="first", objective="Begin.", root=str(tmp_path), run=CommandRun(argv=("true",)), first="run"
        )
        reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
        assert met == [("prepared", 1, False)], "decided, and on its way to disk"
        disk.set()
        await eventually_async(lambda: len(met) > 1, what="the start")
        assert met == [("prepared", 1, False), ("started", 1, True)]
    finally:
        disk.set()
        reactor.close()
        log.close()


@pytest.mark.asyncio
async def test_a_start_whose_record_is_durable_before_its_preparation_ends_is_made_once(tmp_path: Path) -> None:
    log = MemoryLog()
    met: list[str] = []

    def prepare(session: Session, run: OpenRun) -> None:
        met.append("prepared")
        eventually(lambda: log.head(session.id).seq >= session.seq, what="the record is durable")

    ignore = lambda *_: None  # noqa: E731
    outside = ReactorPorts(
        follow=ignore,
        forget=ignore,
        look=ignore,
        prepare=prepare,
        start=lambda *_: met.append("started"),
        wake_at=ignore,
        runner=None,
        fatal=ignore,  # type: ignore[arg-type]
    )
    reactor = Reactor(Core([]), log, outside, snapshots={})
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        spec = SessionSpec(
            name="first", objective="Begin.", root=str(tmp_path), run=CommandRun(argv=("true",)), first="run"
        )
        reactor.observe(SpecsRead(declared=(Declaration(spec, "digest"),)))
        await reactor.recorded_so_far()
        assert met == ["prepared", "started"], "the plan is carried out before anybody who waits is answered"
    finally:
        reactor.close()
        log.close()


@pytest.mark.asyncio
async def test_an_append_that_the_log_drops_as_a_repetition_ends_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state already contains the record. If the daemon continued, the next append would be a conflict."""
    log = MemoryLog()
    met: list[BaseException] = []
    ignore = lambda *_: None  # noqa: E731
    outside = ReactorPorts(
        follow=ignore, forget=ignore, look=ignore, start=ignore, wake_at=ignore, runner=None, fatal=met.append
    )  # type: ignore[arg-type]
    reactor = Reactor(Core([]), log, outside, snapshots={})
    try:
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        reactor.observe(
            SpecsRead(declared=(Declaration(SessionSpec(name="s", objective="Begin.", root=str(tmp_path)), "digest"),))
        )
        await reactor.call(Note(name="s", text="once"), author="me", key="k")
        (session,) = reactor.core.state
        # Simulate a search for the key in the wrong log.
        monkeypatch.setattr(reactor, "find_repeated", lambda *_: None)
        twice = asyncio.ensure_future(reactor.submit(Note(name="s", text="twice"), author="me", key="k"))
        await eventually_async(lambda: bool(met), what="the end of the daemon")
        assert "repeats a key" in str(met[0]) and session.id in str(met[0])
        await twice
    finally:
        reactor.close()
        log.close()


@pytest.mark.asyncio
async def test_a_key_gets_the_first_answer_while_that_is_being_recorded_and_afterwards(
    tmp_path: Path, disk: threading.Event
) -> None:
    """This holds for every kind of call. Only another call with the same key is refused."""
    log = open_log(tmp_path / "state")
    ignore = lambda *_: None  # noqa: E731
    outside = ReactorPorts(
        follow=ignore, forget=ignore, look=ignore, start=ignore, wake_at=ignore, runner=None, fatal=ignore
    )  # type: ignore[arg-type]
    reactor = Reactor(Core([]), log, outside, snapshots={})
    try:
        disk.set()
        reactor.observe(DaemonStarted(incarnation="one", settings=Settings()))
        for name in ("s", "t"):
            reactor.observe(
                SpecsRead(
                    declared=(Declaration(SessionSpec(name=name, objective="Begin.", root=str(tmp_path)), "digest"),)
                )
            )
        await reactor.recorded_so_far()
        disk.clear()
        for call, other in (
            (Note(name="s", text="x"), Send(name="s", text="x")),
            (SleepAll(), Note(name="t", text="x")),
            (ResumeAll(), SleepAll()),
        ):
            key = type(call).__name__
            first, again = reactor.submit(call, author="me", key=key), reactor.submit(call, author="me", key=key)
            with pytest.raises(CallerError, match="belongs to another call"):
                reactor.submit(other, author="me", key=key)
            disk.set()
            answers = [await first, await again, await reactor.submit(call, author="me", key=key)]
            assert [one.is_repeated for one in answers] == [False, True, True] and answers[0].words == answers[1].words
            assert answers[2].words.startswith("done already: record ")
            with pytest.raises(CallerError, match="belongs to another call"):
                reactor.submit(other, author="me", key=key)
            disk.clear()
        heads = {session.id: session.seq for session in reactor.core.state}
        disk.set()
        await reactor.recorded_so_far()
        assert {session: head.seq for session, head in log.heads().items()} == heads
    finally:
        disk.set()
        reactor.close()
        log.close()

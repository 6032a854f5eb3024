"""The one loop: observations in, events to the log, actions out. The only writer of the log.

Everything runs on the event loop and never blocks it. An observation is decided at once, and its events go to the log
as one transaction. Looks begin at once, because they change nothing outside. The preparation of a run begins while its
record is being flushed. Processes are started and callers are answered only after their events are durable. If the log
fails, nothing is acknowledged any more and the process ends. The next daemon starts from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from wakeful.core.calls.call_types import Call, Called, Reply
from wakeful.core.decide import decide
from wakeful.core.deciding.decision import Decision, Entry
from wakeful.core.deciding.plan import LandOutputs, Look, RecoverRun, StartProcess, StopProcess
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.targets import Target
from wakeful.core.observation_handlers import Observation
from wakeful.core.record.events import RunFinished, RunReadopted, RunStarted, SessionArrived, SpecDeclared, SpecRemoved
from wakeful.core.record.observations import ClockTicked, Moment
from wakeful.core.record.state import OpenRun, Session
from wakeful.errors import CallerError, InternalError, KeyReused
from wakeful.eventlog.codec import encode, encode_state
from wakeful.eventlog.contract import Append, Appended, Draft, Durable, EventLog
from wakeful.history.repeated_calls import find_first, name_call, say_repeated
from wakeful.runners.contract import Runner

# The most events between two snapshots. Opening a session folds only the events after its snapshot: 1,000 take about 3
# ms.
EVENTS_BETWEEN_SNAPSHOTS = 500


def read_moment() -> Moment:
    return Moment(time.time_ns() // 1000, time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))


class Signal:
    """Wakes the coroutines that wait for the daemon's state to change, so that none of them polls.

    Used only on the loop. A signal without listeners costs almost nothing.
    """

    def __init__(self) -> None:
        self.listeners: set[asyncio.Event] = set()

    def tell(self) -> None:
        for listener in self.listeners:
            listener.set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Return an event that is set whenever the signal is told. The waiting coroutine clears it."""
        heard = asyncio.Event()
        self.listeners.add(heard)
        try:
            yield heard
        finally:
            self.listeners.discard(heard)

    async def wait_until(self, is_so: Callable[[], bool], seconds: float | None = None) -> bool:
        """Check the condition again whenever the signal is told.

        False if the time was over before the condition became true.
        """
        with self.listening() as heard:
            try:
                async with asyncio.timeout(seconds):
                    while not is_so():
                        heard.clear()
                        await heard.wait()
            except TimeoutError:
                return is_so()
        return True


@dataclass(slots=True)
class ReactorPorts:
    """The functions that the reactor acts through."""

    follow: Callable[[Iterable[Target]], None]
    forget: Callable[[Iterable[str]], None]
    look: Callable[[Look], None]
    start: Callable[[Session, OpenRun], None]
    wake_at: Callable[[int | None], None]
    runner: Runner
    # Called while the record of the run's start is being written. Does the early part of the start.
    prepare: Callable[[Session, OpenRun], None] = lambda session, run: None
    # Called when the session's spec was changed or removed.
    redeclared: Callable[[str], None] = lambda session: None
    land: Callable[[Session, OpenRun], None] = lambda session, run: None
    readopted: Callable[[Session, OpenRun], None] = lambda session, run: None
    finished: Callable[[Entry], None] = lambda entry: None
    # `noted` is called when records were decided, with their time. `flushed` is called when they are durable, with the
    # seconds that this took.
    noted: Callable[[Sequence[Entry], int], None] = lambda entries, at: None
    flushed: Callable[[float], None] = lambda seconds: None
    # Called when observations were decided. The state may have changed.
    decided: Callable[[], None] = lambda: None
    # Called when decisions are on disk.
    recorded: Callable[[], None] = lambda: None
    fatal: Callable[[BaseException], None] = field(default=lambda error: None)


@dataclass(frozen=True, slots=True)
class Answering:
    """A call with a key, while the call is being recorded."""

    call: Call
    durable: Durable
    reply: Reply
    digest: bytes | None = None

    def is_in_the_way(self, call: Call) -> bool:
        """Could both calls leave a record with the key in one log?"""
        return self.call.name == call.name or not self.call.name or not call.name


class Reactor:
    def __init__(
        self,
        core: Core,
        log: EventLog,
        outside: ReactorPorts,
        *,
        snapshots: Mapping[str, int],
        redact: Callable[[Any], Any] = lambda value: value,
        now: Callable[[], Moment] = read_moment,
    ) -> None:
        """`redact` removes the values of secrets from every observation and call, before the reactor decides or
        stores it.
        """
        self.core = core
        self.log = log
        self.now = now
        self._outside = outside
        self._redact = redact
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Observation] = deque()
        self._is_draining = False
        self._is_closed = False
        # The number of appends being written, per session. A plan is made only from durable state.
        self._pending: dict[str, int] = {}
        self._latest: Durable | None = None
        self._started: set[str] = set()
        self._recovering: set[str] = set()
        self._landing: set[str] = set()
        self._gathered: list[str] = []
        self._snapshots = dict(snapshots)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None
        # Calls whose records are being written, by their key.
        self._answers: dict[str, tuple[Answering, ...]] = {}
        self._recoveries: set[asyncio.Task[None]] = set()

    # -- observations -------------------------------------------------------------------------

    def observe(self, observation: Observation) -> None:
        """Queue an observation and decide it.

        Sources may report from inside a look, so observations are queued here.
        """
        if self._is_closed:
            return
        self._inbox.append(self._redact(observation))
        if not self._is_draining:
            self._drain()

    def _drain(self) -> None:
        self._is_draining = True
        try:
            while self._inbox:
                self._carry_out(decide(self.core, self._inbox.popleft(), self.now()))
        except Exception as error:  # A defect: state and log may no longer agree, so the daemon must end.
            self._outside.fatal(error)
            raise
        finally:
            self._is_draining = False
        self._set_timers()
        self._outside.decided()

    async def call(
        self,
        call: Call,
        *,
        author: str,
        key: str | None = None,
        run: int | None = None,
        digest: bytes | None = None,
    ) -> Reply:
        """Make a system call: judged now, answered when durable. The same key again gets the first answer."""
        return await self.submit(call, author=author, key=key, run=run, digest=digest)

    def submit(
        self,
        call: Call,
        *,
        author: str,
        key: str | None = None,
        run: int | None = None,
        digest: bytes | None = None,
    ) -> Awaitable[Reply]:
        """Judge a system call now. It is answered when it is durable, and after all calls before it.

        `digest` is the digest of the request, stored with the key. The same key with another request is refused.
        """
        call, key = self._redact(call), self._redact(key)
        if key is not None and (known := self.find_repeated(call, key, digest)) is not None:
            return known
        decision, durable = self._judge(Called(call=call, author=author, key=key, run=run), digest)
        self._drain()
        held, until = decision.held, decision.held_until
        reply = Reply(
            words=decision.reply or "done", seq=self._find_own_seq(call, decision), held=held, held_until=until
        )
        if durable is None:
            return _answer(self.recorded_so_far(), reply)
        if key is not None:
            self._answers[key] = (*self._answers.get(key, ()), Answering(call, durable, reply, digest))
            durable.add_done_callback(lambda _: self._forget_answer(key, durable))
        return _answer(durable, reply)

    def find_repeated(self, call: Call, key: str, digest: bytes | None = None) -> Awaitable[Reply] | None:
        """Return the answer to a call whose key is known. None if the key is new.

        Raises KeyReused if another call used the key.
        """
        for earlier in self._answers.get(key, ()):
            if (type(earlier.call), earlier.call.name, earlier.digest) == (type(call), call.name, digest):
                return _answer(earlier.durable, replace(earlier.reply, is_repeated=True))
            if earlier.is_in_the_way(call):
                raise KeyReused(
                    f"the key {key!r} belongs to another call of {earlier.call.name or 'all sessions'} that is being "
                    "recorded; choose a key of its own"
                )
        record = find_first(self.log, self.core.state, name_call(call, digest), key)
        return (
            _answer(None, Reply(words=say_repeated(record), seq=record.seq, is_repeated=True))
            if record is not None
            else None
        )

    def _forget_answer(self, key: str, durable: Durable) -> None:
        left = tuple(one for one in self._answers[key] if one.durable is not durable)
        if left:
            self._answers[key] = left
        else:
            del self._answers[key]

    def _find_own_seq(self, call: Call, decision: Decision) -> int | None:
        """Find the seq of the first record in the log of the session that a call names.

        A rename and a fork name two sessions. The old one's record comes first.
        """
        names = (call.name, getattr(call, "new", None))
        own = [self.core.state.ids[name] for name in names if name in self.core.state.ids]
        return next((entry.seq for entry in decision.entries if entry.session in own), None)

    def _judge(self, called: Called, digest: bytes | None = None) -> tuple[Decision, Durable | None]:
        try:
            decision = decide(self.core, called, self.now())
            return decision, self._carry_out(decision, digest)
        except CallerError:
            # Refused before any event was emitted.
            raise
        except Exception as error:
            self._outside.fatal(error)
            raise

    def refold(self, session: Session) -> None:
        """Replace a session by one with the same records, folded after one of their payloads was erased."""
        if self.core.state.get(session.id).seq == session.seq:
            self.core.state.put(session)

    async def recorded_so_far(self) -> None:
        """Wait until every earlier decision is durable.

        Later decisions are not waited for, because a busy daemon is never idle.
        """
        if self._latest is not None:
            await asyncio.wait((self._latest,))

    def close(self) -> None:
        """Accept no more observations. The next daemon looks at all later changes."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- carrying out -------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, digest: bytes | None = None) -> Durable | None:
        if decision.forget:
            self._outside.forget(decision.forget)
        if decision.follow:
            self._outside.follow(decision.follow)
        durable = self._record(decision, digest) if decision.entries else None
        for look in decision.looks:
            self._outside.look(look)
        for entry in decision.entries:
            match entry.event:
                case SpecDeclared() | SpecRemoved():
                    self._outside.redeclared(entry.session)
                case RunStarted():
                    session = self.core.state.get(entry.session)
                    if session.run is not None and session.run.run_id not in self._started:
                        self._outside.prepare(session, session.run)
        if durable is None:
            # Nothing was recorded, so nothing has to be durable before the plan is carried out.
            for session_id in decision.planned:
                self._act(session_id)
        return durable

    def _record(self, decision: Decision, digest: bytes | None) -> Durable:
        appends = _group(decision.entries, digest)
        began = self._loop.time()
        durable = self._latest = self.log.append(appends, decision.moment.wall)
        self._outside.noted(decision.entries, decision.moment.wall)
        touched = [append.session for append in appends]
        for session_id in touched:
            self._pending[session_id] = self._pending.get(session_id, 0) + 1
        for entry in decision.entries:
            if isinstance(entry.event, RunReadopted):
                self._take_over(self.core.state.get(entry.session))
        # This is the first callback of the append, so the plan is carried out before any caller is answered.
        durable.add_done_callback(lambda done: self._after_commit(done, touched, decision.entries))
        durable.add_done_callback(lambda done: self._outside.flushed(self._loop.time() - began))
        return durable

    def _after_commit(
        self, done: asyncio.Future[tuple[Appended, ...]], touched: list[str], entries: list[Entry]
    ) -> None:
        error = done.exception() or _find_repeated_append(done.result())
        if error is not None:
            self._outside.fatal(error)
            return
        try:
            self._take_recorded(touched, entries)
        except Exception as defect:
            # Perhaps only a part of the plan was carried out, so the state may be wrong. A restart folds the log again.
            self._outside.fatal(defect)
            raise

    def _take_recorded(self, touched: list[str], entries: list[Entry]) -> None:
        for session_id in touched:
            left = self._pending[session_id] - 1
            if left:
                self._pending[session_id] = left
            else:
                del self._pending[session_id]
                self._act(session_id)
        for entry in entries:
            if isinstance(entry.event, RunFinished):
                self._outside.finished(entry)
        self._outside.recorded()

    def _act(self, session_id: str) -> None:
        """Carry out the plan of one session, unless newer events of it are still being written."""
        if session_id in self._pending or session_id not in self.core.state.sessions:
            return
        session = self.core.state.get(session_id)
        for action in self.core.plan(session_id, self._started):
            match action:
                case StartProcess(run=run):
                    self._started.add(run.run_id)
                    self._outside.start(session, run)
                case StopProcess(run=run, how=how):
                    grace = run.spec.run.grace_seconds if run.spec.run is not None else 0.0
                    self._outside.runner.stop(run.run_id, how, grace)
                case RecoverRun(run=run):
                    self._recover(session_id, run)
                case LandOutputs(run=run):
                    self._land(session, run)
        if session.run is None:
            self._forget_runs(session_id)
        self._save_snapshot(session)

    def _forget_runs(self, session_id: str) -> None:
        prefix = f"{session_id}."
        if any(run_id.startswith(prefix) for run_id in self._started):
            self._started = {run_id for run_id in self._started if not run_id.startswith(prefix)}
            self._landing = {run_id for run_id in self._landing if not run_id.startswith(prefix)}

    def _land(self, session: Session, run: OpenRun) -> None:
        if run.run_id not in self._landing:
            self._landing.add(run.run_id)
            self._outside.land(session, run)

    def _recover(self, session_id: str, run: OpenRun) -> None:
        """Recover a lost run.

        Runs are collected for one turn of the loop, because one scan finds all runs of the dead daemon.
        """
        if run.run_id in self._recovering:
            return
        self._recovering.add(run.run_id)
        if not self._gathered:
            self._loop.call_soon(self._recover_gathered)
        self._gathered.append(run.run_id)

    def _recover_gathered(self) -> None:
        lost = {run_id: run_id.rsplit(".", 1)[0] for run_id in self._gathered}
        self._gathered = []
        recovery = self._loop.create_task(self._outside.runner.recover(lost), name="recover runs")
        self._recoveries.add(recovery)
        recovery.add_done_callback(self._recoveries.discard)

    def _take_over(self, session: Session) -> None:
        """Note a run whose process already exists, so that no plan starts another."""
        if session.run is not None:
            self._started.add(session.run.run_id)
            self._outside.readopted(session, session.run)

    def _save_snapshot(self, session: Session) -> None:
        if session.seq - self._snapshots.get(session.id, 0) < EVENTS_BETWEEN_SNAPSHOTS:
            return
        self._snapshots[session.id] = session.seq
        self.log.save_snapshot(session.id, session.seq, encode_state(session))

    # -- timers -------------------------------------------------------------------------------

    def _set_timers(self) -> None:
        due = self.core.mono.next
        if due != self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_at(due, self._ring) if due is not None else None
        self._outside.wake_at(int(wall) if (wall := self.core.wall.next) is not None else None)

    def _ring(self) -> None:
        self._timer, self._timer_due = None, None
        self.observe(ClockTicked())


async def _answer(durable: Awaitable[object] | None, reply: Reply) -> Reply:
    if durable is not None:
        await durable
    return reply


def _find_repeated_append(appended: tuple[Appended, ...]) -> InternalError | None:
    """Return an error if the log dropped a repeated append.

    The state has advanced without this append. Only a restart makes state and log agree again.
    """
    repeated = [one.session for one in appended if one.duplicate]
    return (
        InternalError(
            f"an append of {', '.join(repeated)} repeats a key that is on record; its call was judged all the same"
        )
        if repeated
        else None
    )


def _group(entries: list[Entry], digest: bytes | None = None) -> list[Append]:
    """Make one append per session, in order. The whole decision is then one transaction (rule 39)."""
    by_session: dict[str, list[Entry]] = {}
    for entry in entries:
        by_session.setdefault(entry.session, []).append(entry)
    return [
        Append(
            session=session_id,
            expected_seq=own[0].seq - 1,
            drafts=tuple(
                Draft(*encode(entry.event), author=entry.author, run=entry.run, parent=entry.parent) for entry in own
            ),
            key=next((entry.key for entry in own if entry.key is not None), None),
            # A session from another host exists here only with the record of its arrival.
            finishes_import=isinstance(own[0].event, SessionArrived),
            digest=digest,
        )
        for session_id, own in by_session.items()
    ]

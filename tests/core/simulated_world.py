"""A simulated world around the real core: files, commits, probes, services, processes, three clocks, a log, crashes.

It stands in for the reactor and the edges. Nothing inside the core is mocked. Observations go into the core, and its
decisions are carried out here, at once or as late and out of order as a test wants. A crash discards the core and
everything uncommitted. The next incarnation is folded from the encoded log. `oracle.py` checks every step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from core.oracle import Oracle
from wakeful.core.calls.call_types import Call, Called, Fork, Rename, ResumeAll, SleepAll
from wakeful.core.decide import decide
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.holds import find_hold_words
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.deciding.plan import Action, LandOutputs, Look, RecoverRun, StartProcess, StopProcess
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.patterns import Excludes, Pattern
from wakeful.core.looking.targets import CommitsTarget, FileTarget, ProbeTarget, ServiceTarget, Target
from wakeful.core.observation_handlers import Observation
from wakeful.core.record.events import Event, RunStarted
from wakeful.core.record.flat_state import decode_flat, flatten
from wakeful.core.record.fold import fold
from wakeful.core.record.lifecycle_stages import find_stage, is_allowed, name_stage
from wakeful.core.record.observations import (
    ClockTicked,
    DaemonStarted,
    Declaration,
    LookResult,
    Moment,
    PathChange,
    ProcessEnded,
    RunAttached,
    RunRecovered,
    SettingsRead,
    SpecsRead,
    TargetLooked,
    TargetsHinted,
    Usage,
)
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.bindings import CommitsBinding, FileBinding
from wakeful.core.spec.session import SessionSpec, Settings
from wakeful.eventlog.codec import decode, encode

ROOT = "/project"
# 2026-03-01T00:00:00Z, a Sunday.
START_US = 1_772_323_200_000_000


def digest(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A committed entry, as an engine would keep it."""

    session: str
    seq: int
    at: int
    author: str
    kind: str
    payload: bytes
    # Entries with the same number were committed together.
    transaction: int
    # The key under which the call may be repeated.
    key: str | None = None

    @property
    def event(self) -> Event:
        return decode(self.kind, self.payload)


@dataclass(slots=True)
class Process:
    session: str
    run: OpenRun
    # The inputs that the process read. None: it reads them only when it ends.
    inputs: dict[str, dict[str, str]] | None
    stops: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PendingLook:
    look: Look
    # The result, read when the look began. None: it is read when the look is answered.
    result: LookResult | None = None


Program = Callable[["World", Process], dict[str, str]]


def recompute(world: World, process: Process) -> dict[str, str]:
    """The program of every process by default: each output is a digest of all inputs."""
    return world.outputs_of(process.run.spec, process.inputs or {})


def check_transition(before: Session | None, event: type[Event], after: Session) -> None:
    """Check that the event leads only to a stage that the lifecycle table allows."""
    if before is None:
        return
    source, target = name_stage(find_stage(before)), name_stage(find_stage(after))
    assert is_allowed(event, source, target), f"{event.__name__} led from {source} to {target}"


class World:
    def __init__(
        self,
        *specs: SessionSpec,
        settings: Settings | None = None,
        files: dict[str, str] | None = None,
        **outside: object,
    ) -> None:
        self.settings = settings or Settings(concurrency=4)
        self.specs: dict[str, SessionSpec] = {spec.name: spec for spec in specs}
        self.files: dict[str, str] = {}
        self.stats: dict[str, int] = {}
        self.unreadable: set[str] = set()
        self.commits: dict[str, list[tuple[str, str]]] = {}
        self.probes: dict[tuple[str, ...], str | None] = outside.get("probes", {})
        self.services: dict[str, str] = outside.get("services", {})
        self.held: str | None = None
        self.doubts: dict[str, int] = {}
        # Files that still grow.
        self.growing: set[str] = set()
        self.unstable: set[str] = set()
        self.wall, self.mono, self.boot = START_US, 1000.0, 1000.0
        self.log: list[Recorded] = []
        self.sessions: dict[str, Session] = {}
        self.processes: dict[str, Process] = {}
        # Runs of this incarnation whose process was started, until they are closed.
        self.attached: set[str] = set()
        self.orphans: dict[str, Process] = {}
        self.looks: list[PendingLook] = []
        self.hints: list[str] = []
        self.recoveries: list[tuple[str, str]] = []
        # Outputs that wait to be put in place. The test decides when they are.
        self.landings: dict[str, LandOutputs] = {}
        self.followed: dict[str, Target] = {}
        self.reported: dict[str, tuple[str | None, dict[str, str]]] = {}
        self.cache: dict[str, int] = {}
        self.incarnations = 0
        self.transactions = 0
        self.ticks = 0
        # Run id -> the tick at which it began.
        self.began: dict[str, int] = {}
        # "decided": before the commit; "committed": before the actions.
        self.crash_when: str | None = None
        self.crashes = 0
        self.program: Program = recompute
        self.reads_late = False
        self.snapshot_early = True
        self.oracle = Oracle(self)
        for path, text in (files or {}).items():
            self.write(path, text, hint=False)
        self._boot()

    # -- the daemon's life ------------------------------------------------------------------------

    def _boot(self) -> None:
        self.incarnations += 1
        self.core = Core(self.sessions.values())
        self.processes.clear()
        self.attached.clear()
        self.looks.clear()
        self.hints.clear()
        self.recoveries.clear()
        self.landings.clear()
        self.followed.clear()
        self.reported.clear()
        self.cache.clear()
        self.oracle.reboot()
        self.observe(DaemonStarted(incarnation=f"i{self.incarnations}", settings=self.settings))
        self.observe(SpecsRead(declared=tuple(map(declare, self.specs.values()))))

    def crash(self) -> None:
        """Simulate kill -9: only the log and the world remain. Processes live on as orphans."""
        self.crashes += 1
        self.crash_when = None
        self.orphans |= self.processes
        self.sessions = self.fold_log()
        # The monotonic clocks of two boots are unrelated.
        self.mono = self.boot = 7.0 * self.crashes
        self._boot()

    def fold_log(self, upto: int | None = None, snapshot_at: int | None = None) -> dict[str, Session]:
        """Fold the log. With `snapshot_at`, pass all sessions through a snapshot at that entry."""
        sessions: dict[str, Session] = {}
        for index, entry in enumerate(self.log[:upto]):
            if index == snapshot_at:
                sessions = {one: decode_flat(msgspec.json.encode(flatten(s))) for one, s in sessions.items()}
            before = sessions.get(entry.session)
            after = fold(before, entry.event, seq=entry.seq, at=entry.at, author=entry.author)
            check_transition(before, type(entry.event), after)
            sessions[entry.session] = after
        return sessions

    # -- observations -----------------------------------------------------------------------------

    @property
    def moment(self) -> Moment:
        return Moment(self.wall, self.mono, self.boot)

    def observe(self, observation: Observation) -> Decision:
        decision = decide(self.core, observation, self.moment)
        if self.crash_when == "decided":
            self.crash()
            return decision
        self._commit(decision)
        if self.crash_when == "committed":
            self.crash()
            return decision
        self._act(decision)
        return decision

    def _commit(self, decision: Decision) -> None:
        if not decision.entries:
            return
        self.transactions += 1
        for entry in decision.entries:
            kind, payload = encode(entry.event)
            recorded = Recorded(
                entry.session, entry.seq, self.wall, entry.author, kind, payload, self.transactions, entry.key
            )
            self.log.append(recorded)
            if isinstance(entry.event, RunStarted):
                self.began[entry.event.run_id] = self.ticks
            self.oracle.take(recorded)

    def _act(self, decision: Decision) -> None:
        for key in decision.forget:
            self.followed.pop(key, None)
            self.looks = [pending for pending in self.looks if pending.look.target != key]
        for target in decision.follow:
            self.followed[target.key] = target
        for look in decision.looks:
            early = self.snapshot_early and look.target in self.followed
            self.looks.append(PendingLook(look, self._read(look) if early else None))
        for session_id in decision.planned:
            for action in self.core.plan(session_id, self.attached):
                self._carry_out(action)
        open_runs = {self.core.state.get(session_id).run.run_id for session_id in self.core.state.running}
        self.attached &= open_runs

    def _carry_out(self, action: Action) -> None:
        match action:
            case StartProcess(session=session, run=run):
                inputs = None if self.reads_late else self.inputs_of(run.spec)
                self.processes[run.run_id] = Process(session, run, inputs)
                self.attached.add(run.run_id)
            case StopProcess(run=run, how=how):
                if run.run_id in self.processes:
                    self.processes[run.run_id].stops.append(how)
            case RecoverRun(session=session, run=run):
                if (session, run.run_id) not in self.recoveries:
                    self.recoveries.append((session, run.run_id))
            case LandOutputs(run=run):
                self.landings[run.run_id] = action

    # -- what a test does to the world --------------------------------------------------------------

    def write(self, path: str, text: str, *, hint: bool = True) -> None:
        full = under_root(path)
        self.files[full] = text
        self._changed(full, hint)

    def delete(self, path: str, *, hint: bool = True) -> None:
        full = under_root(path)
        del self.files[full]
        self._changed(full, hint)

    def touch(self, path: str, *, hint: bool = True) -> None:
        self._changed(under_root(path), hint)

    def doubt(self, path: str) -> None:
        """Move the stat of a file without changing its content, so that it is unknown whether it was written."""
        full = under_root(path)
        self.doubts[full] = self.doubts.get(full, 0) + 1
        self.hint(
            *(key for key, target in self.followed.items() if isinstance(target, FileTarget) and means(target, full))
        )

    def hide(self, path: str) -> None:
        self.unreadable.add(under_root(path))
        self._changed(under_root(path), True)

    def show(self, path: str) -> None:
        self.unreadable.discard(under_root(path))
        self._changed(under_root(path), True)

    def _changed(self, full: str, hint: bool) -> None:
        self.ticks += 1
        self.stats[full] = self.ticks
        if hint:
            self.hints.append(full)

    def commit(self, path: str, text: str, *, hint: bool = True) -> str:
        """Make a commit that touches `path`. Return its id."""
        history = self.commits.setdefault(path, [])
        commit = f"c{len(history) + 1}-{digest([path, text, len(history)])}"
        history.append((commit, text))
        if hint:
            self.hint(
                *(
                    key
                    for key, target in self.followed.items()
                    if isinstance(target, CommitsTarget) and target.path == path
                )
            )
        return commit

    def hint(self, *keys: str) -> None:
        self.observe(TargetsHinted(tuple(sorted(keys))))

    def hint_kind(self, kind: type) -> None:
        self.hint(*(key for key, target in self.followed.items() if isinstance(target, kind)))

    def keys_of(self, pattern: str) -> list[str]:
        """Return the keys of the followed targets of this file pattern."""
        return [
            key for key, target in self.followed.items() if isinstance(target, FileTarget) and target.pattern == pattern
        ]

    def deliver_hints(self) -> bool:
        """Report all changes since the last delivery in one step.

        Every binding that matches becomes dirty (rule 10).
        """
        paths, self.hints = self.hints, []
        keys = self._matching(paths)
        if keys:
            self.hint(*keys)
        return bool(keys)

    def _matching(self, paths: Iterable[str]) -> list[str]:
        return [
            key
            for key, target in self.followed.items()
            if isinstance(target, FileTarget) and any(means(target, p) for p in paths)
        ]

    def declare(self, *specs: SessionSpec) -> Decision:
        self.specs |= {spec.name: spec for spec in specs}
        return self.observe(SpecsRead(declared=tuple(map(declare, specs))))

    def remove(self, *names: str) -> Decision:
        for name in names:
            del self.specs[name]
        return self.observe(SpecsRead(removed=names))

    def set(self, settings: Settings) -> None:
        self.settings = settings
        self.observe(SettingsRead(settings))

    def call(self, call: Call, author: str = "alice", key: str | None = None) -> str | None:
        """Carry out a call. A call whose key is in the log already does nothing, as in the reactor."""
        known = self.core.state.ids.get(call.name, call.name)
        is_anywhere = isinstance(call, Rename | Fork | SleepAll | ResumeAll)
        if key is not None and any(entry.key == key and (is_anywhere or entry.session == known) for entry in self.log):
            return "done already"
        decision = self.observe(Called(call=call, author=author, key=key))
        return decision.reply

    def erase(self, session_id: str, seq: int, stand_in: dict[str, Any]) -> None:
        """Replace the payload of a record by its stand-in, for this daemon and for all later ones."""
        place = next(index for index, entry in enumerate(self.log) if (entry.session, entry.seq) == (session_id, seq))
        self.log[place] = replace(self.log[place], payload=msgspec.json.encode(stand_in))
        self.core.state.put(self.fold_log()[session_id])

    def advance(self, seconds: float) -> None:
        """Advance all clocks and ring the alarm."""
        self.mono += seconds
        self.boot += seconds
        self.wall += round(seconds * 1e6)
        self.tick()

    def jump(self, seconds: float) -> None:
        """Simulate a person who sets the wall clock."""
        self.wall += round(seconds * 1e6)
        self.tick()

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: only the monotonic clock stands still."""
        self.boot += seconds
        self.wall += round(seconds * 1e6)
        self.tick()

    def tick(self) -> None:
        self.observe(ClockTicked())

    # -- looking ------------------------------------------------------------------------------------

    def answer(self, index: int = 0) -> None:
        """Report one pending look. A forgotten target reports nothing."""
        pending = self.looks.pop(index)
        result = pending.result or self._read(pending.look)
        self.observe(TargetLooked(result))

    def answer_all(self) -> None:
        while self.looks:
            self.answer()

    def look(self) -> None:
        """Deliver hints, wait for quiet, and answer all looks: all that a change needs to be seen."""
        self.deliver_hints()
        self.advance(3.0)
        self.answer_all()

    def _read(self, look: Look) -> LookResult:
        target = self.followed[look.target]
        match target:
            case FileTarget():
                return self._read_files(target, look)
            case CommitsTarget():
                return self._read_commits(target, look)
            case ProbeTarget():
                text = self.probes.get(target.argv)
                version = None if text is None else digest(text)
                return LookResult(
                    target=target.key,
                    generation=look.generation,
                    version=version,
                    problem=None if version else "exit code 1",
                )
            case ServiceTarget():
                version = self.services.get(target.url, "up")
                problem = None if version == "up" else "connection refused"
                return LookResult(target=target.key, generation=look.generation, version=version, problem=problem)

    def _read_files(self, target: FileTarget, look: Look) -> LookResult:
        if self.held is not None:
            return LookResult(target=target.key, generation=look.generation, version=None, held=self.held)
        found = {path: text for path, text in self.files.items() if means(target, path)}
        if any(path in self.unreadable for path in found):
            return LookResult(target=target.key, generation=look.generation, version=None, problem="permission denied")
        before_version, before = self.reported.get(target.key, (None, {}))
        version = version_of(found)
        self.reported[target.key] = (version, found)
        changes = [
            PathChange(path.removeprefix(f"{target.root}/"), before.get(path), found.get(path))
            for path in sorted(before.keys() | found.keys())
            if before.get(path) != found.get(path)
        ]
        return LookResult(
            target=target.key,
            generation=look.generation,
            version=version,
            previous=before_version,
            changes=tuple(changes),
            # The stamp covers deleted files too: the times of their folder show that something came and went.
            stamp=digest(sorted((path, tick) for path, tick in self.stats.items() if means(target, path))),
            doubt=digest(sorted((path, count) for path, count in self.doubts.items() if means(target, path))),
            is_growing=target.pattern in self.growing,
            is_absent=not found,
            is_moved=self._has_moved(target),
            is_unstable=target.pattern in self.unstable,
            also_dirty=self._learn(target),
        )

    def _has_moved(self, target: FileTarget) -> bool:
        """Say whether the times of the files changed since the runs began. It does not matter which daemon looks."""
        if self.core.inherited_since(target.key) is None:
            return False
        runs = (self.core.state.get(session_id).run for session_id in self.core.looked.targets[target.key].subscribers)
        since = min(self.began[run.run_id] for run in runs if run is not None)
        return any(tick > since for path, tick in self.stats.items() if means(target, path))

    def _learn(self, target: FileTarget) -> tuple[str, ...]:
        """Update the one stat cache of the daemon.

        A path found changed dirties all other targets that match it (rule 10).
        """
        seen = [path for path in self.stats if means(target, path)]
        changed = [path for path in seen if self.cache.get(path) != self.stats[path]]
        is_known = {path for path in changed if path in self.cache}
        self.cache |= {path: self.stats[path] for path in seen}
        return tuple(key for key in self._matching(is_known) if key != target.key)

    def _read_commits(self, target: CommitsTarget, look: Look) -> LookResult:
        history = self.commits.get(target.path, [])
        if not target.each_commit:
            version = digest(history[-1][1]) if history else "absent"
            return LookResult(
                target=target.key, generation=look.generation, version=version, previous=look.base, stamp=version
            )
        ids = [commit for commit, _ in history]
        version = ids[-1] if ids else "absent"
        pending: tuple[str, ...] = ()
        is_rewritten = False
        if look.base == "absent":
            pending = tuple(ids)
        elif look.base is not None and look.base != version:
            is_rewritten = look.base not in ids
            pending = (version,) if is_rewritten else tuple(ids[ids.index(look.base) + 1 :])
        return LookResult(
            target=target.key,
            generation=look.generation,
            version=version,
            base=look.base,
            pending=pending,
            is_rewritten=is_rewritten,
            stamp=version,
        )

    # -- running --------------------------------------------------------------------------------------

    def inputs_of(self, spec: SessionSpec) -> dict[str, dict[str, str]]:
        return {binding.name: self.matched(spec, binding) for binding in spec.files if binding.access != "write"}

    def matched(self, spec: SessionSpec, binding: FileBinding) -> dict[str, str]:
        pattern = Pattern.parse(binding.pattern).under(spec.root)
        excludes = Excludes.build(
            spec.root, (), binding.exclude, () if binding.access == "write" else spec.written_patterns
        )
        return {
            path: text
            for path, text in sorted(self.files.items())
            if pattern.matches(path) and excludes.covers(path) is None
        }

    def version_there(self, spec: SessionSpec, binding: FileBinding | CommitsBinding) -> str:
        """Return the version of what is there now, regardless of looks."""
        if isinstance(binding, FileBinding):
            return version_of(self.matched(spec, binding))
        history = self.commits.get(binding.path, [])
        if not history:
            return "absent"
        return history[-1][0] if binding.each_commit else digest(history[-1][1])

    def outputs_of(self, spec: SessionSpec, inputs: dict[str, dict[str, str]]) -> dict[str, str]:
        text = digest([spec.name, sorted(inputs.items())])
        return {
            binding.pattern: text for binding in spec.files if binding.access == "write" and "*" not in binding.pattern
        }

    def end(
        self,
        name: str,
        exit_code: int | None = 0,
        *,
        signal: int | None = None,
        problem: str | None = None,
        usage: Usage = Usage(),
    ) -> None:
        """End the session's process. If it succeeds, its outputs are written first.

        Hints of earlier writes are reported before the end, because the kernel queued them first.
        """
        process = self.process_of(name)
        assert process is not None, f"{name} has no process"
        if process.inputs is None:
            process.inputs = self.inputs_of(process.run.spec)
        if exit_code == 0 and problem is None:
            self._write_outputs(process)
        if self.deliver_hints() and process.run.run_id not in self.processes:
            return
        del self.processes[process.run.run_id]
        ended = ProcessEnded(
            session=process.session,
            run_id=process.run.run_id,
            exit_code=exit_code,
            signal=signal,
            problem=problem,
            usage=usage,
        )
        self.observe(ended)

    def _write_outputs(self, process: Process) -> None:
        for path, text in self.program(self, process).items():
            if self.files.get(under_root(path)) != text:
                self.write(path, text)

    def recover(self, *, wrote: bool = False) -> None:
        """End the orphan of the oldest recovery, perhaps after it wrote, and report that."""
        session, run_id = self.recoveries.pop(0)
        orphan = self.orphans.pop(run_id, None)
        if orphan is not None and wrote:
            orphan.inputs = orphan.inputs or self.inputs_of(orphan.run.spec)
            self._write_outputs(orphan)
        self.observe(RunRecovered(session=session, run_id=run_id))

    def readopt(self) -> None:
        """Adopt the process of the oldest recovery into this incarnation, because it was kept."""
        session, run_id = self.recoveries.pop(0)
        self.processes[run_id] = self.orphans.pop(run_id)
        self.attached.add(run_id)
        self.observe(RunAttached(session=session, run_id=run_id))

    def process_of(self, name: str) -> Process | None:
        session_id = self.core.state.ids.get(name)
        return next((process for process in self.processes.values() if process.session == session_id), None)

    # -- to the end of the wave -------------------------------------------------------------------------

    def rest(self, seconds: float = 30.0, exit_code: Callable[[Process], int] = lambda _: 0) -> None:
        """Go on until nothing is under way and no alarm is set within `seconds`."""
        until = self.mono + seconds
        for _ in range(20_000):
            if self._go_on(exit_code):
                continue
            due = self.next_alarm()
            if due is None or due > until:
                return
            self.advance(max(due - self.mono, 1e-6))
        raise AssertionError("the wave does not end")

    def start_soon(self, name: str) -> None:
        """Go on from alarm to alarm until this session runs. No process is ended."""
        for _ in range(1000):
            if self.is_running(name):
                return
            if self.hints and self.deliver_hints():
                continue
            if self.looks:
                self.answer()
                continue
            due = self.next_alarm()
            assert due is not None, f"nothing is due that would start {name}: {self.queued(name)}"
            self.advance(max(due - self.mono, 1e-6))
        raise AssertionError(f"{name} does not start: {self.queued(name)}")

    def next_alarm(self) -> float | None:
        """Return the next alarm of either clock, as a monotonic time."""
        dues = [] if self.core.mono.next is None else [self.core.mono.next]
        if self.core.wall.next is not None:
            dues.append(self.mono + (self.core.wall.next - self.wall) / 1e6)
        return min(dues, default=None)

    def _go_on(self, exit_code: Callable[[Process], int]) -> bool:
        if self.hints and self.deliver_hints():
            return True
        if self.looks:
            self.answer()
            return True
        if self.recoveries:
            self.recover()
            return True
        process = next(iter(self.processes.values()), None)
        if process is not None:
            code = None if process.stops else exit_code(process)
            self.end(process.run.spec.name, code, signal=15 if process.stops else None)
            return True
        return False

    # -- what there is ------------------------------------------------------------------------------------

    def session(self, name: str) -> Session:
        return self.core.state.by_name(name)

    def events(self, name: str, *kinds: str) -> list[Event]:
        session_id = self.session(name).id
        return [entry.event for entry in self.log if entry.session == session_id and (not kinds or entry.kind in kinds)]

    def kinds(self, name: str) -> list[str]:
        session_id = self.session(name).id
        return [entry.kind for entry in self.log if entry.session == session_id]

    def starts(self, name: str) -> int:
        return len(self.events(name, "run_started"))

    def outcomes(self, name: str) -> list[str]:
        return [event.outcome for event in self.events(name, "run_finished")]

    def queued(self, name: str) -> str | None:
        return find_queue_words(self.core, self.session(name), self.moment)

    def hold(self, name: str) -> str | None:
        return find_hold_words(self.core, self.session(name), self.moment)

    def is_running(self, name: str) -> bool:
        return self.session(name).run is not None


def declare(spec: SessionSpec) -> Declaration:
    return Declaration(spec, digest(spec))


def under_root(path: str) -> str:
    return path if path.startswith("/") else f"{ROOT}/{path}"


def means(target: FileTarget, path: str) -> bool:
    pattern = Pattern.parse(target.pattern).under(target.root)
    return pattern.matches(path) and Excludes.build(target.root, (), target.exclude, target.hidden).covers(path) is None


def version_of(found: dict[str, str]) -> str:
    return digest(sorted(found.items()))

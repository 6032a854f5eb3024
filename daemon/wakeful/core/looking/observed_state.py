"""The daemon's present view of the world: the latest version per target, dirty marks, and look generations.

The view is never logged. A crash loses it, and looks rebuild it (rule 1). Only `decide` changes
it. A hint makes a target dirty; a look that began after the newest hint makes it clean (rule 11).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from wakeful.core.looking.targets import FileTarget, Target, target_of
from wakeful.core.record.events import ChangedPath
from wakeful.core.record.observations import LookResult, Moment, PathChange, ProcessEnded
from wakeful.core.spec.bindings import (
    AnyBinding,
    CommitsBinding,
    FileBinding,
    MessageBinding,
)
from wakeful.core.spec.session import SessionSpec

STEPS_REMEMBERED = 64
SUCCESSES_TO_STARVE = 3
PATHS_IN_A_CAUSE = 1000
# After this many looks in a row that find a file grown, each within `settle_max`, its writer counts as still writing.
GROWTHS_TO_ADAPT = 2


class Bound(Struct, frozen=True, kw_only=True):
    """One binding of a session, declared or implied, in the form that the core works with."""

    name: str
    kind: str
    key: str
    wake: bool
    binding: AnyBinding | None = None
    target: str | None = None
    is_implied: bool = False
    # The following flags are computed once, because every dispatch asks for them.
    is_condition: bool = False
    only_advances: bool = False
    is_ordered: bool = False
    starts_at_declaration: bool = False
    is_written: bool = False
    # The session's own runs read and write it; changes by others wake the session (rule 7).
    is_both: bool = False
    is_clock: bool = False
    is_each_commit: bool = False

    @property
    def is_file(self) -> bool:
        return self.kind in ("file", "program")

    @property
    def description(self) -> str:
        return self.binding.description if self.binding is not None else ""


class Step(Struct, frozen=True, kw_only=True):
    """A look that found a new version: the previous version, the new one, and the changed paths."""

    previous: str | None
    version: str
    changes: tuple[PathChange, ...]
    commits: tuple[str, ...]
    at: int


class Delta(Struct, frozen=True, kw_only=True):
    paths: tuple[ChangedPath, ...] = ()
    is_known: bool = False
    commits: tuple[str, ...] = ()
    at: int = 0


@dataclass(slots=True)
class TargetLook:
    """One target: the result of its last look, and whether that may be out of date."""

    target: Target
    subscribers: set[str] = field(default_factory=set)
    version: str | None = None
    problem: str | None = None
    is_looked: bool = False
    is_absent: bool = False
    stamp: str = ""
    doubt: str = ""
    is_moved: bool = False
    # Why the last look had to wait, and the generation of that look. A newer hint may end the wait.
    held: str | None = None
    held_generation: int = 0
    degraded: str | None = None
    base: str | None = None
    pending: tuple[str, ...] = ()
    is_rewritten: bool = False
    # A counter of hints. A look carries the value that it began with.
    generation: int = 1
    applied: int = 0
    looking: int | None = None
    first_dirt: float | None = 0.0
    last_dirt: float = 0.0
    is_urgent: bool = True
    # The next look is at the outputs of an ended run, so files that are open for writing count as they are.
    takes_open: bool = False
    # `growths`: the number of looks in a row that found the same file grown. `grown_at`: the time of the last new
    # version. `growth_gap`: the time between the last two versions.
    growths: int = 0
    grown_at: float = 0.0
    growth_gap: float = 0.0
    # The latest steps, newest last. A tuple, because most of 50,000 targets never change.
    steps: tuple[Step, ...] = ()
    looked_at: int = 0
    # The cached last delta: its steps, the version it starts from, and the delta. A waiting wake needs it repeatedly.
    told: tuple[tuple[Step, ...], str | None, Delta] | None = None

    @property
    def is_dirty(self) -> bool:
        return self.first_dirt is not None

    @property
    def is_waiting(self) -> bool:
        """Must the next look wait, because the last look was held? A new hint ends the wait (rule 11)."""
        return self.held is not None and self.held_generation == self.generation

    @property
    def is_clear(self) -> bool:
        """Is the version known, and did no hint come since the look began?"""
        return self.first_dirt is None and self.version is not None

    @property
    def due(self) -> float:
        """Return the time at which the look should begin (rule 12).

        That is after quiet for `settle`, but at most `settle_max` after the first hint. For a writer that keeps
        appending to a file, quiet lasts twice the writer's pause.
        """
        assert self.first_dirt is not None
        if self.is_urgent:
            return self.first_dirt
        settle = self.target.settle_seconds
        quiet_seconds = settle if self.growths < GROWTHS_TO_ADAPT else max(settle, 2 * self.growth_gap)
        return min(self.last_dirt + quiet_seconds, self.first_dirt + self.target.settle_max_seconds)

    def mark_dirty(self, mono: float, *, urgent: bool = False) -> None:
        self.generation += 1
        self.last_dirt = mono
        if self.first_dirt is None:
            self.first_dirt = mono
            self.is_urgent = False
        if urgent:
            self.first_dirt, self.is_urgent = mono, True

    def take_result(self, result: LookResult, moment: Moment) -> None:
        """Take over the result of a look, unless it is older than the one taken over last (rule 11)."""
        if result.generation < self.applied:
            return
        self.looking = None
        settle_max_seconds = self.target.settle_max_seconds
        is_unstable = result.is_unstable
        if is_unstable and self.first_dirt is not None and moment.mono < self.first_dirt + settle_max_seconds:
            # A file changed while it was read. Before `settle_max` has passed, the next look waits for quiet (rule 12).
            self.last_dirt, self.is_urgent = moment.mono, False
            return
        self.degraded = result.degraded
        self.held, self.held_generation = result.held, result.generation
        if result.held is not None:
            return
        self.applied = result.generation
        self.takes_open = False
        self.problem, self.is_moved, self.is_absent = result.problem, result.is_moved, result.is_absent
        self.base, self.pending, self.is_rewritten = result.base, result.pending, result.is_rewritten
        if result.version is not None and result.version != self.version:
            self._add_step(result, moment)
        self.version, self.stamp, self.doubt = result.version, result.stamp, result.doubt
        self.is_looked, self.looked_at = True, moment.wall
        if is_unstable:
            # The version that was read counts, and the target is looked at again after quiet (rule 12).
            self.first_dirt, self.last_dirt, self.is_urgent = moment.mono, moment.mono, False
        elif self.generation == result.generation:
            self.first_dirt = None
        else:
            # Hints that came after the beginning of this look remain.
            self.first_dirt = self.last_dirt

    def _add_step(self, result: LookResult, moment: Moment) -> None:
        assert result.version is not None
        step = Step(
            previous=result.previous,
            version=result.version,
            changes=result.changes,
            commits=result.commits,
            at=moment.wall,
        )
        self.steps = (*self.steps, step)[-STEPS_REMEMBERED:]
        gap, self.grown_at = moment.mono - self.grown_at, moment.mono
        is_soon = gap <= self.target.settle_max_seconds
        self.growths = self.growths + 1 if result.is_growing and is_soon else int(result.is_growing)
        self.growth_gap = gap

    def delta_since(self, old: str | None) -> Delta:
        """Return the delta between `old` and now. Without an unbroken row of looks, `is_known` is False, and the delta
        has only the commits and the time of the last step.

        The last delta is cached in `told`."""
        if self.told is not None and self.told[0] is self.steps and self.told[1] == old:
            return self.told[2]
        row = self._find_row(old)
        changes = _list_changes(row) if row is not None else []
        # The steps that the delta covers, newest first.
        steps = row if row is not None else self.steps[-1:]
        delta = Delta(
            paths=tuple([ChangedPath(change.path, change.change) for change in changes[:PATHS_IN_A_CAUSE]]),
            is_known=row is not None and len(changes) <= PATHS_IN_A_CAUSE,
            commits=tuple(line for step in reversed(steps) for line in step.commits),
            at=steps[0].at if steps else 0,
        )
        self.told = (self.steps, old, delta)
        return delta

    def changed_since(self, old: str) -> frozenset[str] | None:
        """Return the paths that differ between `old` and now. None without an unbroken row of looks."""
        changes = self.list_changes_since(old)
        return frozenset(change.path for change in changes) if changes is not None else None

    def list_changes_since(self, old: str) -> list[PathChange] | None:
        """List the differences between `old` and now, by path. None without an unbroken row of looks."""
        row = self._find_row(old)
        return _list_changes(row) if row is not None else None

    def _find_row(self, old: str | None) -> list[Step] | None:
        """Return the steps from `old` to now, newest first. None if they are not an unbroken row."""
        row: list[Step] = []
        for step in reversed(self.steps):
            if row and step.version != row[-1].previous:
                return None
            row.append(step)
            if step.previous == old and old is not None:
                return row
        return None


def _list_changes(newest_first: list[Step]) -> list[PathChange]:
    """List the net changes over all of these steps, by path."""
    if len(newest_first) == 1:
        return sorted(newest_first[0].changes, key=_path_of)
    before: dict[str, str | None] = {}
    after: dict[str, str | None] = {}
    for step in reversed(newest_first):
        for change in step.changes:
            before.setdefault(change.path, change.before)
            after[change.path] = change.after
    return [PathChange(path, before[path], after[path]) for path in sorted(after) if before[path] != after[path]]


_path_of = operator.attrgetter("path")


@dataclass(slots=True)
class ClockLook:
    """The latest due slot of a clock binding, and the due time of the next slot."""

    latest: str | None
    next_due: int | None
    # The wall clock was set back to before the last slot that ran, so slots up to that slot do not run again.
    is_set_back: bool = False
    # For `catch_up: all`: a seen slot, and the slot after it. Cached, because finding it costs 20 us.
    following: tuple[str, str] | None = None


@dataclass(slots=True)
class Ended:
    """A process that has ended while its outputs and dirty inputs are still being looked at.

    `awaited` are these targets, each with the least generation of a look that began after the end (rule 29).
    While `is_keeping` is set, the contents of its files are being saved. Afterwards `files` is the address of the
    record that lists them.
    """

    report: ProcessEnded
    mono: float
    awaited: dict[str, int]
    is_keeping: bool = False
    files: str | None = None


@dataclass(slots=True)
class Writing:
    """Files that a rewind or a merge writes for a session. The session is held until they were looked at (rule 44).

    `before` are the versions of its outputs as the session itself left them. `awaited` is None while files are written,
    then as in `Ended`. `paths` are the written paths.
    """

    words: str
    position: int
    author: str
    before: dict[str, str]
    paths: frozenset[str]
    awaited: dict[str, int] | None = None
    mono: float = 0.0


class Fairness:
    """How long each reader has been held. A counter of the ends of all runs serves as the clock (rule 32).

    Each reader has one number, not one for each of its upstreams, because a chain of 10,000 new sessions holds 10,000
    readers at once.
    """

    def __init__(self) -> None:
        self._count = 0
        # By session: the count at its last successes, and at its last ends (successes and failures), oldest first.
        self._successes: dict[str, tuple[int, ...]] = {}
        self._ends: dict[str, tuple[int, ...]] = {}
        # The highest count at the third-last end of a session. A reader that was first held since then does not starve.
        self._latest_third = 0
        # The count when a reader was first held, and the upstreams that yield to it meanwhile.
        self.held_since: dict[str, int] = {}
        self.giving_way: dict[str, dict[str, None]] = {}

    def note_end(self, session_id: str, *, is_success: bool) -> None:
        self._count += 1
        for ends in (self._ends, self._successes) if is_success else (self._ends,):
            latest = (*ends.get(session_id, ()), self._count)[-SUCCESSES_TO_STARVE:]
            ends[session_id] = latest
            if len(latest) == SUCCESSES_TO_STARVE:
                self._latest_third = max(self._latest_third, latest[0])

    def hold(self, reader_id: str) -> None:
        self.held_since.setdefault(reader_id, self._count)

    def may_starve(self, reader_id: str) -> bool:
        """May this reader starve? A cheap check before a walk through the graph; for most sessions the answer is no."""
        since = self.held_since.get(reader_id)
        return since is not None and self._latest_third > since

    def anyone_may_starve(self) -> bool:
        return bool(self.held_since) and self._latest_third > min(self.held_since.values())

    def has_starved(self, reader_id: str, upstream_id: str, *, counts_failures: bool) -> bool:
        """Has this upstream succeeded three times since the reader was first held?

        `counts_failures`: failed runs count too, because the upstream's failures wake the reader as well.
        """
        latest = (self._ends if counts_failures else self._successes).get(upstream_id, ())
        return len(latest) == SUCCESSES_TO_STARVE and latest[0] > self.held_since[reader_id]

    def release(self, reader_id: str) -> Iterable[str]:
        """Note that the reader is no longer held. Returns the upstreams that yielded to it."""
        self.held_since.pop(reader_id, None)
        return self.giving_way.pop(reader_id, ())


class Looked:
    def __init__(self) -> None:
        self.targets: dict[str, TargetLook] = {}
        self.bounds: dict[str, tuple[Bound, ...]] = {}
        self.clocks: dict[tuple[str, str], ClockLook] = {}
        self.ended: dict[str, Ended] = {}
        self.writing: dict[str, Writing] = {}
        # The reports of ended runs whose outputs are being put in place, by session id.
        self.landing: dict[str, ProcessEnded] = {}
        # Stamps and doubts of the inputs at the start of the open run (rule 17), and the commits that waited then
        # (rule 38).
        self.stamps: dict[str, dict[str, str]] = {}
        self.doubts: dict[str, dict[str, str]] = {}
        self.backlogs: dict[str, frozenset[str]] = {}
        self.owed_since: dict[str, float] = {}
        self.fairness = Fairness()
        self.refused: dict[str, str] = {}
        # By name: why the present content of a session's file is not in force. Read again at every start.
        self.untrusted: dict[str, str] = {}
        # The reason why no run may start: the disk is nearly full. The log is still written.
        self.shortage: str | None = None
        # Why this machine cannot enforce `isolation: strict`.
        self.strict_problem: str | None = None
        # By name: why a secret cannot be used, as text, or None if it can.
        # A secret that was never looked up is absent.
        self.secrets: dict[str, str | None] = {}
        # The highest generation of all forgotten targets. New targets begin above it, so that a late look at a
        # forgotten target does not count for a new target of the same key.
        self._generations = 0

    def bind(self, session_id: str, spec: SessionSpec, mono: float) -> tuple[list[Target], list[str]]:
        """Subscribe a session to the targets of its spec. Returns the targets to follow and the keys to forget."""
        bounds, targets = bounds_of(spec)
        new = []
        for target in targets:
            look = self.targets.get(target.key)
            if look is None:
                look = self.targets[target.key] = TargetLook(
                    target,
                    first_dirt=mono,
                    last_dirt=mono,
                    generation=self._generations + 1,
                    applied=self._generations + 1,
                )
                new.append(target)
            look.subscribers.add(session_id)
        kept = {target.key for target in targets}
        before = self.bounds.get(session_id, ())
        gone = self._unsubscribe(session_id, [bound.target for bound in before if bound.target not in kept])
        self._stop_clocks(session_id, before, {bound.key for bound in bounds})
        self.bounds[session_id] = bounds
        return new, gone

    def unbind(self, session_id: str) -> list[str]:
        bounds = self.bounds.pop(session_id, ())
        self._stop_clocks(session_id, bounds, set())
        self.fairness.release(session_id)
        for kept in (self.ended, self.writing, self.landing, self.stamps, self.doubts, self.backlogs, self.owed_since):
            kept.pop(session_id, None)
        return self._unsubscribe(session_id, [bound.target for bound in bounds])

    def _stop_clocks(self, session_id: str, bounds: tuple[Bound, ...], kept: set[str]) -> None:
        for bound in bounds:
            if bound.is_clock and bound.key not in kept:
                self.clocks.pop((session_id, bound.key), None)

    def _unsubscribe(self, session_id: str, keys: list[str | None]) -> list[str]:
        gone = []
        for key in keys:
            look = self.targets.get(key) if key is not None else None
            if look is None:
                continue
            look.subscribers.discard(session_id)
            if not look.subscribers:
                self._generations = max(self._generations, look.generation)
                del self.targets[look.target.key]
                gone.append(look.target.key)
        return gone

    def target(self, bound: Bound) -> TargetLook | None:
        return self.targets.get(bound.target) if bound.target is not None else None

    def is_clear(self, session_id: str) -> bool:
        """Are all targets that can wake this session looked at, known and not dirty?"""
        for bound in self.bounds.get(session_id, ()):
            if bound.target is not None and bound.wake and not self.targets[bound.target].is_clear:
                return False
        return True


def bounds_of(spec: SessionSpec) -> tuple[tuple[Bound, ...], list[Target]]:
    """Return a spec's bindings, the implied ones included, and their targets."""
    bounds: list[Bound] = []
    targets: list[Target] = []
    written = spec.written_patterns
    if spec.run is not None:
        bounds.append(Bound(name="spec", kind="spec", key="spec", wake=True, is_implied=True))
    if spec.program is not None:
        program = FileBinding(name="program", pattern=spec.program)
        code = target_of(spec, program, written)
        assert isinstance(code, FileTarget)
        targets.append(code)
        bounds.append(
            Bound(
                name="program",
                kind="program",
                key="program",
                wake=True,
                binding=program,
                target=code.key,
                is_implied=True,
            )
        )
    for binding in spec.bindings:
        target = target_of(spec, binding, written)
        if target is not None:
            targets.append(target)
        bounds.append(
            Bound(
                name=binding.name,
                kind=binding.kind,
                key=binding.identity,
                wake=binding.wake,
                binding=binding,
                target=target.key if target is not None else None,
                is_implied=isinstance(binding, MessageBinding),
                is_condition=binding.is_condition,
                only_advances=binding.only_advances,
                is_ordered=binding.is_ordered,
                starts_at_declaration=binding.starts_at_declaration,
                is_written=isinstance(binding, FileBinding) and binding.access == "write",
                is_both=isinstance(binding, FileBinding) and binding.access == "both",
                is_clock=binding.is_clock,
                is_each_commit=isinstance(binding, CommitsBinding) and binding.each_commit,
            )
        )
    return tuple(bounds), targets

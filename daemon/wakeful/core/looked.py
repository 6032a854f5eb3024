"""What the daemon sees now: the latest version per target, dirt, and look generations.

Never logged, lost at a crash, rebuilt by looking (rule 1). `decide` is the only one that changes
it. A hint makes a target dirty; a look that began after the newest hint makes it clean (rule 11).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from msgspec import Struct

from wakeful.core.events import ChangedPath
from wakeful.core.observation import LookResult, PathChange, ProcessEnded
from wakeful.core.spec import (
    AnyBinding,
    CommitsBinding,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
    SessionSpec,
)
from wakeful.core.target import FileTarget, Target, target_of

STEPS_REMEMBERED = 64
PATHS_IN_A_CAUSE = 1000


class Bound(Struct, frozen=True, kw_only=True):
    """One binding of a session as the core works with it, implied ones included."""

    name: str
    kind: str
    key: str
    wake: bool
    binding: AnyBinding | None = None
    target: str | None = None
    is_implied: bool = False

    @property
    def is_written(self) -> bool:
        return isinstance(self.binding, FileBinding) and self.binding.access == "write"

    @property
    def is_clock(self) -> bool:
        return self.kind in ("cron", "every")

    @property
    def is_each_commit(self) -> bool:
        return isinstance(self.binding, CommitsBinding) and self.binding.each_commit


class Step(Struct, frozen=True, kw_only=True):
    """A look that found another version: from where, by which paths, and by whose run (rule 34)."""

    previous: str | None
    version: str
    changes: tuple[PathChange, ...]
    commits: tuple[str, ...]
    chain: tuple[str, ...]
    at: int


class Delta(Struct, frozen=True, kw_only=True):
    paths: tuple[ChangedPath, ...] = ()
    is_known: bool = False
    commits: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    at: int = 0


@dataclass(slots=True)
class TargetLook:
    """One target: what was found last, and whether that may be out of date."""

    target: Target
    subscribers: set[str] = field(default_factory=set)
    version: str | None = None
    problem: str | None = None
    is_looked: bool = False
    is_absent: bool = False
    stamp: str = ""
    held: str | None = None
    degraded: str | None = None
    base: str | None = None
    pending: tuple[str, ...] = ()
    # Counts hints; a look carries the value it began with.
    generation: int = 1
    applied: int = 0
    looking: int | None = None
    first_dirt: float | None = 0.0
    last_dirt: float = 0.0
    is_urgent: bool = True
    is_awaited: bool = False
    # Chain of the run that just wrote here, until the next look takes it up.
    chain: tuple[str, ...] = ()
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=STEPS_REMEMBERED))
    looked_at: int = 0

    @property
    def is_dirty(self) -> bool:
        return self.first_dirt is not None

    @property
    def due(self) -> float:
        """When the look should begin: quiet for settle, at most settle_max after the first dirt (rule 12)."""
        assert self.first_dirt is not None
        if self.is_urgent:
            return self.first_dirt
        return min(self.last_dirt + self.target.settle_seconds, self.first_dirt + self.target.settle_max_seconds)

    def dirty(self, mono: float, *, urgent: bool = False) -> None:
        self.generation += 1
        self.last_dirt = mono
        if self.first_dirt is None:
            self.first_dirt = mono
            self.is_urgent = False
        if urgent:
            self.first_dirt, self.is_urgent = mono, True

    def apply(self, result: LookResult, wall: int) -> None:
        """Take over what a look found. The caller has dropped stale results (rule 11)."""
        self.applied, self.looking = result.generation, None
        self.held, self.degraded = result.held, result.degraded
        if result.held is not None:
            return
        self.problem = result.problem if result.version is None else None
        self.is_absent, self.base, self.pending = result.is_absent, result.base, result.pending
        if result.version is not None and result.version != self.version:
            self.steps.append(
                Step(
                    previous=result.previous,
                    version=result.version,
                    changes=result.changes,
                    commits=result.commits,
                    chain=self.chain,
                    at=wall,
                )
            )
        self.chain = ()
        self.version, self.stamp, self.is_looked, self.looked_at = result.version, result.stamp, True, wall
        if self.generation == result.generation and not result.is_unstable:
            self.first_dirt = None
        else:
            # What is left is dirt that came after this look began.
            self.first_dirt, self.is_urgent = self.last_dirt, self.is_urgent and self.generation != result.generation

    def delta_since(self, old: str | None) -> Delta:
        """What happened between `old` and now, if an unbroken row of looks tells."""
        row: list[Step] = []
        for step in reversed(self.steps):
            if row and step.version != row[-1].previous:
                break
            row.append(step)
            if step.previous == old and old is not None:
                return _merge(row, is_known=True)
        return _merge(row[:1], is_known=False) if self.steps else Delta()


def _merge(newest_first: list[Step], *, is_known: bool) -> Delta:
    before: dict[str, str | None] = {}
    after: dict[str, str | None] = {}
    for step in reversed(newest_first):
        for change in step.changes:
            before.setdefault(change.path, change.before)
            after[change.path] = change.after
    changed = [PathChange(path, before[path], after[path]) for path in sorted(after) if before[path] != after[path]]
    paths = tuple(ChangedPath(change.path, change.change) for change in changed[:PATHS_IN_A_CAUSE])
    return Delta(
        paths=paths if is_known else (),
        is_known=is_known and len(changed) <= PATHS_IN_A_CAUSE,
        commits=tuple(line for step in reversed(newest_first) for line in step.commits),
        chain=max((step.chain for step in newest_first), key=len, default=()),
        at=newest_first[0].at if newest_first else 0,
    )


@dataclass(slots=True)
class ClockLook:
    """A clock binding's latest slot that fell due, and when the next one will."""

    latest: str | None
    next_due: int | None
    # `catch_up: all`: the oldest slot after seen that is still to run.
    oldest_owed: str | None = None


@dataclass(slots=True)
class Ended:
    """A process that is gone while its outputs and dirty inputs are still being looked at."""

    report: ProcessEnded
    mono: float


class Looked:
    def __init__(self) -> None:
        self.targets: dict[str, TargetLook] = {}
        self.bounds: dict[str, tuple[Bound, ...]] = {}
        self.clocks: dict[tuple[str, str], ClockLook] = {}
        self.ended: dict[str, Ended] = {}
        # Stamps of the inputs when the open run started (rule 17).
        self.stamps: dict[str, dict[str, str]] = {}
        self.owed_since: dict[str, float] = {}
        # Upstream's successes when the session's wake was first held by it (rule 32).
        self.held_marks: dict[str, dict[str, int]] = {}
        self.refused: dict[str, str] = {}

    def bind(self, session_id: str, spec: SessionSpec, mono: float) -> tuple[list[Target], list[str]]:
        """Subscribe a session to the targets of its spec; returns targets to follow and keys to forget."""
        bounds, targets = bounds_of(spec)
        new = []
        for target in targets:
            look = self.targets.get(target.key)
            if look is None:
                look = self.targets[target.key] = TargetLook(target, first_dirt=mono, last_dirt=mono)
                new.append(target)
            look.subscribers.add(session_id)
        kept = {target.key for target in targets}
        gone = self._unsubscribe(session_id, [b.target for b in self.bounds.get(session_id, ()) if b.target not in kept])
        self.bounds[session_id] = bounds
        return new, gone

    def unbind(self, session_id: str) -> list[str]:
        bounds = self.bounds.pop(session_id, ())
        return self._unsubscribe(session_id, [bound.target for bound in bounds])

    def _unsubscribe(self, session_id: str, keys: list[str | None]) -> list[str]:
        gone = []
        for key in keys:
            look = self.targets.get(key) if key is not None else None
            if look is None:
                continue
            look.subscribers.discard(session_id)
            if not look.subscribers:
                del self.targets[look.target.key]
                gone.append(look.target.key)
        return gone

    def target(self, bound: Bound) -> TargetLook | None:
        return self.targets.get(bound.target) if bound.target is not None else None


def bounds_of(spec: SessionSpec) -> tuple[tuple[Bound, ...], list[Target]]:
    """A spec's bindings with the implied ones, and the outside targets among them."""
    bounds, targets = [], []
    if spec.run is not None:
        bounds.append(Bound(name="spec", kind="spec", key="spec", wake=True, is_implied=True))
    if spec.program is not None:
        program = FileBinding(name="program", pattern=spec.program)
        target = target_of(spec, program)
        assert isinstance(target, FileTarget)
        targets.append(target)
        bounds.append(
            Bound(name="program", kind="program", key="program", wake=True, binding=program, target=target.key, is_implied=True)
        )
    for binding in spec.bindings:
        target = target_of(spec, binding)
        if target is not None:
            targets.append(target)
        bounds.append(
            Bound(
                name=binding.name,
                kind=kind_of(binding),
                key=binding.identity,
                wake=binding.wake,
                binding=binding,
                target=target.key if target is not None else None,
                is_implied=isinstance(binding, MessageBinding),
            )
        )
    return tuple(bounds), targets


def kind_of(binding: AnyBinding) -> str:
    match binding:
        case FileBinding():
            return "file"
        case CommitsBinding():
            return "commits"
        case CronBinding():
            return "cron"
        case EveryBinding():
            return "every"
        case MessageBinding():
            return "message"
        case SessionBinding():
            return "session"
        case ProbeBinding():
            return "probe"
        case ServiceBinding():
            return "service"

"""The loop guard: finds sessions whose own runs change the inputs that wake them, and slows fast starts (rule 34 b, c).

The end of a run lists the inputs that changed during it, in the run's reach and without a known writer. That alone is
not evidence, because a person may edit files during a long run. So from the second such run on, the next start waits
(`find_pause`). An input that changes during the pause is changed by others. An input that changes during five runs in
a row, and never between them, is changed by the session itself. Called by `may_start`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from wakeful.core.deciding.acting_agent import find_acting
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Bound, TargetLook
from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.record.events import Cause
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.bindings import CommitsBinding, FileBinding
from wakeful.core.spec.session import SessionSpec

RUNS_IN_A_ROW = 5
RUNS_BEFORE_A_PAUSE = 2
# The length of a pause, as a multiple of the length of the last run. The pause is so long that a program that writes
# all the time also writes during the pause.
PAUSE_PER_RUN = 4.0
SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0


class Pause(Struct, frozen=True):
    """A wait between two runs, until a wall time, to see whether an input changes while nothing runs."""

    key: str
    runs: int
    until: int
    seconds: float


def list_self_fed(core: Core, session: Session, run: OpenRun, touched: Iterable[str]) -> dict[str, str]:
    """Return the inputs that a run may have changed itself, by key, with their versions at its end.

    `touched` are the keys of the file inputs that changed during the run.
    """
    keys = set(touched)
    found = {}
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        if look is None or look.version is None:
            continue
        match bound.binding:
            case FileBinding() as binding if bound.key in keys:
                is_fed = not core.graph.feeders(session.name, binding.pattern) and _could_touch(
                    run, bound.key, binding, look
                )
            case CommitsBinding() as binding:
                is_fed = could_commit(run.spec, binding) and _has_new_commits(core, session, run, bound, look)
            case _:
                continue
        if is_fed:
            found[bound.key] = look.pending[-1] if bound.is_each_commit and look.pending else look.version
    return found


def could_commit(spec: SessionSpec, binding: CommitsBinding) -> bool:
    """May a run of this spec commit to the repository of this binding? Judged by the paths in the spec alone."""
    if not spec.confinement.is_enforced:
        return True
    repository = f"{_join(spec.root, binding.repo) if binding.repo is not None else spec.root}/.git"
    return any(contains(folder, repository) or ".git" in folder.split("/") for folder in _list_writable(spec))


def _has_new_commits(core: Core, session: Session, run: OpenRun, bound: Bound, look: TargetLook) -> bool:
    if not bound.is_each_commit:
        return look.version != run.versions.get(bound.key)
    waited = core.looked.backlogs.get(session.id, frozenset())
    return any(commit not in waited and commit != run.versions.get(bound.key) for commit in look.pending)


def find_pause(session: Session) -> Pause | None:
    """Return the pause before the next start, if inputs changed during the last runs. None without a pause."""
    last = session.last_run
    if not session.marks.self_fed or last is None:
        return None
    key, fed = max(session.marks.self_fed.items(), key=lambda row: row[1].runs)
    # From RUNS_IN_A_ROW on the evidence is complete, and the session is held as a loop.
    if not RUNS_BEFORE_A_PAUSE <= fed.runs < RUNS_IN_A_ROW:
        return None
    seconds = min(
        max(PAUSE_PER_RUN * (last.finished_at - last.started_at) / 1e6, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS
    )
    return Pause(key, fed.runs, last.finished_at + int(seconds * 1e6), seconds)


def find_self_fed(core: Core, session: Session) -> str | None:
    """Return the name of an input that changed during each of the last runs and never between them, or None."""
    often = {key for key, fed in session.marks.self_fed.items() if fed.runs >= RUNS_IN_A_ROW}
    return name_binding(core, session, often) if often else None


def name_binding(core: Core, session: Session, keys: Iterable[str]) -> str | None:
    return next((bound.name for bound in core.looked.bounds.get(session.id, ()) if bound.key in keys), None)


def _could_touch(run: OpenRun, key: str, binding: FileBinding, look: TargetLook) -> bool:
    """May the run have written the changed paths? If the paths are not known, the whole binding counts."""
    if not run.spec.confinement.is_enforced:
        return True
    root, began = run.spec.root, run.versions.get(key)
    changed = look.changed_since(began) if began is not None else None
    places = [_join(root, path) for path in changed or ()] or [parse_under(binding.pattern, root).base]
    return any(contains(folder, place) for folder in _list_writable(run.spec) for place in places)


def _list_writable(spec: SessionSpec) -> Iterator[str]:
    """Yield the folders that a run may write, by its spec. The outputs of a staged run are written elsewhere."""
    yield from (_join(spec.root, path).rstrip("/") for path in spec.confinement.allow_write)
    if spec.is_staged:
        return
    for text in spec.written_patterns:
        pattern = parse_under(text, spec.root)
        # For a pattern that names one file, the run may write the folder of that file.
        yield pattern.base.rpartition("/")[0] if pattern.is_literal else pattern.base


def _join(root: str, path: str) -> str:
    return path if path.startswith("/") else f"{root}/{path}"


MINUTE_US = 60_000_000


class Speed(Struct, frozen=True):
    """The number of starts in a minute without a wait. Beyond it, waits double up to the longest."""

    starts_a_minute: int
    first_wait_seconds: float
    longest_wait_seconds: float


COMMANDS = Speed(120, 1.0, 10.0)
# Each start of an agent costs money.
AGENTS = Speed(12, 10.0, 300.0)


class Pace(Struct, frozen=True):
    """A start that waits because of too many recent starts. `until` is a wall time."""

    recent: int
    until: int
    wait_seconds: float
    limit: Speed

    @property
    def words(self) -> str:
        return f"paced, {self.recent} starts in the last minute"


def find_pace(core: Core, session: Session, wall: int) -> Pace | None:
    """Return the pace of a session with an open wake. None if its next start need not wait."""
    wake = session.wake
    assert wake is not None
    # A retry has its own back-off, and a backlog is not a sign of a loop.
    if not session.tally.starts or wake.tried is not None or is_backlog(core, session, wake.causes):
        return None
    limit = AGENTS if find_acting(core, session)[0] is not None else COMMANDS
    recent = sum(wall - at < MINUTE_US for at in session.tally.starts)
    if recent < limit.starts_a_minute and (session.tally.paced == 0 or _was_quiet(session)):
        return None
    wait_seconds = min(limit.first_wait_seconds * 2**session.tally.paced, limit.longest_wait_seconds)
    return Pace(recent, session.tally.starts[-1] + int(wait_seconds * 1e6), wait_seconds, limit)


def _was_quiet(session: Session) -> bool:
    """Was no wake requested in the minute after the last run?"""
    assert session.wake is not None
    return session.last_run is None or session.wake.requested_at - session.last_run.finished_at >= MINUTE_US


def is_backlog(core: Core, session: Session, causes: tuple[Cause, ...]) -> bool:
    """Are the causes only slots, activations, and commits that already waited at the last start?

    Working through a backlog is not a loop.
    """
    waited = core.looked.backlogs.get(session.id, frozenset())
    return all(cause.kind in ("cron", "every", "activation") or cause.new in waited for cause in causes)

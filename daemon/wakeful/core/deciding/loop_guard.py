"""Evidence that a session feeds itself: its own runs change what wakes it, and no binding says so (rule 34 b).

The end of a run lists the inputs that changed meanwhile in the run's reach, by nobody known. That alone is no evidence:
a person may edit beside a long run. So from the second such run on, the next start waits (`find_pause`), and an input
that changes while nothing runs is somebody else's work. What changes during five runs in a row, and never between them,
is the session's own doing. The verdict asks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from wakeful.core.deciding.acting_agent import find_acting
from wakeful.core.deciding.core import Core
from wakeful.core.looking.observed_state import Bound, TargetLook
from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.record.events import Cause
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.session import CommitsBinding, FileBinding, SessionSpec

RUNS_IN_A_ROW = 5
RUNS_BEFORE_A_PAUSE = 2
# A pause is several times as long as the last run, so that another program that writes all the time also writes during
# the pause.
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
    """Of the inputs that were touched during a run, those it may have touched itself: by key,
    the version they have at its end."""
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
    """Whether a run may write the repository that wakes it: all that is known of its place is the spec's word."""
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
    """The pause before the next start, where its inputs changed during its last runs."""
    last = session.last_run
    if not session.marks.self_fed or last is None:
        return None
    key, fed = max(session.marks.self_fed.items(), key=lambda row: row[1].runs)
    # Beyond that the evidence is complete.
    if not RUNS_BEFORE_A_PAUSE <= fed.runs < RUNS_IN_A_ROW:
        return None
    seconds = min(
        max(PAUSE_PER_RUN * (last.finished_at - last.started_at) / 1e6, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS
    )
    return Pause(key, fed.runs, last.finished_at + int(seconds * 1e6), seconds)


def find_self_fed(core: Core, session: Session) -> str | None:
    """The name of an input that changed during each of its last runs and never between them;
    None where there is none."""
    often = {key for key, fed in session.marks.self_fed.items() if fed.runs >= RUNS_IN_A_ROW}
    return name_binding(core, session, often)


def name_binding(core: Core, session: Session, keys: Iterable[str]) -> str | None:
    return next((bound.name for bound in core.looked.bounds.get(session.id, ()) if bound.key in keys), None)


def _could_touch(run: OpenRun, key: str, binding: FileBinding, look: TargetLook) -> bool:
    """Whether what changed lies where the run may write. Where the paths are not known, the whole binding counts."""
    if not run.spec.confinement.is_enforced:
        return True
    root, began = run.spec.root, run.versions.get(key)
    changed = look.changed_since(began) if began is not None else None
    places = [_join(root, path) for path in changed or ()] or [parse_under(binding.pattern, root).base]
    return any(contains(folder, place) for folder in _list_writable(run.spec) for place in places)


def _list_writable(spec: SessionSpec) -> Iterator[str]:
    """The folders a run may write, as its spec names them. A staged run writes its outputs elsewhere."""
    yield from (_join(spec.root, path).rstrip("/") for path in spec.confinement.allow_write)
    if spec.is_staged:
        return
    for text in spec.written_patterns:
        pattern = parse_under(text, spec.root)
        # A literal file opens the folder that holds it.
        yield pattern.base.rpartition("/")[0] if pattern.is_literal else pattern.base


def _join(root: str, path: str) -> str:
    return path if path.startswith("/") else f"{root}/{path}"


MINUTE_US = 60_000_000


class Speed(Struct, frozen=True):
    """How many starts a minute are free, and how long a start waits beyond that:
    the first wait doubles up to the longest."""

    starts_a_minute: int
    first_wait_seconds: float
    longest_wait_seconds: float


COMMANDS = Speed(120, 1.0, 10.0)
# Each start of an agent costs money.
AGENTS = Speed(12, 10.0, 300.0)


class Pace(Struct, frozen=True):
    """Why a start waits, and until when (wall time)."""

    recent: int
    until: int
    wait_seconds: float
    limit: Speed

    @property
    def words(self) -> str:
        return f"paced, {self.recent} starts in the last minute"


def find_pace(core: Core, session: Session, wall: int) -> Pace | None:
    """The pace of a session with an open wake; None where its next start is free."""
    wake = session.wake
    assert wake is not None
    # A retry has its own back-off, and catching up is no sign of a loop.
    if not session.tally.starts or wake.tried is not None or is_backlog(core, session, wake.causes):
        return None
    limit = AGENTS if find_acting(core, session)[0] is not None else COMMANDS
    recent = sum(wall - at < MINUTE_US for at in session.tally.starts)
    if recent < limit.starts_a_minute and (session.tally.paced == 0 or _was_quiet(session)):
        return None
    wait_seconds = min(limit.first_wait_seconds * 2**session.tally.paced, limit.longest_wait_seconds)
    return Pace(recent, session.tally.starts[-1] + int(wait_seconds * 1e6), wait_seconds, limit)


def _was_quiet(session: Session) -> bool:
    """Whether nothing woke the session in the minute after its last run:
    a wake is requested when its change is found."""
    assert session.wake is not None
    return session.last_run is None or session.wake.requested_at - session.last_run.finished_at >= MINUTE_US


def is_backlog(core: Core, session: Session, causes: tuple[Cause, ...]) -> bool:
    """Whether these are only slots, activations, and commits that waited behind the last run:
    catching up is not a loop."""
    waited = core.looked.backlogs.get(session.id, frozenset())
    return all(cause.kind in ("cron", "every", "activation") or cause.new in waited for cause in causes)

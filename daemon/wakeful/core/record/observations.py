"""Observations: reports of the outside world, which are not recorded, may repeat, and carry their moment.

Sources, runners and the API build observations; `decide` is their only reader. No observation is
recorded yet: an observation that changes nothing leaves no trace.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.notifier import NotifyEvent
from wakeful.core.spec.session import Isolation, SessionSpec, Settings

ChangeWord = Literal["added", "modified", "removed"]


class Moment(Struct, frozen=True):
    """The three clocks of the machine, read once per observation by the reactor.

    `wall` is microseconds UTC, and people may set it. `mono` and `boot` are seconds that nobody sets: `mono` stands
    still while the machine is suspended, `boot` runs on.
    """

    wall: int
    mono: float
    boot: float


class PathChange(Struct, frozen=True, gc=False):
    """One path between two looks: entry digests before and after, None where it did not exist."""

    path: str
    before: str | None
    after: str | None

    @property
    def change(self) -> ChangeWord:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "modified"


class LookResult(Struct, frozen=True, kw_only=True):
    """The result of one look of a source at a target.

    `version` None means unknown: not a version, and not "deleted" (rule 5); `problem` says why.
    `previous` is the version the `changes` start from, None where the delta is unknowable.
    `stamp` moves whenever any matched path changed or was written, even if the content is equal again; `doubt` moves
    where a stat moved, the content is equal, and nobody can tell whether it was written (rule 17). `is_unstable` says
    the content moved while it was read (rule 12): the target stays dirty.
    """

    target: str
    generation: int
    version: str | None
    problem: str | None = None
    previous: str | None = None
    changes: tuple[PathChange, ...] = ()
    stamp: str = ""
    doubt: str = ""
    is_unstable: bool = False
    # The changed file is still the same file and has grown: a writer may be appending to it.
    is_growing: bool = False
    is_absent: bool = False
    # A path's stat moved since the start of a run that an earlier daemon began: all that is left of rule 17 then.
    is_moved: bool = False
    # Why a look must wait (`git rebase`), or None.
    held: str | None = None
    # How the target is watched when not by events: `polling: watch limit reached`, or None.
    degraded: str | None = None
    # each_commit only: the base it was asked from, and the commits after it, oldest first.
    base: str | None = None
    pending: tuple[str, ...] = ()
    # each_commit only: the base is no ancestor of the branch any more (rule 38), `pending` is its new head alone.
    is_rewritten: bool = False
    # commits only: what git knows of the new version, for causes and `why`.
    commits: tuple[str, ...] = ()
    # Other targets whose paths this look found changed (rule 10).
    also_dirty: tuple[str, ...] = ()


class DaemonStarted(Struct, frozen=True, kw_only=True):
    incarnation: str
    settings: Settings


class DaemonStopping(Struct, frozen=True):
    """No new runs from now on; `is_forced`: those under way are interrupted and owed again,
    but for those that the next daemon goes on with."""

    is_forced: bool = False
    # Ids of runs.
    spared: frozenset[str] = frozenset()


class RoomSeen(Struct, frozen=True):
    """The reason, in words, that new runs wait because the disk of the log is nearly full; None: there is room."""

    words: str | None


class StrictnessSeen(Struct, frozen=True):
    """Why no run can be isolated strictly on this machine, in words with what mends it; None: it can."""

    words: str | None


class SecretsSeen(Struct, frozen=True):
    """Every secret that there is or that somebody needs, by name: why it cannot be used, in words,
    or None where it can."""

    found: dict[str, str | None]


class Declaration(Struct, frozen=True):
    spec: SessionSpec
    text_digest: str
    # False: no file says so, the log alone does.
    is_filed: bool = True
    # Nobody has trusted it as it stands, in words: it is neither admitted nor recorded, and its session sleeps.
    needs_trust: str | None = None
    # The content of its spec file, where a call declares the session.
    text: str | None = None


class SpecsRead(Struct, frozen=True, kw_only=True):
    """One batch of `sessions.d/` (rule 26): what is new or changed, what vanished, what could not be read."""

    declared: tuple[Declaration, ...] = ()
    removed: tuple[str, ...] = ()
    refused: dict[str, str] = {}


class AgentsRead(Struct, frozen=True, kw_only=True):
    """All agents in force now, by name, and the reasons that some agent files are not in force.

    An agent whose file was readable before and is not now is in both.
    """

    agents: dict[str, AgentSpec] = {}
    refused: dict[str, str] = {}


class SettingsRead(Struct, frozen=True):
    settings: Settings


class TargetsHinted(Struct, frozen=True):
    """Something may have changed at these targets: look sooner."""

    targets: tuple[str, ...]


class TargetLooked(Struct, frozen=True):
    result: LookResult


class ClockTicked(Struct, frozen=True):
    """A timer rang, or half a minute passed: compare what is due with the moment."""


class Usage(Struct, frozen=True, kw_only=True):
    cpu_seconds: float = 0.0
    max_rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    wall_seconds: float = 0.0
    # Counted by the runner of an agent; of the tokens, those that no provider counted.
    tokens: int = 0
    estimated_tokens: int = 0
    usd: float = 0.0


class Output(Struct, frozen=True, kw_only=True):
    """Where the run's output is kept: content addresses of the bounded head and tail, and the true count."""

    head: str | None = None
    tail: str | None = None
    total_bytes: int = 0
    kept_bytes: int = 0


class Enforced(Struct, frozen=True):
    """How a run was isolated, and what of that this machine could not enforce, in words."""

    level: Isolation
    unenforced: tuple[str, ...] = ()
    # Places its programs needed besides what the spec declares; and what they asked for and were not given, in words.
    # Unset where there is nothing.
    derived: tuple[str, ...] | UnsetType = UNSET
    not_derived: tuple[str, ...] | UnsetType = UNSET


class StagedOutput(Struct, frozen=True, kw_only=True):
    """An output that a run made in its private write area: digests of what stood there when it began and of what it
    left, None for nothing; `place` is where that lies in the area."""

    path: str
    base: str | None
    new: str | None
    place: str


class Denied(Struct, frozen=True, kw_only=True):
    """One thing outside its reach that a traced run asked for: a path, or an address.

    `place` is what a spec would have to open for it; None: no line of a spec should, or could, and `words` say why.
    """

    access: Literal["read", "write", "run", "connect"]
    what: str
    place: str | None = None
    is_folder: bool = False
    words: str | None = None


class Traced(Struct, frozen=True, kw_only=True):
    """The accesses a traced run was denied, or would have been denied (`is_observed`).

    `denied` holds those that were kept; `more` is the number of the others.
    `words` say why nothing, or not all, is known.
    """

    denied: tuple[Denied, ...] = ()
    more: int = 0
    is_observed: bool = False
    words: str | None = None


class Gap(Struct, frozen=True):
    """A restriction this kernel cannot enforce, its consequence for runs, and the kernel that can enforce it,
    such as `Linux 6.7`."""

    what: str
    means: str
    needs: str

    @property
    def words(self) -> str:
        """As the record of a run says it."""
        return f"{self.what} ({self.needs} can)"


class Enforceable(Struct, frozen=True, kw_only=True):
    """The restrictions this machine can enforce on a run: the kernel's version of Landlock (0: none),
    and the restrictions that it cannot enforce, in words."""

    landlock: int
    unenforced: tuple[str, ...]
    # Whether protected files can be shielded inside a folder that a run may write.
    is_shielding: bool
    # The unenforced restrictions that are due to this kernel.
    gaps: tuple[Gap, ...] = ()
    # Whether control groups bound the memory and processes of runs.
    is_bounding: bool = False
    # Files of /etc that stay closed to runs although everybody may read them by now.
    kept_closed: tuple[str, ...] = ()


class ProcessOwner(Struct, frozen=True, kw_only=True):
    """The run that a process belongs to. The process is no person, whichever daemon started the run.

    `run_id` is None where this daemon has no such run under way. `mark` tells two runs apart.
    `sign` says how it was recognised, in words."""

    run_id: str | None
    mark: int
    sign: str


class ProcessEnded(Struct, frozen=True, kw_only=True):
    """A run's process tree is gone. `problem` is set when it never started or ran out of time."""

    session: str
    run_id: str
    exit_code: int | None = None
    signal: int | None = None
    problem: str | None = None
    usage: Usage = Usage()
    output: Output = Output()
    # The contents of its files are being kept. `OutputsKept` follows, and the run is closed after it.
    is_keeping: bool = False
    # None: the run did not get as far as its isolation.
    isolation: Enforced | None = None
    # Changed paths in the folders that its outputs opened, which no binding declares.
    # If there are more paths, an entry says so in words.
    undeclared: tuple[str, ...] = ()
    # Advice for a person, if the run failed and seems to have been denied something.
    hint: str | None = None
    # None: it was not traced.
    trace: Traced | None = None
    # The outputs that wait to be put in place; None: the run wrote directly.
    staged: tuple[StagedOutput, ...] | None = None
    # The place of its own that it worked in, in words; None: it worked in place.
    workspace: str | None = None


class OutputsKept(Struct, frozen=True, kw_only=True):
    """The contents of an ended run's files are kept.

    `files` is the address of their record; None where they could not be kept.
    """

    session: str
    run_id: str
    files: str | None = None


class KeptOutput(Struct, frozen=True, kw_only=True):
    """An output that was not put in place: why, and where what the run made of it is kept instead,
    if it made anything."""

    path: str
    words: str
    kept: str | None = None


class LandingEnded(Struct, frozen=True, kw_only=True):
    """The staged outputs of a run are in place (rule 27), except those that are kept aside."""

    session: str
    run_id: str
    kept: tuple[KeptOutput, ...] = ()


class FilesWritten(Struct, frozen=True, kw_only=True):
    """A rewind or a merge has ended its writing for this session, with or without success.
    `paths` are the paths it wrote (rule 44)."""

    session: str
    paths: tuple[str, ...]


class NotificationEnded(Struct, frozen=True, kw_only=True):
    """A notifier has told people about record `about` of a session, or gave up; then `problem` says why."""

    session: str
    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int
    problem: str | None = None


class RunAttached(Struct, frozen=True, kw_only=True):
    """A run of an earlier incarnation was kept, whether it lives or has ended since: it is one of ours from now on."""

    session: str
    run_id: str


class RunRecovered(Struct, frozen=True, kw_only=True):
    """Nothing of a run of an earlier incarnation is alive any more."""

    session: str
    run_id: str

"""Observations: reports about the outside world. They may repeat, and each comes with its moment.

Sources, runners and the API build observations; `decide` is their only reader. An observation itself
is not recorded: if it changes nothing, it leaves no trace in the log.
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

    `wall` is in microseconds UTC, and people may set it. `mono` and `boot` are in seconds and cannot be set.
    While the machine is suspended, `mono` stops and `boot` goes on.
    """

    wall: int
    mono: float
    boot: float


class PathChange(Struct, frozen=True, gc=False):
    """The change of one path between two looks: its digests before and after, None if the path did not exist."""

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

    - `version`: None if unknown, which does not mean "deleted" (rule 5). `problem` then says why.
    - `previous`: the version that `changes` start from, None if the delta cannot be known.
    - `stamp`: differs whenever a matched path was changed or written, even if the content is equal again.
    - `doubt`: differs when a stat changed, the content is equal, and it is unknown whether it was written (rule 17).
    - `is_unstable`: the content changed while it was read (rule 12), so the target stays dirty.
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
    # A path's stat changed since the start of a run that an earlier daemon began. The stamps from that start are
    # lost, so rule 17 has only this flag.
    is_moved: bool = False
    # Why a look must wait (`git rebase`), or None.
    held: str | None = None
    # How the target is watched if not by events, such as `polling: watch limit reached`. None if by events.
    degraded: str | None = None
    # each_commit only: the base that the look started from, and the commits after that base, oldest first.
    base: str | None = None
    pending: tuple[str, ...] = ()
    # each_commit only: the base is no longer an ancestor of the branch (rule 38). `pending` is only the new head.
    is_rewritten: bool = False
    # commits only: descriptions of the new commits, for causes and `why`.
    commits: tuple[str, ...] = ()
    # Other targets whose paths this look found changed (rule 10).
    also_dirty: tuple[str, ...] = ()


class DaemonStarted(Struct, frozen=True, kw_only=True):
    incarnation: str
    settings: Settings


class DaemonStopping(Struct, frozen=True):
    """No run starts from now on. With `is_forced`, runs under way are interrupted, except `spared`, and their causes
    stay owed."""

    is_forced: bool = False
    # Ids of runs that the next daemon continues.
    spared: frozenset[str] = frozenset()


class DiskSpaceSeen(Struct, frozen=True):
    """Why new runs wait for space on the disk of the log, as text. None if there is enough space."""

    words: str | None


class StrictnessSeen(Struct, frozen=True):
    """Why this machine cannot isolate a run strictly, as text with the remedy. None if it can."""

    words: str | None


class SecretsSeen(Struct, frozen=True):
    """All secrets that exist or are needed, by name: why a secret cannot be used, as text, or None if it can."""

    found: dict[str, str | None]


class Declaration(Struct, frozen=True):
    spec: SessionSpec
    text_digest: str
    # False if no file declares the session, and its spec is only in the log.
    is_filed: bool = True
    # Why the spec is not trusted as it is now, as text. It is then neither admitted nor recorded, and its session
    # sleeps. None if it is trusted.
    needs_trust: str | None = None
    # The text that its spec file would have, if a call declares the session.
    text: str | None = None


class SpecsRead(Struct, frozen=True, kw_only=True):
    """One reading of `sessions.d/` (rule 26): new or changed specs, removed specs, and specs that were refused."""

    declared: tuple[Declaration, ...] = ()
    removed: tuple[str, ...] = ()
    refused: dict[str, str] = {}


class AgentsRead(Struct, frozen=True, kw_only=True):
    """All agents in force now, by name, and the reasons that some agent files are not in force.

    An agent whose file could be read before and cannot be read now is in both.
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
    """A timer went off, or half a minute passed. Due times are now compared with the moment."""


class Usage(Struct, frozen=True, kw_only=True):
    cpu_seconds: float = 0.0
    max_rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    wall_seconds: float = 0.0
    # Counted by the runner of an agent. `estimated_tokens` is the part of `tokens` that no provider counted.
    tokens: int = 0
    estimated_tokens: int = 0
    usd: float = 0.0


class Output(Struct, frozen=True, kw_only=True):
    """The output of a run: the blob addresses of its bounded head and tail, and its full size."""

    head: str | None = None
    tail: str | None = None
    total_bytes: int = 0
    kept_bytes: int = 0


class Enforced(Struct, frozen=True):
    """How a run was isolated, and the restrictions that this machine could not enforce, as text."""

    level: Isolation
    unenforced: tuple[str, ...] = ()
    # `derived`: places that its programs needed and the spec does not declare. `not_derived`: the places that they
    # asked for and were not given, as text. Both are unset if there are none.
    derived: tuple[str, ...] | UnsetType = UNSET
    not_derived: tuple[str, ...] | UnsetType = UNSET


class StagedOutput(Struct, frozen=True, kw_only=True):
    """An output that a run made in its private write area.

    `base` and `new` are digests of the file at the start and at the end of the run, None if there was no file.
    `place` is the file's path within the area.
    """

    path: str
    base: str | None
    new: str | None
    place: str


class Denied(Struct, frozen=True, kw_only=True):
    """A path or an address outside of its reach that a traced run asked for.

    `place` is the place that a spec would have to open for it. It is None if no line of a spec should or could
    open it; `words` then say why.
    """

    access: Literal["read", "write", "run", "connect"]
    what: str
    place: str | None = None
    is_folder: bool = False
    words: str | None = None


class Traced(Struct, frozen=True, kw_only=True):
    """The accesses a traced run was denied, or would have been denied (`is_observed`).

    `denied` lists only as many accesses as are kept; `more` counts those that are left out.
    `words` say why the list is missing or incomplete.
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
        """Return the text that the record of a run holds."""
        return f"{self.what} ({self.needs} can)"


class Enforceable(Struct, frozen=True, kw_only=True):
    """The restrictions this machine can enforce on a run: the kernel's version of Landlock (0 if it has none),
    and the restrictions that it cannot enforce, as text."""

    landlock: int
    unenforced: tuple[str, ...]
    # Protected files can be shielded inside a folder that a run may write.
    is_shielding: bool
    # The unenforced restrictions that are due to this kernel.
    gaps: tuple[Gap, ...] = ()
    # Control groups limit the memory and processes of runs.
    is_bounding: bool = False
    # Files in /etc that stay closed to runs, although every user may read them by now.
    kept_closed: tuple[str, ...] = ()


class ProcessOwner(Struct, frozen=True, kw_only=True):
    """The run that a process belongs to. Such a process never counts as a person, whichever daemon started the run.

    `run_id` is None if this daemon has no such run under way. `mark` tells two runs apart.
    `sign` says how the process was recognised, as text."""

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
    # The contents of its files are being saved. `OutputsKept` follows, and the run is closed after it.
    is_keeping: bool = False
    # None if the run ended before it was isolated.
    isolation: Enforced | None = None
    # Changed paths that no binding declares, in the folders that the run may write for its outputs.
    # If there are more paths, an entry is a text that says so.
    undeclared: tuple[str, ...] = ()
    # Advice for a person, if the run failed and seems to have been denied something.
    hint: str | None = None
    # None if the run was not traced.
    trace: Traced | None = None
    # The outputs that wait to be put in place, None if the run wrote directly.
    staged: tuple[StagedOutput, ...] | None = None
    # The run's own workspace, as text; None if the run worked in place.
    workspace: str | None = None


class OutputsKept(Struct, frozen=True, kw_only=True):
    """The contents of an ended run's files are saved.

    `files` is the address of their record, None if they could not be saved.
    """

    session: str
    run_id: str
    files: str | None = None


class KeptOutput(Struct, frozen=True, kw_only=True):
    """An output that was not put in place; `words` say why. `kept` is the place of the run's version, if any."""

    path: str
    words: str
    kept: str | None = None


class LandingEnded(Struct, frozen=True, kw_only=True):
    """The staged outputs of a run are in place (rule 27), except those in `kept`."""

    session: str
    run_id: str
    kept: tuple[KeptOutput, ...] = ()


class FilesWritten(Struct, frozen=True, kw_only=True):
    """A rewind or a merge has ended its writing for this session, with or without success.
    `paths` are the paths it wrote (rule 44)."""

    session: str
    paths: tuple[str, ...]


class NotificationEnded(Struct, frozen=True, kw_only=True):
    """A notifier delivered a message about record `about` of a session, or gave up; then `problem` says why."""

    session: str
    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int
    problem: str | None = None


class RunAttached(Struct, frozen=True, kw_only=True):
    """This daemon has taken over a run of an earlier incarnation. The run may be alive, or may have ended since."""

    session: str
    run_id: str


class RunRecovered(Struct, frozen=True, kw_only=True):
    """No process of a run of an earlier incarnation is alive any more."""

    session: str
    run_id: str

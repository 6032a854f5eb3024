"""One look at one target: which paths to visit, their present state, and the target's new version.

A look runs on the loop if it is cheap (within an `Allowance`), and in a thread otherwise. It changes nothing that the
loop reads. It returns a `Finding`, which the file source applies. It visits only dirty paths. It visits the whole
target the first time, after lost hints, and after the target's folder was replaced.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from wakeful.core.looking.patterns import PathTrie, contains
from wakeful.core.record.observations import PathChange
from wakeful.sources.files.entry import (
    FOLDER,
    Allowance,
    CannotSee,
    Demand,
    Folder,
    Listing,
    NoLongerWanted,
    Seen,
    find_still,
    read_entry,
    renew,
    show,
)
from wakeful.sources.files.followed_target import Followed, LookScope
from wakeful.sources.files.manifest import ABSENT, Manifest
from wakeful.sources.files.mounts import Mounts
from wakeful.sources.files.open_files import BeingWritten, is_open_for_writing
from wakeful.sources.files.reader_process import Answers, Reader, ReaderGone
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.files.walk import StateFolder, Walked
from wakeful.sources.hints.contract import NOT_A_FOLDER, NOT_THERE

# The most attempts to watch the ancestors of a root that appears and vanishes meanwhile. Then the next hint handles it.
_ARMING_TURNS = 8
# The number of changed paths above which a look first asks whether any other target can match one of them.
_MANY = 16
# The most changed files that are checked for open writers, at 20 us each. Of a longer list, only the newest are
# checked.
_ASKED_AT_ONCE = 8
_ASKED_OF_MANY = 2
# The most changed files of a look that can count as growing (`Finding.is_growing`), for settle.
_GROWING_TOGETHER = 4
# The number of paths of a walk that are compared at once. It is small, so that a changed path is read soon after its
# stat.
_AT_ONCE = 64


@dataclass(slots=True)
class Finding:
    """The result of a look, ready to be applied on the loop."""

    scope: LookScope
    manifest: Manifest
    version: str | None
    previous: str | None
    changes: tuple[PathChange, ...]
    survey: Survey
    # Other targets that match a changed path, and the paths (rule 10).
    others: dict[str, list[str]]
    # Paths hashed so soon after their last change that another change could go unnoticed. They must be read again.
    racy: list[str]
    # Paths that changed while they were read.
    unstable: list[str]
    # Paths whose stat changed, whose content is the same, and for which a watcher reported no write.
    unwritten: list[str] = field(default_factory=list)
    # True if every changed file is still the same file, and only became longer.
    is_growing: bool = False
    # True if files that are open for writing were accepted in their present state.
    takes_open: bool = False


@dataclass(slots=True)
class Survey:
    """The raw result of a visit: the state of each visited path."""

    found: dict[str, Seen | None] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # By link: the file that it leads to. The folder of that file is watched as well.
    links: dict[str, str] = field(default_factory=dict)
    is_absent: bool = False
    # True if every path was visited. A path that was not found is then gone.
    is_whole: bool = False
    # The paths below which all folders were listed again. A folder below them that is not in `folders` is gone.
    renewed: tuple[str, ...] = ()


class Looker:
    """The parts that all looks share: the cache, the watcher, the state folder. May be used from any thread."""

    def __init__(
        self,
        cache: StatCache,
        arm: Callable[[Iterable[str]], dict[str, str]],
        state: StateFolder,
        mounts: Mounts,
        trie: PathTrie[Followed],
    ) -> None:
        self.cache = cache
        # Set when the daemon stops. Walks and hashes under way then end at their next step.
        self.closing = threading.Event()
        self._arm = arm
        self.state = state
        self.mounts = mounts
        self._trie = trie
        # Folders known to be watched, so that ten thousand targets do not watch their common root ten thousand times. A
        # folder is removed from here when its replacement is reported (as `Gone`, or as a name in the folder above).
        self._armed: set[str] = set()
        # By folder: its path without links. A cache, because every target asks for it and the answer rarely changes.
        self._real: dict[str, str] = {}

    def look(
        self,
        followed: Followed,
        scope: LookScope,
        allowance: Allowance | None = None,
        *,
        is_on_loop: bool = False,
        reader: Reader | None = None,
        takes_open: bool = False,
    ) -> Finding:
        """Look at a target.

        Raises TooLarge if the allowance is spent. Raises BeingWritten if a changed file is open for writing and
        `takes_open` is False. In both cases nothing has changed except watches.
        """
        survey = self.survey(
            followed, scope, wants_content=followed.target.compare == "content", allowance=allowance, reader=reader
        )
        changed = _list_changed(followed, survey)
        if not takes_open and (written := _find_open(changed)):
            raise BeingWritten(written)
        is_growing = 0 < len(changed) <= _GROWING_TOGETHER and all(
            after.grew_from(before) for _, before, after in changed
        )
        manifest, previous = self._begin(followed, survey, is_shared=not is_on_loop)
        members = manifest.members
        if survey.is_whole and not survey.problems:
            survey.found.update(dict.fromkeys(members.keys() - survey.found.keys()))
        kept = self._keep(followed, survey)
        if survey.problems:
            return Finding(scope, manifest, None, None, (), survey, *kept)
        changes = tuple(manifest.put_all(survey.found, scope.paths))
        version = ABSENT if survey.is_absent and not members else manifest.version
        # Without a version to start from, a list of changes would be a guess (delta: unknown).
        return Finding(
            scope,
            manifest,
            version,
            previous,
            changes if previous else (),
            survey,
            *kept,
            manifest.take_unwritten(),
            is_growing,
            takes_open,
        )

    def survey(
        self,
        followed: Followed,
        scope: LookScope,
        *,
        wants_content: bool,
        allowance: Allowance | None = None,
        reader: Reader | None = None,
    ) -> Survey:
        demand = Demand(
            wants_content=wants_content,
            allowance=allowance,
            may_follow=self._may_follow,
            is_closing=self.closing.is_set,
        )
        visit = _Visit(self, followed, demand, reader)
        visit.run(scope)
        # Checked after the visit, because a file system that was unmounted during the visit looks like deleted files.
        missing = self.mounts.find_missing(followed.mounts) if followed.mounts else None
        if missing is not None:
            visit.survey.problems.append(f"{show(missing)}: nothing is mounted there any more")
        return visit.survey

    def note_mounts(self, followed: Followed, finding: Finding) -> None:
        """Record the mount points of the target's paths, for the paths that this look visited."""
        if followed.is_remounted:
            followed.is_remounted = False
            finding.manifest.note_write()
        if finding.survey.folders or finding.survey.is_whole:
            points = self.mounts.find_points(followed.target.root, followed.pattern.base, finding.survey.folders)
            followed.mounts = points if finding.survey.is_whole else followed.mounts | points
            self.cache.put_mounts(followed.key, followed.mounts)

    def _may_follow(self, path: str) -> bool:
        return not self.state.holds(os.path.realpath(path))

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        """Watch the folders whose events can be trusted. Returns the others with the reason, which must be polled.

        A folder that does not exist is not a reason to poll.
        """
        if self.closing.is_set():
            raise NoLongerWanted
        refused: dict[str, str] = {}
        local: list[str] = []
        for folder in folders:
            if folder in self._armed:
                continue
            kind = self.mounts.remote_kind(folder)
            if kind is None:
                local.append(folder)
            else:
                refused[folder] = f"{kind} file system"
        if local:
            refused |= self._arm(local)
            self._armed.update(local)
            self._armed.difference_update(refused)
        return refused

    def distrust(self, folder: str) -> None:
        """Watch and resolve this folder and the folders below it again, because it was moved, removed or replaced."""
        if folder not in self._armed and folder not in self._real:
            return
        inside = f"{folder.rstrip('/')}/"
        # Copied first, because a look in a thread may add to it.
        self._armed.difference_update([path for path in list(self._armed) if path == folder or path.startswith(inside)])
        for path in list(self._real):
            if path == folder or path.startswith(inside):
                self._real.pop(path, None)

    def distrust_all(self) -> None:
        self._armed.clear()
        self._real.clear()

    def disarmed(self, folders: Iterable[str]) -> None:
        self._armed.difference_update(folders)

    def resolve(self, folder: str) -> str:
        """Resolve links as `realpath` does, with one lstat per folder that is not in the cache."""
        real = self._real.get(folder)
        if real is None:
            parent, _, name = folder.rpartition("/")
            if not name or os.path.islink(folder):
                real = os.path.realpath(folder)
            else:
                real = f"{self.resolve(parent or '/').rstrip('/')}/{name}"
            self._real[folder] = real
        return real

    def _begin(self, followed: Followed, survey: Survey, is_shared: bool) -> tuple[Manifest, str | None]:
        """Return the manifest to start from, and its version: those of the last look, or of an earlier daemon."""
        if followed.manifest is not None:
            return followed.manifest.copy() if is_shared else followed.manifest, followed.version
        empty = Manifest(followed.naming, followed.target.compare)
        last = self.cache.version(followed.key)
        if last is None or last == ABSENT:
            return empty, last
        # Usually nothing has changed since, and the paths add up to the last version.
        found = survey.found
        manifest = Manifest.of(
            followed.naming, followed.target.compare, [(path, seen) for path, seen in found.items() if seen is not None]
        )
        if manifest.version == last and not survey.problems:
            return manifest, last
        # A path that was just found matches, so the pattern is checked only for the rest.
        means = followed.walker.means
        kept = [one for one in self.cache.kept_below(followed.pattern) if one[0] in found or means(one[0])]
        manifest = Manifest.of(followed.naming, followed.target.compare, kept)
        return (manifest, last) if manifest.version == last else (empty, None)

    def _keep(self, followed: Followed, survey: Survey) -> tuple[dict[str, list[str]], list[str], list[str]]:
        """Put the entries into the cache.

        Returns the other targets that match a changed path (rule 10), the racy paths, and the unstable paths.
        """
        found = survey.found
        known = list(map(self.cache.seen.get, found))
        news = [
            (path, before, seen)
            for (path, seen), before in zip(found.items(), known, strict=True)
            if before is not seen
        ]
        if survey.problems:
            # A path that was not found may exist, because the visit may not have reached it.
            news = [one for one in news if one[2] is not None]
        if not news:
            return {}, [], []
        self.cache.put_all({path: seen for path, _, seen in news})
        unstable = [path for path, _, seen in news if seen is not None and seen.is_unstable]
        racy = [path for path, _, seen in news if seen is not None and seen.is_racy and not seen.is_unstable]
        if len(news) > _MANY and self._trie.is_alone(followed.pattern):
            return {}, racy, unstable
        # At the first look everything is new to the cache, so it is new to the other targets as well.
        is_first = followed.manifest is None
        changed = [
            path for path, before, seen in news if _is_change(before, seen) and not (is_first and before is None)
        ]
        return self._find_others(followed, changed), racy, unstable

    def _find_others(self, followed: Followed, changed: list[str]) -> dict[str, list[str]]:
        others: dict[str, list[str]] = {}
        for path in changed:
            for other in self._trie.find(path):
                if other is not followed and other.manifest is not None and other.walker.means(path):
                    others.setdefault(other.key, []).append(path)
        return others


class _Visit:
    """The walk through the paths that one look must visit."""

    __slots__ = ("_demand", "_followed", "_looker", "_reader", "survey")

    def __init__(self, looker: Looker, followed: Followed, demand: Demand, reader: Reader | None) -> None:
        self._looker = looker
        self._followed = followed
        self._demand = demand
        self._reader = reader
        self.survey = Survey()

    def run(self, scope: LookScope) -> None:
        pattern = self._followed.pattern
        if scope.is_whole or (pattern.is_literal and not self._see_literal(scope)):
            self._see_everything()
            return
        if pattern.is_literal and not scope.trees and scope.paths.keys() == {pattern.base}:
            return
        trees = set(scope.trees)
        for path in self._read_apart([path for path in scope.paths if self._followed.walker.means(path)]):
            if self._see(path) == FOLDER and self._followed.walker.enters(path):
                trees.add(path)
        for tree in trees:
            self._see_tree(tree)
        self.survey.renewed = tuple(trees)

    def _see_literal(self, scope: LookScope) -> bool:
        """Make the most frequent look: one file that still exists. False if the whole visit must be made."""
        base = self._followed.pattern.base
        if base not in scope.paths:
            return True
        return self._see(base) not in (None, FOLDER)

    def _see_everything(self) -> None:
        followed = self._followed
        base = followed.pattern.base
        if self._looker.state.holds(self._real_base()):
            self.survey.problems.append(f"{show(base)}: lies in the state folder of wakeful, which is never read")
            return
        self.survey.is_whole = True
        self._arm_ancestors()
        standing = self._see(base) if followed.pattern.is_literal else FOLDER
        if standing is None or (standing == FOLDER and not self._walk(base)):
            self._find_nothing()

    def _real_base(self) -> str:
        pattern = self._followed.pattern
        # A literal path may be a link to a file. Its target is checked when it is read.
        folder = self._looker.resolve(pattern.literal_prefix)
        return f"{folder}/{pattern.prefix[-1]}" if pattern.is_literal and pattern.prefix else folder

    def _find_nothing(self) -> None:
        """Handle a missing literal part: the target is absent, empty, or unknown (rule 5)."""
        root = self._followed.target.root
        base = self._followed.pattern.base
        is_inside = contains(root, base)
        if is_inside and not os.path.isdir(root):
            self.survey.problems.append(f"root {show(root)} is not there")
        elif not is_inside and not self._followed.pattern.is_literal:
            self.survey.problems.append(f"folder {show(base)} is not there")
        self.survey.is_absent = self._followed.pattern.is_literal

    def _see_tree(self, tree: str) -> None:
        manifest = self._followed.manifest
        if manifest is not None:
            inside = f"{tree.rstrip('/')}/"
            gone = (path for path in manifest.members if path.startswith(inside))
            self.survey.found |= dict.fromkeys((path for path in gone if path not in self.survey.found), None)
        if os.path.isdir(tree) and not os.path.islink(tree):
            self._walk(tree)

    def _walk(self, top: str) -> bool:
        """Walk a folder. False if there is none."""
        manifest = self._followed.manifest
        meant = manifest.members if manifest is not None else {}
        walked: Walked = self._followed.walker.walk(top, self._arm, self._demand.allowance, self._list_apart, meant)
        self.survey.folders |= walked.folders
        self.survey.problems += walked.problems
        files, known = self._read_apart(walked.files), self._looker.cache.seen
        for first in range(0, len(files), _AT_ONCE):
            self._demand.go_on()
            still, others = find_still(files[first : first + _AT_ONCE], known, self._demand.wants_content)
            self.survey.found |= still
            for path, found in others.items():
                self._see(path, found)
        return not walked.is_missing

    def _list_apart(self, folders: Sequence[str]) -> Iterable[Listing | None]:
        """Return the listings of the reader process, if there is one. None for a folder that must be listed here."""
        if self._reader is not None:
            try:
                return self._reader.list(folders)
            except ReaderGone:
                self._reader = None
        return itertools.repeat(None, len(folders))

    def _read_apart(self, paths: list[str]) -> list[str]:
        """Let the reader process read these paths, if there is one. Returns the paths that must be read here."""
        if self._reader is None:
            return paths
        before = list(map(self._looker.cache.seen.get, paths))
        left: list[str] = []
        done = 0
        try:
            for answers in self._reader.read(paths, before, wants_content=self._demand.wants_content):
                self._demand.go_on()
                if self._demand.allowance is not None:
                    self._demand.allowance.spend(answers.read_bytes, answers.asked)
                last = done + answers.asked
                left += self._take_answers(paths[done:last], before[done:last], answers)
                done = last
        except ReaderGone:
            self._reader = None
        return left + paths[done:]

    def _take_answers(self, paths: list[str], before: list[Seen | None], answers: Answers) -> list[str]:
        """Take the answers of the reader process. Returns the paths that must be read here."""
        found = dict(zip(paths, before, strict=True))
        left = [paths[place] for place in answers.left]
        for path in left:
            del found[path]
        seen = map(Seen, answers.keys, answers.kinds, answers.digests, answers.hashed_at)
        found.update(zip([paths[place] for place in answers.moved], seen, strict=True))
        for number in answers.again:
            place = answers.moved[number]
            found[paths[place]] = renew(
                before[place],
                answers.keys[number],
                answers.kinds[number],
                answers.digests[number],
                answers.hashed_at[number],
            )
        self.survey.found |= found
        return left

    def _see(self, path: str, found: os.stat_result | None = None) -> Seen | str | None:
        known = self._looker.cache.seen.get(path)
        try:
            seen = read_entry(path, known, self._demand, found)
            if isinstance(seen, Seen) and seen.kind == "l":
                seen = self._see_behind(path, seen)
        except CannotSee as problem:
            self.survey.problems.append(str(problem))
            self.survey.found.pop(path, None)
            return known
        self.survey.found[path] = seen if isinstance(seen, Seen) else None
        return seen

    def _see_behind(self, path: str, seen: Seen) -> Seen | Folder | None:
        """Watch the folder of the file behind a link, because that file may change without the link. Then read it
        again, because the first read was before the watch.
        """
        real = os.path.realpath(path)
        # A loop of links resolves to one of its own links.
        if real == path or self._looker.state.holds(real):
            return seen
        self.survey.links[path] = real
        folder = os.path.dirname(real)
        if folder in self._followed.folders or folder in self.survey.folders:
            self.survey.folders.setdefault(folder, -1)
            return seen
        self._arm([folder])
        return read_entry(path, seen, self._demand)

    def _arm(self, folders: Iterable[str]) -> None:
        wanted = list(folders)
        refused = self._looker.arm(wanted)
        if not refused:
            self.survey.folders = dict.fromkeys(wanted, -1) | self.survey.folders
            return
        for folder in wanted:
            reason = refused.get(folder)
            if reason in (NOT_THERE, NOT_A_FOLDER):
                continue
            self.survey.folders.setdefault(folder, -1)
            if reason is not None:
                self.survey.refused[folder] = reason

    def _arm_ancestors(self) -> None:
        """Watch every folder from the root down to the start of the pattern. Each may be replaced, or be missing and
        come back.
        """
        pattern, root = self._followed.pattern, self._followed.target.root
        chain = list(
            _chain(
                root,
                self._looker.resolve(root) != root,
                os.path.dirname(pattern.base) if pattern.is_literal else pattern.base,
            )
        )
        for _ in range(_ARMING_TURNS):
            # From the top, because a folder that is missing now will be reported by the folder above it.
            self._arm(chain)
            if chain[0] in self.survey.folders or chain[0] == "/":
                return
            parent = os.path.dirname(chain[0])
            while parent != "/" and not os.path.isdir(parent):
                parent = os.path.dirname(parent)
            self._arm([parent])
            if not os.path.isdir(chain[0]):
                return


def _chain(root: str, is_behind_link: bool, folder: str) -> Iterator[str]:
    if is_behind_link:
        # A root that is a link (`current -> releases/7`) is replaced in the folder that contains the link.
        yield os.path.dirname(root)
    if folder != root and not folder.startswith(f"{root.rstrip('/')}/"):
        yield os.path.dirname(folder)
        yield folder
        return
    yield root
    position = len(root.rstrip("/"))
    while (position := folder.find("/", position + 1)) > 0:
        yield folder[:position]
    if folder != root:
        yield folder


def _list_changed(followed: Followed, survey: Survey) -> list[tuple[str, Seen | None, Seen]]:
    """List the regular files, also behind links, that differ from the target's last look. Empty at its first look."""
    if followed.manifest is None:
        return []
    members = followed.manifest.members
    news = [
        (path, members.get(path), seen)
        for path, seen in survey.found.items()
        if seen is not None and seen is not members.get(path)
    ]
    return [one for one in news if one[2].is_regular and (one[1] is None or one[1].key != one[2].key)]


def _find_open(changed: list[tuple[str, Seen | None, Seen]]) -> dict[str, int]:
    """Find the files that a process holds open for writing, with the time of their last change. Of many changed files
    only the newest are checked.
    """
    newest = (
        changed
        if len(changed) <= _ASKED_AT_ONCE
        else heapq.nlargest(_ASKED_OF_MANY, changed, key=lambda one: one[2].moved_at)
    )
    return {path: seen.moved_at for path, _, seen in newest if is_open_for_writing(path)}


def _is_change(known: Seen | None, seen: Seen | None) -> bool:
    if known is None or seen is None:
        return True
    # If the target compared only the stat so far, content that is read for the first time is not a change.
    return known.key != seen.key or (bool(known.digest) and bool(seen.digest) and known.digest != seen.digest)

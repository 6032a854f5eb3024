"""Commits as versions: the tree of branch:path, or with `each_commit` the commits that touch it.

The reactor follows targets and asks for looks. Each answer is a `TargetLooked`. A poll compares branches every 2 to 10
seconds, and at once when a watched folder of the repository changes. A poll asks git one line per branch, for any
number of sessions. Targets that changed are reported as hints. Nothing is written to a repository, and no program that
it configures is run (see `git_command`). A repository that cannot be read is unknown, never "deleted" (rule 5).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from wakeful.core.looking.path_reports import Bounds, Compared
from wakeful.core.looking.targets import CommitsTarget, find_commit
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.contract import Defects, SourceReport
from wakeful.sources.git.bound_repositories import BoundRepositories
from wakeful.sources.git.commit_changes import ABSENT, Question, Viewed, look_at_each_commit, look_at_tree
from wakeful.sources.git.committed_files import compare_commit, compare_versions
from wakeful.sources.git.git_command import (
    Found,
    GitRefusal,
    Place,
    Repository,
    check_path,
    check_ref_name,
    identify,
    locate,
)
from wakeful.sources.git.rewrite_holds import LONGEST_HOLD_SECONDS
from wakeful.sources.git.trees import export_tree
from wakeful.sources.hints.contract import Dirt, Dirty, Gone, Hints, Lost, MakeHints

POLL_SECONDS = 2.0
# Seconds between polls while a repository is missing. It bounds how late `git init` or a replaced checkout is noticed.
MISSING_POLL_SECONDS = 1.0
IDLE_POLL_SECONDS = 10.0
# After this many rounds without a change, polls become rarer if hints work, because hints report a change sooner.
_QUIET_ROUNDS = 5
# Seconds of changes that are combined into one poll. A rebase writes hundreds of files.
_BREATH_SECONDS = 0.02
_REFUSED_AGAIN_SECONDS = 30.0
_READER_IDLE_SECONDS = 120.0
# The most seconds to read the contents of a diff, because a run waits for it. After that, the run gets only the names.
_COMPARE_SECONDS = 10.0
# Operations during which HEAD is on intermediate commits. A branch by name needs no hold, because it moves once, at the
# end.
_HOLDS = (("rebase-merge", "git rebase"), ("rebase-apply", "git rebase"), ("BISECT_LOG", "git bisect"))
_HEAD = ("HEAD",)


class _Home(NamedTuple):
    """The place in which a target's repository is searched: from a folder upwards, or only the folder that a spec
    names.
    """

    folder: str
    is_explicit: bool


class _Asked(NamedTuple):
    generation: int
    base: str | None


@dataclass(slots=True)
class _Followed:
    """One target. `refs` are the full names that its branch may have, in the order in which git tries them."""

    target: CommitsTarget
    home: _Home
    refs: tuple[str, ...]
    refusal: str | None
    git_dir: str | None = None
    # The path of the target's home inside the repository.
    prefix: str = ""
    viewed: Viewed = field(default_factory=Viewed)


@dataclass(slots=True)
class _Watched:
    """One repository in use: the targets that use it, and the known state of its refs."""

    repository: Repository
    # By target: the refs that its branch may mean.
    refs_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    heads: dict[str, str | None] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    unwatched: str | None = None
    hold: str | None = None
    held_since: float | None = None
    # True if the repository's folder was removed or moved away. Another folder may already be there, even with the same
    # inode number.
    is_gone: bool = False
    # Cached, because thousands of targets use a handful of refs and each poll asks for them.
    _refs: tuple[str, ...] | None = None

    @property
    def refs(self) -> tuple[str, ...]:
        if self._refs is None:
            self._refs = tuple(sorted({ref for refs in self.refs_of.values() for ref in refs}))
        return self._refs

    def include(self, key: str, refs: tuple[str, ...]) -> None:
        if key not in self.refs_of:
            self.refs_of[key] = refs
            self._refs = None

    def exclude(self, key: str) -> None:
        self._refs = None
        self.refs_of.pop(key, None)


@dataclass(slots=True)
class _Missing:
    """A home without a repository: the top folder found at the last try, and when a refusal is tried again."""

    top: str | None
    again_at: float


class CommitSource:
    """Looks at branches of repositories. Every method is called on the loop."""

    def __init__(
        self,
        report: SourceReport,
        loop: asyncio.AbstractEventLoop,
        make_hints: MakeHints | None = None,
        *,
        poll_seconds: float = POLL_SECONDS,
        idle_poll_seconds: float = IDLE_POLL_SECONDS,
        longest_hold_seconds: float = LONGEST_HOLD_SECONDS,
        bound: BoundRepositories | None = None,
        defects: Defects | None = None,
    ) -> None:
        self._report = report
        self._bound = bound or BoundRepositories()
        self.defects = defects or Defects()
        self._loop = loop
        self._hints: Hints | None = None if make_hints is None else make_hints(loop, self._take_dirt)
        self._poll_seconds = poll_seconds
        self._idle_poll_seconds = max(poll_seconds, idle_poll_seconds)
        self._longest_hold_seconds = longest_hold_seconds
        self._followed: dict[str, _Followed] = {}
        self._homes: dict[_Home, set[str]] = {}
        self._places: dict[tuple[str, bool], Place] = {}
        self._watched: dict[str, _Watched] = {}
        self._missing: dict[_Home, _Missing] = {}
        self._again_at: dict[str, float] = {}
        self._folder_owners: dict[str, set[str]] = {}
        self._asked: dict[str, _Asked] = {}
        self._due: set[str] = set()
        self._quiet_rounds = 0
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    def follow(self, targets: Iterable[CommitsTarget]) -> None:
        for target in targets:
            if target.key in self._followed:
                continue
            folder = target.root if target.repo is None else os.path.join(target.root, target.repo)
            home = _Home(folder, target.repo is not None)
            self._followed[target.key] = _Followed(target, home, *_name_refs(target.branch))
            self._homes.setdefault(home, set()).add(target.key)
        self._schedule_poll()

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            followed = self._followed.pop(key, None)
            if followed is None:
                continue
            self._asked.pop(key, None)
            self._again_at.pop(key, None)
            self._homes[followed.home].discard(key)
            if not self._homes[followed.home]:
                del self._homes[followed.home]
                self._missing.pop(followed.home, None)
            watched = self._watched.get(followed.git_dir or "")
            if watched is not None:
                watched.exclude(key)
                self._let_go_unused(watched)

    def look(self, key: str, generation: int, base: str | None = None) -> None:
        """Look soon. All looks that are asked for within one turn of the loop are sent to git together."""
        self._asked[key] = _Asked(generation, base)
        if self._answering is None:
            self._answering = self._start(self._answer_all(), "wakeful: look at commits")

    async def export(self, key: str, version: str, destination: str) -> None:
        """Write the version that a look found as files below a new folder. Writes nothing if it was absent."""
        followed = self._followed[key]
        watched, prefix = await self._open(followed.home)
        tree = version
        if followed.target.each_commit and version != ABSENT:
            path, commit = os.path.normpath(os.path.join(prefix, followed.target.path)), find_commit(version)
            (found,) = await watched.repository.find([f"{commit}:{path}" if path != "." else f"{commit}^{{tree}}"])
            tree = found.id if found is not None else ABSENT
        if tree == ABSENT:
            os.mkdir(destination)
            return
        await export_tree(watched.repository, tree, destination)

    async def compare(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        """Compare two versions that looks found, with contents.

        An `each_commit` binding compares one commit with its first parent.
        """
        followed = self._followed.get(key)
        if followed is None:
            return Compared(problem="the binding no longer exists")
        try:
            async with asyncio.timeout(_COMPARE_SECONDS):
                watched, prefix = await self._open(followed.home)
                path, shown = _place_path(followed.target, prefix), _show_path(followed.target)
                if followed.target.each_commit:
                    return await compare_commit(watched.repository, find_commit(new), path, shown, bounds)
                return await compare_versions(watched.repository, old, new, shown, bounds)
        except GitRefusal as refusal:
            return Compared(problem=str(refusal))
        except TimeoutError:
            return Compared(problem=f"git did not show it within {_COMPARE_SECONDS:g} s")

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._followed.clear()
        under_way = tuple(self._running)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._hints is not None:
            self._hints.close()
        for watched in self._watched.values():
            await watched.repository.close()

    # Looking

    async def _answer_all(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                by_home: dict[_Home, dict[str, _Asked]] = {}
                for key, question in asked.items():
                    if key in self._followed:
                        by_home.setdefault(self._followed[key].home, {})[key] = question
                for home, questions in by_home.items():
                    try:
                        await self._answer_home(home, questions)
                    except Exception as error:  # a defect in one repository must not stop the looks at others
                        self._answer_unknown(questions, self.defects.take(home.folder, error), is_tried_again=True)
        finally:
            self._answering = None

    async def _answer_home(self, home: _Home, asked: dict[str, _Asked]) -> None:
        try:
            watched, prefix = await self._open(home)
            self._missing.pop(home, None)
        except GitRefusal as refusal:
            if home in self._homes:
                self._missing[home] = _Missing(_find_top(home), time.monotonic() + _REFUSED_AGAIN_SECONDS)
                self._hurry_poll()
            self._answer_unknown(asked, str(refusal))
            return
        try:
            for key in asked:
                if (followed := self._followed.get(key)) is not None:
                    # No await may come between these steps. A target that is forgotten later is then removed from this
                    # repository.
                    followed.git_dir, followed.prefix = watched.repository.place.git_dir, prefix
                    watched.include(key, followed.refs)
            if self._let_go_unused(watched):
                return
            self._arm(watched)
            heads = await self._find_heads(watched)
            for ref, head in heads.items():
                # A known head stays, so that it is never newer than the oldest look. The poll then compares every
                # target of a branch that moved since that look.
                watched.heads.setdefault(ref, head)
            await self._answer_questions(watched, prefix, asked, heads)
        except GitRefusal as refusal:
            self._answer_unknown(asked, str(refusal), is_tried_again=True)

    async def _answer_questions(
        self, watched: _Watched, prefix: str, asked: dict[str, _Asked], heads: dict[str, str | None]
    ) -> None:
        questions: list[Question] = []
        for key, (generation, base) in asked.items():
            if key not in self._followed:
                continue
            followed = self._followed[key]
            try:
                head, path = _choose_head(followed, heads), _place_path(followed.target, prefix)
            except GitRefusal as refusal:
                self._answer_unknown({key: asked[key]}, str(refusal))
                continue
            if followed.refs == _HEAD:
                watched.hold = self._find_hold(watched)
                if watched.hold is not None:
                    self._tell(
                        LookResult(target=key, generation=generation, version=None, held=watched.hold, base=base)
                    )
                    continue
            questions.append(
                Question(key, generation, base, head, path, _show_path(followed.target), followed.target.line)
            )
        trees = await watched.repository.find(list(dict.fromkeys(question.name for question in questions)))
        found = dict(zip(dict.fromkeys(question.name for question in questions), trees, strict=True))
        for question in questions:
            await self._answer(watched, question, found[question.name])

    async def _answer(self, watched: _Watched, question: Question, found: Found | None) -> None:
        followed = self._followed.get(question.key)
        if followed is None:
            return
        try:
            if followed.target.each_commit:
                result = await look_at_each_commit(watched.repository, question)
            else:
                result = await look_at_tree(watched.repository, question, found, followed.viewed)
        except GitRefusal as refusal:
            self._answer_unknown(
                {question.key: _Asked(question.generation, question.base)}, str(refusal), is_tried_again=True
            )
            return
        except Exception as error:  # a defect in one target must not stop the looks at others
            words = self.defects.take(f"{followed.target.path} of {watched.repository.place.git_dir}", error)
            self._answer_unknown({question.key: _Asked(question.generation, question.base)}, words, is_tried_again=True)
            return
        assert result.version is not None, "a look that answers knows its version"
        followed.viewed.take(result.version, question.head)
        self._tell(structs.replace(result, degraded=watched.unwatched))

    def _answer_unknown(self, asked: dict[str, _Asked], problem: str, *, is_tried_again: bool = False) -> None:
        """Report these targets as unknown. With `is_tried_again`, they are retried, because the poll will not notice
        the end of this problem.
        """
        for key, (generation, base) in asked.items():
            followed = self._followed.get(key)
            if followed is not None:
                followed.viewed.version = None
                if is_tried_again:
                    self._again_at[key] = time.monotonic() + _REFUSED_AGAIN_SECONDS
                self._tell(LookResult(target=key, generation=generation, version=None, problem=problem, base=base))

    def _tell(self, result: LookResult) -> None:
        if result.target in self._followed:
            self._report(TargetLooked(result))

    async def _find_heads(self, watched: _Watched) -> dict[str, str | None]:
        """Find the commit of every ref that any target here may mean."""
        refs = watched.refs
        found = await watched.repository.find([f"{ref}^{{commit}}" for ref in refs])
        return {ref: None if commit is None else commit.id for ref, commit in zip(refs, found, strict=True)}

    # Repositories

    async def _open(self, home: _Home) -> tuple[_Watched, str]:
        """Open the repository of a home. Returns it with the home's path inside it."""
        folder = os.path.realpath(home.folder)
        top = _find_top(home)
        if top is None:
            self._bound.note_absent(folder)
            raise GitRefusal(
                f"{home.folder} is not inside a git repository; create one there, or name another with repo:"
            )
        place = self._places.get((top, home.is_explicit))
        stale = self._watched.get(place.git_dir) if place is not None else None
        if place is None or not _is_same(place) or (stale is not None and stale.is_gone):
            if stale is not None:
                # There is another repository under the same name. The targets of the old repository must look at the
                # new one.
                self._let_go(stale)
                self._hint(set(stale.refs_of))
            place = await locate(top, is_explicit=home.is_explicit)
            self._places[top, home.is_explicit] = place
        await self._bound.check(folder, place, is_explicit=home.is_explicit)
        watched = self._watched.get(place.git_dir)
        if watched is None:
            watched = self._watched[place.git_dir] = _Watched(Repository(place))
        return watched, os.path.normpath(os.path.join(place.prefix, os.path.relpath(folder, top)))

    def _let_go_unused(self, watched: _Watched) -> bool:
        """Close a repository that no target uses. True if it was closed.

        All targets may have been forgotten while it was opened.
        """
        if watched.refs_of:
            return False
        self._let_go(watched)
        return True

    def _let_go(self, watched: _Watched) -> None:
        git_dir = watched.repository.place.git_dir
        # The repository was already closed, and perhaps opened again, while a caller waited for git.
        if self._watched.get(git_dir) is not watched:
            return
        del self._watched[git_dir]
        self._places = {top: place for top, place in self._places.items() if place.git_dir != git_dir}
        self._disarm(git_dir, watched)
        self._start(watched.repository.close(), "wakeful: let go of a repository")

    def _find_hold(self, watched: _Watched) -> str | None:
        """Return the operation that moves HEAD through intermediate commits. None if there is none, or if it has held
        too long.
        """
        git_dir = watched.repository.place.git_dir
        hold = next((words for marker, words in _HOLDS if os.path.exists(os.path.join(git_dir, marker))), None)
        if hold is not None and watched.held_since is None:
            watched.held_since = time.monotonic()
        if hold is None:
            watched.held_since = None
        is_overdue = (
            watched.held_since is not None and time.monotonic() - watched.held_since > self._longest_hold_seconds
        )
        return None if is_overdue else hold

    # Polling

    def _schedule_poll(self) -> None:
        if self._timer is not None or not self._followed:
            return
        is_calm = self._quiet_rounds >= _QUIET_ROUNDS and all(
            watched.unwatched is None for watched in self._watched.values()
        )
        seconds = self._idle_poll_seconds if is_calm else self._poll_seconds
        if self._missing:
            seconds = min(self._poll_seconds, MISSING_POLL_SECONDS)
        self._timer = self._loop.call_later(seconds, self._begin_round)

    def _hurry_poll(self) -> None:
        """Poll sooner, because the next round was planned when nothing was missing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule_poll()

    def _begin_round(self) -> None:
        self._timer = None
        self._quiet_rounds += 1
        self._hint(self._find_returned() | self._find_due_again())
        self._poll_soon(self._watched)
        self._schedule_poll()

    def _poll_soon(self, git_dirs: Iterable[str]) -> None:
        self._due.update(git_dirs)
        if self._due and self._polling is None:
            self._polling = self._start(self._poll_due(), "wakeful: poll repositories")

    async def _poll_due(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, set()
                for git_dir in sorted(due):
                    if (watched := self._watched.get(git_dir)) is None:
                        continue
                    try:
                        hinted = await self._poll(watched)
                    except Exception as error:  # a defect in one repository must not stop the polls of others
                        self.defects.take(git_dir, error)
                        # It is unknown whether anything changed. The looks find out.
                        hinted = set(watched.refs_of)
                    self._hint(hinted)
                await asyncio.sleep(_BREATH_SECONDS)
        finally:
            self._polling = None

    async def _poll(self, watched: _Watched) -> set[str]:
        """Find the targets of one repository whose state differs from the last report."""
        if watched.is_gone or not _is_same(watched.repository.place):
            self._let_go(watched)
            return set(watched.refs_of)
        hold = self._find_hold(watched)
        is_changed, watched.hold = hold != watched.hold, hold
        hinted = {key for key, refs in watched.refs_of.items() if refs == _HEAD} if is_changed else set()
        try:
            heads = await self._find_heads(watched)
            moved = {ref for ref, head in heads.items() if watched.heads.get(ref, head) != head}
            hinted |= await self._find_moved(watched, heads, moved)
            # Merged, not replaced: a look may meanwhile have found a ref that this round did not ask for, and its next
            # change must be reported.
            watched.heads = {ref: head for ref, head in (watched.heads | heads).items() if ref in watched.refs}
            self._arm(watched)
            await watched.repository.end_idle_reader(_READER_IDLE_SECONDS)
        except GitRefusal:
            # The look that follows reports the refusal. Only targets with a known version need one.
            believers = (key for key in watched.refs_of if key in self._followed)
            hinted |= {key for key in believers if self._followed[key].viewed.version is not None}
        return hinted

    async def _find_moved(self, watched: _Watched, heads: dict[str, str | None], moved: set[str]) -> set[str]:
        """Find the targets on changed refs: every `each_commit` target, and those whose object at the path differs."""
        hinted: set[str] = set()
        names: dict[str, str] = {}
        for key, refs in watched.refs_of.items() if moved else ():
            followed = self._followed.get(key)
            if followed is None or not moved.intersection(refs):
                continue
            try:
                head, path = _choose_head(followed, heads), _place_path(followed.target, followed.prefix)
                names[key] = Question(key, 0, None, head, path, "").name
            except GitRefusal:
                hinted.add(key)
            if followed.target.each_commit:
                hinted.add(key)
        distinct = list(dict.fromkeys(names.values()))
        found = dict(zip(distinct, await watched.repository.find(distinct), strict=True))
        for key, name in names.items():
            seen = found[name]
            version = ABSENT if seen is None else seen.id
            if key in self._followed and version != self._followed[key].viewed.version:
                hinted.add(key)
        return hinted

    def _find_returned(self) -> set[str]:
        """Find the targets whose missing repository exists now, and those whose refusal is due for another try."""
        now = time.monotonic()
        returned: set[str] = set()
        for home, missing in self._missing.items():
            top = _find_top(home)
            if top != missing.top or (top is not None and now >= missing.again_at):
                missing.top, missing.again_at = top, now + _REFUSED_AGAIN_SECONDS
                returned |= self._homes.get(home, set())
        return returned

    def _find_due_again(self) -> set[str]:
        now = time.monotonic()
        due = {key for key, again_at in self._again_at.items() if now >= again_at}
        for key in due:
            del self._again_at[key]
        return due

    def _hint(self, keys: set[str]) -> None:
        alive = tuple(sorted(key for key in keys if key in self._followed))
        if alive:
            self._quiet_rounds = 0
            self._report(TargetsHinted(alive))

    # Hints

    def _arm(self, watched: _Watched) -> None:
        """Watch the few folders in which git writes when a ref changes, never whole trees."""
        if self._hints is None:
            return
        git_dir = watched.repository.place.git_dir
        missing = _folders_of(watched.repository.place, watched.refs) - watched.folders
        refused = self._hints.arm(missing) if missing else {}
        for folder in missing - refused.keys():
            watched.folders.add(folder)
            self._folder_owners.setdefault(folder, set()).add(git_dir)
        reason = next((f"polling: {words}" for words in refused.values()), None)
        watched.unwatched = self._hints.degraded or reason

    def _disarm(self, git_dir: str, watched: _Watched) -> None:
        for folder in watched.folders:
            owners = self._folder_owners.get(folder, set())
            owners.discard(git_dir)
            if not owners:
                self._folder_owners.pop(folder, None)
                if self._hints is not None:
                    self._hints.disarm([folder])

    def _take_dirt(self, batch: tuple[Dirt, ...]) -> None:
        due: set[str] = set()
        for dirt in batch:
            match dirt:
                case Dirty(folder=folder):
                    due |= self._folder_owners.get(folder, set())
                case Gone(folder=folder):
                    for git_dir in self._folder_owners.pop(folder, set()):
                        due.add(git_dir)
                        if git_dir in self._watched:
                            self._watched[git_dir].folders.discard(folder)
                            self._watched[git_dir].is_gone |= folder == git_dir
                case Lost():
                    due |= self._watched.keys()
        self._poll_soon(due)

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.defects.take("repositories", error)


def _name_refs(branch: str | None) -> tuple[tuple[str, ...], str | None]:
    """List the full names that a branch may have, or the reason why it is not a branch. git cannot take a full name for
    an option or an expression.
    """
    if branch is None or branch == "HEAD":
        return _HEAD, None
    try:
        check_ref_name(branch)
    except GitRefusal as refusal:
        return (), str(refusal)
    if branch.startswith("refs/"):
        return (branch,), None
    return tuple(f"refs/{folder}/{branch}" for folder in ("heads", "remotes", "tags")), None


def _choose_head(followed: _Followed, heads: dict[str, str | None]) -> str:
    if followed.refusal is not None:
        raise GitRefusal(followed.refusal)
    head = next((heads[ref] for ref in followed.refs if heads.get(ref) is not None), None)
    if head is not None:
        return head
    if followed.refs == _HEAD:
        raise GitRefusal(f"the repository around {followed.home.folder} has no commit yet")
    raise GitRefusal(f"there is no branch {followed.target.branch!r} in the repository around {followed.home.folder}")


def _place_path(target: CommitsTarget, prefix: str) -> str:
    """Return a target's path inside its repository."""
    path = os.path.normpath(os.path.join(prefix, target.path))
    return "" if path == "." else check_path(path)


def _show_path(target: CommitsTarget) -> str:
    path = os.path.normpath(target.path)
    return "" if path == "." else path


def _find_top(home: _Home) -> str | None:
    """Find the nearest folder upwards that contains `.git`, without a process for each of thousands of roots in one
    repository.
    """
    folder = os.path.realpath(home.folder)
    if home.is_explicit:
        return folder if os.path.isdir(folder) else None
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder


def _is_same(place: Place) -> bool:
    try:
        return identify(place.git_dir) == place.identity
    except GitRefusal:
        return False


def _folders_of(place: Place, refs: Iterable[str]) -> set[str]:
    """List the existing folders whose entries change when one of these refs changes, in both of git's ref formats."""
    wanted = {place.git_dir, place.common_dir, os.path.join(place.git_dir, "logs")}
    wanted |= {os.path.join(place.common_dir, name) for name in ("logs", "refs", "reftable")}
    for ref in refs:
        folder = os.path.dirname(os.path.join(place.common_dir, ref))
        while len(folder) > len(place.common_dir):
            wanted.add(folder)
            folder = os.path.dirname(folder)
    return {folder for folder in wanted if os.path.isdir(folder)}

"""The file source: follows targets, turns hints into dirty targets, looks when asked, and reports what it found.

Owns the path trie, the watched folders and the stat cache of the whole daemon. The reactor calls it on the loop; looks
that are not cheap run in its own threads. It never decides whether anything is owed, never reads the state folder,
and never trusts a hint for more than where to look.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct

from wakeful.core.match import Excludes, PathTrie, Pattern
from wakeful.core.meaning import NearlyMatched, PathMeaning
from wakeful.core.observation import LookResult, TargetLooked, TargetsHinted
from wakeful.core.paths import contains
from wakeful.core.target import FileTarget
from wakeful.sources.ahead import Ahead
from wakeful.sources.contract import LatestLook, SourceReport
from wakeful.sources.early import Early
from wakeful.sources.entry import Allowance, CannotSee, Demand, NoLongerWanted, Seen, TooLarge, read_entry
from wakeful.sources.hints.contract import Dirt, Dirty, Gone, Lost, MakeHints
from wakeful.sources.lanes import Lane, Lanes
from wakeful.sources.look import Errand, Finding, Followed, Looker, build_excludes
from wakeful.sources.mounts import Mounts
from wakeful.sources.reader import Reader
from wakeful.sources.repository import Repositories, busy_reason
from wakeful.sources.statcache import StatCache
from wakeful.sources.sweep import Polls, Sweep
from wakeful.sources.walk import StateFolder

_TICK_SECONDS = 1.0
# Of the clock that file systems stamp by, at most.
_COARSE_TICK_US = 10_000
_HELD_CHECK_SECONDS = 0.25
# A rebase left lying for days must not hold its readers for days.
_LONGEST_HOLD_SECONDS = 600.0
# New folders armed at once when they are reported, so that what follows in them is heard during settle; a larger tree is
# left to the look, which arms before it lists.
_ARMED_AT_ONCE = 64
# Longer than any look is put off, so that such a folder is not forgotten before somebody had time to look.
_APPROVAL_SECONDS = 2 * _LONGEST_HOLD_SECONDS
# Members of a target that is looked at between a run's intention and its start: some 0.1 ms.
_PEEKED_AT = 16
# A path hashed within 2 s of its change is read once more after that (racy-clean rule); so many a second.
_RACY_PAUSE_SECONDS = 2.5
_RACY_PER_TICK = 200
# The cache is written when no look was under way for some ticks, since looks and the runs that follow them would wait for the
# interpreter: 100,000 paths take 0.4 s of it. After so many ticks in any case.
_CALM_TICKS = 3
_LONGEST_UNWRITTEN_TICKS = 30
# About a third of a second of hashing.
_LONG_BYTES = 256 << 20


_EVERYTHING = Errand(is_whole=True)


class Description(Struct, frozen=True, kw_only=True):
    """What `show` says of one followed target."""

    degraded: str | None
    problem: str | None
    files: int
    watched_folders: int
    looked_at: float | None


class FileSource:
    """Implements `Source` for `FileTarget`."""

    def __init__(
        self,
        report: SourceReport,
        loop: asyncio.AbstractEventLoop,
        state_dir: str | os.PathLike[str],
        make_hints: MakeHints,
        cache: StatCache,
        *,
        mounts: Mounts | None = None,
    ) -> None:
        self._report = report
        # Since when it counts whether a path of this target moved, if it does: set by who knows of runs.
        self.find_since: Callable[[str], int | None] = lambda key: None
        self._loop = loop
        self._cache = cache
        self._state = StateFolder(state_dir)
        self._hints = make_hints(loop, self._take_dirt)
        self._trie: PathTrie[Followed] = PathTrie()
        self._looker = Looker(cache, self._hints.arm, self._state, mounts or Mounts(), self._trie)
        self._followed: dict[str, Followed] = {}
        self._excludes: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Excludes] = {}
        # Armed folder -> how many targets need it, and its mtime when last listed (-1: armed only).
        self._needed: dict[str, int] = {}
        self._mtimes: dict[str, int] = {}
        self._common_folders: dict[tuple[str, ...], dict[str, int]] = {}
        # A file behind links -> the links.
        self._links: dict[str, set[str]] = {}
        self._lanes = Lanes()
        self._ahead = Ahead()
        self._ahead.start(cache.count_targets())
        self._early = Early()
        # Folders nobody needs, disarmed when no look is under way that may just have armed one of them again.
        self._unneeded: set[str] = set()
        # Folders armed as soon as they were reported -> until when a look must have found and counted them.
        self._on_approval: dict[str, float] = {}
        self._repositories = Repositories()
        self._held: dict[str, str] = {}
        self._busy_since: dict[str, float] = {}
        self._racy: deque[tuple[float, str]] = deque()
        self._polls = Polls()
        self._sweep = Sweep(cache.seen, lambda: self._mtimes, self._is_left_out)
        self._writing: asyncio.Future[None] | None = None
        self._unwritten_ticks = 0
        # Since the last tick, at this machine's files; and ticks without.
        self._has_looked = False
        self._calm_ticks = 0
        self._tick_timer: asyncio.TimerHandle | None = loop.call_later(_TICK_SECONDS, self._tick)
        self._held_timer: asyncio.TimerHandle | None = None

    # -- following ------------------------------------------------------------------------------------------------

    def follow(self, targets: Iterable[FileTarget]) -> None:
        new: list[Followed] = []
        for target in targets:
            if target.key in self._followed:
                continue
            followed = Followed(target, self._state, self._share_excludes(target))
            self._followed[target.key] = followed
            self._trie.insert(followed.pattern, followed)
            new.append(followed)
        if self._ahead.is_started:
            self._ahead.ask(self._looker.arm_all(new))

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            followed = self._followed.pop(key, None)
            if followed is None:
                continue
            self._trie.remove(followed.pattern, followed)
            self._cache.put_version(key, None)
            self._release(followed.folders)
            self._polls.end(key)
            self._held.pop(key, None)
            self._early.take(key)
        self._disarm_unneeded()

    def _share_excludes(self, target: FileTarget) -> Excludes:
        """Ten thousand sessions of one project mostly exclude the same."""
        words = (target.root, target.exclude, target.hidden)
        if words not in self._excludes:
            self._excludes[words] = build_excludes(target)
        return self._excludes[words]

    async def close(self) -> None:
        """Stop watching and keep what was seen for the next start."""
        for timer in (self._tick_timer, self._held_timer):
            if timer is not None:
                timer.cancel()
        self._tick_timer = self._held_timer = None
        self._looker.closing.set()
        self._ahead.drop()
        self._followed.clear()
        if self._writing is not None:
            await self._writing
        await self._lanes.close()
        # Last of all: a walk that is just ending may still arm what it found.
        self._hints.close()
        await asyncio.to_thread(self._cache.write, self._cache.take_batch())
        self._cache.close()

    @property
    def is_looking(self) -> bool:
        """Are there looks that others wait for? Any thread may ask, and should then give way."""
        return self._lanes.is_near_taken

    def hear(self) -> None:
        """Take in what the watcher has not told yet: what a run's inputs went through must be known before its end is."""
        self._hints.hear()

    # -- looking --------------------------------------------------------------------------------------------------

    def look(self, key: str, generation: int) -> None:
        followed = self._followed.get(key)
        # Forgotten while the request was on its way.
        if followed is None:
            return
        if followed.is_looking:
            followed.asked_again = generation
            return
        held = self._hold(followed)
        if held is not None:
            self._report(TargetLooked(self._result(followed, generation, version=followed.version, held=held)))
            return
        finding = self._take_early(followed)
        if finding is not None:
            self._report(TargetLooked(self._apply(followed, generation, finding)))
            return
        errand = followed.take_errand()
        # A server that does not answer must not stop the loop, nor a look that is known to be too large.
        if not followed.refused and not followed.is_large(errand):
            try:
                finding = self._looker.look(followed, errand, Allowance(), is_on_loop=True, ahead=self._ahead)
            except TooLarge:
                pass
            else:
                self._report(TargetLooked(self._apply(followed, generation, finding)))
                return
        followed.is_looking = True
        finish = partial(self._finish, followed, generation)
        if followed.refused:
            self._submit(self._lanes.far, partial(self._looker.look, followed, errand), finish)
        else:
            lane = self._lanes.find_large() if followed.is_worth_a_reader(errand) else self._lanes.near
            self._submit(lane, partial(self._try_look, followed, errand, lane.reader), partial(self._take_try, followed, errand, finish))

    def _try_look(self, followed: Followed, errand: Errand, reader: Reader | None) -> Finding | None:
        """None when the bytes to be read would hold up all other looks."""
        try:
            return self._looker.look(followed, errand, Allowance(sys.maxsize, _LONG_BYTES), reader=reader)
        except TooLarge:
            return None

    def _take_try(self, followed: Followed, errand: Errand, finish: Callable[[Finding], None], finding: Finding | None) -> None:
        if finding is not None:
            finish(finding)
        else:
            self._submit(self._lanes.long, partial(self._looker.look, followed, errand), finish)

    def _finish(self, followed: Followed, generation: int, finding: Finding) -> None:
        followed.is_looking = False
        # Forgotten, or forgotten and followed anew, while a thread looked.
        if self._followed.get(followed.key) is not followed:
            return
        self._report(TargetLooked(self._apply(followed, generation, finding)))
        self._look_again(followed)

    def _look_again(self, followed: Followed) -> None:
        if followed.asked_again is not None:
            again, followed.asked_again = followed.asked_again, None
            self.look(followed.key, again)

    def _look_early(self) -> None:
        """Begin looks that are sure to be asked for, as far as the threads for large ones have nothing else to do."""
        while self._lanes.has_room and (followed := self._early.next()) is not None:
            if self._followed.get(followed.key) is not followed or followed.refused or self._find_busy(followed)[1] is not None:
                continue
            errand, lane = followed.take_errand(), self._lanes.find_large()
            followed.is_looking = True
            self._submit(lane, partial(self._try_look, followed, errand, lane.reader), partial(self._put_early, followed, errand))

    def _put_early(self, followed: Followed, errand: Errand, finding: Finding | None) -> None:
        followed.is_looking = False
        if self._followed.get(followed.key) is not followed:
            return
        if finding is None:
            followed.put_back(errand)
        else:
            self._early.put(followed.key, finding)
        self._look_again(followed)

    def _take_early(self, followed: Followed) -> Finding | None:
        """What was found before it was asked for, if nothing was hinted since; what the watcher still holds counts."""
        if followed.key in self._early:
            self._hints.hear()
        finding = self._early.take(followed.key)
        if finding is None or not followed.is_dirty:
            return finding
        followed.put_back(finding.errand)
        # The cache knows what was found by now: the next look has nothing new to tell the others.
        others = self._mark_others(finding.others)
        if others:
            self._report(TargetsHinted(others))
        return None

    def _apply(self, followed: Followed, generation: int, finding: Finding) -> LookResult:
        survey = finding.survey
        also_dirty = self._mark_others(finding.others)
        self._renew_folders(followed, finding)
        for link, real in survey.links.items():
            self._links.setdefault(real, set()).add(link)
        due = time.monotonic() + _RACY_PAUSE_SECONDS
        self._racy.extend((due, path) for path in finding.racy)
        followed.looked_at = time.time()
        followed.refused = survey.refused if survey.is_whole else followed.refused | survey.refused
        if survey.problems:
            # Unknown is not a version (rule 5): what was asked stays to be done.
            followed.put_back(finding.errand)
            followed.problem = _join(survey.problems)
        else:
            followed.problem = None
            followed.manifest = finding.manifest
            followed.version = finding.version
            self._cache.put_version(followed.key, finding.version)
        for path in finding.unstable:
            followed.mark(path)
        self._watch_or_poll(followed)
        return self._result(
            followed,
            generation,
            version=finding.version,
            problem=followed.problem,
            previous=finding.previous,
            changes=finding.changes,
            is_unstable=bool(finding.unstable),
            is_absent=survey.is_absent and not survey.problems,
            also_dirty=also_dirty,
        )

    def _result(self, followed: Followed, generation: int, **found: object) -> LookResult:
        manifest = followed.manifest
        stamp = manifest.stamp if manifest is not None else ""
        since = self.find_since(followed.key)
        is_moved = since is not None and manifest is not None and any(seen.moved_at + _COARSE_TICK_US >= since for seen in manifest.members.values())
        return LookResult(target=followed.key, generation=generation, stamp=stamp, is_moved=is_moved, degraded=followed.degraded, **found)

    def _mark_others(self, others: dict[str, list[str]]) -> tuple[str, ...]:
        marked: list[str] = []
        for key, paths in others.items():
            other = self._followed.get(key)
            if other is not None:
                for path in paths:
                    other.mark(path)
                marked.append(key)
        return tuple(marked)

    def _renew_folders(self, followed: Followed, finding: Finding) -> None:
        """Count the folders this target needs now; those below a renewed folder that were not found again are over."""
        found = finding.survey.folders
        if finding.survey.problems:
            # An unreadable folder hides those below it: keep what was armed.
            left = followed.folders | found
        elif finding.survey.is_whole:
            left = found
        else:
            renewed = tuple(f"{tree}/" for tree in finding.survey.renewed)
            kept = {
                folder: mtime
                for folder, mtime in followed.folders.items()
                if not renewed or not f"{folder}/".startswith(renewed)
            }
            left = kept | found if found or renewed else followed.folders
        if left is followed.folders:
            return
        for folder in left.keys() - followed.folders.keys():
            self._needed[folder] = self._needed.get(folder, 0) + 1
        for folder, mtime in found.items():
            if mtime >= 0 or folder not in self._mtimes:
                self._mtimes[folder] = mtime
        self._release(followed.folders.keys() - left.keys())
        followed.folders = self._share_folders(left)
        self._disarm_unneeded()

    def _share_folders(self, folders: dict[str, int]) -> dict[str, int]:
        """Literal targets of one folder need the same few folders above them: one dictionary for all."""
        if max(folders.values(), default=0) >= 0:
            return folders
        return self._common_folders.setdefault(tuple(folders), folders)

    def _release(self, folders: Iterable[str]) -> None:
        for folder in folders:
            count = self._needed.get(folder, 0) - 1
            if count > 0:
                self._needed[folder] = count
            else:
                self._needed.pop(folder, None)
                self._mtimes.pop(folder, None)
                self._unneeded.add(folder)

    def _disarm_unneeded(self) -> None:
        if not self._unneeded or self._lanes.is_any_taken or self._early:
            return
        unneeded = [folder for folder in self._unneeded if folder not in self._needed and folder not in self._on_approval]
        self._unneeded.clear()
        self._looker.disarmed(unneeded)
        self._hints.disarm(unneeded)

    def _submit(self, lane: Lane, work: Callable[[], object], then: Callable[..., None]) -> None:
        """Run `work` in this lane and `then` with its result on the loop. An error of ours ends in the loop's handler."""
        lane.looks += 1
        self._has_looked = self._has_looked or self._lanes.is_near(lane)

        def finish(done: asyncio.Future[object]) -> None:
            lane.looks -= 1
            if self._tick_timer is None:
                # Closing: the result is for nobody, an error of ours is not to be lost.
                if not isinstance(done.exception(), NoLongerWanted):
                    done.result()
                return
            then(done.result())
            self._look_early()
            self._disarm_unneeded()

        self._loop.run_in_executor(lane.threads, work).add_done_callback(finish)

    # -- hints ----------------------------------------------------------------------------------------------------

    def _take_dirt(self, batch: tuple[Dirt, ...]) -> None:
        """One batch of hints: mark every target that means one of the paths, then say so once (rule 10)."""
        self._ahead.drop()
        hinted: dict[str, None] = {}
        for dirt in batch:
            match dirt:
                case Dirty(folder, names, folders) if names is not None:
                    self._take_names(folder, names, folders, hinted)
                case Dirty(folder) | Gone(folder):
                    self._take_folder(folder, hinted)
                case Lost():
                    self._take_loss(hinted)
        if hinted:
            self._report(TargetsHinted(tuple(hinted)))

    def _take_names(self, folder: str, names: tuple[str, ...], folders: tuple[str, ...] | None, hinted: dict[str, None]) -> None:
        lead = folder if folder.endswith("/") else f"{folder}/"
        for name in names:
            path = lead + name
            is_folder = path in self._needed or (os.path.isdir(path) if folders is None else name in folders)
            # A link to a folder is no folder to the watcher, but patterns lead through it all the same.
            if is_folder or self._trie.leads_through(path):
                self._take_folder(path, hinted)
            else:
                self._take_path(path, hinted)

    def _take_path(self, path: str, hinted: dict[str, None]) -> None:
        for followed in self._trie.find(path):
            if followed.walker.means(path):
                followed.mark(path)
                hinted[followed.key] = None
        for link in self._links.get(path, ()):
            self._take_path(link, hinted)

    def _take_folder(self, folder: str, hinted: dict[str, None]) -> None:
        """A folder came, went or was replaced: whoever means something at or below it looks there again."""
        if self._state.holds(folder):
            return
        self._looker.distrust(folder)
        entering = [followed for followed in self._trie.meeting(Pattern.literal(folder)) if _concerns(followed, folder)]
        for followed in entering:
            followed.mark_tree(folder)
            hinted[followed.key] = None
        if entering:
            self._arm_at_once(folder, entering)

    def _arm_at_once(self, top: str, entering: list[Followed]) -> None:
        """Arm a new folder and the first few below it before anybody looks: `mkdir -p` is faster than settle."""
        pending = [top]
        for _ in range(_ARMED_AT_ONCE):
            if not pending:
                return
            folder = pending.pop()
            if self._looker.arm([folder]):
                continue
            if folder not in self._needed:
                self._on_approval[folder] = time.monotonic() + _APPROVAL_SECONDS
            try:
                with os.scandir(folder) as entries:
                    inside = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                # Gone again, or not ours to read: the look will say which.
                continue
            pending += [
                entry.path
                for entry in inside
                if not self._state.is_folder(entry.path, entry.inode())
                and any(followed.walker.enters(entry.path) for followed in entering)
            ]

    def _take_loss(self, hinted: dict[str, None]) -> None:
        self._looker.distrust_all()
        for followed in self._followed.values():
            followed.is_whole = True
            hinted[followed.key] = None
        self._early.expect(followed for followed in self._followed.values() if followed.is_worth_a_reader(_EVERYTHING))
        self._look_early()

    # -- git ------------------------------------------------------------------------------------------------------

    def _hold(self, followed: Followed) -> str | None:
        """Why this look must wait: git is rewriting the working tree. At most ten minutes, then it looks anyway."""
        git_dir, reason = self._find_busy(followed)
        if git_dir is None or reason is None:
            if git_dir is not None:
                self._busy_since.pop(git_dir, None)
            return None
        now = time.monotonic()
        if now - self._busy_since.setdefault(git_dir, now) > _LONGEST_HOLD_SECONDS:
            return None
        self._held[followed.key] = git_dir
        if self._held_timer is None:
            self._held_timer = self._loop.call_later(_HELD_CHECK_SECONDS, self._check_held)
        return reason

    def _find_busy(self, followed: Followed) -> tuple[str | None, str | None]:
        """The repository a target lies in, and why git is rewriting its working tree, if it is."""
        git_dir = self._repositories.git_dir(followed.pattern.literal_prefix)
        return git_dir, busy_reason(git_dir) if git_dir is not None else None

    def _check_held(self) -> None:
        now = time.monotonic()
        free: set[str] = set()
        for git_dir in set(self._held.values()):
            if busy_reason(git_dir) is None:
                self._busy_since.pop(git_dir, None)
                free.add(git_dir)
            elif now - self._busy_since.get(git_dir, now) > _LONGEST_HOLD_SECONDS:
                free.add(git_dir)
        released = tuple(key for key, git_dir in self._held.items() if git_dir in free)
        for key in released:
            del self._held[key]
        self._held_timer = self._loop.call_later(_HELD_CHECK_SECONDS, self._check_held) if self._held else None
        if released:
            self._report(TargetsHinted(released))

    # -- what hints do not tell -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Once a second: a slice of the sweep, polls that are due, racy paths, the cache's batch."""
        self._tick_timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        hinted: dict[str, None] = {}
        paths, folders = self._sweep.slice()
        for path in paths:
            self._take_path(path, hinted)
        for folder in folders:
            self._mtimes.pop(folder, None)
            self._take_folder(folder, hinted)
        if hinted:
            self._report(TargetsHinted(tuple(hinted)))
        for key in self._polls.take_due(time.monotonic()):
            self._poll(self._followed[key])
        self._reread_racy()
        self._end_approvals()
        self._lanes.rest()
        self._ahead.drop()
        if self._cache.has_kept and all(followed.manifest is not None for followed in self._followed.values()):
            self._cache.drop_kept()
        self._write_cache()

    def _write_cache(self) -> None:
        if not self._cache.has_changes or self._writing is not None:
            return
        self._unwritten_ticks += 1
        is_pressed, self._has_looked = self._lanes.is_any_taken or self._has_looked, False
        self._calm_ticks = 0 if is_pressed else self._calm_ticks + 1
        if self._calm_ticks < _CALM_TICKS and self._unwritten_ticks < _LONGEST_UNWRITTEN_TICKS:
            return
        self._unwritten_ticks = self._calm_ticks = 0
        self._writing = self._loop.run_in_executor(self._lanes.long.threads, self._cache.write, self._cache.take_batch())
        self._writing.add_done_callback(self._note_written)

    def _end_approvals(self) -> None:
        now = time.monotonic()
        over = [folder for folder, until in self._on_approval.items() if until <= now or folder in self._needed]
        for folder in over:
            del self._on_approval[folder]
        self._unneeded.update(folder for folder in over if folder not in self._needed)
        self._disarm_unneeded()

    def _note_written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        done.result()

    def _is_left_out(self, path: str) -> bool:
        """Whether the sweep passes over a path; one that nobody means any more is dropped from the cache."""
        if path in self._mtimes:
            return False
        followers = self._trie.find(path)
        if not followers:
            self._cache.put(path, None)
            return True
        return any(followed.key in self._polls for followed in followers)

    def _watch_or_poll(self, followed: Followed) -> None:
        if followed.refused or followed.problem is not None:
            self._polls.begin(followed.key, time.monotonic())
        else:
            self._polls.end(followed.key)

    def _poll(self, followed: Followed) -> None:
        began = time.monotonic()

        def finish(is_changed: bool) -> None:
            now = time.monotonic()
            self._polls.note(followed.key, now, is_changed=is_changed, took_seconds=now - began)
            if is_changed and self._followed.get(followed.key) is followed:
                followed.is_whole = True
                self._report(TargetsHinted((followed.key,)))

        self._submit(self._lanes.far, lambda: self._peek(followed), finish)

    def _peek(self, followed: Followed) -> bool:
        """Compare stat keys with what was last seen, in a thread, without reading: is a look worth it?"""
        survey = self._looker.survey(followed, _EVERYTHING, wants_content=False)
        if bool(survey.problems) != (followed.problem is not None) or survey.refused.keys() != followed.refused.keys():
            return True
        members = followed.manifest.members if followed.manifest is not None else {}
        found = {path: seen for path, seen in survey.found.items() if seen is not None}
        return found.keys() != members.keys() or any(seen.key != members[path].key for path, seen in found.items())

    def _reread_racy(self) -> None:
        now = time.monotonic()
        paths: dict[str, Seen] = {}
        while self._racy and self._racy[0][0] <= now and len(paths) < _RACY_PER_TICK:
            _, path = self._racy.popleft()
            if (seen := self._cache.seen.get(path)) is not None:
                paths[path] = seen
        if paths:
            self._submit(self._lanes.long, partial(_find_rewritten, paths, self._looker.closing.is_set), partial(self._take_rewritten, paths))

    def _take_rewritten(self, paths: dict[str, Seen], rewritten: list[str]) -> None:
        hinted: dict[str, None] = {}
        for path in rewritten:
            self._take_path(path, hinted)
        for path, seen in paths.items():
            # Clean now, and to be remembered as such.
            if path not in rewritten and self._cache.seen.get(path) is seen:
                self._cache.put(path, seen)
        if hinted:
            self._report(TargetsHinted(tuple(hinted)))

    def find(self, key: str) -> LatestLook | None:
        """What the latest look at a target found, for whoever keeps it; None before the first."""
        followed = self._followed.get(key)
        if followed is None or followed.manifest is None:
            return None
        manifest, is_known = followed.manifest, followed.problem is None
        is_stale = followed.is_looking or followed.is_dirty or key in self._early
        return LatestLook(followed.version if is_known else None, manifest.members, manifest.stamp, is_stale)

    def peek(self, key: str) -> LatestLook | None:
        """What a target holds at this very moment, hinted or not; None where telling would take more than a moment."""
        followed = self._followed.get(key)
        if followed is None or followed.manifest is None or followed.refused or len(followed.manifest.members) > _PEEKED_AT:
            return None
        try:
            survey = self._looker.survey(followed, _EVERYTHING, wants_content=True, allowance=Allowance())
        except TooLarge:
            return None
        members = {path: seen for path, seen in survey.found.items() if seen is not None}
        return LatestLook(None, members) if not survey.problems else None

    # -- asking why -----------------------------------------------------------------------------------------------

    def describe(self, key: str) -> Description | None:
        followed = self._followed.get(key)
        if followed is None:
            return None
        return Description(
            degraded=followed.degraded,
            problem=followed.problem,
            files=len(followed.manifest.members) if followed.manifest is not None else 0,
            watched_folders=len(followed.folders),
            looked_at=followed.looked_at,
        )

    def explain(self, path: str) -> list[tuple[str, PathMeaning]]:
        """For `why PATH`: each target that means it, excludes it or nearly means it. To nobody the state folder means anything."""
        path = os.path.abspath(path)
        if self._state.holds(path):
            return []
        meanings = [(followed.key, followed.explain(path)) for followed in self._trie.find(path)]
        misses = self._trie.near_misses(path)
        return meanings + [(miss.value.key, NearlyMatched(miss.pattern.text, miss.words)) for miss in misses]


def _concerns(followed: Followed, folder: str) -> bool:
    """Whether a target means anything at or below this folder once its excludes are considered."""
    base = followed.pattern.base
    return contains(folder, base) or followed.walker.enters(folder) or followed.walker.means(folder)


def _join(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)"


def _find_rewritten(paths: dict[str, Seen], is_closing: Callable[[], bool]) -> list[str]:
    """Those whose content changed although their stat key did not: hashed again, now that the key can be trusted."""
    demand = Demand(wants_content=True, is_closing=is_closing)
    rewritten: list[str] = []
    for path, seen in paths.items():
        try:
            if read_entry(path, seen, demand) is not seen:
                rewritten.append(path)
        except CannotSee:
            rewritten.append(path)
    return rewritten

"""The file source: follows targets, turns hints into dirty targets, looks when asked, and reports the results.

It owns the path trie, the watched folders and the stat cache of the whole daemon. The reactor calls it on the loop.
Looks that are not cheap run in its own threads. It never decides whether a session is owed a wake, never reads the
state folder, and uses a hint only to know where to look.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from wakeful.core.looking.path_reports import NearlyMatched, PathMeaning
from wakeful.core.looking.patterns import Excludes, PathTrie, Pattern, contains
from wakeful.core.looking.targets import FileTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.contract import Defects, LatestLook, SourceReport
from wakeful.sources.files.entry import LOOP_ENTRIES, Allowance, NoLongerWanted, Seen, TooLarge, show
from wakeful.sources.files.followed_target import Description, Evidence, Followed, LookScope, build_excludes
from wakeful.sources.files.look import Finding, Looker
from wakeful.sources.files.look_pool import Lane, Lanes
from wakeful.sources.files.mounts import Mounts
from wakeful.sources.files.open_files import BeingWritten, OpenFiles
from wakeful.sources.files.reader_process import WORTH_ASKING, Reader
from wakeful.sources.files.stat_cache import CacheWriter, StatCache
from wakeful.sources.files.sweep import USUAL_PACE, Pace, Polls, RacyPaths, Reread, Sweep, reread
from wakeful.sources.files.walk import StateFolder
from wakeful.sources.files.watched_folders import Links, WatchedFolders, leave_out
from wakeful.sources.git.rewrite_holds import LONGEST_HOLD_SECONDS, GitHolds
from wakeful.sources.hints.contract import Dirt, Dirty, Gone, Lost, MakeHints

# The longest tick of the clock that file systems use for timestamps.
_COARSE_TICK_US = 10_000
# The most new folders that are watched as soon as they are reported, so that events in them are noticed during settle.
# A larger tree is left to the look, which watches each folder before it lists it.
_ARMED_AT_ONCE = 64
# Longer than any look can be held, so that a watch is not removed before its look.
_APPROVAL_SECONDS = 2 * LONGEST_HOLD_SECONDS
# The most members of a target that is looked at just before a run starts. The look takes about 0.1 ms.
_PEEKED_AT = 16
# The most bytes that a look reads before it moves to other threads: about a third of a second of hashing.
_LONG_BYTES = 256 << 20


_EVERYTHING = LookScope(is_whole=True)


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
        defects: Defects | None = None,
        lanes: Lanes | None = None,
        racy: RacyPaths | None = None,
        pace: Pace = USUAL_PACE,
        find_since: Callable[[str], int | None] = lambda key: None,
    ) -> None:
        """`find_since` returns the moment since which a change of a target's paths counts. None if no change counts."""
        self._report = report
        self.defects = defects or Defects()
        self._find_since = find_since
        self._loop = loop
        self._cache = cache
        self._state = StateFolder(state_dir)
        self._hints = make_hints(loop, self._take_dirt)
        self._trie: PathTrie[Followed] = PathTrie()
        self._looker = Looker(cache, self._hints.arm, self._state, mounts or Mounts(), self._trie)
        self._followed: dict[str, Followed] = {}
        self._excludes: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Excludes] = {}
        self._folders = WatchedFolders(_APPROVAL_SECONDS)
        self._links = Links()
        self._lanes = lanes or Lanes()
        self._git_holds = GitHolds(loop, self._hint)
        self._open_files = OpenFiles(loop, self._hint)
        self._racy = racy or RacyPaths(cache.seen, pace.reread_seconds)
        self._polls = Polls(pace.poll_seconds)
        self._sweep = Sweep(cache.seen, lambda: self._folders.mtimes, self._is_left_out, pace.round_seconds)
        self._writer = CacheWriter(cache)
        self._tick_seconds = pace.tick_seconds
        self._tick_timer: asyncio.TimerHandle | None = loop.call_later(self._tick_seconds, self._tick)

    # -- following ------------------------------------------------------------------------------------------------

    def follow(self, targets: Iterable[FileTarget]) -> None:
        for target in targets:
            if target.key in self._followed:
                continue
            followed = Followed(target, self._state, self._share_excludes(target))
            followed.mounts = self._cache.mounts(target.key)
            self._followed[target.key] = followed
            self._trie.insert(followed.pattern, followed)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            followed = self._followed.pop(key, None)
            if followed is None:
                continue
            self._trie.remove(followed.pattern, followed)
            self._cache.put_version(key, None)
            self._cache.put_mounts(key, frozenset())
            self._folders.release(followed.folders)
            self._polls.end(key)
            self._git_holds.forget(key)
            self._open_files.forget(key)
        self._disarm_unneeded()

    def _share_excludes(self, target: FileTarget) -> Excludes:
        """Return the excludes of a target. Shared, because sessions of one project mostly have the same."""
        words = (target.root, target.exclude, target.hidden)
        if words not in self._excludes:
            self._excludes[words] = build_excludes(target)
        return self._excludes[words]

    async def close(self) -> None:
        """Stop watching, and write the cache for the next start."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick_timer = None
        self._git_holds.close()
        self._open_files.close()
        self._looker.closing.set()
        self._followed.clear()
        await self._writer.wait()
        await self._lanes.close()
        # Closed last, because a walk that is just ending may still watch folders.
        self._hints.close()
        self._looker.mounts.close()
        await asyncio.to_thread(self._cache.write, self._cache.take_batch())
        self._cache.close()

    @property
    def is_looking(self) -> bool:
        """True if sessions wait for looks that are under way. Work that can wait asks this first, in any thread."""
        return self._lanes.is_near_taken()

    def hear(self) -> None:
        """Process the queued events of the watcher and mount table, so that they are known before a run's end."""
        self._hints.hear()
        self._take_mounts()

    # -- looking --------------------------------------------------------------------------------------------------

    def look(self, key: str, generation: int, *, takes_open: bool = False) -> None:
        """Look at a target. With `takes_open`, a file that is open for writing is accepted in its present state."""
        followed = self._followed.get(key)
        # The target was forgotten while the request was under way.
        if followed is None:
            return
        if followed.is_looking:
            followed.asked_again = generation, takes_open
            return
        if followed.refused:
            # No watcher reports what changed since the last poll.
            followed.is_whole = True
        held = self._git_holds.hold(key, followed.pattern.literal_prefix)
        if held is not None:
            self._report(TargetLooked(self._result(followed, generation, version=followed.version, held=held)))
            return
        self._begin(followed, generation, followed.take_scope(), takes_open)

    def _begin(self, followed: Followed, generation: int, scope: LookScope, takes_open: bool) -> None:
        # Neither a server that does not answer nor a large look may block the loop.
        if not followed.refused and followed.count_paths(scope) <= LOOP_ENTRIES:
            try:
                finding = self._looker.look(followed, scope, Allowance(), is_on_loop=True, takes_open=takes_open)
                result = self._apply(followed, generation, finding)
            except TooLarge:
                pass
            except BeingWritten as written:
                self._wait_for_close(followed, generation, scope, written)
                return
            except NoLongerWanted:
                raise
            except Exception as error:  # a defect in a look at one target must not stop the looks at others
                self._report(TargetLooked(self._fail(followed, generation, scope, error)))
                return
            else:
                self._report(TargetLooked(result))
                return
        followed.is_looking = True
        finish, fail = (
            partial(self._finish, followed, generation),
            partial(self._finish_failed, followed, generation, scope),
        )
        if followed.refused:
            self._submit(
                self._lanes.far, partial(self._looker.look, followed, scope, takes_open=takes_open), finish, fail
            )
        else:
            lane = self._lanes.find_large() if followed.count_paths(scope) >= WORTH_ASKING else self._lanes.near
            whole = partial(self._looker.look, followed, scope, takes_open=takes_open)
            self._submit(
                lane,
                partial(self._try_look, followed, scope, lane.reader, takes_open),
                partial(self._take_try, whole, finish, fail),
                fail,
            )

    def _try_look(
        self, followed: Followed, scope: LookScope, reader: Reader | None, takes_open: bool
    ) -> Finding | None:
        """Look in a thread. None if reading so many bytes would delay all other looks."""
        try:
            return self._looker.look(
                followed, scope, Allowance(sys.maxsize, _LONG_BYTES), reader=reader, takes_open=takes_open
            )
        except TooLarge:
            return None

    def _take_try(
        self,
        whole: Callable[[], Finding],
        finish: Callable[[Finding], None],
        fail: Callable[[Exception], None],
        finding: Finding | None,
    ) -> None:
        if finding is not None:
            finish(finding)
        else:
            self._submit(self._lanes.long, whole, finish, fail)

    def _wait_for_close(self, followed: Followed, generation: int, scope: LookScope, written: BeingWritten) -> None:
        """Hold the look while a changed file is being written. After the longest wait, accept the file anyway."""
        held = self._open_files.hold(followed.target, written.paths)
        if held is None:
            self._begin(followed, generation, scope, takes_open=True)
            return
        followed.put_back(scope)
        self._report(TargetLooked(self._result(followed, generation, version=followed.version, held=held)))

    def _finish(self, followed: Followed, generation: int, finding: Finding) -> None:
        followed.is_looking = False
        # The target was forgotten, and perhaps followed again, while a thread looked.
        if self._followed.get(followed.key) is not followed:
            return
        self._report(TargetLooked(self._apply(followed, generation, finding)))
        self._look_again(followed)

    def _finish_failed(self, followed: Followed, generation: int, scope: LookScope, error: Exception) -> None:
        followed.is_looking = False
        if self._followed.get(followed.key) is not followed:
            return
        if isinstance(error, BeingWritten):
            self._wait_for_close(followed, generation, scope, error)
        else:
            self._report(TargetLooked(self._fail(followed, generation, scope, error)))
        if not followed.is_looking:
            self._look_again(followed)

    def _fail(self, followed: Followed, generation: int, scope: LookScope, error: Exception) -> LookResult:
        """Handle a defect: the target is unknown (rule 5), and is polled until a look succeeds."""
        followed.problem = self.defects.take(show(followed.pattern.base), error)
        followed.put_back(scope)
        # A half-applied look may have left wrong state, so the next look starts from the beginning.
        followed.is_whole = True
        self._watch_or_poll(followed)
        return self._result(followed, generation, version=None, problem=followed.problem)

    def _look_again(self, followed: Followed) -> None:
        if followed.asked_again is not None:
            (again, takes_open), followed.asked_again = followed.asked_again, None
            self.look(followed.key, again, takes_open=takes_open)

    def _apply(self, followed: Followed, generation: int, finding: Finding) -> LookResult:
        survey = finding.survey
        also_dirty = self._mark_others(finding)
        self._renew_folders(followed, finding)
        self._links.note(survey.found, survey.links)
        if not finding.takes_open:
            self._open_files.note_closed(survey.found)
        self._racy.add(finding.racy)
        followed.looked_at = time.time()
        followed.refused = survey.refused if survey.is_whole else followed.refused | survey.refused
        if survey.problems:
            # Unknown is not a version (rule 5), so these paths must be visited again.
            followed.put_back(finding.scope)
            followed.problem = _join(survey.problems)
        else:
            followed.problem = None
            followed.manifest = finding.manifest
            followed.version = finding.version
            self._cache.put_version(followed.key, finding.version)
            self._looker.note_mounts(followed, finding)
        for path in finding.unstable:
            followed.mark(path)
        if finding.unwritten:
            self._hear_late_writes(followed, finding)
        self._watch_or_poll(followed)
        return self._result(
            followed,
            generation,
            version=finding.version,
            problem=followed.problem,
            previous=finding.previous,
            changes=finding.changes,
            is_unstable=bool(finding.unstable),
            is_growing=finding.is_growing,
            is_absent=survey.is_absent and not survey.problems,
            also_dirty=also_dirty,
        )

    def _hear_late_writes(self, followed: Followed, finding: Finding) -> None:
        """Process the writes that the watcher queued before the look's stat. If one of them is for an `unwritten` path,
        more than its attributes changed (rule 17).
        """
        self._hints.hear()
        marked = followed.paths or {}
        if any(marked.get(path) == "written" for path in finding.unwritten):
            finding.manifest.note_write()

    def _result(self, followed: Followed, generation: int, **found: Any) -> LookResult:
        manifest = followed.manifest
        stamp, doubt = (manifest.written, manifest.doubted) if manifest is not None else ("", "")
        since = self._find_since(followed.key)
        is_moved = (
            since is not None
            and manifest is not None
            and any(seen.moved_at + _COARSE_TICK_US >= since for seen in manifest.members.values())
        )
        return LookResult(
            target=followed.key,
            generation=generation,
            stamp=stamp,
            doubt=doubt,
            is_moved=is_moved,
            degraded=followed.degraded,
            **found,
        )

    def _mark_others(self, finding: Finding) -> tuple[str, ...]:
        marked: list[str] = []
        for key, paths in finding.others.items():
            other = self._followed.get(key)
            if other is not None:
                for path in paths:
                    other.mark(path, finding.scope.paths.get(path, "unknown"))
                marked.append(key)
        return tuple(marked)

    def _renew_folders(self, followed: Followed, finding: Finding) -> None:
        """Count the folders that this target needs now. It no longer needs a folder that was not found again below a
        renewed folder.
        """
        found = finding.survey.folders
        if finding.survey.problems:
            # An unreadable folder hides the folders below it, so all watches are kept.
            left = followed.folders | found
        elif finding.survey.is_whole:
            left = found
        else:
            trees = finding.survey.renewed
            left = leave_out(followed.folders, trees) if trees else followed.folders
            left = left | found if found else left
        if left is not followed.folders:
            followed.folders = self._folders.renew(followed.folders, left, found)
            self._disarm_unneeded()

    def _disarm_unneeded(self) -> None:
        """Stop watching folders that no target needs, unless a look under way may just have added one of them."""
        if self._lanes.is_any_taken:
            return
        unneeded = self._folders.take_unneeded()
        if not unneeded:
            return
        self._looker.disarmed(unneeded)
        self._hints.disarm(unneeded)

    def _submit(
        self, lane: Lane, work: Callable[[], object], then: Callable[..., None], fail: Callable[[Exception], None]
    ) -> None:
        """Run `work` in this lane, then `then` with its result on the loop. An exception of either goes to `fail`."""
        lane.looks += 1
        self._writer.has_looked = self._writer.has_looked or self._lanes.is_near(lane)

        def finish(done: asyncio.Future[object]) -> None:
            lane.looks -= 1
            if self._tick_timer is None:
                # While closing, no caller needs the result, but a defect must not be lost.
                if not isinstance(done.exception(), NoLongerWanted):
                    done.result()
                return
            try:
                then(done.result())
            except Exception as error:  # a defect in one look must not stop the others
                fail(error)
            self._disarm_unneeded()

        self._loop.run_in_executor(lane.threads, work).add_done_callback(finish)

    # -- hints ----------------------------------------------------------------------------------------------------

    def _take_dirt(self, batch: tuple[Dirt, ...]) -> None:
        """Take one batch of hints: mark every target that matches one of the paths, then report them once (rule 10)."""
        hinted: dict[str, None] = {}
        for dirt in batch:
            match dirt:
                case Dirty(names=names) if names is not None:
                    self._take_names(dirt, names, hinted)
                case Dirty(folder) | Gone(folder):
                    self._try_take(self._take_folder, folder, hinted)
                case Lost():
                    self._take_loss(hinted)
        self._hint(hinted)

    def _hint(self, keys: Iterable[str]) -> None:
        if hinted := tuple(keys):
            self._report(TargetsHinted(hinted))

    def _try_take(self, take: Callable[[str, dict[str, None]], None], path: str, hinted: dict[str, None]) -> None:
        """Process one path. A defect must not drop the rest of the batch. The sweep looks at the failed path again."""
        try:
            take(path, hinted)
        except Exception as error:
            self.defects.take(show(path), error)

    def _take_names(self, dirt: Dirty, names: tuple[str, ...], hinted: dict[str, None]) -> None:
        folder, folders = dirt.folder, dirt.folders
        unwritten = frozenset(dirt.unwritten) if dirt.unwritten is not None else None
        lead = folder if folder.endswith("/") else f"{folder}/"
        for name in names:
            path = lead + name
            is_folder = path in self._folders or (os.path.isdir(path) if folders is None else name in folders)
            # A watcher does not report a link to a folder as a folder, but patterns follow it.
            if is_folder or self._trie.leads_through(path):
                self._try_take(self._take_folder, path, hinted)
            else:
                evidence: Evidence = "unknown" if unwritten is None else "unwritten" if name in unwritten else "written"
                self._try_take(partial(self._take_path, evidence=evidence), path, hinted)

    def _take_path(
        self, path: str, hinted: dict[str, None], evidence: Evidence = "unknown", *, is_swept: bool = False
    ) -> None:
        """Mark the targets that match a path.

        With `is_swept`, the sweep found the path. A path that is marked already is then left as it is, because the
        earlier report has better evidence (rule 17).
        """
        for one in self._links.list_with(path):
            for followed in self._trie.find(one):
                if followed.walker.means(one) and not (is_swept and followed.is_marked(one)):
                    followed.mark(one, evidence)
                    hinted[followed.key] = None

    def _take_folder(self, folder: str, hinted: dict[str, None]) -> None:
        """Mark the targets that match anything at or below a folder that appeared, vanished or was replaced."""
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
        """Watch a new folder and the first few below it before any look, because `mkdir -p` is faster than settle."""
        pending = [top]
        for _ in range(_ARMED_AT_ONCE):
            if not pending:
                return
            folder = pending.pop()
            if self._looker.arm([folder]):
                continue
            self._folders.approve(folder)
            try:
                with os.scandir(folder) as entries:
                    inside = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                # The folder is gone again or cannot be read. The look reports which.
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
            followed.mark_whole()
            hinted[followed.key] = None

    # -- changes without hints ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Do the work of one tick: a slice of the sweep, due polls, racy paths, a batch of the cache."""
        self._tick_timer = self._loop.call_later(self._tick_seconds, self._tick)
        for step in (
            self._take_mounts,
            self._sweep_on,
            self._poll_due,
            self._reread_racy,
            self._end_approvals,
            self._lanes.rest,
            self._drop_kept,
            self._write_cache,
        ):
            try:
                step()
            except Exception as error:  # a defect in one step must not stop the others
                self.defects.take("the periodic work of the file source", error)

    def _take_mounts(self) -> None:
        """Process changed mounts.

        No watcher reports a mount over a folder, or an unmount of a file system that is still mounted elsewhere.
        """
        hinted: dict[str, None] = {}
        changed = self._looker.mounts.take_changed()
        for point in changed:
            self._try_take(self._take_folder, point, hinted)
        for key in hinted:
            self._followed[key].note_remount(changed)
        self._hint(hinted)

    def _sweep_on(self) -> None:
        hinted: dict[str, None] = {}
        paths, folders = self._sweep.slice()
        if paths:
            self._hints.hear()  # A report of the same change may be in the watcher's queue, and has better evidence.
        for path in paths:
            self._try_take(partial(self._take_path, is_swept=True), path, hinted)
        for folder in folders:
            self._folders.mtimes.pop(folder, None)
            self._try_take(self._take_folder, folder, hinted)
        self._hint(hinted)

    def _poll_due(self) -> None:
        for key in self._polls.take_due(time.monotonic()):
            if (followed := self._followed.get(key)) is not None:
                self._poll(followed)

    def _drop_kept(self) -> None:
        if self._cache.has_kept and all(followed.manifest is not None for followed in self._followed.values()):
            self._cache.drop_kept()

    def _write_cache(self) -> None:
        self._writer.write_when_calm(self._loop, self._lanes.long.threads, is_pressed=self._lanes.is_any_taken)

    def _end_approvals(self) -> None:
        self._folders.end_approvals()
        self._disarm_unneeded()

    def _is_left_out(self, path: str) -> bool:
        """Does the sweep skip this path? A path that no target matches any more is dropped from the cache."""
        if path in self._folders.mtimes:
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

        def fail(error: Exception) -> None:
            self.defects.take(show(followed.pattern.base), error)
            # The look gets the same error again, and reports it for its target.
            finish(is_changed=followed.problem is None)

        self._submit(self._lanes.far, lambda: self._peek(followed), finish, fail)

    def _peek(self, followed: Followed) -> bool:
        """Compare only stat keys with the last look. True if a look is needed. Called in a thread."""
        survey = self._looker.survey(followed, _EVERYTHING, wants_content=False)
        if bool(survey.problems) != (followed.problem is not None) or survey.refused.keys() != followed.refused.keys():
            return True
        members = followed.manifest.members if followed.manifest is not None else {}
        found = {path: seen for path, seen in survey.found.items() if seen is not None}
        return found.keys() != members.keys() or any(seen.key != members[path].key for path, seen in found.items())

    def _reread_racy(self) -> None:
        paths = self._racy.take_due()
        if paths:
            read = partial(reread, paths, self._looker.closing.is_set)
            self._submit(
                self._lanes.long, read, partial(self._take_reread, paths), partial(self._fail_rereading, paths)
            )

    def _fail_rereading(self, paths: dict[str, Seen], error: Exception) -> None:
        """Mark the paths for a look, because it is unknown whether they changed."""
        self.defects.take("files that were just written", error)
        self._take_reread(paths, Reread(list(paths), []))

    def _take_reread(self, paths: dict[str, Seen], found: Reread) -> None:
        hinted: dict[str, None] = {}
        for path in found.rewritten:
            self._try_take(self._take_path, path, hinted)
        # The other paths are no longer racy, and are stored as such.
        for path in paths.keys() - {*found.rewritten, *found.moved}:
            if self._cache.seen.get(path) is paths[path]:
                self._cache.put(path, paths[path])
        self._hint(hinted)

    def find(self, key: str) -> LatestLook | None:
        """Return the result of the latest look at a target. None before the first look."""
        followed = self._followed.get(key)
        if followed is None or followed.manifest is None:
            return None
        manifest, is_known = followed.manifest, followed.problem is None
        is_stale = followed.is_looking or followed.is_dirty
        return LatestLook(followed.version if is_known else None, manifest.members, manifest.stamp, is_stale)

    def peek(self, key: str) -> LatestLook | None:
        """Return the members of a target at this moment, without a hint. None if that would take too long."""
        followed = self._followed.get(key)
        if (
            followed is None
            or followed.manifest is None
            or followed.refused
            or len(followed.manifest.members) > _PEEKED_AT
        ):
            return None
        try:
            survey = self._looker.survey(followed, _EVERYTHING, wants_content=True, allowance=Allowance())
        except TooLarge:
            return None
        members = {path: seen for path, seen in survey.found.items() if seen is not None}
        return LatestLook(None, members) if not survey.problems else None

    # -- descriptions ---------------------------------------------------------------------------------------------

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
        """List the targets that match a path, exclude it or nearly match it. Empty for the state folder."""
        path = os.path.abspath(path)
        if self._state.holds(path):
            return []
        meanings = [(followed.key, followed.explain(path)) for followed in self._trie.find(path)]
        misses = self._trie.near_misses(path)
        return meanings + [(miss.value.key, NearlyMatched(miss.pattern.text, miss.words)) for miss in misses]


def _concerns(followed: Followed, folder: str) -> bool:
    """Does a target match anything at or below this folder, with its excludes considered?"""
    base = followed.pattern.base
    return contains(folder, base) or followed.walker.enters(folder) or followed.walker.means(folder)


def _join(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)"

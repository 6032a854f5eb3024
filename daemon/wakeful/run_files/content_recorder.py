"""Keeps the contents of runs: the files that a run found when it began, and those that it left when it ended.

`RunStarter` calls `save_outputs` before the process is started and `begin` after it. The runner's report goes through
`end`. The core delays `run_finished` until `OutputsKept`: for a short time, and never for the inputs, which are named
by their digests and kept later (pending_contents.py). Threads read and write the contents. The loop lists the paths. It
also keeps the few outputs that others changed since the last run: the run would overwrite them before a thread could
read them. After an error, a message is printed and the run is recorded without its files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
from msgspec.structs import replace

from wakeful.core.deciding.run_end import are_looked_at
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.observations import OutputsKept, ProcessEnded, RunRecovered
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.bindings import FileBinding
from wakeful.errors import WakefulError
from wakeful.run_files.capture import LASTING, Capture, Limits, SeenPath
from wakeful.run_files.file_record import INLINE_PATHS, BindingFiles, Found, RunFiles
from wakeful.run_files.path_lists import Listing, keep_listing
from wakeful.run_files.pending_contents import FLUSH_SECONDS, Backlog
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

_POOL_SIZE = 2
# The most seconds that the end of a run waits until its outputs are read and flushed. The rest is recorded as not kept,
# but we still try to keep it.
LONGEST_WAIT_SECONDS = 0.2
# Seconds after which unread inputs are given up, because a dead mount must not delay the end of a run for ever.
_PATIENCE_SECONDS = 60.0
# The largest outputs of a binding that are kept before a run starts. The event loop waits for that. Larger ones are
# kept in a thread after the start, and the run may overwrite some of them before that.
_SAVED_BYTES = 256 << 10
# The most paths in the long lists that are remembered (about 20 MB). Unchanged parts of a remembered list need not be
# written again. Above this limit, the oldest lists are dropped.
_PATHS_REMEMBERED = 200_000


class Look(Protocol):
    """The latest look at a target. `stamp` changes whenever a stat key does. The loop may change `members` later."""

    @property
    def version(self) -> str | None: ...
    @property
    def stamp(self) -> str: ...
    @property
    def members(self) -> Mapping[str, SeenPath]: ...
    @property
    def is_stale(self) -> bool: ...


FindLook = Callable[[str], Look | None]


class KeptLists(Protocol):
    """Holds the list of files that a run found, for this daemon and the next, for as long as the run is kept."""

    def put_list(self, run_id: str, words: bytes) -> None: ...
    def take_list(self, run_id: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One look, copied on the loop. `members` is None if the same look is already stored, as `last`."""

    name: str
    target: str
    version: str | None
    stamp: str
    members: dict[str, SeenPath] | None
    last: Listing | None
    # Others may have changed these outputs since the look. Always False for inputs.
    is_stale: bool
    is_written: bool


@dataclass(slots=True)
class _OpenRecord:
    """The record of one run under way."""

    session: str
    run_id: str
    root: str
    targets: tuple[tuple[str, str, str], ...]
    find: FindLook
    capture: Capture
    before: Future[dict[str, Found]]
    # The address of the record, as soon as it is written. The contents that it names may not be flushed yet.
    address: str | None = None
    is_reported: bool = False


class Keeper:
    """Keeps the files of all runs of a daemon. Constructed on the loop, and called on it.

    `observe` is called with a run's end and then, if its files are kept, with one `OutputsKept`.
    """

    def __init__(
        self,
        core: Core,
        blobs: Blobs,
        observe: Callable[[ProcessEnded | RunRecovered | OutputsKept], None],
        say: Callable[[str], None],
        limits: Callable[[], Limits | None] = Limits,
        *,
        lists: KeptLists | None = None,
        is_looking: Callable[[], bool] = lambda: False,
    ) -> None:
        """`lists` keeps lists of files for the next daemon. None if runs end with the daemon.

        `is_looking` returns True while threads are looking at files.
        """
        self._core = core
        self._blobs = blobs
        self._observe = observe
        self._say = say
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(_POOL_SIZE, "contents")
        # The ends of runs have a pool of their own. A run holds its slot until its end, so that end must not queue
        # behind the lists of other runs.
        self._end_pool = Pool(_POOL_SIZE, "contents-end")
        self._backlog = Backlog(blobs, self._lose, self._is_pressed)
        self._lists = lists
        self._is_looking = is_looking
        self._flush_due: asyncio.TimerHandle | None = None
        self._saved: dict[str, dict[str, Found]] = {}
        self._open: dict[str, _OpenRecord] = {}
        self._ending: dict[str, _OpenRecord] = {}
        # Written target -> the files that its last run left: as seen at the look, and as stored.
        self._left: dict[str, tuple[dict[str, SeenPath], Found]] = {}
        # Target -> the stamp of a look and the list made from it, oldest first.
        self._listings: dict[str, tuple[str, Listing]] = {}

    def save_outputs(self, session: Session, run: OpenRun, peek: FindLook) -> None:
        """Keep the files that a run is about to overwrite, if others changed them. Called just before the start."""
        targets = [target for target in self._targets_of(session) if target[1] != "read"]
        if not targets or (limits := self._limits()) is None:
            return
        capture = Capture(self._blobs, limits)
        saved = self._saved[run.run_id] = {}
        for name, _, target in targets:
            look = peek(target)
            if look is None or sum(sight.size for sight in look.members.values()) > _SAVED_BYTES:
                continue
            left, found = self._left.get(target, (None, None))
            # If the files are as the last run left them, they are already kept.
            if found is None or left != look.members:
                try:
                    found = Found(version=look.version, entries=capture.take(run.spec.root, look.members))
                except OSError as error:
                    self._say(f"run {run.run_id}: the files that it will overwrite were not kept: {error}")
                    continue
            saved[name] = found

    def begin(self, session: Session, run: OpenRun, find: FindLook) -> None:
        """List and keep the files that a run finds. Called just after its process was started."""
        limits, targets = self._limits(), self._targets_of(session)
        saved = self._saved.pop(run.run_id, {})
        if limits is None or not targets:
            return
        capture = Capture(self._blobs, limits)
        rest = tuple(target for target in targets if target[0] not in saved)
        before = self._pool.submit(self._keep, capture, run.spec.root, self._take_snapshots(rest, find), saved)
        self._open[run.run_id] = _OpenRecord(session.id, run.run_id, run.spec.root, targets, find, capture, before)
        if self._lists is not None:
            before.add_done_callback(partial(self._save_list, run.run_id))

    def _save_list(self, run_id: str, before: Future[dict[str, Found]]) -> None:
        if before.cancelled() or before.exception() is not None:
            return
        words = msgspec.msgpack.encode(before.result())

        def put() -> None:
            if self._lists is not None and run_id in self._open:
                self._lists.put_list(run_id, words)

        self._loop.call_soon_threadsafe(put)

    def resume(self, session: Session, run: OpenRun, find: FindLook) -> None:
        """Go on with a run of an earlier daemon, if that daemon left the list of the files that the run found."""
        words = self._lists.take_list(run.run_id) if self._lists is not None else None
        limits, targets = self._limits(), self._targets_of(session)
        if words is None or limits is None or not targets:
            return
        before: Future[dict[str, Found]] = Future()
        before.set_result(msgspec.msgpack.decode(words, type=dict[str, Found]))
        self._open[run.run_id] = _OpenRecord(
            session.id, run.run_id, run.spec.root, targets, find, Capture(self._blobs, limits), before
        )

    def _targets_of(self, session: Session) -> tuple[tuple[str, str, str], ...]:
        """Return name, access and target of every file binding, including the one for the run's program."""
        return tuple(
            (bound.name, bound.binding.access, bound.target)
            for bound in self._core.looked.bounds.get(session.id, ())
            if bound.is_file and bound.target is not None and isinstance(bound.binding, FileBinding)
        )

    def end(self, report: ProcessEnded | RunRecovered) -> None:
        """Pass on a run's end. Its outputs are then looked at, and kept before the run is closed."""
        record = self._open.pop(report.run_id, None)
        # No record was begun: the run has no files, never had a process, or was lost with an earlier daemon.
        if record is None or isinstance(report, RunRecovered):
            self._observe(report)
            return
        # An input with a known digest is kept later. An input without a digest that was not read by now is given up.
        record.capture.inputs_until = time.monotonic()
        self._ending[report.run_id] = record
        self._observe(replace(report, is_keeping=True))
        self.attend()

    def attend_soon(self) -> None:
        """Call `attend` in the next loop turn, because the caller may report a look from inside a decision."""
        if self._ending:
            self._loop.call_soon(self.attend)

    def attend(self) -> None:
        """Close the record of each ended run whose outputs have been looked at."""
        for run_id, record in list(self._ending.items()):
            ended = self._core.looked.ended.get(record.session)
            if ended is None and self._is_landing(record):
                continue
            if ended is None or ended.report.run_id != run_id:
                # The core closed the run without the record: a look hung, or the session was removed.
                del self._ending[run_id]
            elif are_looked_at(self._core, ended.awaited):
                del self._ending[run_id]
                self._close_record(record)

    def _is_landing(self, record: _OpenRecord) -> bool:
        """Are the run's staged outputs not yet in place?"""
        session = self._core.state.sessions.get(record.session)
        run = session.run if session is not None else None
        return run is not None and run.run_id == record.run_id and run.staged is not None

    def forget(self) -> None:
        """Drop the remembered lists and outputs, because blobs that they refer to may have been removed."""
        self._left.clear()
        self._listings.clear()

    async def close(self) -> None:
        """Finish the records of the runs, and keep their inputs for as long as a stop may take.

        All runs must be over.
        """
        if self._flush_due is not None:
            self._flush_due.cancel()
        for pool in (self._pool, self._end_pool):
            await asyncio.to_thread(partial(pool.shutdown, wait=True))
        await asyncio.to_thread(self._backlog.close)

    def _take_snapshots(self, targets: tuple[tuple[str, str, str], ...], find: FindLook) -> list[_Snapshot]:
        snapshots = []
        for name, access, target in targets:
            look = find(target)
            if look is None:
                continue
            stamp, last = self._listings.get(target, ("", None))
            is_known = last is not None and stamp == look.stamp and not last.unsettled
            members = None if is_known else dict(look.members)
            is_written = access != "read"
            snapshots.append(
                _Snapshot(
                    name, target, look.version, look.stamp, members, last, look.is_stale and is_written, is_written
                )
            )
        # Files that the run may overwrite are read before those that it only reads.
        return sorted(snapshots, key=lambda snapshot: not snapshot.is_written)

    def _remember(self, target: str, stamp: str, listing: Listing) -> None:
        self._listings.pop(target, None)
        self._listings[target] = (stamp, listing)
        left = sum(len(known.members) for _, known in self._listings.values()) - _PATHS_REMEMBERED
        while left > 0:
            oldest = next(iter(self._listings))
            left -= len(self._listings.pop(oldest)[1].members)

    def _close_record(self, record: _OpenRecord) -> None:
        written = tuple(target for target in record.targets if target[1] != "read")
        snapshots = self._take_snapshots(written, record.find)
        record.capture.outputs_until = time.monotonic() + LONGEST_WAIT_SECONDS
        work = partial(self._keep_rest, record, snapshots)
        self._loop.run_in_executor(self._end_pool, work).add_done_callback(partial(self._report, record))
        self._loop.call_later(LONGEST_WAIT_SECONDS, self._report_unflushed, record)

    def _report_unflushed(self, record: _OpenRecord) -> None:
        """Report a record before it is flushed, because the disk is slow. Every blob is checked when it is read."""
        if record.address is not None and not record.is_reported:
            self._observe_kept(record, record.address)

    def _report(self, record: _OpenRecord, done: asyncio.Future[None]) -> None:
        try:
            done.result()
        except Exception as error:
            # Report the run's end despite the error, because no other code would.
            record.address = None
            self._say(f"run {record.run_id}: its files were not kept: {error or type(error).__name__}")
            if not isinstance(error, OSError | WakefulError | MemoryError):
                self._loop.call_exception_handler(
                    {"message": f"{record.run_id}: a defect of wakeful", "exception": error}
                )
        if not record.is_reported:
            self._observe_kept(record, record.address)

    def _observe_kept(self, record: _OpenRecord, files: str | None) -> None:
        record.is_reported = True
        self._flush_soon()
        self._observe(OutputsKept(session=record.session, run_id=record.run_id, files=files))

    def _flush_soon(self) -> None:
        """Flush after `FLUSH_SECONDS`, once for several runs. A power cut loses at most the records since then."""
        if self._flush_due is None:
            self._flush_due = self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flush_due = None
        self._backlog.flush()

    def _give_up(self, words: str) -> None:
        """Drop the remembered lists, because they depend on contents that were given up.

        The lists are then made again, and the contents tried again.
        """
        self.forget()
        self._say(words)

    # -- work in a thread ---------------------------------------------------------------------

    def _is_pressed(self) -> bool:
        """Is work under way that is more urgent: looks, queued runs, or the lists of runs?"""
        # The records are copied in one step, because the loop goes on adding and removing them.
        return (
            self._is_looking()
            or bool(self._core.ready)
            or any(not record.before.done() for record in list(self._open.values()))
        )

    def _lose(self, words: str) -> None:
        self._loop.call_soon_threadsafe(self._give_up, words)

    def _keep(
        self, capture: Capture, root: str, snapshots: list[_Snapshot], saved: dict[str, Found]
    ) -> dict[str, Found]:
        try:
            return saved | {snapshot.name: self._keep_one(capture, root, snapshot) for snapshot in snapshots}
        finally:
            self._backlog.add(capture.take_pending())

    def _keep_one(self, capture: Capture, root: str, snapshot: _Snapshot) -> Found:
        found = Found(version=snapshot.version, is_stale=snapshot.is_stale)
        if snapshot.members is None:
            assert snapshot.last is not None
            return replace(found, listing=snapshot.last.address)
        is_later = not snapshot.is_written
        if len(snapshot.members) <= INLINE_PATHS:
            return replace(found, entries=capture.take(root, snapshot.members, is_later=is_later))
        listing = keep_listing(capture, root, snapshot.members, snapshot.last, is_later=is_later)
        self._loop.call_soon_threadsafe(self._remember, snapshot.target, snapshot.stamp, listing)
        return replace(found, listing=listing.address)

    def _keep_rest(self, record: _OpenRecord, snapshots: list[_Snapshot]) -> None:
        before = record.before.result(_PATIENCE_SECONDS)
        after = self._keep(record.capture, record.root, snapshots, {})
        for snapshot in snapshots:
            found = after[snapshot.name]
            if (
                snapshot.members is not None
                and found.listing is None
                and all(entry.not_kept in LASTING for entry in found.entries)
            ):
                self._left[snapshot.target] = (snapshot.members, replace(found, is_stale=False))
        bindings = tuple(
            BindingFiles(name=name, access=access, before=before.get(name), after=after.get(name))
            for name, access, _ in record.targets
        )
        files = RunFiles(run_id=record.run_id, root=record.root, bindings=bindings)
        record.address = self._blobs.add(msgspec.json.encode(files))
        # Flush only outputs, because the next run may overwrite them.
        if time.monotonic() < record.capture.outputs_until:
            self._blobs.flush(record.capture.relied_on)

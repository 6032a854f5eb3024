"""Keeps the contents of runs while the daemon works: what a run found when it began, and what it left when it ended.

`RunStarter` calls `save_outputs` before the process is started and `begin` after it, and the runner's report goes
through `end`. The core then waits with `run_finished` for `OutputsKept`: for a short time, and never for the inputs,
which are named by their digests and kept later (backlog.py). Reading and writing happen in threads; the loop only takes
down which paths there are, and keeps the few outputs that other hands changed since the last run: the run would
overwrite them sooner than a thread could read them. What goes wrong is said, and the run is recorded without its files.
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

from wakeful.core.deciding.machine import Core
from wakeful.core.deciding.run_end import has_last_look
from wakeful.core.record.observations import OutputsKept, ProcessEnded, RunRecovered
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.session import FileBinding
from wakeful.errors import WakefulError
from wakeful.run_files.backlog import FLUSH_SECONDS, Backlog
from wakeful.run_files.capture import LASTING, Capture, Limits, Sight
from wakeful.run_files.file_record import INLINE_PATHS, BindingFiles, Found, RunFiles
from wakeful.run_files.path_lists import Listing, keep_listing
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

_POOL_SIZE = 2
# How long the end of a run waits for what it wrote to be read and flushed; more is said to be not kept,
# and tried all the same.
LONGEST_WAIT_SECONDS = 0.2
# The inputs of a run are given up if they could not be read for so long: a dead mount must not hold the end of a run.
_PATIENCE_SECONDS = 60.0
# More than this is not kept before a run starts, on the loop: it may overwrite some before a thread has kept them.
_SAVED_BYTES = 256 << 10
# Paths of long lists that are remembered, so that only what changed is taken down again; some 20 MB. Beyond,
# the oldest go.
_PATHS_REMEMBERED = 200_000


class Look(Protocol):
    """The latest look at a target: `stamp` moves whenever a stat key did. `members` go on changing, on the loop."""

    @property
    def version(self) -> str | None: ...
    @property
    def stamp(self) -> str: ...
    @property
    def members(self) -> Mapping[str, Sight]: ...
    @property
    def is_stale(self) -> bool: ...


FindLook = Callable[[str], Look | None]


class KeptLists(Protocol):
    """Holds the list of what a run found for as long as the run is kept, whichever daemon asks for it."""

    def put_list(self, run_id: str, words: bytes) -> None: ...
    def take_list(self, run_id: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One look, copied on the loop. `members` is None where the same look was kept before, as `last`."""

    name: str
    target: str
    version: str | None
    stamp: str
    members: dict[str, Sight] | None
    last: Listing | None
    # Others may have changed the run's outputs since this look.
    is_stale: bool
    is_written: bool


@dataclass(slots=True)
class _OpenRecord:
    """One run under way."""

    session: str
    run_id: str
    root: str
    targets: tuple[tuple[str, str, str], ...]
    find: FindLook
    capture: Capture
    before: Future[dict[str, Found]]
    # Where the record is, as soon as it is written; what it names may not be flushed yet.
    address: str | None = None
    is_reported: bool = False


class Keeper:
    """Constructed on the loop.

    `observe` takes a run's end and, where its files are kept, one `OutputsKept` after it.
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
        """`lists` outlive the daemon; None: runs end with it.

        `is_looking` tells whether threads are looking at files.
        """
        self._core = core
        self._blobs = blobs
        self._observe = observe
        self._say = say
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(_POOL_SIZE, "contents")
        # Apart: the end of a run holds its slot, and must not queue behind the lists of others.
        self._end_pool = Pool(_POOL_SIZE, "contents-end")
        self._backlog = Backlog(blobs, self._lose, self._is_pressed)
        self._lists = lists
        self._is_looking = is_looking
        self._flush_due: asyncio.TimerHandle | None = None
        self._saved: dict[str, dict[str, Found]] = {}
        self._open: dict[str, _OpenRecord] = {}
        self._ending: dict[str, _OpenRecord] = {}
        # Written target -> what its last run left: as it was seen, and as it was kept.
        self._left: dict[str, tuple[dict[str, Sight], Found]] = {}
        # Target -> the stamp of a look and the list that was made of it, oldest first.
        self._listings: dict[str, tuple[str, Listing]] = {}

    def save_outputs(self, session: Session, run: OpenRun, peek: FindLook) -> None:
        """The run is about to be started: what stands where it will write is kept first, where others changed it."""
        limits = self._limits()
        targets = [target for target in self._targets_of(session) if target[1] != "read"]
        if limits is None or not targets:
            return
        capture = Capture(self._blobs, limits)
        saved = self._saved[run.run_id] = {}
        for name, _, target in targets:
            look = peek(target)
            if look is None or sum(sight.size for sight in look.members.values()) > _SAVED_BYTES:
                continue
            left, found = self._left.get(target, (None, None))
            # As its last run left it, to the very object: that is kept already.
            if found is None or left != look.members:
                try:
                    found = Found(version=look.version, entries=capture.take(run.spec.root, look.members))
                except OSError as error:
                    self._say(f"run {run.run_id}: what it will overwrite was not kept: {error}")
                    continue
            saved[name] = found

    def begin(self, session: Session, run: OpenRun, find: FindLook) -> None:
        """The run's process was started just now: take down what it finds."""
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
        """The run was begun by an earlier daemon: what it found is in the list that one made, or not known at all."""
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
        """Name, access and target of every binding that means files, the program's included."""
        return tuple(
            (bound.name, bound.binding.access, bound.target)
            for bound in self._core.looked.bounds.get(session.id, ())
            if bound.is_file and bound.target is not None and isinstance(bound.binding, FileBinding)
        )

    def end(self, report: ProcessEnded | RunRecovered) -> None:
        """The run's process tree is gone.

        Its outputs are looked at next; what they hold is kept before the run is closed.
        """
        record = self._open.pop(report.run_id, None)
        # Nothing was begun: it has no files, never had a process, or was lost with an earlier daemon.
        if record is None or isinstance(report, RunRecovered):
            self._observe(report)
            return
        # A content that is named by its digest is kept later. A content without a digest that was not read by now is
        # given up.
        record.capture.inputs_until = time.monotonic()
        self._ending[report.run_id] = record
        self._observe(replace(report, is_keeping=True))
        self.attend()

    def attend_soon(self) -> None:
        """A look was reported, perhaps from inside a decision: what it was the last one for goes on after that."""
        if self._ending:
            self._loop.call_soon(self.attend)

    def attend(self) -> None:
        for run_id, record in list(self._ending.items()):
            ended = self._core.looked.ended.get(record.session)
            if ended is None and self._is_landing(record):
                continue
            if ended is None or ended.report.run_id != run_id:
                # Closed without us: a look that hung, a session that was removed.
                del self._ending[run_id]
            elif has_last_look(self._core, ended):
                del self._ending[run_id]
                self._close_record(record)

    def _is_landing(self, record: _OpenRecord) -> bool:
        """Its outputs are not in place yet."""
        session = self._core.state.sessions.get(record.session)
        run = session.run if session is not None else None
        return run is not None and run.run_id == record.run_id and run.staged is not None

    def forget(self) -> None:
        """Blobs were removed: what is remembered of lists and outputs may lean on them, and is worked out again."""
        self._left.clear()
        self._listings.clear()

    async def close(self) -> None:
        """Runs are over: their records are written, and what they found is kept for as long as a stop may take."""
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
        """A slow disk: the record and what it names are written, and each is checked when it is read."""
        if record.address is not None and not record.is_reported:
            self._observe_kept(record, record.address)

    def _report(self, record: _OpenRecord, done: asyncio.Future[None]) -> None:
        try:
            done.result()
        except Exception as error:
            # The run is over whatever the error was, and nobody else would ever say so.
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
        """Records of runs are not worth a flush each: a power cut takes at worst what can be asked of the last
        seconds' runs."""
        if self._flush_due is None:
            self._flush_due = self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flush_due = None
        self._backlog.flush()

    def _give_up(self, words: str) -> None:
        """Forget the remembered lists, since they depend on contents that were given up.

        The lists are made again, and the contents are tried again.
        """
        self.forget()
        self._say(words)

    # -- in a thread --------------------------------------------------------------------------

    def _is_pressed(self) -> bool:
        """Does somebody wait for looks, for a slot, or for the lists of runs?"""
        # Copied in one step: the loop goes on opening and closing.
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
            self._backlog.add(capture.hand_over())

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
        # Outputs alone: the next run may overwrite them, and nobody could write them again.
        if time.monotonic() < record.capture.outputs_until:
            self._blobs.flush(record.capture.relied_on)

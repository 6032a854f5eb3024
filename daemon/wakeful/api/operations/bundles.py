"""The operations on bundles: save, load, archive and move.

The daemon reads and writes the files itself, off the loop, as the user it runs as. Loaded records have no effect until
the call at the end of the load is durable.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from wakeful.api.contract import Service, find_named
from wakeful.api.gate.callers import Caller
from wakeful.api.operations.history_calls import ArrivalRecord, Receipt, find_free_name, finish_erase, moving
from wakeful.api.operations.participants import refuse_by_uid
from wakeful.bundles.format import Manifest
from wakeful.bundles.load import Loaded, inspect, restore_archive, verify_bundle
from wakeful.bundles.load import load as take_bundle
from wakeful.bundles.save import Saved
from wakeful.bundles.save import save as cut_bundle
from wakeful.bundles.scratch_files import OLDER, STAGED
from wakeful.core.calls import call_types as calls
from wakeful.core.calls.history import FROM_BUNDLE
from wakeful.core.record.events import PayloadErased
from wakeful.core.record.state import Archived, Departed, Moving, Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Conflict, Record
from wakeful.history.positions import fold_at
from wakeful.specs.value_parsers import find_name_problem
from wakeful.system.blobs import Blobs
from wakeful.text.display import count
from wakeful.trust.trust_review import describe

Progress = Callable[[int, int], None]
Answer = dict[str, Any]
ARCHIVE = "archive"
SCRATCH = "scratch"


class BundleWork:
    """The context of one request: its caller, the daemon's parts, and `tell`, which reports progress."""

    def __init__(
        self, service: Service, author: str, tell: Progress, uid: int | None = None, person: str | None = None
    ) -> None:
        self.service = service
        self.log = service.log
        self.blobs: Blobs = service.blobs
        self.state = Path(service.places.state)
        self.tell = tell
        self._asking = Caller(author, uid=uid, person=person)

    async def call(self, call: calls.Call) -> str:
        refuse_by_uid(self.service.core, call, self._asking)
        return (await self.service.call(call, author=self._asking.author, key=None, run=None)).words

    @property
    def now(self) -> int:
        return self.service.moment().wall

    def scratch(self, session_id: str) -> Path:
        return self.state / SCRATCH / session_id


async def save(work: BundleWork, body: Any) -> Answer:
    session = find_named(work.service, body.name)
    saved = await asyncio.to_thread(_save, work, session, Path(body.path), body.to, "save", {})
    return _say_saved(body.name, saved, f"saved to {body.path}")


def _save(
    work: BundleWork,
    session: Session,
    path: Path,
    to_seq: int | None,
    cut: Literal["save", "migrate", "archive"],
    about: dict[str, str],
) -> Saved:
    spec = msgspec.json.encode(session.spec).decode() if session.spec is not None else None
    return cut_bundle(
        work.log,
        work.blobs,
        session.id,
        path,
        name=session.name,
        cut_at=work.now,
        cut=cut,
        to_seq=to_seq,
        spec=spec,
        about=about,
        scratch=work.scratch(session.id),
        progress=work.tell,
    )


def save_to(work: BundleWork, session: Session, path: Path) -> Saved:
    """Write a session's bundle to `path`, which is an existing empty file. Blocking."""
    path.unlink()
    return _save(work, session, path, None, "save", {})


def _say_saved(name: str, saved: Saved, words: str) -> Answer:
    contents = saved.contents
    lost = f"; {count(saved.missing_blobs, 'blob')} no longer there" if saved.missing_blobs else ""
    passed = (
        f"; left out of its scratch folder: {len(saved.passed_files):,} that are not files"
        if saved.passed_files
        else ""
    )
    return {
        "name": name,
        "words": (
            f"{words}: {count(contents.records, 'record')}, {count(contents.blobs, 'blob')}, "
            f"{count(contents.files, 'scratch file')}{lost}{passed}"
        ),
        "path": str(saved.path),
        "digest": contents.digest,
        "records": contents.records,
        "head": contents.manifest.head,
    }


async def load(work: BundleWork, body: Any) -> Answer:
    if body.name is not None:
        return await _load_archived(work, body.name)
    if body.path is None:
        raise CallerError("a bundle's path is needed, or the name of an archived session")
    if body.move:
        return await _load_moved(work, Path(body.path))
    return await _load_fork(work, Path(body.path), body)


async def _load_archived(work: BundleWork, name: str) -> Answer:
    session = find_named(work.service, name)
    if not isinstance(session.closed, Archived):
        raise CallerError(f"{name} is not archived; to load a bundle give its file: wakeful load ./FILE")
    path = work.state / ARCHIVE / session.closed.bundle
    restored = await asyncio.to_thread(restore_archive, work.log, work.blobs, path, work.tell)
    words = await work.call(calls.Restore(name=name))
    work.service.report_spec_again(name)
    return {"name": name, "words": f"{words}: {count(restored, 'payload')}", "path": str(path)}


async def _load_fork(work: BundleWork, path: Path, body: Any) -> Answer:
    """Load a bundle as a fork: import its records read-only, and open a new session that continues after them."""
    session_id = (await asyncio.to_thread(inspect, path)).session
    _refuse_archived(work, path, session_id)
    staged = work.scratch(f"{STAGED}{secrets.token_hex(8)}")
    # Records of an older bundle of this session may have been imported for reading only. A newer bundle adds records.
    is_read_alone = session_id not in work.service.core.state.sessions
    loaded = await asyncio.to_thread(
        take_bundle, work.log, work.blobs, path, scratch=staged, progress=work.tell, is_inert=True, extend=is_read_alone
    )
    manifest = loaded.contents.manifest
    past = await asyncio.to_thread(fold_at, work.log, manifest.session, manifest.records)
    taken = work.service.core.state.ids
    new = body.new or (past.name if past.name not in taken else find_free_name(work.service, f"{past.name}-loaded"))
    problem = find_name_problem(new)
    if problem is not None:
        raise CallerError(problem)
    doubt = None if _is_own(work, manifest) else FROM_BUNDLE
    words = await work.call(
        calls.Fork(name=past.name, new=new, past=past, origin_hash=manifest.head, root=body.root, needs_trust=doubt)
    )
    await asyncio.to_thread(_settle_staged, staged, work.scratch(taken[new]))
    answer = {"name": new, "words": words, "origin": manifest.session, "head": manifest.head, "records": loaded.records}
    return answer | await _show_asked(work, new)


def _settle_staged(staged: Path, scratch: Path) -> None:
    """Move the staged scratch files into place. If they are in place already, because this load repeats a finished one,
    remove the staged files instead."""
    if staged.is_dir() and scratch.exists():
        shutil.rmtree(staged)
    elif staged.is_dir():
        staged.rename(scratch)


def _is_own(work: BundleWork, manifest: Manifest) -> bool:
    """Did this daemon make the records of this bundle itself?

    The daemon's own log decides, because its hash covers all records. The claims of the bundle do not count.
    """
    session = work.service.core.state.sessions.get(manifest.session)
    if (
        session is None
        or session.declaration.needs_trust is not None
        or not session.declaration.foreign_until < manifest.records <= session.seq
    ):
        return False
    last = next(work.log.read(manifest.session, from_seq=manifest.records, limit=1), None)
    return last is not None and last.seq == manifest.records and last.hash.hex() == manifest.head


async def _show_asked(work: BundleWork, name: str) -> Answer:
    """Show the spec of a loaded bundle to the person who loads it, and whether the session waits for trust."""
    session = find_named(work.service, name)
    spec = session.spec
    if spec is None:
        return {}
    agent = work.service.core.agents.get(spec.agent) if spec.agent is not None else None
    return {
        "spec": describe(spec, agent),
        "reach": await asyncio.to_thread(work.service.trust.list_reach, spec, agent),
        "needs_trust": session.trust_words,
    }


def _refuse_archived(work: BundleWork, path: Path, session_id: str) -> None:
    """Raise CallerError if the bundle's session is archived here. The log has its records without payloads, so nothing
    would be imported, and nothing could be forked."""
    session = work.service.core.state.sessions.get(session_id)
    if session is not None and isinstance(session.closed, Archived):
        raise CallerError(
            f"{path} holds {session.name}, which is archived here: `wakeful load {session.name}` brings it back, and "
            "then it can be forked or this file loaded"
        )


async def _load_moved(work: BundleWork, path: Path) -> Answer:
    manifest = await asyncio.to_thread(inspect, path)
    move = manifest.about.get("move")
    if manifest.cut != "migrate" or move is None:
        raise CallerError(
            f"{path} was written by {manifest.cut}, not by migrate: two copies could live; "
            "load it without --move to make a fork"
        )
    _refuse_archived(work, path, manifest.session)
    with moving(manifest.session, manifest.name):
        loaded, past, words = await _take_moved(work, path, manifest, move)
        await _erase_again(work, manifest.session)
    arrived = await asyncio.to_thread(_find_arrival, work, manifest)
    if arrived is None:
        raise CallerError(f"{past.name} was not loaded; load it again")
    record = ArrivalRecord(
        at=arrived.at, kind=arrived.kind, author=arrived.author, payload=(arrived.payload or b"").decode(),
        run=arrived.run,
        parent=arrived.parent, rationale=arrived.rationale,
    )  # fmt: skip
    receipt = Receipt(
        move=move,
        session=manifest.session,
        name=past.name,
        seq=arrived.seq,
        hash=arrived.hash.hex(),
        host=socket.gethostname(),
        record=record,
    )
    return {
        "name": past.name,
        "words": words,
        "receipt": msgspec.to_builtins(receipt),
        "records": loaded.records,
        **await _show_asked(work, past.name),
    }


def _find_arrival(work: BundleWork, manifest: Manifest) -> Record | None:
    return next(work.log.read(manifest.session, from_seq=manifest.records + 1, kinds=("session_arrived",)), None)


async def _take_moved(work: BundleWork, path: Path, manifest: Manifest, move: str) -> tuple[Loaded, Session, str]:
    """Import a moved session. It belongs to this host from the record of its arrival on.

    If the daemon dies before that record, nothing has changed, and the same call completes the move.
    """
    known = work.service.core.state.sessions.get(manifest.session)
    name = known.name if known is not None else manifest.session
    another = (
        f"{name} is on this host already, and {path} holds another history of it: a move was given up on one side; "
        f"on the other host make a fork (wakeful fork {name} --as FORK) and save it (wakeful save FORK -o FILE), "
        f"load FILE here, then merge (wakeful merge {name} FORK)"
    )
    lives_here = known is not None and not isinstance(known.closed, Moving | Departed)
    if known is not None and lives_here and known.seq < manifest.records:
        raise CallerError(another)
    has_arrived = known is not None and known.seq > manifest.records
    try:
        loaded = await asyncio.to_thread(_take_in, work, path, manifest.session, has_arrived=has_arrived)
    except Conflict as conflict:
        raise CallerError(another) from conflict
    manifest = loaded.contents.manifest
    past = await asyncio.to_thread(lambda: fold_at(work.log, manifest.session, work.log.head(manifest.session).seq))
    origin = manifest.about.get("host", "another host")
    arrive = calls.Arrive(name=past.name, past=past, move=move, origin=origin, store=work.log.store)
    words = await work.call(arrive)
    work.service.report_spec_again(past.name)
    return loaded, past, words


async def _erase_again(work: BundleWork, session_id: str) -> None:
    """Erase the payloads that were erased on another host. This log may still have their bytes from the time before the
    session left this host."""
    erasures = await asyncio.to_thread(lambda: list(work.log.read(session_id, kinds=("payload_erased",))))
    for record in erasures:
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(event, PayloadErased):
            await finish_erase(work.service, work.service.core.state.get(session_id).name, event.erased)


def _take_in(work: BundleWork, path: Path, session_id: str, *, has_arrived: bool) -> Loaded:
    """Import records, blobs and scratch files. If the session was on this host before, its older scratch files are
    replaced.

    `has_arrived`: the move was already completed. The session may have worked here since, so its scratch files stay.
    """
    staged, scratch = work.scratch(f"{STAGED}{secrets.token_hex(8)}"), work.scratch(session_id)
    loaded = take_bundle(
        work.log,
        work.blobs,
        path,
        extend=True,
        is_moved=True,
        scratch=None if has_arrived else staged,
        progress=work.tell,
    )
    if has_arrived:
        return loaded
    if scratch.exists():
        older = work.scratch(f"{OLDER}{secrets.token_hex(8)}")
        scratch.rename(older)
        shutil.rmtree(older, ignore_errors=True)
    if staged.is_dir():
        staged.rename(scratch)
    return loaded


async def move(work: BundleWork, body: Any) -> Answer:
    """Freeze a session, then write its bundle. Because the session is frozen first, the bundle has all of its records
    (rule 45)."""
    session = find_named(work.service, body.name)
    path = Path(body.path)
    if await asyncio.to_thread(path.exists):
        raise CallerError(f"{path} exists; name a file that does not")
    if not isinstance(session.closed, Moving):
        await work.call(calls.Freeze(name=body.name, move=secrets.token_hex(16), to=body.to))
        session = find_named(work.service, body.name)
    assert isinstance(session.closed, Moving)
    # If the session is already frozen, its move goes on: the same bundle is written again.
    about = {"move": session.closed.move, "host": socket.gethostname()}
    saved = await asyncio.to_thread(_save, work, session, path, None, "migrate", about)
    answer = _say_saved(body.name, saved, f"frozen, and written to {path}")
    return {**answer, "move": session.closed.move}


async def archive(work: BundleWork, body: Any) -> Answer:
    """Archive a session. Its bundle is on disk and verified before any payload is removed from the log."""
    session = find_named(work.service, body.name)
    if isinstance(session.closed, Archived):
        return {"name": body.name, "words": "archived already"}
    _refuse_restless(session)
    path = work.state / ARCHIVE / f"{session.id}-{session.seq}.bundle"
    saved = await asyncio.to_thread(_save_archive, work, session, path)
    try:
        words = await work.call(
            calls.Archive(name=body.name, at=session.seq, bundle=path.name, digest=saved.contents.digest)
        )
    except CallerError:
        await asyncio.to_thread(path.unlink)
        raise
    await asyncio.to_thread(work.log.archive, session.id, session.seq)
    return {"name": body.name, "words": words, "path": str(path), "digest": saved.contents.digest}


def _save_archive(work: BundleWork, session: Session, path: Path) -> Saved:
    """Write a session's bundle, and verify it. Blocking."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # An interrupted archive may have left this file. The session may have new records since then.
    path.unlink(missing_ok=True)
    saved = _save(work, session, path, session.seq, "archive", {})
    verify_bundle(path, work.tell)
    return saved


def _refuse_restless(session: Session) -> None:
    if session.run is not None or session.wake is not None or session.lineage.conflicts:
        raise CallerError(f"{session.name} is not at rest: it runs, is owed a run or has open conflicts")


Act = Callable[[BundleWork, Any], Awaitable[Answer]]
ACTS: dict[str, Act] = {"save": save, "load": load, "archive": archive, "move": move}

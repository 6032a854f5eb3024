"""Bundles over the socket: save, load, archive and the moves between hosts,
each a stream of lines that tells how far it is.

A line is `{done, total}` while it goes on; the last is `{words, name, …}` or `{error}`. The daemon reads and writes the
files itself, off the loop, as the person it runs as; what a bundle brings is inert until the call at its end is
durable.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_routed
from wakeful.api.gate.callers import Caller
from wakeful.api.problems import view_error, view_problem
from wakeful.api.requests import answer_lines, caller_of, find_named, service_of
from wakeful.api.routes.history_calls import ArrivalRecord, Receipt, find_free_name, finish_erase, moving
from wakeful.api.routes.participants import refuse_by_uid
from wakeful.api.service import Service
from wakeful.bundles.format import Manifest
from wakeful.bundles.load import Loaded, inspect, restore_archive, verify_bundle
from wakeful.bundles.load import load as take_bundle
from wakeful.bundles.save import Saved
from wakeful.bundles.save import save as cut_bundle
from wakeful.bundles.scratch_files import OLDER, STAGED
from wakeful.core.calls import values as calls
from wakeful.core.calls.history import FROM_BUNDLE
from wakeful.core.record.events import PayloadErased
from wakeful.core.record.state import Archived, Departed, Moving, Session
from wakeful.errors import CallerError, WakefulError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Conflict
from wakeful.history.positions import fold_at
from wakeful.specs.scalars import find_name_problem
from wakeful.system.blobs import Blobs
from wakeful.text.display import count
from wakeful.trust.desk import describe

Progress = Callable[[int, int], None]
Answer = dict[str, Any]
ARCHIVE = "archive"
SCRATCH = "scratch"
_UNDER_WAY: set[asyncio.Task[None]] = set()


class Desk:
    """One request's means: who asks, and how to tell how far it is."""

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


async def save(desk: Desk, body: Any) -> Answer:
    session = find_named(desk.service, body.name)
    saved = await asyncio.to_thread(_save, desk, session, Path(body.path), body.to, "save", {})
    return _say_saved(body.name, saved, f"saved to {body.path}")


def _save(
    desk: Desk,
    session: Session,
    path: Path,
    to_seq: int | None,
    cut: Literal["save", "migrate", "archive"],
    about: dict[str, str],
) -> Saved:
    spec = msgspec.json.encode(session.spec).decode() if session.spec is not None else None
    return cut_bundle(
        desk.log,
        desk.blobs,
        session.id,
        path,
        name=session.name,
        cut_at=desk.now,
        cut=cut,
        to_seq=to_seq,
        spec=spec,
        about=about,
        scratch=desk.scratch(session.id),
        progress=desk.tell,
    )


def save_to(desk: Desk, session: Session, path: Path) -> Saved:
    """Cut a session's bundle into a file that is there and empty. Blocks."""
    path.unlink()
    return _save(desk, session, path, None, "save", {})


def _say_saved(name: str, saved: Saved, words: str) -> Answer:
    contents = saved.contents
    lost = f"; {count(saved.missing_blobs, 'blob')} no longer there" if saved.missing_blobs else ""
    passed = (
        f"; left out of its scratch folder: {len(saved.passed_files):,}, being no files" if saved.passed_files else ""
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


async def load(desk: Desk, body: Any) -> Answer:
    if body.name is not None:
        return await _load_archived(desk, body.name)
    if body.path is None:
        raise CallerError("a bundle's path is needed, or the name of an archived session")
    if body.move:
        return await _load_moved(desk, Path(body.path))
    return await _load_fork(desk, Path(body.path), body)


async def _load_archived(desk: Desk, name: str) -> Answer:
    session = find_named(desk.service, name)
    if not isinstance(session.closed, Archived):
        raise CallerError(f"{name} is not archived; to load a bundle give its file: wakeful load ./FILE")
    path = desk.state / ARCHIVE / session.closed.bundle
    restored = await asyncio.to_thread(restore_archive, desk.log, desk.blobs, path, desk.tell)
    words = await desk.call(calls.Restore(name=name))
    desk.service.report_spec_again(name)
    return {"name": name, "words": f"{words}: {count(restored, 'payload')}", "path": str(path)}


async def _load_fork(desk: Desk, path: Path, body: Any) -> Answer:
    """Its records as they are, inert; and a session of its own that goes on from their end."""
    _refuse_archived(desk, path)
    staged = desk.scratch(f"{STAGED}{secrets.token_hex(8)}")
    # The records of an older bundle may be here, only to be read. A newer bundle goes on where they end.
    is_read_alone = inspect(path).session not in desk.service.core.state.sessions
    loaded = await asyncio.to_thread(
        take_bundle, desk.log, desk.blobs, path, scratch=staged, progress=desk.tell, is_inert=True, extend=is_read_alone
    )
    manifest = loaded.contents.manifest
    past = await asyncio.to_thread(fold_at, desk.log, manifest.session, manifest.records)
    taken = desk.service.core.state.ids
    new = body.new or (past.name if past.name not in taken else find_free_name(desk.service, f"{past.name}-loaded"))
    problem = find_name_problem(new)
    if problem is not None:
        raise CallerError(problem)
    doubt = None if _is_own(desk, manifest) else FROM_BUNDLE
    words = await desk.call(
        calls.Fork(name=past.name, new=new, past=past, origin_hash=manifest.head, root=body.root, needs_trust=doubt)
    )
    await asyncio.to_thread(_settle_staged, staged, desk.scratch(taken[new]))
    answer = {"name": new, "words": words, "origin": manifest.session, "head": manifest.head, "records": loaded.records}
    return answer | _show_asked(desk, new)


def _settle_staged(staged: Path, scratch: Path) -> None:
    """A load that is repeated completes one that was killed, and leaves alone the files of one that was not."""
    if staged.is_dir() and scratch.exists():
        shutil.rmtree(staged)
    elif staged.is_dir():
        staged.rename(scratch)


def _is_own(desk: Desk, manifest: Manifest) -> bool:
    """Did this daemon make the records of this bundle itself?

    Its own log tells, by the hash that covers them all; not the bundle.
    """
    session = desk.service.core.state.sessions.get(manifest.session)
    if (
        session is None
        or session.declaration.needs_trust is not None
        or not session.declaration.foreign_until < manifest.records <= session.seq
    ):
        return False
    last = next(desk.log.read(manifest.session, from_seq=manifest.records, limit=1), None)
    return last is not None and last.seq == manifest.records and last.hash.hex() == manifest.head


def _show_asked(desk: Desk, name: str) -> Answer:
    """Show the person who loads a bundle what its spec asks for, and whether the session waits for their trust."""
    session = find_named(desk.service, name)
    spec = session.spec
    if spec is None:
        return {}
    agent = desk.service.core.agents.get(spec.agent) if spec.agent is not None else None
    return {
        "spec": describe(spec, agent),
        "reach": desk.service.trust.list_reach(spec, agent),
        "needs_trust": session.trust_words,
    }


def _refuse_archived(desk: Desk, path: Path) -> None:
    """Its records are here without their payloads: nothing would be imported, and nothing could be forked."""
    session_id = inspect(path).session
    session = desk.service.core.state.sessions.get(session_id)
    if session is not None and isinstance(session.closed, Archived):
        raise CallerError(
            f"{path} holds {session.name}, which is archived here: `wakeful load {session.name}` brings it back, and "
            "then it can be forked or this file loaded"
        )


async def _load_moved(desk: Desk, path: Path) -> Answer:
    manifest = inspect(path)
    move = manifest.about.get("move")
    if manifest.cut != "migrate" or move is None:
        raise CallerError(
            f"{path} was cut by {manifest.cut}, not by migrate: two copies could live; "
            "load it without --move to make a fork"
        )
    _refuse_archived(desk, path)
    with moving(manifest.session, manifest.name):
        loaded, past, words = await _take_moved(desk, path, manifest, move)
        await _erase_again(desk, manifest.session)
    arrived = next(desk.log.read(manifest.session, from_seq=manifest.records + 1, kinds=("session_arrived",)), None)
    if arrived is None:
        raise CallerError(f"{past.name} was not brought in; ask for it again")
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
        **_show_asked(desk, past.name),
    }


async def _take_moved(desk: Desk, path: Path, manifest: Manifest, move: str) -> tuple[Loaded, Session, str]:
    """The session counts with the record of its arrival.

    Killed before that, it is here as it was, and the same call goes on.
    """
    known = desk.service.core.state.sessions.get(manifest.session)
    another = (
        f"{known.name if known is not None else manifest.session} lives here, and {path} holds another history of "
        "it: a move was given up on one side; load it without --move, then merge"
    )
    lives_here = known is not None and not isinstance(known.closed, Moving | Departed)
    if known is not None and lives_here and known.seq < manifest.records:
        raise CallerError(another)
    has_arrived = known is not None and known.seq > manifest.records
    try:
        loaded = await asyncio.to_thread(_take_in, desk, path, manifest.session, has_arrived=has_arrived)
    except Conflict as conflict:
        raise CallerError(another) from conflict
    manifest = loaded.contents.manifest
    past = await asyncio.to_thread(fold_at, desk.log, manifest.session, desk.log.head(manifest.session).seq)
    origin = manifest.about.get("host", "another host")
    arrive = calls.Arrive(name=past.name, past=past, move=move, origin=origin, store=desk.log.store)
    words = await desk.call(arrive)
    desk.service.report_spec_again(past.name)
    return loaded, past, words


async def _erase_again(desk: Desk, session_id: str) -> None:
    """Payloads that were erased on another host leave this log as well:
    the bytes may be here from before the session went."""
    erasures = await asyncio.to_thread(lambda: list(desk.log.read(session_id, kinds=("payload_erased",))))
    for record in erasures:
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(event, PayloadErased):
            await finish_erase(desk.service, desk.service.core.state.get(session_id).name, event.erased)


def _take_in(desk: Desk, path: Path, session_id: str, *, has_arrived: bool) -> Loaded:
    """Take in records, blobs and scratch files. Scratch files that the session left here when it went are older.

    `has_arrived`: this move is complete, and the session may have worked here since."""
    staged, scratch = desk.scratch(f"{STAGED}{secrets.token_hex(8)}"), desk.scratch(session_id)
    loaded = take_bundle(
        desk.log,
        desk.blobs,
        path,
        extend=True,
        is_moved=True,
        scratch=None if has_arrived else staged,
        progress=desk.tell,
    )
    if has_arrived:
        return loaded
    if scratch.exists():
        older = desk.scratch(f"{OLDER}{secrets.token_hex(8)}")
        scratch.rename(older)
        shutil.rmtree(older, ignore_errors=True)
    if staged.is_dir():
        staged.rename(scratch)
    return loaded


async def move(desk: Desk, body: Any) -> Answer:
    """Frozen first, cut then: whatever the bundle does not hold did not happen here (rule 45)."""
    session = find_named(desk.service, body.name)
    path = Path(body.path)
    if path.exists():
        raise CallerError(f"{path} exists; name a file that does not")
    if not isinstance(session.closed, Moving):
        await desk.call(calls.Freeze(name=body.name, move=secrets.token_hex(16), to=body.to))
        session = find_named(desk.service, body.name)
    assert isinstance(session.closed, Moving)
    # The move was asked for again before the receipt came: it is the same move, and the same bundle once more.
    about = {"move": session.closed.move, "host": socket.gethostname()}
    saved = await asyncio.to_thread(_save, desk, session, path, None, "migrate", about)
    answer = _say_saved(body.name, saved, f"frozen, and cut to {path}")
    return {**answer, "move": session.closed.move}


async def archive(desk: Desk, body: Any) -> Answer:
    """The bundle is on disk and verified before a single payload leaves the log."""
    session = find_named(desk.service, body.name)
    if isinstance(session.closed, Archived):
        return {"name": body.name, "words": "archived already"}
    _refuse_restless(session)
    folder = desk.state / ARCHIVE
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{session.id}-{session.seq}.bundle"
    # Left by an archive that was cut short: the session may have gone on since.
    path.unlink(missing_ok=True)
    saved = await asyncio.to_thread(_save, desk, session, path, session.seq, "archive", {})
    await asyncio.to_thread(verify_bundle, path, desk.tell)
    try:
        words = await desk.call(
            calls.Archive(name=body.name, at=session.seq, bundle=path.name, digest=saved.contents.digest)
        )
    except CallerError:
        path.unlink()
        raise
    await asyncio.to_thread(desk.log.archive, session.id, session.seq)
    return {"name": body.name, "words": words, "path": str(path), "digest": saved.contents.digest}


def _refuse_restless(session: Session) -> None:
    if session.run is not None or session.wake is not None or session.lineage.conflicts:
        raise CallerError(f"{session.name} is not at rest: it runs, is owed a run or has open conflicts")


Act = Callable[[Desk, Any], Awaitable[Answer]]
ACTS: dict[str, Act] = {"save": save, "load": load, "archive": archive, "move": move}


async def carry(request: Request, acts: dict[str, Act] = ACTS) -> Response:
    """POST /bundle/{verb}."""
    verb = request.path_params["verb"]
    if verb not in acts:
        raise CallerError(f"there is no {verb!r} of bundles; there are {', '.join(acts)}")
    body = await read_routed(request, f"POST /bundle/{verb}")
    return answer_lines(stream_act(service_of(request), caller_of(request), acts[verb], body))


async def stream_act(service: Service, caller: Caller, act: Act, body: Any) -> AsyncIterator[bytes]:
    """Progress as it is told, from whatever thread, and the answer at the end."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[Answer] = asyncio.Queue()

    def tell(done: int, total: int) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, {"done": done, "total": total})

    async def run() -> None:
        try:
            answer = await act(Desk(service, caller.author, tell, caller.uid, caller.person), body)
        except WakefulError as error:
            answer = view_error(error)
        except OSError as error:
            answer = view_problem("unavailable", f"{error.filename or 'a file'}: {error.strerror}")
        await lines.put({**answer, "is_last": True})

    # A client that stops listening does not stop it: half a load would have to be done again.
    acting = asyncio.create_task(run(), name="bundle")
    _UNDER_WAY.add(acting)
    acting.add_done_callback(_UNDER_WAY.discard)
    while True:
        line = await lines.get()
        is_last = line.pop("is_last", False)
        yield msgspec.json.encode(line) + b"\n"
        if is_last:
            return

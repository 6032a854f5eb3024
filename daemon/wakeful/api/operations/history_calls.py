"""Prepares and finishes the calls about history: save, rewind, fork, merge, resolve, compress, migrate, erase.

The body of POST /call/VERB names a position as people write it (`to: "2h"`, `at: "before-audit"`). The call that is
made from it contains the past state that the core needs. The log is read off the loop. After that, the core judges the
call by the present state. With `dry_run`, the answer describes the effect, and nothing is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.api.contract import Service, find_named
from wakeful.api.operations.call_steps import CallSteps, Done, More, Preview
from wakeful.api.operations.workspaces import (
    finish_files,
    finish_merge,
    keeping_place,
    owning_writes,
    plan_files,
    prepare_workspace,
    say_place,
)  # fmt: skip
from wakeful.bundles.erasure import erase_from_archives, find_in_bundle
from wakeful.bundles.format import BundleRefused
from wakeful.core.calls import call_types as calls
from wakeful.core.record.erased_payloads import find_addresses, find_words, redact
from wakeful.core.record.events import PayloadErased, PromptAssembled, RunFinished, SessionMerged, SessionRewound
from wakeful.core.record.knowledge import RecordRange, merge_facts
from wakeful.core.record.state import Archived, Departed, Moving, Session
from wakeful.core.spec.agent import prefer_model
from wakeful.errors import CallerError
from wakeful.eventlog.chain import hash_bytes
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record
from wakeful.history.conversation import SummaryWithoutModel, make_compress, summarise_fork
from wakeful.history.positions import find_seq, fold_at, fold_position, fold_until, list_origins
from wakeful.run_files.restore import Restore, carry_out, keep_record, plan_restore, say_write, view_done, view_restore
from wakeful.specs.value_parsers import find_name_problem, parse_model_name
from wakeful.system.blobs import DamagedBlob, UnknownBlob
from wakeful.text.display import count
from wakeful.views.differences import compare

# The shortest erased text that is searched for in other records. Shorter texts occur everywhere.
SHORTEST_SECRET = 6
MOST_WORDS = 8
MOST_FOUND = 100

# The ids of sessions whose records are being imported from another host.
_MOVING: set[str] = set()
# The most tries to prepare a merge. If the fork still changes after them, the merge is refused.
_MERGES_PREPARED = 3


class ArrivalRecord(Struct, frozen=True, kw_only=True):
    """The fields of the arrival record that the receipt itself does not have. `payload` is its JSON text."""

    at: int
    kind: str
    author: str
    payload: str
    run: int | None = None
    parent: str | None = None
    rationale: str | None = None


class Receipt(Struct, frozen=True, kw_only=True):
    """The message of a load to the host that a session came from: the session now belongs to the new host. `seq` and
    `hash` are those of the record of its arrival."""

    move: str
    session: str
    name: str
    seq: int
    hash: str
    host: str
    # The record of the arrival, which both logs then contain. None if an older release made the receipt.
    record: ArrivalRecord | None = None


Prepared = calls.Call | Preview


async def prepare_save(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    position = await _find_seq(service, session, body.at) if body.at is not None else None
    return calls.Save(name=body.name, mark=body.mark, position=position, note=body.note)


async def prepare_rewind(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    past = await _read_past(service, session, body.to)
    if past.id != session.id:
        raise CallerError(
            f"{body.to} is before {session.name} was forked or loaded; `wakeful fork {session.name} --at {body.to}` "
            "starts a session from there"
        )
    if body.dry_run:
        words = (
            f"would go on from seq {past.seq}; {session.seq - past.seq} later records stay in the log, "
            "on a branch that can be forked"
        )
        found = compare(session, past, [], (None, None))
        if body.files:
            found["files"] = view_restore(await asyncio.to_thread(_plan_files, service, session, past.seq))
        return Preview(words, found)
    if body.files and session.spec is None:
        raise CallerError(f"{session.name} has no spec, so the folder of its files is not known")
    if not body.files:
        return calls.Rewind(name=body.name, to=past.seq, past=past.recollect())
    record = await asyncio.to_thread(_keep_record, service, session, past.seq, body.force)
    return calls.Rewind(name=body.name, to=past.seq, past=past.recollect(), files=True, record=record, at=session.seq)


def _keep_record(service: Service, session: Session, to: int, is_forced: bool) -> str | None:
    return keep_record(service.blobs, _plan_files(service, session, to, session.seq), is_forced=is_forced)


def _plan_files(service: Service, session: Session, to: int, until: int | None = None) -> Restore:
    """Plan how to undo the writes made after record `to` and before the rewind itself."""
    records = service.log.read(
        session.id, from_seq=to + 1, to_seq=until, kinds=("run_finished", "session_merged", "session_rewound")
    )
    if session.spec is None:
        raise CallerError(f"{session.name} has no spec, so the folder of its files is not known")
    return plan_restore(service.blobs, session.spec.root, _list_writes(records))


def _list_writes(records: Iterable[Record]) -> Iterator[tuple[int | str, str | None]]:
    """Yield the session's writes in order: those of its runs, and those of merges and rewinds, which count as its own
    (rule 44)."""
    for record in records:
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case RunFinished(run=run, files=files):
                yield run, files
            case SessionMerged(name=name, record=str() as files):
                yield f"the merge of {name}", files
            case SessionRewound(to=to, record=str() as files):
                yield f"the rewind to seq {to}", files
            case _:
                continue


async def restore_files(
    service: Service, name: str, to: int, *, is_forced: bool, until: int | None
) -> list[dict[str, Any]]:
    """Restore the files of a rewind one by one, and return the result for each file (rule 44). Called when the rewind
    is durable. The rewind holds the session meanwhile."""
    session = service.core.state.by_name(name)
    async with owning_writes(service, session.id) as written:
        done = await asyncio.to_thread(_restore_files, service, session, to, until, is_forced)
        written.update(one["path"] for one in done if one["ending"] in ("restored", "removed"))
    return done


async def finish_rewind_again(service: Service, body: Any, key: str, author: str) -> More:
    """Restore the files of a rewind that was recorded by a daemon which then died. Files that the daemon had already
    restored stay as they are."""
    if not body.files:
        return {}
    session = service.core.state.by_name(body.name)
    appended = service.log.find_key(session.id, key)
    records = (
        service.log.read(session.id, from_seq=appended.first_seq, to_seq=appended.last_seq, kinds=("session_rewound",))
        if appended
        else ()
    )
    for record in records:
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(event, SessionRewound):
            call = calls.Finish(name=body.name, position=record.seq, words=f"the rewind to seq {event.to}")
            await service.call(call, author=author, key=None, run=None)
            return {
                "files": await restore_files(service, body.name, event.to, is_forced=body.force, until=record.seq - 1)
            }
    return {}


def _restore_files(
    service: Service, session: Session, to: int, until: int | None, is_forced: bool
) -> list[dict[str, Any]]:
    plan = _plan_files(service, session, to, until)
    unknown = [
        {"path": say_write(run), "ending": "failed", "reason": "its files were not kept", "kept": None}
        for run in plan.unrecorded
    ]
    return view_done(carry_out(service.blobs, plan, is_forced=is_forced)) + unknown


async def prepare_fork(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    if body.at is not None:
        past = await _read_past(service, session, body.at)
    elif session.run is not None:
        # Fork from the record before the run's start, because the fork must not contain half of a run.
        past = await _read_past(service, session, str(session.run.seq - 1))
    else:
        past = session
    new = body.new or find_free_name(service, f"{body.name}-fork")
    problem = find_name_problem(new)
    if problem is not None:
        raise CallerError(problem)
    record = next(service.log.read(past.id, from_seq=past.seq, to_seq=past.seq), None)
    call = calls.Fork(
        name=body.name,
        new=new,
        past=past,
        origin_hash=record.hash.hex() if record is not None else "",
        fresh=body.fresh,
    )
    return call if body.workspace is None else await prepare_workspace(service, call, body.workspace or None)


def find_free_name(service: Service, stem: str) -> str:
    taken = service.core.state.ids
    return next(
        name
        for number in range(1, len(taken) + 2)
        if (name := stem if number == 1 else f"{stem}-{number}") not in taken
    )


async def prepare_merge(service: Service, body: Any) -> Prepared:
    for _ in range(_MERGES_PREPARED):
        prepared = await _prepare_merge_once(service, body)
        # A write into the fork's workspace wakes the fork, which adds a record. The merge is then prepared again,
        # not refused.
        if not isinstance(prepared, calls.Merge) or find_named(service, body.fork).seq == prepared.fork_seq:
            break
    return prepared


async def _prepare_merge_once(service: Service, body: Any) -> Prepared:
    session, fork = find_named(service, body.name), find_named(service, body.fork)
    base_seq = session.lineage.merges.get(fork.id, 1)
    between = await asyncio.to_thread(_find_between, service, session, fork)
    base, summary = await asyncio.to_thread(_read_fork, service, session, fork, base_seq, between)
    plan = await plan_files(service, session, fork, base_seq, is_dry=body.dry_run)
    if body.dry_run:
        merged = merge_facts(
            base.knowledge.facts,
            session.knowledge.facts,
            fork.knowledge.facts,
            fork=fork.name,
            numbers_from=session.lineage.conflicts_opened + 1,
        )
        words = (
            f"would take {count(len(merged.taken) + len(merged.retracted), 'fact')} and open "
            f"{count(len(merged.conflicts), 'conflict')}"
        )
        return Preview(words, {**msgspec.to_builtins(merged), "summary": summary, "files": plan.words()})
    return calls.Merge(
        name=body.name,
        fork=body.fork,
        base=base.knowledge.facts,
        base_todo=base.knowledge.todo,
        base_seq=base_seq,
        fork_seq=fork.seq,
        summary=summary,
        files=plan.words(),
        record=plan.record,
        is_descended=between is not None,
    )


def _find_between(service: Service, session: Session, fork: Session) -> list[RecordRange] | None:
    """Find the ranges of records between a session and its descendant, nearest to the descendant first.

    - Empty for a fork that was made here.
    - The records of the sessions in between, for a fork of a fork that was loaded from a bundle.
    - None if `fork` does not descend from this session.
    """
    origins = list_origins(service.log, fork)
    place = next((number for number, one in enumerate(origins) if one.session == session.id), None)
    return origins[:place] if place is not None else None


def _read_fork(
    service: Service, session: Session, fork: Session, base_seq: int, between: list[RecordRange] | None
) -> tuple[Session, str]:
    if base_seq > 1 or not between:
        return fold_until(service.log, fork, base_seq), summarise_fork(service.log, fork, base_seq)
    # The knowledge of the sessions in between is new to this session. So the base of the merge is the record at which
    # the first of these sessions was forked from this session.
    parted = list_origins(service.log, fork)[len(between)]
    assert parted.last is not None
    return fold_until(service.log, session, parted.last), summarise_fork(service.log, fork, base_seq, between)


async def prepare_resolve(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    number = (
        int(body.conflict)
        if body.conflict.isdecimal() and len(body.conflict) < 10
        else _find_conflict(session, body.conflict)
    )
    return calls.Resolve(name=body.name, number=number, choice=body.choice, value=body.value, rationale=body.rationale)


def _find_conflict(session: Session, key: str) -> int:
    numbers = [conflict.number for conflict in session.lineage.conflicts if conflict.key == key]
    if len(numbers) != 1:
        found = "none" if not numbers else f"those numbered {', '.join(map(str, numbers))}"
        raise CallerError(
            f"{session.name} has no single open conflict about {key!r}: there are {found}; name it by its number"
        )
    return numbers[0]


async def prepare_compress(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    if body.keep < 0:
        raise CallerError(f"keep={body.keep}: expected a number of messages, 0 or more")
    call = await asyncio.to_thread(make_compress, service.log, session, body.keep, SummaryWithoutModel())
    if body.dry_run:
        return Preview(
            f"would replace {count(call.messages, 'message')} by a summary and keep {call.kept_messages}",
            {"summary": call.summary},
        )
    return call


async def prepare_migrate(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    if sum((body.receipt is not None, body.give_up, bool(body.agent or body.model))) > 1:
        raise CallerError("give an agent or model, or a receipt, or --give-up; these are three different calls")
    if session.id in _MOVING:
        raise CallerError(f"{session.name} is being moved; ask again in a moment")
    if body.give_up:
        return calls.Thaw(name=body.name)
    if body.receipt is None:
        _find_agent(service, body.agent)
        if body.model is not None:
            # The agent's file may have been saved a moment ago, and it says where the model is served.
            await service.read_specs()
            _check_model(service, session, body)
        return calls.Migrate(name=body.name, agent=body.agent, model=body.model)
    receipt = body.receipt
    if receipt.session != session.id:
        raise CallerError(f"this receipt is for {receipt.name} ({receipt.session}), not for {body.name} ({session.id})")
    depart = calls.Depart(name=body.name, move=receipt.move, receipt=msgspec.json.encode(receipt).decode())
    match session.closed:
        case Departed() | Archived(before=Departed()):
            return depart
        case _ if receipt.seq <= session.seq:
            raise CallerError(
                f"this receipt ends at record {receipt.seq}, before the end of {body.name} here ({session.seq}); "
                "it belongs to another move"
            )
        case Moving(move=receipt.move) if receipt.record is not None:
            with moving(session.id, session.name):
                past = await asyncio.to_thread(_take_arrival, service, session, receipt, receipt.record)
            return replace(depart, past=past)
        case _:
            return depart


@contextmanager
def moving(session_id: str, name: str) -> Iterator[None]:
    """Mark a session as moving while its records are imported, so that no other call opens it or imports it again.
    Raises CallerError if it is already marked."""
    if session_id in _MOVING:
        raise CallerError(f"{name} is being moved; ask again in a moment")
    _MOVING.add(session_id)
    try:
        yield
    finally:
        _MOVING.discard(session_id)


def _take_arrival(service: Service, session: Session, receipt: Receipt, arrival: ArrivalRecord) -> Session:
    """Append the record of the arrival, so that both logs stay one history. Returns the session as it is here after
    that record."""
    payload = arrival.payload.encode()
    record = Record(
        session.id, receipt.seq, arrival.at, arrival.kind, arrival.author, arrival.run, arrival.parent,
        arrival.rationale, payload,
        hash_bytes(payload), bytes.fromhex(receipt.hash),
    )  # fmt: skip
    if arrival.kind != "session_arrived" or receipt.seq != session.seq + 1:
        raise CallerError(f"this receipt does not follow record {session.seq} of {session.name}, where it was frozen")
    service.log.import_next(session.id, record)
    return fold_at(service.log, session.id, record.seq).seen_from(service.log.store)


def _check_model(service: Service, session: Session, body: Any) -> None:
    """Raise CallerError if the model's name is malformed, or if the agent has no address for a model that needs one. An
    agent's file is checked in the same way."""
    try:
        parse_model_name(body.model)
    except ValueError as error:
        raise CallerError(str(error)) from None
    name = body.agent or (session.spec.agent if session.spec is not None else None)
    agent = service.core.agents.get(name or "")
    found = prefer_model(agent, body.model) if agent is not None else None
    if found is not None and found.models[0].provider == "openai-compatible" and found.models[0].base_url is None:
        raise CallerError(
            f"{body.model} needs base_url, the address where it is served, and agent {name} has none for it; add "
            f"{{model: {body.model}, base_url: …}} to its fallback"
        )


def _find_agent(service: Service, agent: str | None) -> None:
    """Raise CallerError if the agent has no file. With such an agent, the session could never run."""
    if agent is None:
        return
    problem = find_name_problem(agent)
    file = Path(service.places.specs) / "agents" / f"{agent}.yaml"
    if problem is not None or not file.is_file():
        raise CallerError(problem or f"no agent is called {agent!r}: there is no {file}")


async def prepare_erase(service: Service, body: Any) -> Prepared:
    session = find_named(service, body.name)
    record = await asyncio.to_thread(_read_record, service, session, body.seq)
    payload = msgspec.json.decode(record.payload or b"")
    stand_in = redact(record.kind, payload)
    if body.dry_run:
        others = await asyncio.to_thread(_find_others, service, session, body.seq, find_words(payload))
        return Preview(
            f"would erase record {body.seq} ({record.kind}); this would remain",
            {"stand_in": stand_in, "also_in": others},
        )
    is_recorded = await asyncio.to_thread(_is_erasure_recorded, service, session, body.seq)
    return calls.Erase(
        name=body.name, seq=body.seq, kind=record.kind, stand_in=stand_in, reason=body.reason, is_recorded=is_recorded
    )


def _is_erasure_recorded(service: Service, session: Session, seq: int) -> bool:
    """Was this erasure already recorded? The bytes may still exist if an archive could not be read, or if the daemon
    died."""
    records = service.log.read(session.id, from_seq=seq + 1, kinds=("payload_erased",))
    events = (decode(record.kind, record.payload) for record in records if record.payload is not None)
    return any(isinstance(event, PayloadErased) and event.erased == seq for event in events)


def _read_record(service: Service, session: Session, seq: int) -> Record:
    record = next(service.log.read(session.id, from_seq=seq, to_seq=seq), None) if seq > 0 else None
    if record is None:
        raise CallerError(f"{session.name} has records 1 to {session.seq}, there is no {seq}")
    if record.payload is None and isinstance(session.closed, Archived):
        raise CallerError(
            f"{session.name} is archived: `wakeful load {session.name}` brings it back, and then its record {seq} can "
            "be erased, from the archive too"
        )
    if record.payload is None:
        raise CallerError(
            f"the payload of record {seq} of {session.name} is not here: it was erased or archived already"
        )
    return record


def _find_others(service: Service, session: Session, seq: int, words: list[str]) -> list[str]:
    """Find other records with the same text. Rewinds and forks copy the text that they bring back."""
    names = {one.id: one.name for one in service.core.state}
    found: dict[str, None] = {}
    needles = {text: msgspec.json.encode(text)[1:-1] for text in words if len(text) >= SHORTEST_SECRET}
    for text, needle in needles.items():
        for record in service.log.search(_quote(text), limit=MOST_FOUND):
            if (
                (record.session, record.seq) != (session.id, seq)
                and record.payload is not None
                and needle in record.payload
            ):
                found[f"{names.get(record.session, record.session)} {record.seq}"] = None
    found |= dict.fromkeys(_find_told(service, session, seq, needles))
    return [*found, *_find_archived(service, [needle.decode() for needle in needles.values()])]


def _find_told(service: Service, session: Session, seq: int, words: Iterable[str]) -> Iterator[str]:
    """Yield the later runs of the session whose opening prompt contains one of these texts as a whole."""
    shown = [text.strip() for text in words]
    for record in service.log.read(session.id, from_seq=seq + 1, kinds=("prompt_assembled",)) if shown else ():
        told = decode(record.kind, record.payload) if record.payload is not None else None
        if not isinstance(told, PromptAssembled) or not told.opening:
            continue
        try:
            opening = service.blobs.get(told.opening).decode()
        except (UnknownBlob, DamagedBlob):
            continue
        if any(text in opening for text in shown):
            yield f"{session.name} {record.seq}"


def _find_archived(service: Service, needles: list[str]) -> Iterator[str]:
    """Yield the records of archived sessions that contain these texts. The search of the log does not find these
    records. They can be erased after the session is loaded."""
    archives = [(one.name, one.closed.bundle) for one in service.core.state if isinstance(one.closed, Archived)]
    for name, bundle in archives if needles else ():
        try:
            for seq in find_in_bundle(Path(service.places.state) / "archive" / bundle, needles):
                yield f"{name} {seq} (archived)"
        except BundleRefused:
            yield f"{name} perhaps (its archive cannot be read)"


def _quote(text: str) -> str:
    """Return the words of a text as a search query."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text).split()[:MOST_WORDS]) or text


async def finish_erase(service: Service, name: str, seq: int) -> list[str]:
    """Remove the bytes of an erased payload. Called when the record of the erasure is durable. Returns descriptions of
    the other records with the same text."""
    session = service.core.state.by_name(name)
    record = next(service.log.read(session.id, from_seq=seq, to_seq=seq), None)
    if record is None or record.payload is None:
        return []
    payload = msgspec.json.decode(record.payload)
    addresses = find_addresses(record.kind, payload)
    # The log comes last. If the daemon dies before that, the log still has the payload, and the erasure can be repeated
    # with its blobs.
    await asyncio.to_thread(
        erase_from_archives, Path(service.places.state) / "archive", session.id, seq, blobs=addresses
    )
    await asyncio.to_thread(service.blobs.remove, addresses)
    service.forget_contents()
    await asyncio.to_thread(service.log.erase, session.id, [seq])
    service.refold(session.id)
    return await asyncio.to_thread(_find_others, service, session, seq, find_words(payload))


async def _find_seq(service: Service, session: Session, position: str) -> int:
    return await asyncio.to_thread(find_seq, service.log, session, position, service.moment().wall)


async def _read_past(service: Service, session: Session, position: str) -> Session:
    return await asyncio.to_thread(fold_position, service.log, session, position, service.moment().wall)


async def finish_rewind(service: Service, done: Done) -> More:
    """Restore the files, if the caller asked for that."""
    call = done.call
    if not call.files:
        return {}
    return {"files": await restore_files(service, call.name, call.to, is_forced=done.body.force, until=call.at)}


async def finish_fork(service: Service, done: Done) -> More:
    return {"name": done.call.new, "words": done.reply.words + say_place(done.call)}


async def finish_merged(service: Service, done: Done) -> More:
    """Write the files of the merge. If it has none, finish an earlier merge whose files were not written."""
    call = done.call
    if call.record is not None:
        return await finish_files(service, call.name, call.fork, call.record)
    return await finish_merge(service, call.name, call.fork, done.author)


async def finish_merged_again(service: Service, body: Any, key: str, author: str) -> More:
    return await finish_merge(service, body.name, body.fork, author)


async def finish_migrate(service: Service, done: Done) -> More:
    """Let the session follow its spec again, if the move was given up."""
    if isinstance(done.call, calls.Thaw) and not done.reply.is_repeated:
        service.report_spec_again(done.call.name)
    return {}


async def finish_erased(service: Service, done: Done) -> More:
    others = await finish_erase(service, done.call.name, done.call.seq)
    return {"words": f"{done.reply.words}; the same text is also in {', '.join(others)}"} if others else {}


async def finish_erased_again(service: Service, body: Any, key: str, author: str) -> More:
    await finish_erase(service, body.name, body.seq)
    return {}


CALLS: dict[str, CallSteps] = {
    "save": CallSteps(makes=(calls.Save,), prepare=prepare_save),
    "rewind": CallSteps(
        makes=(calls.Rewind,), prepare=prepare_rewind, finish=finish_rewind, finish_again=finish_rewind_again
    ),
    "fork": CallSteps(makes=(calls.Fork,), prepare=prepare_fork, around=keeping_place, finish=finish_fork),
    "merge": CallSteps(
        makes=(calls.Merge,), prepare=prepare_merge, around=keeping_place, finish=finish_merged,
        finish_again=finish_merged_again,
    ),
    "resolve": CallSteps(makes=(calls.Resolve,), prepare=prepare_resolve),
    "compress": CallSteps(makes=(calls.Compress,), prepare=prepare_compress),
    "migrate": CallSteps(
        makes=(calls.Migrate, calls.Thaw, calls.Depart), prepare=prepare_migrate, finish=finish_migrate,
        object_type=Receipt,
    ),
    "erase": CallSteps(
        makes=(calls.Erase,), prepare=prepare_erase, finish=finish_erased, finish_again=finish_erased_again
    ),
}  # fmt: skip

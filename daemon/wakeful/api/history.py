"""The calls on history, prepared: what a caller names by position, mark or name becomes a call that carries the past it needs.

POST /call/VERB with a body in people's words (`to: "2h"`, `at: "before-audit"`); the log is read off the loop, and the core judges the
call on the state of that moment. With `dry_run` the answer says what would be done, and nothing is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from wakeful.api.answers import find_named
from wakeful.api.service import Service
from wakeful.conversation import MESSAGES_KEPT, ByRule, make_compress, summarise_fork
from wakeful.core import calls
from wakeful.core.knowledge import merge_facts
from wakeful.core.state import Session
from wakeful.errors import CallerError
from wakeful.past import find_seq, fold_until
from wakeful.specs.scalars import find_name_problem
from wakeful.views.differences import compare


class Preview(Struct, frozen=True):
    """What a dry run found: nothing was recorded."""

    words: str
    found: dict[str, Any]


class SaveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    mark: str
    at: str | None = None
    note: str | None = None


class RewindBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    to: str
    dry_run: bool = False


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    new: str | None = None
    at: str | None = None
    fresh: bool = False


class MergeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    fork: str
    dry_run: bool = False


class ResolveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`conflict` is its number, or the key of the fact where only one is open for it."""

    name: str
    conflict: str
    choice: Literal["ours", "theirs", "value"]
    value: str | None = None
    rationale: str | None = None


class CompressBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    keep: int = MESSAGES_KEPT
    dry_run: bool = False


Prepared = calls.Call | Preview


async def prepare_save(service: Service, body: SaveBody) -> Prepared:
    session = find_named(service, body.name)
    position = await _find_seq(service, session, body.at) if body.at is not None else None
    return calls.Save(name=body.name, mark=body.mark, position=position, note=body.note)


async def prepare_rewind(service: Service, body: RewindBody) -> Prepared:
    session = find_named(service, body.name)
    past = await _read_past(service, session, body.to)
    if body.dry_run:
        words = f"would go on from seq {past.seq}; {session.seq - past.seq} later records stay in the log, on a branch that can be forked"
        return Preview(words, compare(session, past, [], (None, None)))
    return calls.Rewind(name=body.name, to=past.seq, past=past.recollect())


async def prepare_fork(service: Service, body: ForkBody) -> Prepared:
    session = find_named(service, body.name)
    if body.at is not None:
        past = await _read_past(service, session, body.at)
    elif session.run is not None:
        # Its last safe point: what a run does half way belongs to the run.
        past = await _read_past(service, session, str(session.run.seq - 1))
    else:
        past = session
    new = body.new or find_free_name(service, f"{body.name}-fork")
    problem = find_name_problem(new)
    if problem is not None:
        raise CallerError(problem)
    record = next(service.log.read(session.id, from_seq=past.seq, to_seq=past.seq), None)
    return calls.Fork(name=body.name, new=new, past=past, origin_hash=record.hash.hex() if record is not None else "", fresh=body.fresh)


def find_free_name(service: Service, stem: str) -> str:
    taken = service.core.state.ids
    return next(name for number in range(1, len(taken) + 2) if (name := stem if number == 1 else f"{stem}-{number}") not in taken)


async def prepare_merge(service: Service, body: MergeBody) -> Prepared:
    session, fork = find_named(service, body.name), find_named(service, body.fork)
    base_seq = session.merges.get(fork.id, 1)
    base, summary = await asyncio.to_thread(_read_fork, service, fork, base_seq)
    if body.dry_run:
        merged = merge_facts(base.facts, session.facts, fork.facts, fork=fork.name, numbers_from=session.conflicts_opened + 1)
        words = f"would take {len(merged.taken) + len(merged.retracted)} facts and open {len(merged.conflicts)} conflicts"
        return Preview(words, {**msgspec.to_builtins(merged), "summary": summary})
    return calls.Merge(
        name=body.name, fork=body.fork, base=base.facts, base_seq=base_seq, fork_seq=fork.seq, summary=summary
    )


def _read_fork(service: Service, fork: Session, base_seq: int) -> tuple[Session, str]:
    return fold_until(service.log, fork, base_seq), summarise_fork(service.log, fork, base_seq)


async def prepare_resolve(service: Service, body: ResolveBody) -> Prepared:
    session = find_named(service, body.name)
    number = int(body.conflict) if body.conflict.isdecimal() and len(body.conflict) < 10 else _find_conflict(session, body.conflict)
    return calls.Resolve(name=body.name, number=number, choice=body.choice, value=body.value, rationale=body.rationale)


def _find_conflict(session: Session, key: str) -> int:
    numbers = [conflict.number for conflict in session.conflicts if conflict.key == key]
    if len(numbers) != 1:
        found = "none" if not numbers else f"those numbered {', '.join(map(str, numbers))}"
        raise CallerError(f"{session.name} has no single open conflict about {key!r}: there are {found}; name it by its number")
    return numbers[0]


async def prepare_compress(service: Service, body: CompressBody) -> Prepared:
    session = find_named(service, body.name)
    if body.keep < 0:
        raise CallerError(f"so many messages cannot be kept: {body.keep}; 0 or more can")
    call = await asyncio.to_thread(make_compress, service.log, session, body.keep, ByRule())
    if body.dry_run:
        return Preview(f"would replace {call.messages} messages by a summary and keep {call.kept_messages}", {"summary": call.summary})
    return call


# Verb -> its body and how it becomes a call.
PREPARED: dict[str, tuple[type[Struct], Callable[[Service, Any], Awaitable[Prepared]]]] = {
    "save": (SaveBody, prepare_save),
    "rewind": (RewindBody, prepare_rewind),
    "fork": (ForkBody, prepare_fork),
    "merge": (MergeBody, prepare_merge),
    "resolve": (ResolveBody, prepare_resolve),
    "compress": (CompressBody, prepare_compress),
}


async def _find_seq(service: Service, session: Session, position: str) -> int:
    return await asyncio.to_thread(find_seq, service.log, session, position, service.moment().wall)


async def _read_past(service: Service, session: Session, position: str) -> Session:
    seq = await _find_seq(service, session, position)
    return await asyncio.to_thread(fold_until, service.log, session, seq)

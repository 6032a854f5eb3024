"""Forks and merges with files: a workspace made before the fork is recorded, files written after the merge is.

Called around the calls of history.py. What was made for a fork that is then refused is removed again; a merge whose files were
not written because the daemon died is finished when it is asked for once more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from wakeful.api.service import Service
from wakeful.core import calls
from wakeful.core.events import SessionMerged
from wakeful.core.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.workspaces.merging import Plan


async def prepare_workspace(service: Service, call: calls.Fork, folder: str | None) -> calls.Fork:
    """The fork with a place of its own. Where the name is taken nothing is made: the call is refused, or was carried out before."""
    if call.new in service.core.state.ids:
        return call
    made = await service.workspaces.make(call.past, call.new, folder)
    return replace(call, past=made.past, spec=made.spec, detached=made.detached, workspace=made.workspace)


def say_place(call: calls.Fork) -> str:
    if call.workspace is None:
        return ""
    left = f"; {', '.join(call.detached)} would write outside of it and stays detached" if call.detached else ""
    return f"; its workspace is {call.workspace.folder}{left}"


@asynccontextmanager
async def keeping_place(service: Service, call: calls.Call) -> AsyncIterator[None]:
    """Around the call itself: what was laid out for it goes when it is refused."""
    record = call.record if isinstance(call, calls.Merge) else None
    if record is not None:
        await service.workspaces.begin(record)
    try:
        yield
    except CallerError:
        if isinstance(call, calls.Fork) and call.workspace is not None:
            await service.workspaces.discard(call.workspace)
        if record is not None:
            await service.workspaces.give_up(record)
        raise


async def plan_files(service: Service, session: Session, fork: Session, base_seq: int, *, is_dry: bool) -> Plan:
    if fork.workspace is None or fork.origin is None or fork.origin.session != session.id:
        return Plan(changes=(), record=None)
    base = fork.workspace.base
    earlier = next((one for one in _list_merges(service, session, fork.id) if one.fork_seq <= base_seq), None)
    if earlier is not None and earlier.record is not None:
        base = await service.workspaces.find_base(earlier.record)
    return await service.workspaces.plan(session, fork, base, is_dry=is_dry)


async def finish_files(service: Service, name: str, fork_name: str) -> dict[str, Any]:
    """Write the files of the newest merge, if that was not done; each path says what became of it."""
    session, fork = service.core.state.by_name(name), service.core.state.by_name(fork_name)
    merge = next(_list_merges(service, session, fork.id), None)
    if merge is None or merge.record is None or not service.workspaces.is_unfinished(merge.record):
        return {}
    failed = {one["path"]: one for one in await service.workspaces.finish(merge.record)}
    told = [{"path": path, "ending": words.partition(": ")[0], "reason": words.partition(": ")[2] or None, "kept": None} for path, words in merge.files.items()]
    return {"files": [failed.pop(one["path"], one) for one in told] + list(failed.values())}


def _list_merges(service: Service, session: Session, fork: str) -> Iterator[SessionMerged]:
    """Merges of this fork that brought files, newest first; those on a branch that was left by a rewind do not count."""
    for record in service.log.read(session.id, kinds=("session_merged",), newest_first=True):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(event, SessionMerged) and event.fork == fork and event.record is not None and _is_on_line(session, record.seq):
            yield event


def _is_on_line(session: Session, seq: int) -> bool:
    if not session.line:
        return True
    return any(one.session == session.id and one.first <= seq and (one.last is None or seq <= one.last) for one in session.line)

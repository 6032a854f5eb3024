"""Forks and merges with files: makes a workspace before the fork is recorded, and writes files after the merge is
recorded.

`history_calls` uses this module. If a fork is refused, its workspace is removed again. If the daemon died before it
wrote the files of a merge, the same merge can be repeated to write them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from wakeful.api.contract import Service
from wakeful.core.calls import call_types as calls
from wakeful.core.record.events import SessionMerged
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.workspaces.merge import Plan


async def prepare_workspace(service: Service, call: calls.Fork, folder: str | None) -> calls.Fork:
    """Make a workspace for the fork, and return the call with it.

    If the name is taken, nothing is made: the call will be refused, or was carried out before.
    """
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
    """Surround a call. If the call is refused, remove the workspace or plan that was made for it."""
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
    if fork.lineage.workspace is None or fork.lineage.origin is None or fork.lineage.origin.session != session.id:
        return Plan(changes=(), record=None)
    base = fork.lineage.workspace.base
    earlier = next((one for _, one in _list_merges(service, session, fork.id) if one.fork_seq <= base_seq), None)
    if earlier is not None and earlier.record is not None:
        base = await service.workspaces.find_base(earlier.record)
    return await service.workspaces.plan(session, fork, base, is_dry=is_dry)


@asynccontextmanager
async def owning_writes(service: Service, session_id: str) -> AsyncIterator[set[str]]:
    """Surround the writing of files for a session that is held meanwhile. The paths that the caller adds to the set
    become the session's own writes (rule 44).

    The paths are reported also after an error, because the report releases the session."""
    written: set[str] = set()
    try:
        yield written
    finally:
        await service.report_written(session_id, written)


async def finish_files(service: Service, name: str, fork_name: str, made: str | None = None) -> dict[str, Any]:
    """Write the files of the newest merge, which holds its session. Returns the result for each path.

    `made` is the record of the merge that was just carried out. Its files are written even if its mark as unfinished is
    gone. Another caller may have requested the same merge at that moment. That merge is refused, and removes the
    mark."""
    session = service.core.state.by_name(name)
    async with owning_writes(service, session.id) as written:
        found = _find_unfinished(service, session, fork_name, made)
        if found is None:
            return {}
        _, merge, record = found
        failed = {one["path"]: one for one in await service.workspaces.finish(record)}
        written.update(path for path in await service.workspaces.list_paths(record) if path not in failed)
    told = [
        {"path": path, "ending": words.partition(": ")[0], "reason": words.partition(": ")[2] or None, "kept": None}
        for path, words in merge.files.items()
    ]
    return {"files": [failed.pop(one["path"], one) for one in told] + list(failed.values())}


async def finish_merge(service: Service, name: str, fork_name: str, author: str) -> dict[str, Any]:
    """Write the files of a merge that was recorded by a daemon which then died. The session is held again meanwhile."""
    session = service.core.state.by_name(name)
    found = _find_unfinished(service, session, fork_name)
    if found is None:
        return {}
    call = calls.Finish(name=name, position=found[0], words=f"the merge of {found[1].name}")
    await service.call(call, author=author, key=None, run=None)
    return await finish_files(service, name, fork_name)


def _find_unfinished(
    service: Service, session: Session, fork_name: str, made: str | None = None
) -> tuple[int, SessionMerged, str] | None:
    """Find the newest merge of this fork, if its files are still to be written. Returns its seq, its event, and the
    address of the record of files."""
    seq, merge = next(_list_merges(service, session, service.core.state.by_name(fork_name).id), (0, None))
    if (
        merge is None
        or merge.record is None
        or not (merge.record == made or service.workspaces.is_unfinished(merge.record))
    ):
        return None
    return seq, merge, merge.record


def _list_merges(service: Service, session: Session, fork: str) -> Iterator[tuple[int, SessionMerged]]:
    """Yield the merges of this fork that brought files, newest first, with their seq. Merges on a branch that a rewind
    left do not count."""
    for record in service.log.read(session.id, kinds=("session_merged",), newest_first=True):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if (
            isinstance(event, SessionMerged)
            and event.fork == fork
            and event.record is not None
            and _is_on_line(session, record.seq)
        ):
            yield record.seq, event


def _is_on_line(session: Session, seq: int) -> bool:
    if not session.lineage.line:
        return True
    return any(
        one.session == session.id and one.first <= seq and (one.last is None or seq <= one.last)
        for one in session.lineage.line
    )

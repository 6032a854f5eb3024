"""Forks and merges with files: a workspace made before the fork is recorded, files written after the merge is.

Called around the calls of history.py. A workspace made for a fork that is then refused is removed again. If the daemon
died before it wrote the files of a merge, the merge is finished when it is asked for once more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from wakeful.api.service import Service
from wakeful.core.calls import values as calls
from wakeful.core.record.events import SessionMerged
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.workspaces.merge import Plan


async def prepare_workspace(service: Service, call: calls.Fork, folder: str | None) -> calls.Fork:
    """The fork with a place of its own.

    Where the name is taken nothing is made: the call is refused, or was carried out before.
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
    """Surround a call: the workspace or plan that was made for it is removed where the call is refused."""
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
    """Around the writing of files for a session that is held for it:
    the paths that were written become its own (rule 44).

    Also where the rest failed: who is held must be let go."""
    written: set[str] = set()
    try:
        yield written
    finally:
        await service.report_written(session_id, written)


async def finish_files(service: Service, name: str, fork_name: str, made: str | None = None) -> dict[str, Any]:
    """Write the files of the newest merge, which holds its session; each path says what became of it.

    `made` is the record of the merge that was just carried out: whatever became of its mark, its files are not written
    yet. The same merge asked for by somebody else at that moment is refused, and takes the mark away."""
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
    """The same for a merge that a daemon which died had recorded: its session is held anew."""
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
    """The newest merge of this fork, if its files are still to be written: its seq, what it says,
    and the blob that lists them."""
    seq, merge = next(_list_merges(service, session, service.core.state.by_name(fork_name).id), (0, None))
    if (
        merge is None
        or merge.record is None
        or not (merge.record == made or service.workspaces.is_unfinished(merge.record))
    ):
        return None
    return seq, merge, merge.record


def _list_merges(service: Service, session: Session, fork: str) -> Iterator[tuple[int, SessionMerged]]:
    """Merges of this fork that brought files, newest first, with their seq;
    those on a branch that was left by a rewind do not count."""
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

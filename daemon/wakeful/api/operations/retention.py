"""Carries out retention: archives the sessions that are due, one by one. Each of them can be loaded again.

Outputs of old runs are moved to compressed files, from which they can still be read. A person requests this with
`wakeful archive --due`, and the daemon does it every hour. bundles/retention_rules.py and bundles/old_outputs.py decide
which sessions and outputs are due. Nothing is ever deleted here.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, NamedTuple

from wakeful.api.contract import Service
from wakeful.api.operations.bundles import ARCHIVE, Answer, BundleWork, archive
from wakeful.bundles.blob_archive import BlobArchive, Moved
from wakeful.bundles.old_outputs import DueOutputs, find_due_outputs
from wakeful.bundles.retention_rules import USUAL_OUTPUTS, Due, RetainedSession, choose_sessions, judge_session
from wakeful.core.deciding.owed import owed_names
from wakeful.core.record.state import Archived, Session
from wakeful.core.spec.session import Retention
from wakeful.errors import CallerError
from wakeful.system.blobs import Blobs
from wakeful.text.display import count

OUTPUTS = "outputs"


class Named(NamedTuple):
    """The body of `archive`, for a session that retention archives without a request."""

    name: str


async def archive_all(work: BundleWork, body: Any) -> Answer:
    """Archive everything that is due (`archive --due`). With `dry_run`, only list it."""
    due = await find_due(work.service)
    outputs = await find_outputs(work)
    if body.dry_run:
        answers = [{"name": one.name, "why": one.why} for one in due]
    else:
        answers = await archive_due(work, due)
        await archive_outputs(work, outputs)
    words = _say_due("would archive" if body.dry_run else "archived", len(answers), outputs)
    return {"name": "archive", "words": words, "sessions": answers, "outputs": _view_outputs(work.service, outputs)}


def _say_due(done: str, sessions: int, outputs: DueOutputs) -> str:
    runs = sum(number for number, _ in outputs.sessions.values())
    parts = [count(sessions, "session")] if sessions else []
    parts += [f"the outputs of {count(runs, 'old run')}"] if runs else []
    return f"{done} {' and '.join(parts)}" if parts else "nothing is due"


def _view_outputs(service: Service, outputs: DueOutputs) -> list[Answer]:
    state = service.core.state.sessions
    return [
        {
            "name": state[session].name if session in state else session,
            "runs": runs,
            "bytes": size,
            "why": f"{count(size, 'byte')} of {count(runs, 'old run')}",
        }
        for session, (runs, size) in outputs.sessions.items()
    ]


async def find_outputs(work: BundleWork) -> DueOutputs:
    """Find the outputs of old runs that are due. The bounds are those of the session, else those of the daemon, else
    the default bounds."""
    core = work.service.core
    general = core.settings.retention
    usual = general if general != Retention() else USUAL_OUTPUTS
    own = {
        session.id: session.spec.retention
        for session in core.state
        if session.spec is not None and session.spec.retention is not None
    }
    return await asyncio.to_thread(find_due_outputs, work.log, _at_hand(work), own, work.now, usual=usual)


async def archive_outputs(work: BundleWork, due: DueOutputs) -> Moved | None:
    """Move outputs into the archive file of the day. It is read back before the originals are removed."""
    if not due.addresses:
        return None
    archive = BlobArchive(work.state / ARCHIVE / OUTPUTS)
    name = datetime.fromtimestamp(work.now / 1_000_000, UTC).strftime("%Y-%m-%d")
    return await asyncio.to_thread(archive.move, _at_hand(work), due.addresses, name)


def _at_hand(work: BundleWork) -> Blobs:
    """Return the store of the blobs that are not archived."""
    return Blobs(str(work.state / "blobs"))


async def find_due(service: Service) -> tuple[Due, ...]:
    """Find the sessions that are due. If no bound is set, nothing is read."""
    core = service.core
    general = core.settings.retention
    own = {
        session.id: session.spec.retention
        for session in core.state
        if session.spec is not None and session.spec.retention is not None
    }
    bounds = (general, *own.values())
    if all(bound == type(bound)() for bound in bounds):
        return ()
    sizes = await asyncio.to_thread(service.log.sizes) if any(bound.size_bytes is not None for bound in bounds) else {}
    standings = [
        RetainedSession(
            session=session.id,
            name=session.name,
            last_active_at=session.last_active_at,
            runs=session.tally.runs,
            size_bytes=sizes.get(session.id, 0),
            held=judge_session(session, is_owed=_is_owed(service, session)),
            retention=own.get(session.id),
        )
        for session in core.state
        if not isinstance(session.closed, Archived)
    ]
    return choose_sessions(standings, general, service.moment().wall)


def _is_owed(service: Service, session: Session) -> bool:
    return session.id in service.core.looked.bounds and bool(
        owed_names(service.core.state, service.core.looked, session)
    )


async def archive_due(work: BundleWork, due: tuple[Due, ...]) -> list[Answer]:
    """Archive each session separately. A session that woke meanwhile is skipped this time."""
    answers = []
    for one in due:
        try:
            answers.append({**await archive(work, Named(one.name)), "why": one.why})
        except CallerError as refused:
            answers.append({"name": one.name, "words": f"left alone: {refused}", "why": one.why})
    return answers

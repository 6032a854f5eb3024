"""Retention carried out: sessions that are due go to the archive, one by one, and every one of them can be loaded back.

The daemon asks once an hour, a person with `wakeful archive --due`. What is due is decided by bundles/retention.py; nothing is
ever deleted here.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bundling import ROUTES, Answer, ArchiveBody, Desk, archive, carry
from wakeful.api.service import Service
from wakeful.bundles.retention import Due, Standing, choose_sessions, judge_session
from wakeful.core.owed import owed_names
from wakeful.core.state import Session
from wakeful.errors import CallerError

PAUSE_SECONDS = 3600.0


class DueBody(Struct, frozen=True, kw_only=True):
    dry_run: bool = False


async def archive_all(desk: Desk, body: DueBody) -> Answer:
    """`archive --due`: everything that retention allows, or with `dry_run` what that would be."""
    due = await find_due(desk.service)
    if body.dry_run:
        return {"name": "archive", "words": f"{len(due)} due", "sessions": [{"name": one.name, "why": one.why} for one in due]}
    answers = await archive_due(desk, due)
    return {"name": "archive", "words": f"{len(answers)} due", "sessions": answers}


async def find_due(service: Service) -> tuple[Due, ...]:
    """Who may go now. Without a bound anywhere nobody is asked for, and nothing is read."""
    core = service.core
    general = core.settings.retention
    own = {session.id: session.spec.retention for session in core.state if session.spec is not None and session.spec.retention is not None}
    bounds = (general, *own.values())
    if all(bound == type(bound)() for bound in bounds):
        return ()
    sizes = await asyncio.to_thread(service.log.sizes) if any(bound.size_bytes is not None for bound in bounds) else {}
    standings = [
        Standing(
            session=session.id,
            name=session.name,
            last_active_at=session.last_active_at,
            runs=session.runs,
            size_bytes=sizes.get(session.id, 0),
            held=judge_session(session, is_owed=_is_owed(service, session)),
            retention=own.get(session.id),
        )
        for session in core.state
        if session.archive is None
    ]
    return choose_sessions(standings, general, service.moment().wall)


def _is_owed(service: Service, session: Session) -> bool:
    return session.id in service.core.looked.bounds and bool(owed_names(service.core.state, service.core.looked, session))


async def archive_due(desk: Desk, due: tuple[Due, ...]) -> list[Answer]:
    """Each by itself: one that woke meanwhile is left for another time."""
    answers = []
    for one in due:
        try:
            answers.append({**await archive(desk, ArchiveBody(name=one.name)), "why": one.why})
        except CallerError as refused:
            answers.append({"name": one.name, "words": f"left alone: {refused}", "why": one.why})
    return answers


async def carry_all(request: Request) -> Response:
    """POST /bundle/{verb}, those that concern all sessions included."""
    return await carry(request, {**ROUTES, "due": (DueBody, archive_all)})

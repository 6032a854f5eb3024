"""The steps of `open`: a session without a file, whose spec is in the log; and GET /sessions/{name}/spec, the text.

The text of the spec is made from the arguments, parsed like a file, and recorded with the declaration. So `wakeful new
NAME --from NAME` can write the file later.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.requests import answer_json, find_session, service_of
from wakeful.api.routes.call_steps import Done, More
from wakeful.api.service import Service
from wakeful.core.calls import values as calls
from wakeful.core.record.erased_payloads import ERASED
from wakeful.core.record.events import SpecDeclared
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.specs.new import Answers, render_open


def is_new(service: Service, body: Any) -> bool:
    """Does this request open a session that does not exist yet?"""
    return body.name not in service.core.state.ids and not body.again


async def prepare_open(service: Service, body: Any) -> calls.Open:
    given = {field: value for field, value in asdict(body).items() if field not in ("name", "again", "root") and value}
    if not is_new(service, body):
        if given:
            raise CallerError(
                f"{body.name} is there already; {', '.join(sorted(given))} can be given to a new session only: "
                "choose another name, or edit its spec"
            )
        return calls.Open(name=body.name, again=body.again)
    agents = service.core.agents
    if body.agent is not None and body.agent not in agents:
        known = f"there are {', '.join(sorted(agents))}" if agents else "agents are declared in sessions.d/agents/"
        raise CallerError(f"no agent is called {body.agent!r}: {known}")
    if body.prompt and body.agent is None:
        raise CallerError(f"{body.name} was given a prompt, but no agent to answer it; name an agent with --agent")
    root = _find_root(service, body.root)
    text = render_open(body.name, Answers(**given), root)
    spec = await asyncio.to_thread(service.read_spec, body.name, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return calls.Open(name=body.name, spec=spec, text=text, text_digest=digest)


def _find_root(service: Service, root: str | None) -> str | None:
    """Check the root folder of a new session. None if it is the folder of sessions.d, which is the default."""
    if root is None:
        return None
    if not root.startswith("/") or not os.path.isdir(root):
        raise CallerError(f"{root!r} is not a folder of this machine; root is the absolute path of a folder")
    root = os.path.normpath(root)
    return None if root == str(service.places.specs.parent) else root


async def finish_open(service: Service, done: Done) -> More:
    if done.call.spec is not None:
        return {}
    if not done.reply.is_repeated:
        service.report_spec_again(done.call.name)
    await service.read_specs()
    return {}


async def read_spec(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    text = await asyncio.to_thread(find_text, service.log, session)
    return answer_json(
        {"name": session.name, "id": session.id, "is_filed": session.declaration.is_filed, "text": service.redact(text)}
    )


def find_text(log: LogReader, session: Session) -> str | None:
    """Find the text that a session was opened with. None if a file declares it, or if there is no text. Blocking."""
    if session.declaration.is_filed:
        return None
    for record in log.read(session.id, kinds=("spec_declared",), newest_first=True):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(event, SpecDeclared) and event.text is not None:
            return event.text if event.text != ERASED else None
    return None

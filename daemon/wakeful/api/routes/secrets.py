"""GET /secrets: which secrets there are, where they come from and who uses them. Never a value.

They are looked at for the answer: whoever set one and asks need not wait for the next look. A run may not ask.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import answer_json, service_of
from wakeful.core.deciding.agent_obstacles import list_needed


async def read_secrets(request: Request) -> Response:
    service = service_of(request)
    users: dict[str, list[str]] = {}
    for session in sorted(service.core.state, key=lambda session: session.name):
        if session.declaration.is_declared:
            for name in list_needed(service.core, session):
                users.setdefault(name, []).append(session.name)
    known, folder = service.secrets()
    rows = [
        {"name": one.name, "source": one.source, "problem": one.problem, "sessions": users.get(one.name, [])}
        for one in known
    ]
    return answer_json({"folder": folder, "secrets": rows})

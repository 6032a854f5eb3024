"""The routes of trust: list the files that wait for a person, show how they differ from the trusted files, and take the
decision.

Only the daemon's own user reaches these routes, never a run and never a token. A decision is recorded in the log of
each session that it lets run. Only after that is it written to the ledger of trust. If the daemon dies in between, the
log has a decision that is not in force. The reverse cannot happen.
"""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import decode_name, read_routed
from wakeful.api.contract import Service
from wakeful.api.gate.callers import Caller
from wakeful.api.operations.participants import refuse_by_uid
from wakeful.api.requests import Handlers, answer_json, caller_of, service_of
from wakeful.core.calls import call_types as calls
from wakeful.trust.trust_review import FilesToTrust


async def list_trust(request: Request) -> Response:
    return answer_json(service_of(request).trust.view())


async def show_trust(request: Request) -> Response:
    review, name = service_of(request).trust, decode_name(request.path_params["name"])
    return answer_json(await asyncio.to_thread(review.show, name, review.find_loaded(name)))


async def accept(request: Request) -> Response:
    service, caller = service_of(request), caller_of(request)
    asked = await read_routed(request, "POST /trust/accept")
    loaded = service.trust.find_loaded(asked.name)
    trusting = await asyncio.to_thread(service.trust.prepare, asked.name, asked.digest, loaded)
    await _record(service, caller, trusting)
    return answer_json({"name": asked.name, "words": "trusted", "sessions": sorted(trusting.sessions)})


async def attach(request: Request) -> Response:
    service, caller = service_of(request), caller_of(request)
    asked = await read_routed(request, "POST /trust/attach")
    if asked.digest is None:
        return answer_json(await asyncio.to_thread(service.trust.preview, asked.folder, asked.project))
    project = await asyncio.to_thread(service.trust.attach, asked.folder, asked.project, asked.digest)
    # After this call, the project's sessions exist, asleep, so that their logs can record the decision.
    await service.read_specs()
    trusting = await asyncio.to_thread(service.trust.prepare_project, project, asked.digest)
    await _record(service, caller, trusting)
    return answer_json(
        {"name": project.name, "folder": project.folder, "words": "attached", "sessions": sorted(trusting.sessions)}
    )


async def detach(request: Request) -> Response:
    service = service_of(request)
    asked = await read_routed(request, "POST /trust/detach")
    project = await asyncio.to_thread(service.trust.detach, asked.project)
    await service.read_specs()
    return answer_json(
        {"name": project.name, "folder": project.folder, "words": "detached; its sessions keep their records"}
    )


async def follow(request: Request) -> Response:
    service = service_of(request)
    asked = await read_routed(request, "POST /trust/follow")
    project = await asyncio.to_thread(partial(service.trust.follow, asked.folder, is_followed=asked.is_followed))
    await service.read_specs()
    words = "followed as it is edited" if asked.is_followed else "pinned: changes wait for your decision"
    return answer_json({"name": project.name, "folder": project.folder, "words": words})


async def _record(service: Service, caller: Caller, trusting: FilesToTrust) -> None:
    made = [
        calls.Trust(name=name, digest=digest, files=trusting.labels)
        for name, digest in sorted(trusting.sessions.items())
    ]
    for call in made:
        refuse_by_uid(service.core, call, caller)
    for call in made:
        await service.call(call, author=caller.author, key=None, run=None)
    await asyncio.to_thread(service.trust.commit, trusting)
    await service.read_specs()


HANDLERS: Handlers = {
    "GET /trust": list_trust,
    "GET /trust/{name}": show_trust,
    "POST /trust/accept": accept,
    "POST /trust/attach": attach,
    "POST /trust/detach": detach,
    "POST /trust/follow": follow,
}

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

from wakeful.api.operations.call_steps import Done, More
from wakeful.api.service import Service
from wakeful.core.calls import values as calls
from wakeful.errors import CallerError
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

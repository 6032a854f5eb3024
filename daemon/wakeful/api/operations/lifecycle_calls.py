"""The calls about a session's life that need steps before or after them. `rename` and `open` also handle the spec's
file.
"""

from __future__ import annotations

import asyncio
from typing import Any

from wakeful.api.operations.call_steps import CallSteps, Done, More
from wakeful.api.operations.last_answer import tell_first
from wakeful.api.operations.open_session import finish_open, is_new, prepare_open
from wakeful.api.service import Service
from wakeful.core.calls import values as calls
from wakeful.errors import CallerError, OperatorError
from wakeful.specs.scalars import find_name_problem


async def prepare_rename(service: Service, body: calls.Rename) -> calls.Rename:
    # The name becomes a path in sessions.d, and must not lead out of it.
    problem = find_name_problem(body.new) or service.find_rename_obstacle(body.name, body.new)
    if problem is not None:
        raise CallerError(problem)
    return calls.Rename(name=body.name, new=body.new)


async def finish_rename(service: Service, done: Done) -> More:
    """Rename the file after the session. If the file were renamed first, the daemon would see one session vanish and
    another appear."""
    reply = done.reply
    return await _rename_file(service, done.call.name, done.call.new, reply.words, is_repeated=reply.is_repeated)


async def finish_rename_again(service: Service, body: calls.Rename, key: str, author: str) -> More:
    return await _rename_file(service, body.name, body.new, f"renamed to {body.new}", is_repeated=True)


async def _rename_file(service: Service, old: str, new: str, words: str, *, is_repeated: bool) -> More:
    ids = service.core.state.ids
    # Both names may belong to other sessions by now.
    if is_repeated and (old in ids or new not in ids):
        return {"name": new}
    # A fork has no file.
    if not service.core.state.by_name(new).declaration.is_filed:
        return {"name": new}
    try:
        service.rename_spec(old, new)
    except OSError as error:
        # The call repeats the key of an earlier one, which has already moved the file.
        if is_repeated and isinstance(error, FileNotFoundError):
            return {"name": new}
        raise CallerError(
            f"{words}, but its file was not: {error.strerror}; rename sessions.d/{old}.yaml by hand"
        ) from error
    await service.read_specs()
    return {"name": new}


async def prepare_trace(service: Service, body: Any) -> calls.Trace:
    """Raise OperatorError if no run can be traced, such as without strace, before anything runs."""
    obstacle = await asyncio.to_thread(service.find_tracing_obstacle)
    if obstacle is not None:
        raise OperatorError(obstacle)
    return calls.Trace(name=body.name, observe=body.observe)


CALLS: dict[str, CallSteps] = {
    "answer": CallSteps(makes=(calls.Answer,), around=tell_first),
    "open": CallSteps(makes=(calls.Open,), prepare=prepare_open, finish=finish_open, is_owners=is_new),
    "rename": CallSteps(
        makes=(calls.Rename,), prepare=prepare_rename, finish=finish_rename, finish_again=finish_rename_again
    ),
    "send": CallSteps(makes=(calls.Send,), is_to_others=True),
    "trace": CallSteps(makes=(calls.Trace,), prepare=prepare_trace),
}

"""The route POST /call/{verb}: a JSON body becomes a call, and the answer is sent when the call is on disk.

The fields of a body are the arguments of the verb in the table of verbs. A verb that only records its call needs
no code here: its body becomes the call of the same name, field by field. `key` (or the header Idempotency-Key) makes
a call safe to repeat. A body may not name the caller: author, run and sender come from the connection.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import build, decode_body, find_body_type, read_body, take_key
from wakeful.api.contract import Service, know_agent, refuse_refused
from wakeful.api.gate.callers import Caller
from wakeful.api.gate.scopes import refuse_member
from wakeful.api.operations import history_calls, lifecycle_calls
from wakeful.api.operations.call_steps import CallSteps, Done, Preview
from wakeful.api.operations.participants import refuse_by_uid
from wakeful.api.problems import Forbidden, KeyInUse
from wakeful.api.requests import answer_json, caller_of, service_of
from wakeful.api.routes.people import presence_of
from wakeful.core.calls import call_types as calls
from wakeful.core.calls.call_rules import CALL_RULES
from wakeful.core.calls.roles import find_called
from wakeful.errors import CallerError, KeyReused
from wakeful.history.repeated_calls import Named, find_first, say_repeated
from wakeful.verbs.table import VERBS
from wakeful.verbs.verb import Verb
from wakeful.views.times import say_time, show_time_or_none

# The calls that need work before or after them. Every other verb only records its call.
_WITH_STEPS = {**lifecycle_calls.CALLS, **history_calls.CALLS}


def list_steps(verbs: Mapping[str, Verb]) -> dict[str, CallSteps]:
    """List the steps of each verb with a route `POST /call/NAME`. Raises LookupError if such a verb has no call."""
    return {name: _find_steps(name) for name, verb in verbs.items() if verb.is_call}


def _find_steps(name: str) -> CallSteps:
    if name in _WITH_STEPS:
        return _WITH_STEPS[name]
    for kind in get_args(calls.Call):
        if _spell(kind) == name:
            return CallSteps(makes=(kind,))
    raise LookupError(
        f"the verb {name} has a route of calls, but the union `Call` in core/calls/call_types.py has no such call"
    )


def _spell(kind: type[calls.Call]) -> str:
    """Spell the name of a call as its verb: `SleepAll` is `sleep_all`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


CALLS = list_steps(VERBS)


async def call(request: Request) -> Response:
    service, caller = service_of(request), caller_of(request)
    verb = request.path_params["verb"]
    steps = CALLS.get(verb)
    if steps is None:
        raise CallerError(f"there is no call {verb!r}; the calls are {', '.join(CALLS)}")
    kind = find_body_type(VERBS[verb], steps.object_type)
    given = decode_body(await read_body(request))
    key = take_key(request, given, kind)
    body = build(kind, speak_for(caller, steps, given))
    refuse_refused(service, body.name)
    is_owner = caller.run is None and caller.token is None and caller.member is None
    if not is_owner and steps.is_owners is not None and steps.is_owners(service, body):
        raise Forbidden(
            f"{body.name} does not exist, and only the daemon's own user can open a new session, without a token; "
            "ask them"
        )
    if key is None:
        return await _carry_out(request, steps, body)
    once = IdempotencyKey(key, digest_call(verb, body))
    keys: KeysInUse = request.app.state.keys
    with keys.hold(body.name, once):
        return await _carry_out(request, steps, body, once)


class IdempotencyKey(NamedTuple):
    """The key of a call that is safe to repeat, and the digest of its request."""

    key: str
    digest: bytes


def digest_call(verb: str, body: Struct) -> bytes:
    """Digest a request. Equivalent requests have the same digest, with or without default values and in any order of
    fields."""
    told = msgspec.json.encode((verb, body), order="sorted")
    return hashlib.blake2b(told, digest_size=16).digest()


class KeysInUse:
    """The keys of calls under way, by session."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], bytes] = {}

    @contextmanager
    def hold(self, name: str, once: IdempotencyKey) -> Iterator[None]:
        """Hold a key until the context ends. Raises KeyInUse if the same call is under way with this key. Raises
        KeyReused if another call is under way with it."""
        place = (name, once.key)
        held = self._held.get(place)
        if held == once.digest:
            raise KeyInUse(f"the first call with the key {once.key!r} is under way; ask again when it is over")
        if held is not None:
            raise KeyReused(
                f"the key {once.key!r} belongs to another call of {name or 'all sessions'} that is under way; nothing "
                "was done, choose a key of its own"
            )
        self._held[place] = once.digest
        try:
            yield
        finally:
            del self._held[place]


async def _carry_out(request: Request, steps: CallSteps, body: Any, once: IdempotencyKey | None = None) -> Response:
    service, caller = service_of(request), caller_of(request)
    # A repeated call is not prepared again, because the first call may have removed what the preparation needs.
    if steps.prepare is not None and once is not None:
        named = Named(kinds=steps.makes, name=body.name, new=getattr(body, "new", None), digest=once.digest)
        first = find_first(service.log, service.core.state, named, once.key)
        if first is not None:
            more = await steps.finish_again(service, body, once.key, caller.author) if steps.finish_again else {}
            answer = {"words": say_repeated(first), "name": body.name, "record": first.seq, "is_repeated": True}
            return answer_json(answer | more)
    made = await make_call(service, steps, body, caller)
    if isinstance(made, Preview):
        return answer_json({"words": made.words, "name": body.name, "preview": made.found})
    async with steps.around(service, made) if steps.around else nullcontext():
        reply = await hand_over(service, made, caller, once)
    session_id = service.core.state.ids.get(body.name)
    if caller.run is None and session_id is not None:
        presence_of(request).note(caller.shown_name, session_id, "writes", service.moment().wall)
    answer = say_answer(made.name, reply)
    if steps.finish is not None:
        answer |= await steps.finish(service, Done(body=body, call=made, reply=reply, author=caller.author))
    return answer_json(answer)


async def make_call(service: Service, steps: CallSteps, body: Any, caller: Caller) -> Any:
    """Make the call of a body, or the preview of a dry run."""
    await know_agent(service, getattr(body, "agent", None))
    made = await steps.prepare(service, body) if steps.prepare is not None else steps.makes[0](**asdict(body))
    return replace(made, sender=caller.run.name) if steps.is_to_others and caller.run is not None else made


async def hand_over(service: Service, made: calls.Call, caller: Caller, once: IdempotencyKey | None) -> calls.Reply:
    refuse_by_uid(service.core, made, caller)
    if caller.member is not None:
        # The gate judged the name that was sent, but another session may have that name by now.
        needed = CALL_RULES[type(made)].role
        for session in find_called(service.core, made):
            refuse_member(service, caller.member, session, needed)
    run = caller.run.run if caller.run is not None else None
    key, digest = once if once is not None else (None, None)
    return await service.call(made, author=caller.author, key=key, run=run, digest=digest)


def say_answer(name: str, reply: calls.Reply) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "words": reply.words,
        "name": name,
        "record": reply.seq,
        "is_repeated": reply.is_repeated,
    }
    if reply.held is not None:
        answer |= {"held": reply.held, "held_until": show_time_or_none(reply.held_until)}
        answer["words"] += f"; that lasts until {say_time(reply.held_until)}" if reply.held_until is not None else ""
    return answer


def speak_for(caller: Caller, steps: CallSteps, body: dict[str, Any]) -> dict[str, Any]:
    """Complete the body of a run's call with the name of its own session. Raises Forbidden if it names another session.

    `sender` is never taken from a body.
    """
    if "sender" in body:
        raise CallerError("'sender' is known from the connection; leave it out")
    if caller.run is None or steps.is_to_others:
        return body
    if body.get("name", caller.run.name) != caller.run.name:
        raise Forbidden(
            f"a run of {caller.run.name} may not speak for {body['name']!r}; use send to reach another session"
        )
    return {**body, "name": caller.run.name}

"""POST /call/{verb}: a JSON body becomes a call value, and the daemon's answer comes when it is on disk.

A body names every field by its word in core/calls/values.py; `key` (or the header Idempotency-Key) makes it safe to
repeat. What a body may not say, because the socket knows it better, is who calls: author,
run and sender come from the connection.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import BodyTooLarge, Forbidden, answer_json, caller_of, refuse_refused, service_of
from wakeful.api.gate.callers import Caller
from wakeful.api.routes import history_calls as history
from wakeful.api.routes.participants import refuse_by_uid
from wakeful.api.routes.trace import prepare_trace
from wakeful.api.routes.workspaces import finish_files, finish_merge, keeping_place, say_place
from wakeful.api.service import Service
from wakeful.core.calls import values as calls
from wakeful.errors import CallerError
from wakeful.history.repeated_calls import Named, find_first, say_repeated
from wakeful.specs.scalars import find_name_problem
from wakeful.text.unicode import find_lone_half
from wakeful.views.times import say_time, show_time_or_none

LARGEST_BODY_BYTES = 1_000_000
LONGEST_KEY = 200
VERBS: dict[str, type[Struct]] = {
    "activate": calls.Activate,
    "resume": calls.Resume,
    "suspend": calls.Suspend,
    "sleep": calls.Sleep,
    "sleep_all": calls.SleepAll,
    "resume_all": calls.ResumeAll,
    "answer": calls.Answer,
    "interrupt": calls.Interrupt,
    "cancel": calls.Cancel,
    "terminate": calls.Terminate,
    "open": calls.Open,
    "rename": calls.Rename,
    "send": calls.Send,
    "note": calls.Note,
    "ask": calls.Ask,
    "remember": calls.Remember,
    "forget": calls.Forget,
    "todo": calls.Todo,
}
# Verb -> its body and how it becomes a call: something has to be looked up first.
PREPARED: dict[str, tuple[type[Struct], Callable[[Service, Any], Awaitable[Any]]]] = {
    **history.PREPARED,
    "trace": (calls.Trace, prepare_trace),
}
# Verb -> the calls that its body may become.
MADE_OF: dict[str, tuple[type[Struct], ...]] = {
    "save": (calls.Save,),
    "rewind": (calls.Rewind,),
    "fork": (calls.Fork,),
    "merge": (calls.Merge,),
    "resolve": (calls.Resolve,),
    "compress": (calls.Compress,),
    "migrate": (calls.Migrate, calls.Thaw, calls.Depart),
    "erase": (calls.Erase,),
    "trace": (calls.Trace,),
}


async def call(request: Request) -> Response:
    service, caller = service_of(request), caller_of(request)
    verb = request.path_params["verb"]
    kind, prepare = PREPARED.get(verb) or (VERBS.get(verb), None)
    if kind is None:
        raise CallerError(f"there is no call {verb!r}; the calls are {', '.join((*VERBS, *PREPARED))}")
    body = decode_body(await read_body(request))
    key = take_key(request, kind, body)
    made = build_call(kind, speak_for(caller, kind, body))
    refuse_refused(service, made.name)
    if prepare is not None:
        # A repeated call cannot be prepared again: the first call may have removed the things that its preparation
        # needs.
        if (
            key is not None
            and (first := find_first(service.log, service.core.state, Named(kinds=MADE_OF[verb], name=made.name), key))
            is not None
        ):
            finished = await history.finish_again(service, made, key, caller.author)
            return answer_json(
                {"words": say_repeated(first), "name": made.name, "record": first.seq, "is_repeated": True, **finished}
            )
        made = await prepare(service, made)
    if isinstance(made, history.Preview):
        return answer_json({"words": made.words, "name": body["name"], "preview": made.found})
    async with keeping_place(service, made):
        reply = await carry_out(service, made, caller, key)
    answer = {"words": reply.words, "name": made.new if isinstance(made, calls.Rename | calls.Fork) else made.name}
    answer |= {"record": reply.seq, "is_repeated": reply.is_repeated}
    if reply.held is not None:
        answer |= {"held": reply.held, "held_until": show_time_or_none(reply.held_until)}
        answer["words"] += f"; that lasts until {say_time(reply.held_until)}" if reply.held_until is not None else ""
    if isinstance(made, calls.Merge):
        # Without files of its own, it may still find those of an earlier one to be written.
        finishing = (
            finish_files(service, made.name, made.fork, made.record)
            if made.record is not None
            else finish_merge(service, made.name, made.fork, caller.author)
        )
        answer |= await finishing
    if isinstance(made, calls.Fork):
        answer["words"] += say_place(made)
    if isinstance(made, calls.Rewind) and made.files:
        answer["files"] = await history.restore_files(
            service, made.name, made.to, is_forced=bool(body.get("force")), until=made.at
        )
    return answer_json(answer)


def take_key(request: Request, kind: type[Struct], body: dict[str, Any]) -> str | None:
    """What makes the call safe to repeat: `key` of the body, or the header where `key` is a fact's."""
    key = request.headers.get("idempotency-key")
    if "key" not in kind.__struct_fields__:
        key = body.pop("key", key)
    return check_key(key)


def check_key(key: Any) -> str | None:
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= LONGEST_KEY):
        raise CallerError(f"a key that makes a call safe to repeat is text of 1 to {LONGEST_KEY} characters")
    return key


async def carry_out(service: Service, made: calls.Call, caller: Caller, key: str | None) -> calls.Reply:
    refuse_by_uid(service.core, made, caller)
    reply = await service.call(
        made, author=caller.author, key=key, run=caller.run.run if caller.run is not None else None
    )
    match made:
        case calls.Rename(name=old, new=new):
            await _rename_file(service, old, new, reply)
        case calls.Open():
            await service.read_specs()
        case calls.Erase():
            others = await history.finish_erase(service, made.name, made.seq)
            return (
                replace(reply, words=reply.words + f"; the same words stand in {', '.join(others)}")
                if others
                else reply
            )
    return reply


async def _rename_file(service: Service, old: str, new: str, reply: calls.Reply) -> None:
    """The session first: were the file moved before, the folder would show one session gone and another born."""
    ids = service.core.state.ids
    # Both names may be those of other sessions by now.
    if reply.is_repeated and (old in ids or new not in ids):
        return
    # A fork has no file.
    if not service.core.state.by_name(new).is_filed:
        return
    try:
        service.rename_spec(old, new)
    except OSError as error:
        # The call repeats the key of an earlier one, which has already moved the file.
        if reply.is_repeated and isinstance(error, FileNotFoundError):
            return
        raise CallerError(
            f"{reply.words}, but its file was not: {error.strerror}; rename sessions.d/{old}.yaml by hand"
        ) from error
    await service.read_specs()


async def read_body(request: Request, most_bytes: int = LARGEST_BODY_BYTES) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise BodyTooLarge(f"a call has at most {most_bytes} bytes; send a path instead of the content")
    return bytes(body)


async def read_lines(request: Request) -> AsyncIterator[bytes]:
    """The lines of a body as they come; each has at most the length of a body."""
    rest = b""
    async for chunk in request.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        if any(len(line) > LARGEST_BODY_BYTES for line in (*lines, rest)):
            raise BodyTooLarge(f"a line has at most {LARGEST_BODY_BYTES} bytes; send a path instead of the content")
        for line in lines:
            yield line
    if rest:
        yield rest


def decode_body(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        if (half := find_lone_half(body.decode(errors="replace"))) is not None:
            raise CallerError(
                f"'{half[:100]}' holds half of a character, or a byte that is no UTF-8, here shown as an escape; "
                "nothing was done: give it in UTF-8"
            ) from None
        raise CallerError(f'the body is not JSON ({error}); expected an object such as {{"name": "payroll"}}') from None
    if not isinstance(found, dict):
        raise CallerError(
            f'the body is a JSON {type(found).__name__}; expected an object such as {{"name": "payroll"}}'
        )
    return found


def speak_for(caller: Caller, kind: type[Struct], body: dict[str, Any]) -> dict[str, Any]:
    """A run speaks for its own session: it need not name it, and may name no other.

    `sender` is never taken from a body.
    """
    if "sender" in body:
        raise CallerError("'sender' is known from the connection; leave it out")
    if caller.run is None:
        return body
    if kind is calls.Send:
        return {**body, "sender": caller.run.name}
    if body.get("name", caller.run.name) != caller.run.name:
        raise Forbidden(
            f"a run of {caller.run.name} may not speak for {body['name']!r}; use send to reach another session"
        )
    return {**body, "name": caller.run.name}


def build_call(kind: type[Struct], body: dict[str, Any]) -> Any:
    known = kind.__struct_fields__
    for field in body:
        if field not in known:
            near = difflib.get_close_matches(field, known, 1)
            raise CallerError(
                f"unknown field {field!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}")
            )
    try:
        made = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise CallerError(f"the body does not fit: {error}") from None
    if isinstance(made, calls.Rename):
        # A name becomes a path below sessions.d: it must stay there.
        problem = find_name_problem(made.new)
        if problem is not None:
            raise CallerError(problem)
    return made

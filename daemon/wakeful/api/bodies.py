"""Reads the bodies of requests up to a size limit, decodes them, and checks them against a type. A refusal names the
field that is wrong.

The type of a call's body is made from the table of verbs: each argument that is sent becomes a field. The type is made
when the verb is first called, and cached.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import AsyncIterator
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from starlette.requests import Request

from wakeful.api.problems import BodyTooLarge, WrongBody
from wakeful.errors import CallerError
from wakeful.text.unicode import find_lone_half
from wakeful.verbs.table import list_routes
from wakeful.verbs.verb import Argument, Verb

LARGEST_BODY_BYTES = 1_000_000
LONGEST_KEY = 200
_TYPES: dict[str, Any] = {
    "text": str,
    "number": int,
    "decimal": float,
    "flag": bool,
    "duration": float,
    "moment": int,
    "folder": str,
    "file": str,
}


async def read_body(request: Request, most_bytes: int = LARGEST_BODY_BYTES) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise BodyTooLarge(f"a call has at most {most_bytes} bytes; send a path instead of the content")
    return bytes(body)


async def read_lines(request: Request) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they arrive. Raises BodyTooLarge if a line is longer than `LARGEST_BODY_BYTES`."""
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
            raise WrongBody(
                f"'{half[:100]}' contains half a character or a byte that is not UTF-8, shown here as an escape; "
                "nothing was done: send it as UTF-8"
            ) from None
        raise WrongBody(f'the body is not JSON ({error}); expected an object such as {{"name": "payroll"}}') from None
    if not isinstance(found, dict):
        raise WrongBody(f'the body is a JSON {type(found).__name__}; expected an object such as {{"name": "payroll"}}')
    return found


@functools.cache
def find_body_type(verb: Verb, object_type: type[Struct] | None = None) -> type[Struct]:
    """Make the type of a verb's body. `object_type` is the type of the argument of kind `object`, if the verb has
    one.
    """
    fields = [_make_field(one, object_type) for one in verb.sent]
    return msgspec.defstruct(f"{verb.name.title().replace('_', '')}Body", fields, frozen=True, kw_only=True)


@functools.cache
def find_route_body(key: str) -> type[Struct]:
    """Make the type of the body of a route that declares its own fields."""
    route = list_routes()[key]
    fields = [_make_field(one, None) for one in route.takes or ()]
    name = route.path.title().replace("/", "").replace("_", "")
    return msgspec.defstruct(f"{name}Body", fields, frozen=True, kw_only=True)


async def read_routed(request: Request, key: str) -> Any:
    """Read the body of a request to a route that declares its own fields, such as "POST /trust/accept"."""
    return build(find_route_body(key), decode_body(await read_body(request)))


def _make_field(argument: Argument, object_type: type[Struct] | None) -> Any:
    type_: Any = object_type if argument.kind == "object" else _TYPES.get(argument.kind)
    if argument.kind == "choice":
        type_ = Literal[argument.choices]
    if argument.is_repeated:
        type_ = tuple[type_, ...]
    if argument.is_needed:
        return argument.name, type_
    if argument.default is None and argument.kind != "flag":
        return argument.name, type_ | None, None
    return argument.name, type_, argument.default or type_()


def build(kind: type[Struct], body: dict[str, Any]) -> Any:
    """Make a value of this type from a JSON object. Raises WrongBody, which suggests the nearest field name."""
    known = kind.__struct_fields__
    for field in body:
        if field not in known:
            near = difflib.get_close_matches(field, known, 1)
            raise WrongBody(
                f"unknown field {field!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}")
            )
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise WrongBody(f"the body is not valid: {error}") from None


def take_key(request: Request, body: dict[str, Any], kind: type[Struct] | None = None) -> str | None:
    """Take the idempotency key from `key` in the body, else from the header. If `key` is a field of the verb itself,
    such as the key of a fact, only the header counts."""
    key = request.headers.get("idempotency-key")
    if kind is None or "key" not in kind.__struct_fields__:
        key = body.pop("key", key)
    return check_key(key)


def check_key(key: Any) -> str | None:
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= LONGEST_KEY):
        raise CallerError(f"a key that makes a call safe to repeat is text of 1 to {LONGEST_KEY} characters")
    return key


def decode_name(segment: str) -> str:
    return unquote(segment)

"""The description of the HTTP API: OpenAPI 3.1, made from the table of verbs and the rules of the gate.

The description has every route with its arguments, answers, errors, examples and required scope. Only the headers of
all answers and the form of streams are written by hand here, because the table does not have them. `GET /openapi.json`
returns the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from wakeful.api.event_stream import EVENTS
from wakeful.api.gate.protocol import POSITION_HEADER, VERSION_HEADER
from wakeful.api.gate.scopes import OWN_ROUTES
from wakeful.api.problems import MEDIA_TYPE, PROBLEMS, URN
from wakeful.api.requests import CURSOR_HEADER, JSON, LINES
from wakeful.verbs.table import VERBS
from wakeful.verbs.verb import Argument, Field, Route, Shape, Verb

Schema = dict[str, Any]
BYTES = "application/octet-stream"
_KINDS: dict[str, Schema] = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "decimal": {"type": "number"},
    "flag": {"type": "boolean"},
    "duration": {"type": "number"},
    "moment": {"type": "integer"},
    "folder": {"type": "string"},
    "file": {"type": "string"},
    "object": {"type": "object"},
}
_FIELD_KINDS: dict[str, Schema] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "moment": {"type": "string", "format": "date-time"},
    "list": {"type": "array"},
    "object": {"type": "object"},
}
# Values for examples, by the name of an argument or field. Other names use `_BY_KIND`.
_SAMPLES: dict[str, Any] = {
    "name": "payroll",
    "session": "payroll",
    "id": "01JF3Q6V5E8Y",
    "text": "done: March",
    "words": "noted",
    "key": "currency",
    "value": "CNY",
    "state": "suspended",
    "agent": "hr",
    "kind": "run_finished",
    "author": "person:ana",
    "seq": 12,
    "run": 3,
    "new": "trial",
    "fork": "trial",
    "path": "/home/ana/payroll.bundle",
    "scopes": ["read"],
    "digest": "9f86d081884c7d65",
    "role": "contributor",
}
_BY_KIND: dict[str, Any] = {
    "text": "…",
    "number": 1,
    "decimal": 0.5,
    "flag": True,
    "duration": 3600,
    "moment": 1_790_000_000_000_000,
    "folder": "/home/ana/project",
    "file": "/home/ana/project/salaries.csv",
    "object": {},
    "list": [],
}
_POST_ERRORS = tuple(PROBLEMS)
_GET_ERRORS = tuple(name for name in PROBLEMS if name not in ("key-in-use", "key-reused", "too-large", "wrong-type"))


def describe_api(version: str) -> Schema:
    paths: dict[str, Schema] = {}
    for verb, route in _list_routes():
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _describe_route(verb, route)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "wakeful",
            "version": version,
            "summary": "Sessions that rest until something they depend on changes.",
            "description": "Conventions (positions, pages, keys, streams, errors): docs/http.md.",
            "license": {"name": "see the repository"},
        },
        "servers": [{"url": "/", "description": "the control socket, and the TCP port where it is open"}],
        "security": [{"bearer": []}, {"bearer": [], "cookie": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token (wakeful token). At the control socket the kernel says who calls.",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "wakeful_browser",
                    "description": "With the token, of a browser; its name has the port behind it.",
                },
            },
            "schemas": {"Problem": _describe_problem()},
            "responses": {name: _describe_refusal(name) for name in PROBLEMS},
            "headers": _describe_headers(),
        },
    }


def _list_routes() -> Iterator[tuple[Verb | None, Route]]:
    """Yield every route once, with the first verb that has it."""
    known: dict[str, tuple[Verb | None, Route]] = {}
    for verb in VERBS.values():
        for route in verb.routes:
            known.setdefault(route.key, (verb, route))
    yield from known.values()
    yield from ((None, route) for route in OWN_ROUTES)


def find_takes(verb: Verb | None, route: Route) -> tuple[Argument, ...]:
    if route.takes is not None or verb is None:
        return route.takes or ()
    return verb.sent


def find_gives(verb: Verb | None, route: Route) -> tuple[Field, ...]:
    if route.gives is not None or verb is None:
        return route.gives or ()
    return verb.answer


def _describe_route(verb: Verb | None, route: Route) -> Schema:
    takes = find_takes(verb, route)
    in_path = re.findall(r"\{(\w+)", route.path)
    in_query = route.method == "GET" or route.is_upload
    described: Schema = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.path).rstrip('_')}",
        "summary": route.words or (verb.words if verb is not None else ""),
        "tags": [verb.section or "Calls" if verb is not None else "Daemon"],
        "parameters": [*_describe_parameters(takes, in_path, in_query=in_query), *_describe_key(verb, route)],
        "responses": _describe_answers(verb, route),
        "x-scope": route.scope or "any",
    }
    if verb is not None:
        described["description"] = " ".join(verb.help.split())
        if verb.examples:
            described["x-command"] = list(verb.examples)
        if verb.undo is not None:
            described["x-undo"] = verb.undo
        if verb.is_dangerous and route.method == "POST":
            described["x-dangerous"] = True
    if route.is_public:
        described["security"] = [{}]
    if route.method == "POST":
        described["requestBody"] = _describe_body(takes, route)
    return described


def _describe_parameters(takes: Sequence[Argument], in_path: list[str], *, in_query: bool) -> Iterator[Schema]:
    by_name = {one.name: one for one in takes}
    for name in in_path:
        given = by_name.get(name, Argument(name))
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": given.help or "the session's name; a slash in it is sent as %2F",
            "schema": {"type": "string", "minLength": 1},
            "example": _sample(given),
        }
    for one in by_name.values() if in_query else ():
        if one.name in in_path:
            continue
        schema = _describe_argument(one)
        described = {"name": one.name, "in": "query", "required": one.is_needed, "schema": schema}
        if one.help:
            described["description"] = one.help
        yield described
    if in_query and "after" in by_name:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "description": "Go on after this id of the stream; counts before `after`.",
            "schema": {"type": "string"},
        }


def _describe_key(verb: Verb | None, route: Route) -> Iterator[Schema]:
    if verb is not None and verb.is_repeatable and route.path.startswith("/call/"):
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "Makes the call safe to repeat: the same key with the same body is carried out once.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        }


def _describe_body(takes: Sequence[Argument], route: Route) -> Schema:
    if route.is_upload:
        return {"required": True, "content": {BYTES: {"schema": {"type": "string", "contentMediaType": BYTES}}}}
    needed = {one.name: one for one in takes}
    schema: Schema = {"type": "object", "properties": {name: _describe_argument(one) for name, one in needed.items()}}
    if not route.is_open:
        schema["additionalProperties"] = False
        if route.path.startswith("/call/"):
            schema["properties"].setdefault(
                "key", {"type": ["string", "null"], "description": "The same as Idempotency-Key."}
            )
    required = [name for name, one in needed.items() if one.is_needed]
    if required:
        schema["required"] = required
    example = {name: _sample(one) for name, one in needed.items() if one.is_needed}
    return {"required": bool(required), "content": {JSON: {"schema": schema, "example": example}}}


def _describe_argument(argument: Argument) -> Schema:
    schema = dict(_KINDS.get(argument.kind, {"type": "string"}))
    if argument.choices:
        schema["enum"] = list(argument.choices)
    if argument.least is not None:
        schema["minimum"] = argument.least
    if argument.most is not None:
        schema["maximum"] = argument.most
    if argument.is_repeated:
        schema = {"type": "array", "items": schema}
    elif not argument.is_needed and argument.kind != "flag":
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"].append(None)
    if argument.default is not None and not argument.is_repeated:
        schema["default"] = argument.default
    if argument.help:
        schema["description"] = argument.help
    return schema


def _describe_answers(verb: Verb | None, route: Route) -> dict[str, Schema]:
    shape: Shape = route.shape or (verb.shape if verb is not None and route.gives is None else "document")
    gives = find_gives(verb, route)
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in (POSITION_HEADER, VERSION_HEADER)}
    if any(one.name == "cursor" for one in find_takes(verb, route)):
        headers |= {name: {"$ref": f"#/components/headers/{name}"} for name in (CURSOR_HEADER, "Link")}
    content = _describe_content(shape, gives, route)
    answers: dict[str, Schema] = {"200": {"description": _SAYS[shape], "headers": headers, "content": content}}
    if route.is_open:
        answers = {
            "2XX": {"description": "taken", "headers": headers},
            "4XX": {"description": "refused", "headers": headers},
        }
    if route.is_public and route.method == "GET":
        answers["304"] = {"description": "as it was", "headers": headers}
    by_status: dict[int, list[str]] = {}
    for name in _list_errors(route):
        by_status.setdefault(PROBLEMS[name].status, []).append(name)
    for status, names in by_status.items():
        answers[str(status)] = {"$ref": f"#/components/responses/{names[0]}"}
    if route.path == "/health":
        # A monitoring probe reads only the status, so an unhealthy daemon answers 503 with the same content.
        answers["503"] = {"description": "the daemon is unhealthy", "headers": headers, "content": content}
    return answers


def _list_errors(route: Route) -> tuple[str, ...]:
    if route.is_open:
        # List only failures of the daemon itself. Other errors have the form of the route's own protocol, such as MCP.
        return tuple(name for name, problem in PROBLEMS.items() if problem.status >= 500)
    return _POST_ERRORS if route.method == "POST" else _GET_ERRORS


_SAYS: dict[Shape, str] = {
    "document": "the answer",
    "list": "the list",
    "lines": "lines of JSON, one object each",
    "events": "server-sent events",
    "bytes": "bytes",
}


def _describe_content(shape: Shape, gives: tuple[Field, ...], route: Route) -> Schema:
    schema = describe_fields(gives)
    events: Schema = {EVENTS: {"schema": {"type": "string"}, "x-event": schema}}
    match shape:
        case "document":
            return {JSON: {"schema": schema, "example": _sample_fields(gives)}}
        case "list":
            return {JSON: {"schema": {"type": "array", "items": schema}, "example": [_sample_fields(gives)]}}
        case "lines":
            lines: Schema = {LINES: {"schema": {"type": "string"}, "x-line": schema}}
            return lines | (
                {EVENTS: {"schema": {"type": "string"}, "x-event": schema}} if route.path == "/follow" else {}
            )
        case "events":
            return events
        case "bytes":
            return {"*/*": {"schema": {"type": "string", "contentMediaType": BYTES}}}


def describe_fields(fields: Sequence[Field]) -> Schema:
    schema: Schema = {"type": "object", "properties": {one.name: _describe_field(one) for one in fields}}
    required = [one.name for one in fields if not one.is_optional]
    if required:
        schema["required"] = required
    return schema


def _describe_field(field: Field) -> Schema:
    schema = dict(_FIELD_KINDS[field.kind])
    if field.fields:
        inner = describe_fields(field.fields)
        schema = {"type": "array", "items": inner} if field.kind == "list" else inner
    if field.is_nullable:
        schema["type"] = [schema["type"], "null"]
    return {**schema, "description": field.help}


def _sample(argument: Argument) -> Any:
    value = argument.choices[0] if argument.choices else _SAMPLES.get(argument.name, _BY_KIND.get(argument.kind, "…"))
    if argument.kind in ("number", "decimal") and not isinstance(value, int | float):
        value = _BY_KIND[argument.kind]
    return [value] if argument.is_repeated and not isinstance(value, list) else value


def _sample_fields(fields: Sequence[Field]) -> Schema:
    return {one.name: _sample_field(one) for one in fields if not one.is_optional}


def _sample_field(field: Field) -> Any:
    if field.fields:
        inner = _sample_fields(field.fields)
        return [inner] if field.kind == "list" else inner
    if field.kind == "moment":
        return "2026-01-31T06:00:00.000000Z"
    value = _SAMPLES.get(field.name, _BY_KIND[field.kind])
    types: dict[str, Any] = {"text": str, "number": int | float, "list": list, "flag": bool, "object": dict}
    return value if isinstance(value, types[field.kind]) else _BY_KIND[field.kind]


def _describe_problem() -> Schema:
    return {
        "type": "object",
        "description": "RFC 9457.",
        "properties": {
            "type": {"type": "string", "enum": [f"{URN}{name}" for name in PROBLEMS]},
            "title": {"type": "string", "description": "what all of its kind share"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "what is wrong, and what to do"},
        },
        "required": ["type", "title", "status", "detail"],
    }


def _describe_refusal(name: str) -> Schema:
    problem = PROBLEMS[name]
    example = {"type": f"{URN}{name}", "title": problem.title, "status": problem.status, "detail": "what to do"}
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}}
    return {"description": problem.title, "content": content}


def _describe_headers() -> dict[str, Schema]:
    told = {
        POSITION_HEADER: ("integer", "The position of the log at which the answer was true; streams go on from it."),
        VERSION_HEADER: ("string", "The daemon's version."),
        CURSOR_HEADER: ("string", "Where the next page begins; absent on the last one."),
        "Link": ("string", "The address of the next page, rel=next; absent on the last one."),
    }
    return {name: {"description": words, "schema": {"type": kind}} for name, (kind, words) in told.items()}

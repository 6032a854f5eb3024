"""Makes MCP tools from the table of verbs: their names, schemas and hints, and the request of each call.

Pure: `server.py` sends the request. Every verb that has a route is a tool, unless `not_a_tool` says why it is not.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from wakeful.client.wire import quote_name
from wakeful.errors import CallerError
from wakeful.verbs.table import VERBS
from wakeful.verbs.verb import Argument, Field, Route, Verb

PREFIX = "wakeful_"
# The only tool that is not a verb. It activates a session and waits for the end of the run.
RUN = "wakeful_run"
# The default number of records. A log may have a million, and a model reads few.
USUAL_RECORDS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

IDEMPOTENCY_KEY = "idempotency_key"
_KEY_SCHEMA = {
    "type": "string",
    "description": "Makes the call safe to repeat: calls with the same key are carried out once.",
}
# Arguments that only a tool has.
_EXTRA: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "recall": {"key": {"type": "string", "description": "The key of one fact. Default: all facts."}},
    "ask": {
        "wait": {"type": "boolean", "default": True, "description": "False: do not wait for the answer."},
        "timeout_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "Stop waiting after this many seconds. The run continues.",
        },
    },
}
# The value of `text` in a search is one string, although the command line takes several words.
_JOINED = {("search", "text")}
# Arguments that a tool always sends. `plain` makes the report of an unhealthy daemon an answer instead of an error.
_ALWAYS = {("health", "plain"): True}
_DESCRIPTIONS = {
    ("why", "x"): "A session, SESSION#RUN, or an absolute path.",
    ("plan", "path"): "Absolute paths that change. Default: list the sessions that are owed a run now.",
}


class Request(NamedTuple):
    """A request to the daemon."""

    method: str
    path: str
    query: dict[str, Any] | None = None
    body: dict[str, Any] | None = None
    key: str | None = None


class VerbTool(NamedTuple):
    """A verb as a tool. `own` is the session of the calling run, or None if the caller is not a run. Tools of a run
    need no session name."""

    verb: Verb
    route: Route
    own: str | None = None

    @property
    def name(self) -> str:
        return PREFIX + self.verb.name

    @property
    def is_reading(self) -> bool:
        return self.route.method == "GET"

    @property
    def needs_leave(self) -> bool:
        """Is the tool offered only if a person allowed it (`--allow-dangerous`)?"""
        return self.verb.is_dangerous or self.verb.is_for_persons

    @property
    def arguments(self) -> tuple[Argument, ...]:
        known = {name for verb, name in _ALWAYS if verb == self.verb.name}
        if self._is_name_known:
            known.add("name")
        return tuple(one for one in self.verb.sent if one.name not in known)

    @property
    def _is_name_known(self) -> bool:
        # `send` names another session, the receiver of the message.
        return self.own is not None and self.verb.name != "send"

    def describe(self) -> str:
        parts = [f"{self.verb.words[:1].upper()}{self.verb.words[1:]}."]
        parts.append(" ".join(inspect.cleandoc(self.verb.help).split()))
        if self.verb.name in ("log", "history"):
            parts.append(f"Without `last`, the newest {self._usual_records}.")
        if self.verb.undo is not None and self.own is None:
            parts.append(f"Undone by {self.verb.undo}.")
        if self.verb.is_dangerous:
            parts.append("It closes, removes, replaces or goes back: ask the person first.")
        if self.verb.is_for_persons:
            parts.append("The question is for a person: ask the person first.")
        return "\n\n".join(parts)

    @property
    def _usual_records(self) -> int:
        return next((one.default for one in self.verb.sent if one.name == "last" and one.default), USUAL_RECORDS)

    def make_input_schema(self) -> dict[str, Any]:
        properties = {one.name: _describe_argument(self.verb.name, one) for one in self.arguments}
        properties |= {name: dict(schema) for name, schema in _EXTRA.get(self.verb.name, {}).items()}
        if self.verb.is_repeatable:
            properties[IDEMPOTENCY_KEY] = dict(_KEY_SCHEMA)
        required = [one.name for one in self.arguments if self._is_required(one)]
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def _is_required(self, argument: Argument) -> bool:
        # The path of the route needs the name. Only the command line may omit the name inside a run.
        return argument.is_needed or (argument.name == "name" and "{name}" in self.route.path)

    def make_output_schema(self) -> dict[str, Any] | None:
        """Make the schema of the answer. None if the table does not describe the answer."""
        if self.verb.name == "output":
            return OUTPUT_SCHEMA
        if not self.verb.answer:
            return None
        fields = make_answer_schema(self.verb.answer)
        if self.verb.shape == "document":
            return fields
        return {
            "type": "object",
            "properties": {"items": {"type": "array", "items": fields}},
            "required": ["items"],
        }

    def make_request(self, given: Mapping[str, Any], key: str | None = None) -> Request:
        """Make the request of a call. Raises CallerError if an argument is wrong. `key` is the idempotency key, if the
        arguments have none."""
        self._check(given)
        sent = {one.name: _convert(one, given[one.name]) for one in self.arguments if given.get(one.name) is not None}
        if self._is_name_known:
            sent["name"] = self.own
        path = self.route.path
        if "{name}" in path:
            path = path.replace("{name}", quote_name(str(sent.pop("name"))))
        if not self.is_reading:
            return Request("POST", path, body=sent, key=given.get(IDEMPOTENCY_KEY, key))
        if any(one.name == "last" for one in self.verb.sent):
            sent.setdefault("last", self._usual_records)
        sent |= {name: value for (verb, name), value in _ALWAYS.items() if verb == self.verb.name}
        if self.verb.name == "why" and str(sent["x"]).startswith("/"):
            sent["path"] = sent["x"]
        return Request("GET", path, query=sent)

    def _check(self, given: Mapping[str, Any]) -> None:
        schema = self.make_input_schema()
        for name, value in given.items():
            wanted = schema["properties"].get(name)
            if wanted is None:
                near = difflib.get_close_matches(name, schema["properties"], 1)
                raise CallerError(
                    f"{self.name} has no argument {name!r}; "
                    + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(schema['properties'])}")
                )
            if value is not None and not _fits(value, wanted):
                raise CallerError(f"{self.name}: {name} is {value!r}; expected {_say_wanted(wanted)}")
        for name in schema.get("required", ()):
            if given.get(name) is None:
                raise CallerError(f"{self.name} needs {name!r}: {_say_wanted(schema['properties'][name])}")


OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run": {"type": "integer", "description": "the run that printed it"},
        "text": {"type": "string", "description": "the beginning and the end of the output"},
        "total_bytes": {"type": "integer", "description": "the size of the whole output"},
        "left_out_bytes": {"type": "integer", "description": "how much of it is not in `text`"},
        "hint": {"type": ["string", "null"], "description": "what a confined run was denied, and how to allow it"},
        "found_lines": {"type": "integer", "description": "with `find`: how many lines contain it; `text` has these"},
    },
    "required": ["run", "text", "total_bytes", "left_out_bytes"],
}
_FIELD_TYPES = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "moment": {"type": "string", "format": "date-time"},
    "list": {"type": "array"},
    "object": {"type": "object"},
}


def list_tools(own: str | None = None) -> dict[str, VerbTool]:
    """List every tool by its name. A run gets the tools that runs may use, for its own session."""
    found = (_make_tool(verb, own) for verb in VERBS.values() if verb.not_a_tool is None)
    return {tool.name: tool for tool in found if tool is not None}


def _make_tool(verb: Verb, own: str | None) -> VerbTool | None:
    routes = [route for route in verb.routes if route.scope != "owner"]
    if own is not None:
        routes = [route for route in routes if route.is_for_runs]
    return VerbTool(verb, routes[0], own) if routes else None


def refuse_unknown(name: str, offered: Iterable[str], *, is_run: bool) -> CallerError:
    verb = name.removeprefix(PREFIX)
    reason = VERBS[verb].not_a_tool if verb in VERBS else None
    if reason is not None:
        return CallerError(f"{name} is not a tool: {reason}")
    if is_run and (verb in VERBS or name == RUN):
        return CallerError(f"{name} is not for runs; a run may use {', '.join(offered)}")
    near = difflib.get_close_matches(name, offered, 1)
    return CallerError(f"there is no tool {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def make_answer_schema(fields: Iterable[Field]) -> dict[str, Any]:
    """Make the schema of an answer. An optional or nullable field may be null."""
    known = tuple(fields)
    return {
        "type": "object",
        "properties": {one.name: _describe_field(one) for one in known},
        "required": [one.name for one in known if not one.is_optional],
    }


def _describe_field(field: Field) -> dict[str, Any]:
    schema = dict[str, Any](_FIELD_TYPES[field.kind])
    if field.fields:
        inner = make_answer_schema(field.fields)
        schema = {"type": "array", "items": inner} if field.kind == "list" else inner
    if field.is_optional or field.is_nullable:
        schema["type"] = [schema["type"], "null"]
    return schema | {"description": field.help}


def _describe_argument(verb: str, argument: Argument) -> dict[str, Any]:
    schema = _find_type(argument)
    if argument.is_repeated and (verb, argument.name) not in _JOINED:
        schema = {"type": "array", "items": schema}
    words = _DESCRIPTIONS.get((verb, argument.name)) or argument.help
    if argument.name == "name" and not words:
        words = "The session's name."
    if argument.flag_value is False:
        # The help text describes the option that turns the argument off.
        words = f"False: {words[:1].lower()}{words[1:]}"
    if words:
        schema["description"] = words
    if argument.default is not None and not argument.is_repeated:
        schema["default"] = argument.default
    return schema


def _find_type(argument: Argument) -> dict[str, Any]:
    bounds = {
        name: bound for name, bound in (("minimum", argument.least), ("maximum", argument.most)) if bound is not None
    }
    match argument.kind:
        case "number":
            return {"type": "integer", **bounds}
        case "decimal" | "duration":
            return {"type": "number", **bounds}
        case "flag":
            return {"type": "boolean"}
        case "choice":
            return {"type": "string", "enum": list(argument.choices)}
        case "moment":
            return {"type": "string", "format": "date-time"}
        case "object":
            return {"type": "object"}
        case _:
            return {"type": "string"}


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kind = schema["type"]
    if not isinstance(value, _PYTHON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if isinstance(value, list):
        return all(_fits(one, schema["items"]) for one in value)
    if "enum" in schema and value not in schema["enum"]:
        return False
    least, most = schema.get("minimum"), schema.get("maximum")
    return (least is None or value >= least) and (most is None or value <= most)


def _say_wanted(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    kind = f"a list of {schema['items']['type']}" if schema["type"] == "array" else schema["type"]
    return f"{kind} ({schema['description']})" if "description" in schema else str(kind)


def _convert(argument: Argument, value: Any) -> Any:
    """Convert a value to the form in which it is sent. A moment becomes microseconds."""
    if argument.kind != "moment":
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise CallerError(f"{argument.name} is {value!r}; expected RFC 3339, such as 2026-01-31T06:00:00Z") from None
    if moment.tzinfo is None:
        raise CallerError(f"{argument.name} is {value!r}, which has no time zone; add Z for UTC")
    return (moment - _EPOCH) // (_EPOCH.resolution)

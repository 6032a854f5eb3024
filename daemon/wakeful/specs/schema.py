"""Makes the JSON Schema 2020-12 of the three kinds of files, for editors (`wakeful schema`).

It is made from the models, so it always agrees with them. An editor converts YAML before it validates, so the schema
allows numbers and booleans for text that may look like them.
"""

from __future__ import annotations

from typing import Any

from wakeful.specs.model_errors import MODELS, FileKind
from wakeful.specs.spec_builder import RUN_KINDS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TITLES: dict[FileKind, str] = {
    "session": "wakeful: a session (sessions.d/<name>.yaml)",
    "agent": "wakeful: an agent (sessions.d/agents/<name>.yaml)",
    "daemon": "wakeful: the daemon (wakeful.yaml)",
}


def json_schema(kind: FileKind = "session") -> dict[str, Any]:
    """Return the schema of a session, an agent or wakeful.yaml."""
    schema = _tidy(MODELS[kind].model_json_schema())
    if kind == "session":
        _require_one_run(schema["$defs"]["RunKeys"])
    if kind == "daemon":
        schema["properties"]["defaults"] = _as_partial(json_schema("session"), schema)
    return {"$schema": DIALECT, **schema, "title": _TITLES[kind]}


def _tidy(schema: Any) -> Any:
    """Remove `null`, which a file cannot contain, titles made of key names, and defaults that need an explanation."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    # Below `properties` the keys are those of the file, and a key may be called `default` or `title`.
    kept = {
        key: {name: _tidy(value) for name, value in inner.items()} if key in ("properties", "$defs") else _tidy(inner)
        for key, inner in schema.items()
        if key not in ("default", "title")
    }
    only = kept.get("anyOf")
    if isinstance(only, list) and len(only) == 1:
        del kept["anyOf"]
        return {**only[0], **kept}
    return kept


def _require_one_run(run: dict[str, Any]) -> None:
    run["oneOf"] = [{"required": [kind]} for kind in RUN_KINDS]


def _as_partial(session: dict[str, Any], around: dict[str, Any]) -> dict[str, Any]:
    """Return a session's schema in which no part is required. Its definitions move to the schema around it."""
    definitions = dict(session.pop("$defs"))
    definitions["RunKeys"] = {key: value for key, value in definitions["RunKeys"].items() if key != "oneOf"}
    around.setdefault("$defs", {}).update(definitions)
    return {key: value for key, value in session.items() if key not in ("$schema", "title")}

"""Compares answers with the description of the API: every test that speaks to the socket is a test of it, too."""

import functools
import json
import re
from typing import Any
from urllib.parse import urlsplit

import jsonschema

from wakeful import __version__
from wakeful.api.openapi import describe_api

# A daemon refuses these before it knows which route was meant.
NO_ROUTE = (404, 405)


@functools.cache
def description() -> dict[str, Any]:
    return describe_api(__version__)


@functools.cache
def patterns() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Addresses without parameters first, as the router tries them."""
    paths = sorted(description()["paths"].items(), key=lambda one: "{" in one[0])
    return [
        (re.compile("".join(write_part(part) for part in re.split(r"(\{\w+\})", path))), found) for path, found in paths
    ]


def write_part(part: str) -> str:
    """The files of the dashboard have slashes in their names."""
    if not part.startswith("{"):
        return re.escape(part)
    return ".+" if part == "{path}" else "[^/]+"


def find_operation(method: str, target: str) -> dict[str, Any] | None:
    path = urlsplit(target).path
    for pattern, found in patterns():
        if pattern.fullmatch(path):
            operation: dict[str, Any] | None = found.get("get" if method == "HEAD" else method.lower())
            return operation
    return None


def check_described(method: str, target: str, status: int, headers: dict[str, str], body: bytes) -> None:
    """Fails where the answer is not as described: its status, its type, a field that is missing, wrong or untold."""
    operation = find_operation(method, target)
    if operation is None:
        assert status in NO_ROUTE or status in (400, 401, 403), f"{method} {target} is not described, and gave {status}"
        return
    told = operation["responses"].get(str(status)) or operation["responses"].get(f"{status // 100}XX")
    assert told is not None, f"{method} {target} gave {status}, which is not described"
    if method == "HEAD" or not body:
        return
    response = resolve(told)
    if "content" not in response:
        # Another protocol's to say.
        return
    kind = headers.get("content-type", "").partition(";")[0]
    content = response["content"].get(kind, response["content"].get("*/*"))
    assert content is not None, f"{method} {target}: {kind} is not described, only {list(response['content'])}"
    if kind == "application/problem+json":
        validate(json.loads(body), resolve(content["schema"]))
    elif kind == "application/json" and not is_brief(target):
        validate(json.loads(body), content["schema"])
    elif "x-line" in content:
        for line in body.splitlines():
            validate(json.loads(line), content["x-line"])


def is_brief(target: str) -> bool:
    """The rows of the terminal's own table are not part of the contract."""
    return "brief=true" in target


def resolve(found: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in found:
        return found
    value: Any = description()
    for part in found["$ref"].removeprefix("#/").split("/"):
        value = value[part]
    return value  # type: ignore[no-any-return]


def validate(value: Any, schema: dict[str, Any]) -> None:
    make_validator(json.dumps(schema)).validate(value)


@functools.cache
def make_validator(schema: str) -> jsonschema.Draft202012Validator:
    """Of a schema as text, which is checked itself: 10 ms, and a line of a long answer takes a hundredth of that."""
    closed = close(json.loads(schema))
    jsonschema.Draft202012Validator.check_schema(closed)
    return jsonschema.Draft202012Validator(closed)


def close(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema, where a field that it does not tell is wrong: clients may meet new ones, tests may not."""
    if schema.get("type") == "array" and "items" in schema:
        return {**schema, "items": close(schema["items"])}
    if schema.get("properties"):
        inner = {name: close(one) for name, one in schema["properties"].items()}
        return {**schema, "properties": inner, "additionalProperties": False}
    return schema

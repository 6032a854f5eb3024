"""Compare answers with the OpenAPI description. Every test that uses the socket thereby tests the description, too."""

import functools
import json
import re
from typing import Any
from urllib.parse import urlsplit

import jsonschema

from wakeful import __version__
from wakeful.api.openapi import describe_api

# The daemon refuses these requests before it knows their route.
NO_ROUTE = (404, 405)


@functools.cache
def description() -> dict[str, Any]:
    return describe_api(__version__)


@functools.cache
def patterns() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return the address patterns, those without parameters first, as the router tries them."""
    paths = sorted(description()["paths"].items(), key=lambda one: "{" in one[0])
    return [
        (re.compile("".join(write_part(part) for part in re.split(r"(\{\w+\})", path))), found) for path, found in paths
    ]


def write_part(part: str) -> str:
    """Turn one part of an address into a regular expression. A dashboard file's `{path}` may contain slashes."""
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
    """Fail if an answer differs from its description: in status, type, or a missing, wrong or undescribed field."""
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
        # The content belongs to another protocol, so it is not described here.
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
    """Tell whether the answer has the brief rows of the terminal's own table. They are not part of the contract."""
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
    """Make a validator for a schema given as text, and check the schema itself.
    The check takes 10 ms and validating a line a hundredth of that, so the validator is cached."""
    closed = close(json.loads(schema))
    jsonschema.Draft202012Validator.check_schema(closed)
    return jsonschema.Draft202012Validator(closed)


def close(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with undescribed fields forbidden. Clients may meet new fields; the tests must not."""
    if schema.get("type") == "array" and "items" in schema:
        return {**schema, "items": close(schema["items"])}
    if schema.get("properties"):
        inner = {name: close(one) for name, one in schema["properties"].items()}
        return {**schema, "properties": inner, "additionalProperties": False}
    return schema

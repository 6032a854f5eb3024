"""The OpenAPI description is valid, complete, and true to the bodies that routes take. Its examples fit.

Each test that uses the socket checks the answers against the description, see openapi_checker.py.
"""

import re
from typing import Any

import jsonschema
import msgspec
import pytest
from openapi_spec_validator import validate

from api.conftest import Speaker
from api.openapi_checker import description
from wakeful import __version__
from wakeful.api.bodies import find_body_type, find_route_body
from wakeful.api.gate.scopes import RULES
from wakeful.api.problems import PROBLEMS
from wakeful.api.routes.calls import CALLS
from wakeful.verbs.table import VERBS, list_routes

OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in description()["paths"].items()
    for method, operation in methods.items()
}


def test_it_is_valid_and_served(speaker: Speaker) -> None:
    """A validator of a third party accepts the description."""
    served = speaker.get("/openapi.json").json
    validate(served)
    assert served["openapi"].startswith("3.1") and served["info"]["version"] == __version__
    assert served == msgspec.json.decode(msgspec.json.encode(description()))


def test_every_route_is_described_and_no_other() -> None:
    """The described operations are those in the gate's table of rules."""
    assert OPERATIONS.keys() == {re.sub(r"\{(\w+):\w+\}", r"{\1}", key) for key in RULES}


def test_every_operation_says_what_it_does_who_reaches_it_and_how_it_fails() -> None:
    """Each operation has a summary, a scope, an answer, and the problems that any route can have."""
    ids = [one["operationId"] for one in OPERATIONS.values()]
    assert len(ids) == len(set(ids))
    for key, one in OPERATIONS.items():
        assert one["summary"], f"{key} has no words"
        assert one["x-scope"] in ("any", "owner", "read", "send", "run", "admin")
        told = one["responses"].keys()
        assert {"500", "503"} <= told and any(status.startswith("2") for status in told), key
        if "4XX" not in told:
            assert {"400", "401", "403"} <= told and (key.startswith("GET") or {"409", "413", "422"} <= told), key
    assert {str(problem.status) for problem in PROBLEMS.values()} <= {
        status for one in OPERATIONS.values() for status in one["responses"]
    }


@pytest.mark.parametrize("name", CALLS)
def test_the_body_of_a_call_is_the_one_that_is_taken(name: str) -> None:
    """The description has the fields of the body type, with the same required ones. `key` is accepted in every body."""
    taken = find_body_type(VERBS[name], CALLS[name].object_type)
    compare(OPERATIONS[f"POST /call/{name}"], taken, {"key"})


@pytest.mark.parametrize(
    "key", [key for key, one in list_routes().items() if one.method == "POST" and one.takes is not None]
)
def test_the_body_of_any_other_route_is_the_one_that_is_taken(key: str) -> None:
    operation = OPERATIONS[key]
    if list_routes()[key].is_upload:
        named = {one["name"] for one in operation["parameters"]}
        assert named == set(find_route_body(key).__struct_fields__)
        return
    compare(operation, find_route_body(key), set())


def compare(operation: dict[str, Any], taken: type[msgspec.Struct], more: set[str]) -> None:
    (content,) = operation["requestBody"]["content"].values()
    schema = content["schema"]
    fields = {field.encode_name: field for field in msgspec.structs.fields(taken)}
    assert schema["properties"].keys() == fields.keys() | more and schema["additionalProperties"] is False
    assert set(schema.get("required", ())) == {name for name, field in fields.items() if field.required}
    # The route accepts the described example as it is.
    msgspec.convert(content["example"], taken)


def test_every_example_fits_its_schema() -> None:
    """The examples of bodies, answers and errors fit their schemas."""
    found = list(find_examples(description()))
    assert len(found) > 100
    for schema, example in found:
        jsonschema.validate(example, schema, jsonschema.Draft202012Validator)


def find_examples(node: Any) -> Any:
    if isinstance(node, dict):
        if "schema" in node and "example" in node:
            schema = node["schema"]
            yield description()["components"]["schemas"]["Problem"] if "$ref" in schema else schema, node["example"]
        for value in node.values():
            yield from find_examples(value)
    elif isinstance(node, list):
        for value in node:
            yield from find_examples(value)


def test_lists_and_streams_are_told_as_such() -> None:
    """Lists describe pages by cursor, streams describe their events, and calls describe the idempotency key."""
    for key in ("GET /sessions", "GET /sessions/{name}/log", "GET /search"):
        assert {"limit", "cursor"} <= {one["name"] for one in OPERATIONS[key]["parameters"]}
        assert {"Link", "Wakeful-Cursor"} <= OPERATIONS[key]["responses"]["200"]["headers"].keys()
    for key in ("GET /live", "GET /follow"):
        assert "text/event-stream" in OPERATIONS[key]["responses"]["200"]["content"]
        assert {"after", "Last-Event-ID"} <= {one["name"] for one in OPERATIONS[key]["parameters"]}
    assert "Idempotency-Key" in {one["name"] for one in OPERATIONS["POST /call/send"]["parameters"]}

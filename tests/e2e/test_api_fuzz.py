"""Random requests, generated from the description of the API, against a real daemon over TCP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.openapi_checker import description
from e2e.box import Box
from wakeful.cli.client import Client

pytestmark = pytest.mark.long

SPEC = "objective: rest\nbindings: {input: {file: in.csv}}\nfirst: adopt\nrun: {command: [sh, -c, 'true']}\n"
# Streams do not end by themselves. The other operations write files at any path they are given, or put all sessions to
# sleep.
LEFT_OUT = (
    "GET /live", "GET /follow", "POST /bundle/save", "POST /bundle/move", "POST /bundle/load", "POST /replay",
    "POST /call/fork", "POST /call/open", "POST /call/sleep_all", "POST /dashboard",
)  # fmt: skip
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in description()["paths"].items()
    for method in methods
    if f"{method.upper()} {path}" not in LEFT_OUT
]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Box, str, str]]:
    box = Box(tmp_path_factory.mktemp("any"))
    box.write("in.csv", "1")
    box.spec("payroll", SPEC)
    try:
        box.start(env={"WAKEFUL_HTTP": "127.0.0.1:0"})
        box.wait_at_rest("payroll")
        url = Client(str(box.socket)).get("/version")["http"]
        yield box, url, box.ask("token", "new", "--scope", "admin").strip()
        # After all requests the daemon lives, and its log verifies.
        assert box.json("list") and box.run("verify").returncode == 0
        assert "Traceback" not in box.output.read_text()
    finally:
        box.close()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("key", OPERATIONS)
def test_no_request_is_answered_by_a_defect_or_by_what_is_not_described(
    server: tuple[Box, str, str], key: str, mode: GenerationMode
) -> None:
    """Statuses, types and fields match the description, and no answer has status 500."""
    _, url, token = server
    method, path = key.split(" ")
    operation = schemathesis.openapi.from_dict(description())[path][method]
    session = requests.Session()

    @seed(18)
    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        # Half of the requests are about a session that exists.
        if isinstance(case.path_parameters, dict) and len(case.id) and int(case.id, 36) % 2 == 0:
            case.path_parameters = {
                name: "payroll" if name == "name" else value for name, value in case.path_parameters.items()
            }
        if isinstance(case.body, dict) and "name" in case.body:
            case.body["name"] = "payroll"
        if isinstance(case.query, dict):
            # With `follow`, the answer lasts until the run ends.
            case.query.pop("follow", None)
        answer = case.call(base_url=url, session=session, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        case.validate_response(answer, checks=CHECKS)

    try:
        ask()
    except Unsatisfiable:
        # Some operations have no invalid request: any text is a name.
        assert mode is GenerationMode.NEGATIVE

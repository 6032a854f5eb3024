"""The table of verbs agrees with itself, with the core's calls, with the API and with docs/commands.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from wakeful.api import routes
from wakeful.api.app import HANDLERS
from wakeful.api.bodies import find_body_type
from wakeful.api.gate.scopes import RULES
from wakeful.api.routes import bundles
from wakeful.api.routes.calls import CALLS
from wakeful.cli.client import Options
from wakeful.core.calls.call_rules import CALL_RULES
from wakeful.core.calls.call_types import Call
from wakeful.verbs.table import COMMANDS, FAMILIES, VERBS
from wakeful.verbs.verb import HELD, KEY

REPOSITORY = Path(__file__).parent.parent
DIRECT = [name for name, steps in CALLS.items() if steps.prepare is None]


def test_a_verb_has_one_place() -> None:
    assert len(VERBS) == sum(len(family.VERBS) for family in FAMILIES)


def test_every_call_of_the_table_is_carried_out_and_no_other() -> None:
    assert sorted(CALLS) == sorted(name for name, verb in VERBS.items() if verb.is_call)


# These answer from memory, or are streams. They answer even while the disk hangs.
FROM_MEMORY = {
    "/sessions", "/top", "/plan", "/graph", "/presence", "/people", "/webhooks", "/doctor", "/health", "/metrics",
    "/trust", "/trust/{name}", "/secrets", "/tokens", "/notify", "/follow", "/live",
}  # fmt: skip


def test_every_look_waits_for_the_log_unless_it_answers_from_memory() -> None:
    """Otherwise a look could contradict what `list` just showed, because the record was still on its way to disk."""
    looks = {route.path: route for verb in VERBS.values() for route in verb.routes if route.method == "GET"}
    assert {path for path, route in looks.items() if not route.is_from_log} == FROM_MEMORY


@pytest.mark.parametrize("name", DIRECT)
def test_the_arguments_of_a_call_are_the_fields_of_its_value_in_the_core(name: str) -> None:
    """The types and defaults are the same. The sender of a message is known from the connection."""
    body, call = find_body_type(VERBS[name]), CALLS[name].makes[0]
    assert describe(body) == {field: told for field, told in describe(call).items() if field != "sender"}


def describe(kind: type[msgspec.Struct]) -> dict[str, tuple[object, object, bool]]:
    return {field.name: (field.type, field.default, field.required) for field in msgspec.structs.fields(kind)}


def test_every_call_has_its_rule() -> None:
    """A rule is a line in the table at the end of lifecycle.py, history.py or agent_steps.py of core/calls."""
    assert sorted(kind.__name__ for kind in get_args(Call)) == sorted(kind.__name__ for kind in CALL_RULES)


@pytest.mark.parametrize("name", CALLS)
def test_the_answer_of_a_call_that_asks_for_a_run_says_why_it_is_held(name: str) -> None:
    asks = any(CALL_RULES[kind].asks_for_run for kind in CALLS[name].makes)
    assert asks == set(HELD).issubset(VERBS[name].answer)


@pytest.mark.parametrize("name", CALLS)
def test_the_role_of_a_verb_is_the_one_the_core_asks_for(name: str) -> None:
    assert {CALL_RULES[kind].role for kind in CALLS[name].makes} == {VERBS[name].role}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_safe_to_repeat_is_found_by_its_key(name: str) -> None:
    """The kind of its first record tells which call a key belongs to."""
    verb = VERBS[name]
    assert verb.is_repeatable == (KEY in verb.arguments or verb.section is None or name == "trace")
    assert all(CALL_RULES[kind].first_kinds for kind in CALLS[name].makes)


def test_what_undoes_a_verb_is_a_verb() -> None:
    assert {verb.undo.split()[0] for verb in VERBS.values() if verb.undo is not None} <= VERBS.keys()


def test_every_command_is_carried_out_by_a_module_or_sends_its_call() -> None:
    sent = [name for name, verb in COMMANDS.items() if verb.cli_module is None]
    assert [name for name in sent if not VERBS[name].is_call] == []


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.cli_module is not None])
def test_the_function_of_a_verb_takes_the_arguments_of_the_table(name: str) -> None:
    """The function takes the arguments by name, and no others."""
    module = importlib.import_module(f"wakeful.cli.{COMMANDS[name].cli_module}")
    given = {one.name: None for one in COMMANDS[name].typed}
    inspect.signature(getattr(module, f"{name}_verb")).bind(Options(), **given)


def test_every_route_of_the_table_has_one_handler() -> None:
    """All calls share one handler, and so do the operations on bundles."""
    modules = [
        importlib.import_module(f"wakeful.api.routes.{one.name}") for one in pkgutil.iter_modules(routes.__path__)
    ]
    handled = [key for module in modules for key in getattr(module, "HANDLERS", ())]
    shared = {f"POST /call/{name}" for name in CALLS} | {f"POST /bundle/{name}" for name in bundles.ALL_ACTS}
    assert sorted(handled) == sorted(HANDLERS) == sorted(RULES.keys() - shared)


def test_the_body_of_every_call_has_a_json_schema() -> None:
    """OpenAPI, tools of MCP and forms are made from the schema."""
    for name, steps in CALLS.items():
        schema = msgspec.json.schema(find_body_type(VERBS[name], steps.object_type))
        (definition,) = [one for key, one in schema["$defs"].items() if key.endswith("Body")]
        assert set(definition["properties"]) == {one.name for one in VERBS[name].sent}


def test_the_table_is_quick_to_import() -> None:
    """Every command imports the table, so it imports no library and no other module of ours."""
    program = (
        "import sys; import wakeful.verbs.table; "
        "print(sorted(sys.modules.keys() & {'click', 'pydantic', 'msgspec', 'starlette'}), "
        "sorted(name for name in sys.modules if name.startswith('wakeful.') and not name.startswith('wakeful.verbs')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_the_page_of_commands_is_made_from_the_table() -> None:
    """`make docs` writes the page."""
    script = REPOSITORY / "scripts" / "write_commands_page.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

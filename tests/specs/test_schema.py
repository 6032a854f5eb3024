"""The JSON Schema for editors accepts what the daemon accepts, and marks what the daemon refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from wakeful.specs.models import BINDING_MODELS, SessionKeys
from wakeful.specs.schema import json_schema

jsonschema = pytest.importorskip("jsonschema", reason="the schema is judged by jsonschema, of the test extra")

REPOSITORY = Path(__file__).parents[2]


def is_valid(text: str, kind: str = "session") -> bool:
    """Judge a text as an editor does: YAML types the values, then the schema judges them."""
    value: Any = yaml.load(text, Loader=yaml.CSafeLoader)
    return jsonschema.Draft202012Validator(json_schema(kind)).is_valid(value)


@pytest.mark.parametrize("kind", ["session", "agent", "daemon"])
def test_the_schema_is_one(kind: str) -> None:
    """Each of the three is valid JSON Schema 2020-12, and each of its keys has a description."""
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert all("description" in inner for inner in schema["properties"].values())
    assert "null" not in str(schema)


def test_the_schema_has_every_key() -> None:
    """The schema has every key of a session and every kind of binding."""
    schema = json_schema()
    assert set(schema["properties"]) == set(SessionKeys.model_fields)
    assert len(schema["properties"]["bindings"]["additionalProperties"]["oneOf"]) == len(BINDING_MODELS)


GOOD = [
    "objective: x",
    "bindings: {a: {file: '*.csv', settle: 500ms, wake: false}}",
    "bindings: {a: {commits: src/, branch: 3.10}}\nrun: {command: [true, 1, x], timeout: 5m}",
    "bindings: {a: {cron: '0 6 1 * *', timezone: UTC, catch_up: all}, b: {every: 30m}, c: {message: any}, d: {session: x}}",
    "bindings: {a: {probe: [a], check_every: 5m}, b: {service: 'tcp://h:1'}}\nconcurrency: gpu\nwhen: changed",
    "priority: 80\nenabled: no\ntags: [a]\nwindow: '08:00-20:00'\nconcurrency: {pool: gpu}\nrun: {script: 'a'}",
    "bindings: {a: {file: x, settle: 0}}",
    "isolation: observe",
    "agent: a\nrun: {prompt: Do it.}\ntools: {shell: ask}",
]
BAD = [
    "objectiv: x",
    "priority: high",
    "priority: 101",
    "bindings: {a: {file: x, branch: main}}",
    "bindings: {a: {file: x, cron: '* * * * *'}}",
    "bindings: {a: {}}",
    "bindings: {a: {file: x, settle: soon}}",
    "bindings: {a: {commits: x, branch: -x}}",
    "bindings: [a]",
    "run: {command: echo x}",
    "run: {command: [a], script: b}",
    "run: {timeout: 5m}",
    "run: {script: a, prompt: b}",
    "tools: {shell: maybe}",
    "window: morning",
    "isolation: watch",
]


@pytest.mark.parametrize("text", GOOD)
def test_an_editor_accepts_a_good_spec(text: str) -> None:
    """An editor shows no error for a spec that the daemon accepts."""
    assert is_valid(text)


@pytest.mark.parametrize("text", BAD)
def test_an_editor_marks_a_bad_spec(text: str) -> None:
    """An editor marks, while a person types, a spec that the daemon refuses."""
    assert not is_valid(text)


def test_the_examples_are_valid() -> None:
    """The specs that come with the project are valid by their own schema."""
    sessions = sorted((REPOSITORY / "sessions.d").glob("*.yaml"))
    agents = sorted((REPOSITORY / "sessions.d" / "agents").glob("*.yaml"))
    assert sessions and agents
    assert all(is_valid(path.read_text()) for path in sessions)
    assert all(is_valid(path.read_text(), "agent") for path in agents)


AGENT = "prompt: x\nmodel: openai:a\nsettings: {temperature: 0.2, max_output: 4000}\ntools: {read: allow}\nlimits: {turns: 3}\n"


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        (AGENT, True), (AGENT + "fallback: openai:b", True), (AGENT + "fallback: [openai:b, {model: openai:c, key: k}]", True),
        ("mcp: {a: [x], b: 'https://h', c: {url: 'https://h', key: k}}", True), ("prompt: {file: x.md}", True), ("acp: [x]", True), ("acp: {command: [x], key: k, env: {A: b}, mode: m}", True),
        ("acp: {files: own}", False),
        ("model: claude", False), ("settings: {effort: max}", False), ("tools: {read: maybe}", False), ("mcp: {a: {cmd: [x]}}", False),
        ("fallback: [5]", False), ("context: {tokens: many}", False), ("promt: x", False),
    ],
)  # fmt: skip
def test_an_agent_has_a_schema_too(text: str, is_good: bool) -> None:
    """Editors know the keys of an agent."""
    assert is_valid(text, "agent") == is_good


def test_the_settings_have_a_schema_too() -> None:
    """The schema covers wakeful.yaml with its defaults, which are a session without any required key."""
    assert is_valid(
        "concurrency: 4\npools: {gpu: 1}\ndefaults: {run: {timeout: 5m}, priority: 3}\nlimits: {output: 2MB}", "daemon"
    )
    assert not is_valid("defaults: {priorty: 3}", "daemon")
    assert not is_valid("concurrency: many", "daemon")

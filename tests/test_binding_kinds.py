"""Every kind of binding is present in all places that must know it. The type checker sees only some of them."""

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from golden import golden_log
from golden.example_events import SPEC
from wakeful import __version__
from wakeful.core.looking.targets import Target
from wakeful.core.record.events import Cause
from wakeful.core.spec.bindings import AnyBinding
from wakeful.model_context.changes import say_cause
from wakeful.sources.all_sources import AllSources
from wakeful.specs.models import BINDING_MODELS

KINDS = {kind.__struct_config__.tag: kind for kind in get_args(AnyBinding)}
# A service is a condition: it wakes no session, so no agent is told of it.
WAKING = sorted(KINDS.keys() - {"service"})
PAGE = Path(__file__).parent.parent / "docs" / "specs.md"
# The test asks no source anything.
NOBODY: Any = None


def test_each_kind_has_its_keys() -> None:
    """The models and the kinds are the same set."""
    assert BINDING_MODELS.keys() == KINDS.keys()


def test_each_target_has_a_source() -> None:
    """A target without a source is never looked at, and its session waits for ever."""
    nobodies = [NOBODY for _ in inspect.signature(AllSources).parameters]
    assert AllSources(*nobodies).kinds == set(get_args(Target))


def test_the_golden_log_has_each_kind() -> None:
    """The fields of a kind are on disk for ever.
    If a kind is missing, add an example in tests/golden/example_events.py and run `make golden`."""
    assert {type(binding) for binding in SPEC.bindings} == set(KINDS.values())
    recorded = golden_log.read_records(golden_log.HERE / __version__)
    bound = {
        binding["kind"]
        for record in recorded
        if record.kind == "spec_declared" and record.payload is not None
        for binding in msgspec.json.decode(record.payload)["spec"]["bindings"]
    }
    assert bound == KINDS.keys()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_page_of_specs_has_each_kind(kind: str) -> None:
    """Each kind is named in a heading."""
    headings = " ".join(re.findall(r"^### .*$", PAGE.read_text(), re.MULTILINE))
    assert f"`{kind}`" in headings


@pytest.mark.parametrize("kind", WAKING)
def test_an_agent_is_told_of_each_kind_in_its_own_words(kind: str) -> None:
    """The neutral words are only for a kind without words of its own."""
    told = say_cause(SPEC, Cause(binding="x", kind=kind, key=kind, old="1", new="2", at=0))
    assert "it has changed" not in told

"""Every event is folded, every observation taken, every call and step judged, each by the function made for it."""

from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import pytest

from wakeful.core import observation_handlers
from wakeful.core.agents import steps
from wakeful.core.calls import agent_steps, call_types
from wakeful.core.calls.call_rules import CALL_RULES
from wakeful.core.record import events, fold

# Name -> (union of kinds, table of functions, kinds handled elsewhere).
TABLES: dict[str, tuple[Any, Mapping[Any, Callable[..., object]], set[type]]] = {
    "events": (events.Event, fold.FOLDS, {events.SessionOpened}),
    "observations": (observation_handlers.Observation, observation_handlers.TAKES, set()),
    "calls": (call_types.Call, {kind: rule.judge for kind, rule in CALL_RULES.items()}, set()),
    "steps": (steps.Step, agent_steps.STEPS, set()),
}


@pytest.mark.parametrize("name", TABLES)
def test_each_kind_has_its_function(name: str) -> None:
    """The table has every kind, and no kind that does not exist."""
    union, table, elsewhere = TABLES[name]
    assert set(table) == set(get_args(union)) - elsewhere


@pytest.mark.parametrize("name", TABLES)
def test_each_function_takes_the_kind_it_stands_for(name: str) -> None:
    """The type of the first parameter must fit the row. So a row with the wrong function is found here."""
    _, table, _ = TABLES[name]
    for kind, handle in table.items():
        first = next(iter(get_type_hints(handle).values()))
        assert kind in (get_args(first) or (first,)), f"{handle.__name__} takes {first}, not {kind}"

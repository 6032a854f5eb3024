"""The to-do list of a session: how calls change it, and its state after a fork, a rewind and a merge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.simulated_world import World
from core.test_calls_history import fork, past, payroll, rewind, state
from wakeful.core.calls import call_types as calls
from wakeful.core.record.todo import (
    LONGEST_ITEM,
    MOST_ITEMS,
    TodoChange,
    TodoItem,
    TodoList,
    change_items,
    merge_items,
    say_items,
)
from wakeful.errors import CallerError


def make_list(*items: str) -> TodoList:
    """Parse items: `x a` is done, `~ a` is in progress, `- a` is open."""
    words = {"x": "done", "~": "doing", "-": "open"}
    return tuple(TodoItem(text=item[2:], status=words[item[0]]) for item in items)


def say(items: TodoList) -> list[str]:
    return [f"{ {'done': 'x', 'doing': '~', 'open': '-'}[item.status] } {item.text}" for item in items]


@pytest.mark.parametrize(
    ("known", "change", "after"),
    [
        ((), TodoChange(items=("a", "b"), doing=(1,)), ["~ a", "- b"]),
        (("~ a", "- b"), TodoChange(done=(1,), doing=(2,)), ["x a", "~ b"]),
        (("x a", "~ b"), TodoChange(items=("b", " a  new\nline ")), ["~ b", "- a new line"]),
        (("x a", "~ b"), TodoChange(open=(1,)), ["- a", "~ b"]),
        (("x a", "~ b"), TodoChange(items=()), []),
        (("x a", "~ b"), TodoChange(), ["x a", "~ b"]),
    ],
)
def test_a_change_sets_and_marks_items_and_an_item_that_stays_keeps_its_status(
    known: tuple[str, ...], change: TodoChange, after: list[str]
) -> None:
    assert say(change_items(make_list(*known), change)) == after


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (TodoChange(done=(2,)), "has 1 items, none numbered 2"),
        (TodoChange(done=(0,)), "none numbered 0"),
        (TodoChange(done=(1,), doing=(1,)), "item 1 has one status"),
        (TodoChange(items=("a", "a ")), "item 2 of a to-do list is there twice: 'a'"),
        (TodoChange(items=("a", " ")), "item 2 of a to-do list has 1 to"),
        (TodoChange(items=("a" * (LONGEST_ITEM + 1),)), "item 1 of a to-do list has 1 to"),
        (TodoChange(items=tuple(f"item {number}" for number in range(MOST_ITEMS + 1))), "at most 50 items, not 51"),
    ],
)
def test_a_list_that_cannot_be_is_refused(change: TodoChange, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        change_items(make_list("- a"), change)


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        (["~ a", "- b"], ["x a", "- b"], ["x a", "- b"]),
        (["x a", "- b"], ["~ a", "- b"], ["x a", "- b"]),
        (["x a", "- b"], ["- a", "- b"], ["x a", "- b"]),
        (["- b"], ["~ a", "- b", "- c"], ["- b", "- c"]),
        (["- b"], ["x a", "- b"], ["- b", "x a"]),
        (["~ a", "- b", "- d"], ["- b"], ["- b", "- d"]),
        (["~ a", "- b"], [], []),
    ],
)
def test_a_merge_takes_the_side_that_changed_an_item_and_of_two_changes_the_further_one(
    ours: list[str], theirs: list[str], merged: list[str]
) -> None:
    assert say(merge_items(make_list("~ a", "- b"), make_list(*ours), make_list(*theirs))) == merged


lists = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("x~-")).map(
    lambda found: make_list(*(f"{mark} {text}" for text, mark in found.items()))
)


@given(base=lists, ours=lists, theirs=lists)
def test_a_merge_is_the_same_from_both_sides_and_loses_no_item_that_a_side_changed(
    base: TodoList, ours: TodoList, theirs: TodoList
) -> None:
    merged = merge_items(base, ours, theirs)
    assert set(merged) == set(merge_items(base, theirs, ours))
    assert merge_items(base, ours, base) == ours and set(merge_items(base, base, theirs)) == set(theirs)
    changed = {item.text for side in (ours, theirs) for item in side if item not in base}
    assert changed <= {item.text for item in merged}


def set_todo(world: World, name: str, **change: tuple[object, ...]) -> None:
    world.call(calls.Todo(name=name, **change))


def test_a_list_survives_a_fresh_start_and_goes_back_with_a_rewind() -> None:
    world = payroll()
    set_todo(world, "payroll", items=("read", "write"), doing=(1,))
    there = state(world, "payroll").seq
    set_todo(world, "payroll", done=(1, 2))
    world.call(calls.Activate(name="payroll", fresh=True))
    assert say_items(state(world, "payroll").knowledge.todo) == ["1. [x] read", "2. [x] write"]
    world.rest()
    rewind(world, "payroll", there)
    assert say(state(world, "payroll").knowledge.todo) == ["~ read", "- write"]


def test_a_fork_takes_the_list_and_a_merge_brings_it_back() -> None:
    """A fresh fork does not take the list."""
    world = payroll()
    set_todo(world, "payroll", items=("read", "write"))
    fork(world, "payroll", state(world, "payroll").seq, "trial")
    fork(world, "payroll", state(world, "payroll").seq, "anew", fresh=True)
    assert (
        say(state(world, "trial").knowledge.todo) == ["- read", "- write"] and state(world, "anew").knowledge.todo == ()
    )
    set_todo(world, "trial", items=("read", "write", "send"), done=(2,))
    set_todo(world, "payroll", done=(1,))
    born = past(world, "trial", 1)
    merged = calls.Merge(
        name="payroll",
        fork="trial",
        base=born.knowledge.facts,
        base_todo=born.knowledge.todo,
        base_seq=1,
        fork_seq=state(world, "trial").seq,
    )
    world.call(merged)
    assert say(state(world, "payroll").knowledge.todo) == ["x read", "x write", "- send"]


def test_the_same_list_again_is_no_record() -> None:
    world = payroll()
    set_todo(world, "payroll", items=("read",))
    before = len(world.log)
    assert world.call(calls.Todo(name="payroll")) == "the to-do list: 0 of 1 done\n1. [ ] read"
    assert len(world.log) == before

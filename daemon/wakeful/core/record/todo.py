"""The to-do list of a session: its items, how a call changes them, how the list of a fork is merged.

The list is kept with the session, as facts are. It is recorded, shown in every opening of a run, copied to forks and
restored by a rewind. It belongs to the session's own agent, so a merge asks no person. Pure values and functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from wakeful.errors import CallerError

TodoStatus = Literal["open", "doing", "done"]
MOST_ITEMS = 50
LONGEST_ITEM = 500
_FURTHEST: tuple[TodoStatus, ...] = ("open", "doing", "done")
# The mark that people and models see for each status.
MARKS: dict[TodoStatus, str] = {"open": "[ ]", "doing": "[~]", "done": "[x]"}


class TodoItem(Struct, frozen=True, kw_only=True):
    """One thing to do. Its text identifies it within its list."""

    text: str
    status: TodoStatus = "open"


TodoList = tuple[TodoItem, ...]


class TodoChange(Struct, frozen=True, kw_only=True):
    """A change that a call asks for.

    `items` are the texts of a new list; None keeps the list. The numbers in `open`, `doing` and `done` count from 1,
    in the list that results.
    """

    items: tuple[str, ...] | None = None
    open: tuple[int, ...] = ()
    doing: tuple[int, ...] = ()
    done: tuple[int, ...] = ()


def change_items(known: TodoList, change: TodoChange) -> TodoList:
    """Return the list after a change. An item whose text stays keeps its status.

    Raises CallerError if the change is not valid.
    """
    changed = list(known) if change.items is None else _take_texts(known, change.items)
    marked: set[int] = set()
    for status in _FURTHEST:
        for number in getattr(change, status):
            if not 1 <= number <= len(changed):
                raise CallerError(f"the list has {len(changed)} items, none numbered {number}; items replaces the list")
            if number in marked:
                raise CallerError(f"item {number} has one status, and is named twice")
            marked.add(number)
            changed[number - 1] = replace(changed[number - 1], status=status)
    return tuple(changed)


def _take_texts(known: TodoList, texts: Sequence[str]) -> list[TodoItem]:
    statuses = {item.text: item.status for item in known}
    cleaned = [" ".join(text.split()) for text in texts]
    if len(cleaned) > MOST_ITEMS:
        raise CallerError(
            f"a to-do list has at most {MOST_ITEMS} items, not {len(cleaned)}; put the details into a file"
        )
    for number, text in enumerate(cleaned, 1):
        if not text or len(text) > LONGEST_ITEM:
            raise CallerError(f"item {number} of a to-do list has 1 to {LONGEST_ITEM} characters, not {len(text)}")
        if text in cleaned[: number - 1]:
            raise CallerError(f"item {number} of a to-do list is there twice: {text[:60]!r}")
    return [TodoItem(text=text, status=statuses.get(text, "open")) for text in cleaned]


def merge_items(base: TodoList, ours: TodoList, theirs: TodoList) -> TodoList:
    """Merge two lists three-way, item by item: the side that changed an item counts.

    If both sides changed an item, it stays, with the further of the two statuses.
    """
    was, mine, other = ({item.text: item.status for item in items} for items in (base, ours, theirs))
    merged = []
    for text in dict.fromkeys((*mine, *other)):
        before, here, there = was.get(text), mine.get(text), other.get(text)
        status = _merge_status(before, here, there)
        if status is not None:
            merged.append(TodoItem(text=text, status=status))
    return tuple(merged)


def _merge_status(before: TodoStatus | None, ours: TodoStatus | None, theirs: TodoStatus | None) -> TodoStatus | None:
    if theirs == before:
        return ours
    if ours == before:
        return theirs
    return max((one for one in (ours, theirs) if one is not None), key=_FURTHEST.index)


def say_items(items: TodoList) -> list[str]:
    """Return the list as text: one line for each item, with its number."""
    return [f"{number}. {MARKS[item.status]} {item.text}" for number, item in enumerate(items, 1)]


def count_items(items: TodoList) -> str:
    """Count the finished items, as text: `2 of 5 done`."""
    return f"{sum(item.status == 'done' for item in items)} of {len(items)} done"

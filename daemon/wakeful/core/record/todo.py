"""The to-do list of a session: its items, how a call changes them, how the list of a fork comes back.

The list is kept with the session as its facts are: recorded, told in every opening of a run, handed on to forks and
gone back by a rewind. It is a list of the session's own agent, so a merge asks nobody: item by item, the side that
changed an item counts, and of two changes the further one. Pure values and functions.
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
# As people and models see each status.
MARKS: dict[TodoStatus, str] = {"open": "[ ]", "doing": "[~]", "done": "[x]"}


class TodoItem(Struct, frozen=True, kw_only=True):
    """One thing to do. Its text tells it from the others of its list."""

    text: str
    status: TodoStatus = "open"


TodoList = tuple[TodoItem, ...]


class TodoChange(Struct, frozen=True, kw_only=True):
    """The wish of a call.

    `items`: the texts of a new list; None keeps the list. The numbers count from 1, in the list that results.
    """

    items: tuple[str, ...] | None = None
    open: tuple[int, ...] = ()
    doing: tuple[int, ...] = ()
    done: tuple[int, ...] = ()


def change_items(known: TodoList, change: TodoChange) -> TodoList:
    """The list after a change; an item whose text stays keeps its status. Raises CallerError."""
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
    """Three ways, item by item: the side that changed an item counts.

    Where both did, an item stays, and the further status counts.
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
    """The list as text: an item a line, with the number that marks it."""
    return [f"{number}. {MARKS[item.status]} {item.text}" for number, item in enumerate(items, 1)]


def count_items(items: TodoList) -> str:
    """`2 of 5 done`."""
    return f"{sum(item.status == 'done' for item in items)} of {len(items)} done"

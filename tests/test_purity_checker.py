"""The checker of pure functions finds every form of change, and accepts the building of an answer."""

import ast

import pytest

from purity_checker import find_changes, is_question

PLANTED = """
def find_it(self, core, look, *, names=()):
    core.looked.targets["a"].is_dirty = True
    core.looking, self.last = None, 1
    core.seen: dict = {}
    core.count += 1
    del core.known["a"]
    core.known.pop("a")
    heapq.heappush(core.heap, 1)
    heappop(core.heap)
    setattr(core, "looking", 1)
    (core.braked.add if look else core.braked.discard)("a")
    alias = core.looked.targets.get("a"); alias.is_dirty = True
    first, (second, *rest) = core, core.pair; second.is_dirty = True
    if (found := look or core).known: found.known.clear()
    for one in sorted(core.state, key=len): one.known.append("a")
    [one.append("a") for one in core.lists.values()]
    core.looked.setdefault("a", []).append("b")
    with core.lock as core.holder: pass
    for core.looking in names: pass
    look |= {"a"}
"""
HARMLESS = """
def find_it(self, core, look, *, names=()):
    found, stack = [], [core]
    found.append(core.looking)
    stack.pop()
    known = dict(core.known)
    known["a"] = 1
    names = [*names, "a"]
    names.sort()
    alias = core
    alias = replace(alias, looking=1)
    alias.known = 1
    heapq.heappush(found, core)
    count = core.count
    count += 1
    core.conversation.add("words")
    return {one: core.known[one] for one in names}
"""


@pytest.mark.parametrize("line", PLANTED.strip().splitlines()[1:])
def test_a_planted_change_is_found(line: str) -> None:
    """Each line changes an argument in another form, and the checker finds it."""
    assert find_changes(read_function(f"{PLANTED.strip().splitlines()[0]}\n{line}"))


def test_an_answer_may_be_put_together() -> None:
    """A question may change what it makes itself, and a memo that the table names."""
    assert find_changes(read_function(HARMLESS)) == []
    assert find_changes(read_function("def delta_since(self, old):\n    self.told = old")) == []
    assert find_changes(read_function("def delta_since(self, old):\n    self.looking = old"))


@pytest.mark.parametrize(
    ("text", "is_asking"),
    [
        ("def _find_it(core): ...", True),
        ("def count_slots(core): ...", True),
        ("@property\ndef due(self): ...", True),
        ("def note_end(self): ...", False),
        ("def finder(self): ...", False),
    ],
)
def test_a_name_tells_a_question(text: str, is_asking: bool) -> None:
    assert is_question(read_function(text)) == is_asking


def read_function(text: str) -> ast.FunctionDef:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function

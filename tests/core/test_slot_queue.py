"""The queue for slots: the first session for which a slot is free is next, and each lane is asked once."""

from __future__ import annotations

from wakeful.core.deciding.working_state import Lane, ReadyQueue

COMMANDS = Lane(None, is_agent=False)
AGENTS = Lane(None, is_agent=True)
BUILDS = Lane("builds", is_agent=False)


def fill(*entries: tuple[str, float, Lane]) -> ReadyQueue:
    queue = ReadyQueue()
    for name, rank, lane in entries:
        queue.put(name, rank, lane)
    return queue


def drain(queue: ReadyQueue, *free: Lane) -> list[str]:
    taken = []
    while (one := queue.take(lambda lane: lane in free)) is not None:
        taken.append(one)
    return taken


def test_the_smallest_rank_of_all_lanes_is_first_and_names_settle_what_is_equal() -> None:
    queue = fill(("c", 3.0, COMMANDS), ("a", 1.0, AGENTS), ("b", 2.0, BUILDS), ("z", 2.0, COMMANDS))
    assert drain(queue, COMMANDS, AGENTS, BUILDS) == ["a", "b", "z", "c"]
    assert not queue


def test_who_finds_no_slot_waits_and_holds_nobody_up() -> None:
    queue = fill(("first", 1.0, BUILDS), ("second", 2.0, COMMANDS), ("third", 3.0, BUILDS))
    assert drain(queue, COMMANDS) == ["second"]
    assert len(queue) == 2 and "first" in queue and "second" not in queue
    assert drain(queue, COMMANDS, BUILDS) == ["first", "third"]


def test_a_thousand_that_need_the_same_slot_are_one_question() -> None:
    """Every decision offers slots.

    With 10,000 queued commands and a free agent slot, it must not go through all of them.
    """
    queue = fill(*((f"s{number}", float(number), COMMANDS) for number in range(1_000)))
    asked: list[Lane] = []

    def has_slot(lane: Lane) -> bool:
        asked.append(lane)
        return False

    assert queue.take(has_slot) is None
    assert asked == [COMMANDS]


def test_who_is_put_again_moves_and_who_is_removed_is_gone() -> None:
    queue = fill(("a", 1.0, COMMANDS), ("b", 2.0, COMMANDS), ("c", 3.0, COMMANDS))
    queue.put("a", 9.0, COMMANDS)
    queue.put("c", 3.0, AGENTS)
    queue.remove("b")
    assert (queue.find_rank("a"), queue.find_rank("b"), queue.find_rank("c")) == (9.0, None, 3.0)
    assert drain(queue, COMMANDS) == ["a"]
    assert drain(queue, AGENTS) == ["c"]

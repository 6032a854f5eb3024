"""Disk space: runs wait for it in the queue, with a reason. The log and everything else go on."""

import pytest

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.observations import DiskSpaceSeen
from wakeful.core.spec.limits import HOLD_BELOW_BYTES, find_mark, judge_disk_space

SHORT = DiskSpaceSeen("disk space: 1.0 MB free on the disk of the log, 100 MB needed")


def test_no_run_starts_without_room_and_all_go_on_with_it() -> None:
    """A change is recorded and waits with a reason. It causes one run when there is space again."""
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    world.observe(SHORT)
    world.write("in", "2")
    world.rest()
    assert (world.starts("s"), world.queued("s")) == (1, SHORT.words)
    assert world.session("s").wake is not None
    world.observe(DiskSpaceSeen(None))
    world.rest()
    assert (world.starts("s"), world.queued("s")) == (2, None)


def test_a_run_under_way_ends_and_nothing_follows_it_before_there_is_room() -> None:
    """The output of the run wakes its reader, which waits."""
    world = World(session("up", read("in"), write("out")), session("down", read("out")), files={"in": "1"})
    world.rest()
    world.write("in", "2")
    world.advance(1)
    world.look()
    assert world.is_running("up")
    world.observe(SHORT)
    world.rest()
    assert world.outcomes("up")[-1] == "succeeded"
    assert (world.starts("down"), world.queued("down")) == (1, SHORT.words)
    world.observe(DiskSpaceSeen(None))
    world.rest()
    assert world.starts("down") == 2


def test_an_activation_waits_for_room_as_for_a_slot() -> None:
    """An activated run would fill the disk as any other would (rule 20: slots are not skipped)."""
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    world.observe(SHORT)
    world.call(calls.Activate(name="s"))
    world.rest()
    assert (world.starts("s"), world.queued("s")) == (1, SHORT.words)
    world.observe(DiskSpaceSeen(None))
    world.rest()
    assert world.starts("s") == 2


def test_what_waited_starts_in_the_order_of_the_queue() -> None:
    """The queue is the one for slots: higher priority first, and no more runs at a time than slots."""
    world = World(session("low", read("in"), priority=10), session("high", read("in"), priority=90), files={"in": "1"})
    world.rest()
    world.set(world.settings.__class__(concurrency=1))
    world.observe(SHORT)
    world.write("in", "2")
    world.advance(1)
    world.look()
    world.observe(DiskSpaceSeen(None))
    assert (world.is_running("high"), world.is_running("low")) == (True, False)


@pytest.mark.parametrize(
    ("free", "total", "is_short", "waits"),
    [
        (HOLD_BELOW_BYTES, 10**12, False, False),
        (HOLD_BELOW_BYTES - 1, 10**12, False, True),
        (HOLD_BELOW_BYTES, 10**12, True, True),
        (HOLD_BELOW_BYTES * 3 // 2, 10**12, True, False),
        (2_000_000, 40_000_000, False, False),
        (1_999_999, 40_000_000, False, True),
        (0, 0, False, False),
    ],
)
def test_the_mark_is_a_twentieth_and_never_more_than_100_mb(free: int, total: int, is_short: bool, waits: bool) -> None:
    """Runs are held below the mark and released well above it.

    A file system that does not report its size holds none.
    """
    assert (judge_disk_space(free, total, is_short=is_short) is not None) == waits
    assert find_mark(total) <= HOLD_BELOW_BYTES

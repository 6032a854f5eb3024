"""Random histories with crashes, checked by an independent oracle.

No accepted change is lost, a session has one run at a time, and runs are free of glitches. Nothing is consumed twice
and waves end. Replay equals the live state, and a restart at rest starts nothing.
"""

import os

import pytest

from core.random_history import History, live_through

# A seed determines a whole history: `live_through(1234)` repeats it.
SEEDS = int(os.environ.get("WAKEFUL_TEST_SEEDS", "250"))
BATCH = 25


@pytest.mark.parametrize("start", range(0, SEEDS, BATCH))
def test_no_history_breaks_a_promise(start: int) -> None:
    """Each history has sixty random moves of world, people and crashes. Then everything is made visible and checked."""
    for seed in range(start, min(start + BATCH, SEEDS)):
        live_through(seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_every_step_of_one_history_is_harmless(seed: int) -> None:
    """The history is repeated with a crash after every second move. The checks hold each time."""
    steps = 25
    for crash_at in range(0, steps, 2):
        history = History(seed, crashes=False)
        history.live(crash_at)
        history.world.crash()
        history.live(steps - crash_at)
        history.judge()


def test_a_seed_is_a_whole_history() -> None:
    """The same seed gives the same log, byte for byte, because time, ids and randomness come from outside."""
    assert live_through(7).world.log == live_through(7).world.log


@pytest.mark.long
@pytest.mark.parametrize("start", range(10_000, 20_000, 500))
def test_no_long_history_breaks_a_promise(start: int) -> None:
    """Ten thousand histories of 150 moves."""
    for seed in range(start, start + 500):
        live_through(seed, 150)

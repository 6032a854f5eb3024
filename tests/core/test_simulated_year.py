"""A year of the core: simulated clocks, files, commits, processes and crashes, checked at every step by the oracle."""

import random
import time
from datetime import UTC, datetime

import pytest

from core.simulated_world import START_US, World
from core.spec_builders import commits, cron, every, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.clock_slots import slot_us
from wakeful.core.spec.session import Settings

DAY = 86_400.0
HOUR = 3600.0
TEXTS = ("red", "green", "blue")
# A slot may wait for the other events of its day, and for the next start of the daemon.
LATEST_SECONDS = 2 * DAY


class Year:
    """A simulated year.

    Each day has up to four random events: work, a crash in the middle of it, a suspend of the machine, a set clock.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        specs = (
            session("hourly", cron("0 * * * *")),
            session("morning", cron("30 2 * * *", "Europe/Berlin", catch_up="all")),
            session("monthly", cron("0 6 1 * *", "Asia/Shanghai"), read("b")),
            session("beat", every(2 * HOUR)),
            session("each", every(6 * HOUR, catch_up="all")),
            session("first", read("in"), write("a")),
            session("second", read("a"), write("b")),
            session("builds", commits("src", each_commit=True)),
        )
        self.world = World(*specs, settings=Settings(concurrency=2), files={"in": "red"})
        self.world.rest(1.0)
        self.happened: dict[str, int] = {}

    def live(self, days: int) -> None:
        moves = (
            self.edit,
            self.edit,
            self.commit,
            self.crash,
            self.crash_soon,
            self.suspend,
            self.set_clock,
            self.fail,
        )
        for _ in range(days):
            # The time left of the day, on the monotonic clock.
            left = DAY
            for move in self.rng.choices(moves, k=self.rng.randint(0, 4)):
                pause = self.rng.uniform(0, left / 4)
                self.pass_time(pause)
                left -= pause
                self.happened[move.__name__] = self.happened.get(move.__name__, 0) + 1
                move()
                self.world.oracle.judge_plan()
            self.pass_time(left)

    def pass_time(self, seconds: float) -> None:
        until = self.world.mono + seconds
        self.world.rest(seconds)
        self.world.advance(until - self.world.mono)
        self.world.rest(0.0)

    def edit(self) -> None:
        self.world.write("in", f"{self.rng.choice(TEXTS)} {self.rng.randrange(1000)}")

    def commit(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.world.commit("src", str(self.rng.randrange(1000)))

    def fail(self) -> None:
        self.world.call(calls.Activate(name="first"))
        self.world.end("first", 1)

    def crash(self) -> None:
        self.world.call(calls.Activate(name="second"))
        self.world.crash()

    def crash_soon(self) -> None:
        """Crash while a message is handled: before its commit, or before the actions that follow."""
        self.world.crash_when = self.rng.choice(("decided", "committed"))
        self.world.call(calls.Send(name="second", text="hello"))

    def suspend(self) -> None:
        self.world.suspend(self.rng.uniform(HOUR, 12 * HOUR))

    def set_clock(self) -> None:
        self.world.jump(self.rng.choice((-2 * HOUR, -HOUR, -30.0, 30.0, HOUR, DAY, -DAY)))


def judge_slots(world: World, name: str) -> None:
    """Check that slots come in order. A slot may come back only after a record that the clock was set."""
    last = ""
    for entry in (entry for entry in world.log if entry.session == world.session(name).id):
        match entry.kind:
            case "clock_rebased":
                last = ""
            case "run_started" if (
                cause := next((one for one in entry.event.causes if one.kind in ("cron", "every")), None)
            ) is not None:
                assert cause.new >= last, f"{name}: {cause.new} after {last}"
                last = cause.new


def live_a_year(seed: int, days: int) -> Year:
    year = Year(seed)
    year.live(days)
    world = year.world
    world.crash_when = None
    for one in list(world.core.state):
        world.call(calls.Resume(name=one.name))
    world.rest(400.0)
    world.oracle.judge_rest()
    world.oracle.judge_outputs()
    world.oracle.judge_replay(year.rng.randrange(len(world.log) + 1))
    for name in ("hourly", "morning", "monthly", "beat", "each"):
        judge_slots(world, name)
    for name, longest in (("hourly", HOUR), ("beat", 2 * HOUR), ("each", 6 * HOUR), ("morning", DAY)):
        (seen,) = (slot for key, slot in world.session(name).marks.seen.items() if key.startswith(("cron", "every")))
        assert world.wall - slot_us(seen) <= (longest + LATEST_SECONDS) * 1e6, f"{name} stands still since {seen}"
    return year


@pytest.mark.long
def test_a_month_breaks_no_promise() -> None:
    """The same as the year below, but short enough for every change of the core."""
    year = live_a_year(1, 30)
    assert year.world.starts("hourly") > 300


@pytest.mark.faults
def test_a_year_takes_less_than_an_hour_and_breaks_no_promise() -> None:
    """Some ten thousand runs through crashes, suspends and set clocks.

    Every slot comes in order, no clock session stops, and replay gives the live state.
    """
    begun = time.monotonic()
    year = live_a_year(2, 365)
    assert time.monotonic() - begun < HOUR
    assert {"crash", "crash_soon", "suspend", "set_clock", "edit", "commit", "fail"} == year.happened.keys()
    passed = year.world.wall - START_US
    assert passed > 300 * DAY * 1e6, datetime.fromtimestamp(year.world.wall / 1e6, UTC)
    assert year.world.starts("hourly") > 5000 and year.world.starts("beat") > 3000

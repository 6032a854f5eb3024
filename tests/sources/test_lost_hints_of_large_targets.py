"""After lost hints, a look at a large target reports the state on disk at the time of the look."""

from __future__ import annotations

from pathlib import Path

import pytest

from sources import files_world
from sources.files_world import World, open_world
from wait_conditions import eventually_async
from wakeful.sources.files.reader_process import WORTH_ASKING

MANY = WORTH_ASKING + 100
PATTERN = "data/*.txt"

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def no_end_of_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look happens only when the test asks for it."""
    monkeypatch.setattr(files_world, "QUIET_SECONDS", 3600.0)


def plant(world: World, content: str) -> None:
    (world.root / "data").mkdir(exist_ok=True)
    for number in range(MANY):
        (world.root / "data" / f"{number}.txt").write_text(f"{content} {number}")


def lose_hints(world: World) -> None:
    """Lose hints. Earlier writes are reported first."""
    world.source.hear()
    world.watcher.lose()


async def look_at(world: World, key: str) -> None:
    world.look(key)
    await eventually_async(lambda: not world.looking, what="no look under way")


def change_and_lose(world: World) -> None:
    """Change every file, and lose the hints of it."""
    plant(world, "changed")
    lose_hints(world)


async def test_everything_that_changed_is_told_by_one_look(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow(PATTERN)
        change_and_lose(world)
        assert not world.source.is_looking, "a look begins when it is asked for"
        await look_at(world, key)
        assert len(world.results[key]) == 2
        assert world.version(key) == await world.truth(PATTERN)
        assert len(world.last(key).changes) == MANY
        assert world.last(key).previous == world.results[key][0].version


async def test_what_was_written_since_is_told_by_the_look_that_is_asked_for(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow(PATTERN)
        change_and_lose(world)
        # The loop does not turn in between. The kernel has the events, and the watcher has not reported them yet.
        (world.root / "data" / "7.txt").write_text("changed once more")
        (world.root / "data" / "8.txt").unlink()
        (world.root / "data" / "new.txt").write_text("new")
        await look_at(world, key)
        assert len(world.results[key]) == 2
        assert world.version(key) == await world.truth(PATTERN)
        assert {"data/7.txt", "data/8.txt", "data/new.txt", "data/9.txt"} <= {
            change.path for change in world.last(key).changes
        }


async def test_a_look_at_hundreds_of_files_is_made_off_the_loop(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow(PATTERN)
        change_and_lose(world)
        world.look(key)
        assert world.source.is_looking
        await eventually_async(lambda: not world.looking, what="no look under way")
        assert len(world.results[key]) == 2
        assert world.version(key) == await world.truth(PATTERN)


async def test_other_targets_that_mean_a_changed_path_see_it_as_well(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key, other = await world.follow(PATTERN), await world.follow("data/3.txt")
        change_and_lose(world)
        await look_at(world, other)
        assert world.version(other) == await world.truth("data/3.txt")
        await look_at(world, key)
        assert world.version(key) == await world.truth(PATTERN)


async def test_hints_that_are_lost_twice_lead_to_one_look(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow(PATTERN)
        change_and_lose(world)
        plant(world, "changed again")
        lose_hints(world)
        assert not world.source.is_looking
        await look_at(world, key)
        assert len(world.results[key]) == 2
        assert world.version(key) == await world.truth(PATTERN)


async def test_the_latest_look_is_stale_until_the_next_one(tmp_path: Path) -> None:
    """The code that keeps the outputs of runs must know that the latest look is out of date."""
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow(PATTERN)
        change_and_lose(world)
        assert world.source.find(key).is_stale
        await look_at(world, key)
        assert not world.source.find(key).is_stale


async def test_a_folder_that_another_target_let_go_of_is_watched_by_the_look(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow("**/*.txt")
        world.watcher.is_deaf = True
        (world.root / "new").mkdir()
        (world.root / "new" / "a.txt").write_text("new")
        other = await world.follow("new/*.txt")
        world.source.hear()
        world.watcher.is_deaf = False
        lose_hints(world)
        world.source.forget([other])
        await look_at(world, key)
        assert world.version(key) == await world.truth("**/*.txt")
        world.hints.clear()
        (world.root / "new" / "b.txt").write_text("newer")
        await eventually_async(lambda: (key,) in world.hints, what="a hint")


async def test_nothing_is_read_while_git_rewrites_the_working_tree(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        (world.root / ".git").mkdir()
        plant(world, "first")
        key = await world.follow(PATTERN)
        (world.root / ".git" / "index.lock").touch()
        plant(world, "changed")
        lose_hints(world)
        world.look(key)
        assert not world.source.is_looking
        (world.root / ".git" / "index.lock").unlink()
        await look_at(world, key)
        assert world.version(key) == await world.truth(PATTERN)


async def test_a_target_that_is_forgotten_while_it_is_read_is_followed_anew_as_any(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world, "first")
        key = await world.follow(PATTERN, key="one")
        plant(world, "changed")
        lose_hints(world)
        world.look(key)
        world.source.forget([key])
        await eventually_async(lambda: not world.source.is_looking, what="no look under way")
        world.looking.discard(key)
        await world.follow(PATTERN, key="one")
        assert world.version(key) == await world.truth(PATTERN)


async def test_small_targets_and_those_nobody_has_looked_at_wait_until_they_are_asked_for(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        (world.root / "one").write_text("first")
        await world.follow("one")
        lose_hints(world)
        assert not world.source.is_looking

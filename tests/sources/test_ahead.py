"""A start with many targets has their folders listed ahead by another process, and finds what its looks would have found alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sources.files_world import World, open_world
from waiting import eventually_async
from wakeful.core.looking.targets import FileTarget
from wakeful.sources.files import walk
from wakeful.sources.files.entry import LOOP_ENTRIES
from wakeful.sources.files.reader_process import WORTH_ASKING

TARGETS = WORTH_ASKING + 20
SAMPLE = (0, 1, 2, 3, 4, 300, TARGETS - 1)


def pattern(number: int) -> str:
    return f"data/{number}/*.txt"


def plant(root: Path) -> None:
    for number in range(TARGETS):
        folder = root / "data" / str(number)
        folder.mkdir(parents=True)
        for file in ("a.txt", "b.txt", "other"):
            (folder / file).write_text(f"{number} {file}")


def follow_all(world: World) -> None:
    world.source.follow(
        [FileTarget(key=pattern(number), root=str(world.root), pattern=pattern(number)) for number in range(TARGETS)]
    )


async def look_at_all(world: World) -> None:
    for number in range(TARGETS):
        world.look(pattern(number))
    await world.settled()


async def be_known(tmp_path: Path) -> None:
    """An earlier daemon saw everything."""
    async with open_world(tmp_path) as world:
        plant(world.root)
        follow_all(world)
        assert not world.source._ahead.is_started, "nothing was known before"
        await look_at_all(world)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that the daemon listed by itself."""
    folders: list[str] = []
    real: Callable[[str, int], object] = walk.list_folder

    def list_folder(folder: str, most: int) -> object:
        folders.append(folder)
        return real(folder, most)

    monkeypatch.setattr(walk, "list_folder", list_folder)
    return folders


@pytest.mark.asyncio
async def test_what_changed_meanwhile_is_found_and_the_rest_is_listed_by_another(
    tmp_path: Path, listed: list[str]
) -> None:
    await be_known(tmp_path)
    data = tmp_path / "root" / "data"
    (data / "0" / "a.txt").write_text("changed, and longer")
    (data / "1" / "b.txt").unlink()
    (data / "2" / "c.txt").symlink_to("a.txt")
    for number in range(LOOP_ENTRIES + 1):
        (data / "3" / f"{number}.txt").touch()
    (data / "4").rename(data / "elsewhere")
    listed.clear()
    async with open_world(tmp_path) as world:
        follow_all(world)
        await look_at_all(world)
        assert str(data / "3") in listed, "more than the loop may list"
        assert len(listed) < 20
        assert not world.source._ahead.is_started, "nobody asks any more"
        for number in SAMPLE:
            assert world.version(pattern(number)) == await world.truth(pattern(number)), number
        changes = {change.path for change in world.last(pattern(0)).changes}
        assert changes == {"data/0/a.txt"}


@pytest.mark.asyncio
async def test_a_change_between_the_listing_and_the_look_is_noticed(tmp_path: Path) -> None:
    await be_known(tmp_path)
    async with open_world(tmp_path) as world:
        follow_all(world)
        world.look(pattern(0))
        # Listed by now, or soon: the look takes what was found before.
        (world.root / "data" / "1" / "new.txt").write_text("came between")
        world.look(pattern(1))
        await world.noticed(pattern(1), pattern(1))


@pytest.mark.asyncio
async def test_what_was_found_ahead_is_not_used_after_a_hint(tmp_path: Path) -> None:
    """A look that had to wait must not find less than was hinted at: the hint is used up by it."""
    await be_known(tmp_path)
    async with open_world(tmp_path) as world:
        follow_all(world)
        world.look(pattern(0))
        (world.root / "data" / "1" / "new.txt").write_text("came before the look")
        await eventually_async(lambda: not world.source._ahead.is_started, what="all of it dropped")
        world.look(pattern(1))
        assert world.version(pattern(1)) == await world.truth(pattern(1))


@pytest.mark.asyncio
async def test_without_the_other_process_everything_is_looked_at_all_the_same(tmp_path: Path) -> None:
    await be_known(tmp_path)
    (tmp_path / "root" / "data" / "300" / "a.txt").write_text("changed, and longer")
    async with open_world(tmp_path) as world:
        process = world.source._ahead._reader._process
        assert process is not None
        process.kill()
        await asyncio.to_thread(process.wait)
        follow_all(world)
        await look_at_all(world)
        for number in SAMPLE:
            assert world.version(pattern(number)) == await world.truth(pattern(number)), number

"""A start with many known targets finds every change that was made during the downtime, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from sources.files_world import World, open_world
from wakeful.core.looking.targets import FileTarget
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
    """Let an earlier daemon look at every target."""
    async with open_world(tmp_path) as world:
        plant(world.root)
        follow_all(world)
        await look_at_all(world)


@pytest.mark.asyncio
async def test_what_changed_while_no_daemon_ran_is_found(tmp_path: Path) -> None:
    await be_known(tmp_path)
    data = tmp_path / "root" / "data"
    (data / "0" / "a.txt").write_text("changed, and longer")
    (data / "1" / "b.txt").unlink()
    (data / "2" / "c.txt").symlink_to("a.txt")
    for number in range(LOOP_ENTRIES + 1):
        (data / "3" / f"{number}.txt").touch()
    (data / "4").rename(data / "elsewhere")
    async with open_world(tmp_path) as world:
        follow_all(world)
        await look_at_all(world)
        for number in SAMPLE:
            assert world.version(pattern(number)) == await world.truth(pattern(number)), number
        changes = {change.path for change in world.last(pattern(0)).changes}
        assert changes == {"data/0/a.txt"}


@pytest.mark.asyncio
async def test_a_change_between_two_first_looks_is_noticed(tmp_path: Path) -> None:
    await be_known(tmp_path)
    async with open_world(tmp_path) as world:
        follow_all(world)
        world.look(pattern(0))
        (world.root / "data" / "1" / "new.txt").write_text("came between")
        world.look(pattern(1))
        await world.noticed(pattern(1), pattern(1))

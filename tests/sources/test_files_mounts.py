"""Files on a share that is not mounted are not deleted files.

Rule 5 over real mounts, with watches and polls, and across restarts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sources.files_world import POLLED, World, open_world
from wait_conditions import eventually_async
from wakeful.sources.hints.watcher_choice import choose_hints

pytestmark = pytest.mark.asyncio

Mount = Callable[[], None]


class Share:
    """A file system with one file in it, mounted at `root/share`. The folder below the mount point is empty."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.point = folder / "root/share"
        self.point.mkdir(parents=True)
        self._source = folder / "elsewhere"
        self._source.mkdir()
        self._kind = kind
        if kind == "tmpfs":
            # Mounted a second time elsewhere, so that the files survive an unmount.
            subprocess.run(["mount", "-t", "tmpfs", "none", str(self._source)], check=True)
        (self._source / "folder").mkdir()
        (self._source / "folder/data.csv").write_text("1,2,3\n")

    def mount(self) -> None:
        subprocess.run(["mount", "--bind", str(self._source), str(self.point)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.point)], check=True)

    def edit(self, text: str) -> None:
        (self._source / "folder/data.csv").write_text(text)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.point)], check=False, capture_output=True)
        if self._kind == "tmpfs":
            subprocess.run(["umount", "-l", str(self._source)], check=False, capture_output=True)


@pytest.fixture(params=["tmpfs", "bind"])
def share(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Share]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root: shares that go away are not tested here")
    share = Share(tmp_path, request.param)
    share.mount()
    yield share
    share.close()


def is_unknown(world: World, key: str) -> bool:
    last = world.last(key)
    return last.version is None and "nothing is mounted there any more" in str(last.problem)


@pytest.mark.parametrize("hints", ["inotify", "poll"])
@pytest.mark.parametrize("pattern", ["share/folder/data.csv", "share/**/*.csv", "**/*.csv", "share/*"])
async def test_an_unmounted_share_is_unknown_and_not_deleted(
    tmp_path: Path, share: Share, pattern: str, hints: str
) -> None:
    """This holds also if only the mount table shows the unmount.

    After the next mount the version is the old one, or that of the changed files.
    """
    async with open_world(tmp_path, choose_hints(hints), pace=POLLED) as world:
        key = await world.follow(pattern)
        before = world.version(key)
        share.unmount()
        await eventually_async(lambda: is_unknown(world, key))
        share.mount()
        await eventually_async(lambda: world.version(key) == before)
        assert world.versions(key) == [before, None, before]
        if pattern != "share/*":
            share.edit("4,5,6\n")
            await eventually_async(lambda: world.version(key) not in (before, None))


async def test_a_daemon_started_while_a_share_is_not_mounted_knows_of_it(tmp_path: Path, share: Share) -> None:
    """The cache stores the mounts of a target beside its files.

    The share is found again when it is mounted.
    """
    async with open_world(tmp_path, pace=POLLED) as world:
        before = world.version(await world.follow("share/**", key="share"))
        await world.follow("*.txt", key="beside")
    share.unmount()
    async with open_world(tmp_path, pace=POLLED) as world:
        key = await world.follow("share/**", key="share")
        assert is_unknown(world, key)
        assert world.version(await world.follow("*.txt", key="beside")) is not None
        share.mount()
        await eventually_async(lambda: world.version(key) == before)


async def test_files_deleted_on_a_share_are_deleted(tmp_path: Path, share: Share) -> None:
    """A mounted share is like any folder."""
    async with open_world(tmp_path, pace=POLLED) as world:
        key = await world.follow("share/**/*.csv")
        await world.hinted(lambda: (share.point / "folder/data.csv").unlink())
        await world.noticed(key, "share/**/*.csv")
        assert world.last(key).problem is None


async def test_a_share_mounted_later_is_seen(tmp_path: Path, share: Share) -> None:
    """The version was that of an empty share. Once it was mounted, an unmount makes it unknown."""
    share.unmount()
    async with open_world(tmp_path, pace=POLLED) as world:
        key = await world.follow("**/*.csv")
        empty = world.version(key)
        share.mount()
        await eventually_async(lambda: world.version(key) not in (empty, None))
        share.unmount()
        await eventually_async(lambda: is_unknown(world, key))

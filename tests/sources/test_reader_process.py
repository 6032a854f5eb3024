"""A second process reads the paths of large looks.

The result is the one that the daemon alone would find.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from process_state import is_alive
from sources.files_world import open_world
from wait_conditions import eventually, eventually_async
from wakeful.sources.files import reader_process as reading
from wakeful.sources.files.entry import SMALL_BYTES
from wakeful.sources.files.reader_process import WORTH_ASKING, Answers, Reader, ReaderGone

MANY = WORTH_ASKING + 100


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the readers alive until a test ends them, however long the machine stalls."""
    monkeypatch.setattr(reading, "REST_SECONDS", 600.0)


def readers(owner: int | None = None) -> list[psutil.Process]:
    """Return the live reader processes of this process or of another.

    A child of another test may be a zombie, which has no command line.
    """
    found = []
    for one in psutil.Process(owner).children():
        with contextlib.suppress(psutil.Error):
            if "wakeful.sources.files.reader_process" in one.cmdline():
                found.append(one)
    return found


def plant(folder: Path, count: int, content: str) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"{content} {number}")


@pytest.mark.asyncio
async def test_a_look_at_hundreds_of_paths_asks_the_reader_and_finds_what_is_there(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for part in range(3):
            plant(world.root / str(part), MANY // 3 + 1, "first")
        key = await world.follow("**/*.txt")
        assert readers() == []
        for part in range(3):
            plant(world.root / str(part), MANY // 3 + 1, "second, and longer")
        (world.root / "0" / "0.txt").unlink()
        await world.look_at_all()
        assert len(readers()) >= 1
        await world.noticed(key, "**/*.txt")
        changes = {change.path for result in world.results[key] for change in result.changes}
        assert {"0/0.txt", "1/7.txt", "2/9.txt"} <= changes
    await eventually_async(lambda: not readers(), what="no reader left")


@pytest.mark.asyncio
async def test_what_is_no_plain_small_file_is_seen_as_without_a_reader(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world.root, MANY, "plain")
        (world.root / "large").write_bytes(b"x" * (SMALL_BYTES + 1))
        (world.root / "runs").write_text("#!/bin/sh\n")
        (world.root / "runs").chmod(0o755)
        (world.root / "link").symlink_to("1.txt")
        (world.root / "dangling").symlink_to("nowhere")
        os.mkfifo(world.root / "pipe")
        (world.root / os.fsdecode(b"no-\xff-text")).write_text("named in bytes")
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(world.root / "sock"))
            key = await world.follow("*")
            (world.root / "1.txt").write_text("what the link leads to")
            (world.root / "large").write_bytes(b"y" * (SMALL_BYTES + 1))
            await world.look_at_all()
            assert readers()
            assert world.last(key).problem is None
            await world.noticed(key, "*")


@pytest.mark.asyncio
async def test_a_reader_that_is_killed_costs_time_and_no_change(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        plant(world.root, MANY, "first")
        key = await world.follow("*.txt")
        for turn in range(4):
            plant(world.root, MANY, f"turn {turn}")
            world.watcher.lose()
            world.look(key)
            for one in readers():
                one.kill()
            await world.settled()
            await world.noticed(key, "*.txt")
        await world.look_at_all()
        assert readers()


@pytest.mark.asyncio
async def test_a_reader_that_nobody_asks_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_world(tmp_path) as world:
        plant(world.root, MANY, "first")
        await world.follow("*.txt")
        await world.look_at_all()
        assert readers()
        monkeypatch.setattr(reading, "REST_SECONDS", 0.0)
        await eventually_async(lambda: not readers(), what="no reader left")


def test_answers_that_were_not_taken_are_never_taken_for_later_ones(tmp_path: Path) -> None:
    plant(tmp_path, 3 * MANY, "content")
    paths = [str(tmp_path / f"{number}.txt") for number in range(3 * MANY)]
    reader = Reader()
    reader.start()
    try:
        for _ in reader.read(paths, [None] * len(paths), wants_content=True):
            break
        with pytest.raises(ReaderGone):
            reader.list([str(tmp_path)])
        reader.start()
        [listing] = reader.list([str(tmp_path)])
        assert listing is not None
        assert len(listing.files) == 3 * MANY
    finally:
        reader.close()


def test_questions_and_answers_of_any_length_pass_without_waiting_for_each_other(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(14):
        deep /= "d" * 250
    deep.mkdir(parents=True)
    paths = [str(deep / f"{number}") for number in range(1000)]
    with open(os.open(paths[0], os.O_WRONLY | os.O_CREAT), "w") as one:
        one.write("there")
    reader = Reader()
    reader.start()
    found: list[Answers] = []
    asking = threading.Thread(
        target=lambda: found.extend(reader.read(paths, [None] * 1000, wants_content=True)), daemon=True
    )
    asking.start()
    try:
        assert (
            eventually(lambda: sum(part.asked for part in found) == 1000, what="an answer for each path") is not False
        )
        assert found[0].moved == [0]
        assert sum(len(part.left) for part in found) == 999
        assert reader.list([str(deep), str(deep / "none")])[1] is None
    finally:
        reader.close()
        asking.join(60)


STARTED = """
import os, time
from wakeful.sources.files.reader_process import Reader
reader = Reader()
reader.start()
print("started", flush=True)
time.sleep(600)
"""


def test_a_reader_ends_with_whoever_started_it() -> None:
    """The owner is killed, and so cannot end the reader itself."""
    with subprocess.Popen([sys.executable, "-c", STARTED], stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None and owner.stdout.readline() == b"started\n"
            # A process that was just spawned has its owner's name for a moment.
            [reader] = eventually(lambda: readers(owner.pid), what="a reader")
        finally:
            owner.kill()
    eventually(lambda: not is_alive(reader.pid), what="no reader left")

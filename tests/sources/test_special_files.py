"""Special files, names that are not text and unreadable folders: none of them blocks a look, falsifies it or ends
the daemon.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from sources.files_world import POLLED, open_world
from wait_conditions import eventually_async
from wakeful.core.looking.targets import FileTarget
from wakeful.sources.files.entry import Demand, read_entry
from wakeful.sources.files.look import Finding, Followed, Looker

pytestmark = pytest.mark.asyncio


async def test_a_link_is_its_text_and_the_content_it_leads_to(tmp_path: Path) -> None:
    """A new target of the link and a change of the target's content are both changes, and both are hinted."""
    async with open_world(tmp_path) as world:
        for name in ("one", "two"):
            (tmp_path / f"outside-{name}").mkdir()
            (tmp_path / f"outside-{name}/file").write_text("same")
        link = world.root / "link"
        link.symlink_to("../outside-one/file")
        literal, pattern = await world.follow("link"), await world.follow("*")
        before = world.version(literal)
        await world.hinted(lambda: (tmp_path / "outside-one/file").write_text("other"))
        await world.noticed(literal, "link")
        await world.noticed(pattern, "*")
        assert world.version(literal) != before
        (tmp_path / "outside-one/file").write_text("same")
        await eventually_async(lambda: world.version(literal) == before)
        link.unlink()
        link.symlink_to("../outside-two/file")
        await world.noticed(literal, "link")
        assert world.version(literal) != before
        await world.hinted(lambda: (tmp_path / "outside-two/file").write_text("heard"))
        await world.noticed(pattern, "*")


async def test_a_dangling_link_and_a_loop_of_links_are_their_text(tmp_path: Path) -> None:
    """They are neither errors nor deletions. The target of a dangling link may appear later."""
    async with open_world(tmp_path) as world:
        (world.root / "dangling").symlink_to("nowhere")
        (world.root / "loop").symlink_to("loop")
        (world.root / "folder").symlink_to(".")
        key = await world.follow("**")
        assert world.source.describe(key).files == 3
        assert world.last(key).problem is None
        await world.hinted(lambda: (world.root / "nowhere").write_text("there now"))
        await world.noticed(key, "**")


async def test_a_link_and_its_target_may_swap_roles(tmp_path: Path) -> None:
    """Each path was the link's target for a while.

    Later edits of both are seen, and so are those of another path in the same batch.
    """
    async with open_world(tmp_path) as world:
        one, two, beside = (world.root / name for name in ("one", "two", "beside"))
        one.write_text("content")
        two.symlink_to("one")
        beside.write_text("before")
        pattern, literal, innocent = await world.follow("*"), await world.follow("two"), await world.follow("beside")

        def swap() -> None:
            two.unlink()
            one.rename(two)
            one.symlink_to("two")

        await world.hinted(swap)
        await world.noticed(pattern, "*")
        for text in ("first edit", "second edit"):
            await world.hinted(lambda: (two.write_text(text), beside.write_text(text)))
            await world.noticed(pattern, "*")
            await world.noticed(literal, "two")
            await world.noticed(innocent, "beside")
        assert world.source.defects.met == ()


async def test_a_link_to_itself_can_become_a_file(tmp_path: Path) -> None:
    """The link led to its own path. The file that replaces it is seen like any other."""
    async with open_world(tmp_path) as world:
        link = world.root / "link"
        link.symlink_to("link")
        key = await world.follow("link")

        def become_file() -> None:
            link.unlink()
            link.write_text("a file now")

        await world.hinted(become_file)
        await world.noticed(key, "link")
        await world.hinted(lambda: link.write_text("edited"))
        await world.noticed(key, "link")
        assert world.source.defects.met == ()


async def test_a_defect_in_one_path_costs_nothing_but_that_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect is reported once and counted, and the rest of the batch is looked at."""
    async with open_world(tmp_path) as world:
        broken, sound = await world.follow("a-broken"), await world.follow("z-sound")
        mark = Followed.mark

        def stumble(followed: Followed, path: str, *evidence: object) -> None:
            if path.endswith("a-broken"):
                raise KeyError(path)
            mark(followed, path, *evidence)

        monkeypatch.setattr(Followed, "mark", stumble)
        for text in ("one", "two"):
            await world.hinted(
                lambda: ((world.root / "a-broken").write_text(text), (world.root / "z-sound").write_text(text))
            )
            await world.noticed(sound, "z-sound")
        (defect,) = world.source.defects.met
        assert defect.count >= 2
        assert "KeyError" in defect.words and "a-broken" in defect.words
        assert len(world.told) == 1
        assert world.version(broken) == "absent"


@pytest.mark.parametrize("where", ["on the loop", "in a thread"])
async def test_a_defect_in_a_look_makes_its_target_unknown_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Rule 5: a target that cannot be looked at is unknown, with a message, and is tried again until it works."""
    async with open_world(tmp_path, pace=POLLED) as world:
        count = 3 if where == "on the loop" else 100
        for number in range(count):
            (world.root / f"broken-{number}").write_text("x")
        broken, sound = await world.follow("broken-*"), await world.follow("sound")
        look = Looker.look

        def stumble(looker: Looker, followed: Followed, *scope: object, **options: object) -> Finding:
            if followed.key == broken:
                raise IndexError("nothing there")
            return look(looker, followed, *scope, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Looker, "look", stumble)
            await world.hinted(lambda: [(world.root / f"broken-{number}").write_text("y") for number in range(count)])
            await world.hinted(lambda: (world.root / "sound").write_text("y"))
            await world.noticed(sound, "sound")
            await eventually_async(lambda: world.version(broken) is None)
            assert "a defect of wakeful: IndexError" in str(world.last(broken).problem)
        await world.noticed(broken, "broken-*")
        assert world.last(broken).problem is None


async def test_a_linked_folder_is_entered_only_when_it_is_named(tmp_path: Path) -> None:
    """A wildcard does not follow a link out of the tree.

    A literal prefix goes through it, and follows a change of its target.
    """
    async with open_world(tmp_path) as world:
        for release in ("1", "2"):
            (tmp_path / f"releases/{release}").mkdir(parents=True)
            (tmp_path / f"releases/{release}/file").write_text(release)
        current = world.root / "current"
        current.symlink_to("../releases/1")
        everything, through = await world.follow("**/file"), await world.follow("current/*")
        assert world.source.describe(everything).files == 0
        assert world.source.describe(through).files == 1
        await world.hinted(lambda: (tmp_path / "releases/1/file").write_text("1b"))
        await world.noticed(through, "current/*")
        (world.root / "next").symlink_to("../releases/2")
        (world.root / "next").rename(current)
        await world.noticed(through, "current/*")
        await world.hinted(lambda: (tmp_path / "releases/2/file").write_text("2b"))
        await world.noticed(through, "current/*")


@pytest.mark.parametrize("pattern", ["through/file", "through/*", "through/deeper/*"])
async def test_a_link_that_comes_later_completes_a_path(tmp_path: Path, pattern: str) -> None:
    """The watcher reports the new link as a file.

    Each target whose path leads through it is looked at again, also when the link is removed.
    """
    async with open_world(tmp_path) as world:
        (tmp_path / "elsewhere/deeper").mkdir(parents=True)
        (tmp_path / "elsewhere/file").write_text("1")
        (tmp_path / "elsewhere/deeper/file").write_text("1")
        key = await world.follow(pattern)
        before = world.version(key)
        await world.hinted(lambda: (world.root / "through").symlink_to("../elsewhere"))
        await world.noticed(key, pattern)
        assert world.source.describe(key).files >= 1
        await world.hinted(
            lambda: (tmp_path / "elsewhere/deeper/file").write_text("2") + (tmp_path / "elsewhere/file").write_text("2")
        )
        await world.noticed(key, pattern)
        await world.hinted((world.root / "through").unlink)
        await eventually_async(lambda: world.version(key) == before)


async def test_a_root_that_is_a_link_is_followed_when_it_moves(tmp_path: Path) -> None:
    """`current -> releases/7` is how programs are deployed."""
    async with open_world(tmp_path) as world:
        for release in ("1", "2"):
            (tmp_path / release).mkdir()
            (tmp_path / release / "file").write_text(release)
        current = tmp_path / "current"
        current.symlink_to("1")
        key = await world.follow("file", root=current)
        (tmp_path / "next").symlink_to("2")
        (tmp_path / "next").rename(current)
        await world.noticed(key, "file", root=current)


async def test_a_fifo_a_socket_and_a_device_count_by_their_kind(tmp_path: Path) -> None:
    """No look waits for a writer."""
    async with open_world(tmp_path) as world:
        os.mkfifo(world.root / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(world.root / "socket"))
            (world.root / "device").symlink_to("/dev/zero")
            key, literal = await world.follow("*"), await world.follow("fifo")
            assert world.source.describe(key).files == 3
            assert world.last(key).problem is None
        before = world.version(literal)
        (world.root / "fifo").unlink()
        (world.root / "fifo").write_text("a file now")
        await world.noticed(literal, "fifo")
        assert world.version(literal) != before


async def test_names_that_are_no_text_or_hold_a_newline_are_names(tmp_path: Path) -> None:
    """Such names count and can change. They are reported in text that any encoder accepts."""
    async with open_world(tmp_path) as world:
        key = await world.follow("**")
        folder = world.root / os.fsdecode(b"f\xfeolder")
        folder.mkdir()
        (folder / os.fsdecode(b"bad\xff.csv")).write_text("1")
        (world.root / "new\nline").write_text("2")
        (world.root / ("n" * 255)).write_text("3")
        await world.noticed(key, "**")
        paths = {change.path for result in world.results[key] for change in result.changes}
        assert paths == {"f\\xfeolder/bad\\xff.csv", "new\nline", "n" * 255}
        await world.hinted(lambda: (folder / os.fsdecode(b"bad\xff.csv")).write_text("other"))
        await world.noticed(key, "**")


async def test_a_name_too_long_to_look_up_is_unknown_and_not_deleted(tmp_path: Path) -> None:
    """The problem names the path, and the target has no version (rule 5)."""
    async with open_world(tmp_path) as world:
        key = await world.follow("x" * 300)
        assert world.version(key) is None
        assert "File name too long" in world.last(key).problem


@pytest.mark.parametrize("before", ["link", "file", "socket"])
@pytest.mark.parametrize("after", ["link", "file", "socket", "folder"])
async def test_what_changes_its_kind_after_the_stat_is_looked_at_again(tmp_path: Path, before: str, after: str) -> None:
    """Something else takes the name between the stat and the reading.

    The look reports its present kind, and no path counts as unreadable.
    """

    def make(kind: str) -> None:
        match kind:
            case "link":
                path.symlink_to("nowhere")
            case "file":
                path.write_text("content")
            case "socket":
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(str(path))
            case "folder":
                path.mkdir()

    path = tmp_path / "x"
    make(before)
    stale = path.lstat()
    path.unlink()
    make(after)
    demand = Demand(wants_content=True)
    found, fresh = read_entry(str(path), None, demand, stale), read_entry(str(path), None, demand)
    assert getattr(found, "kind", found) == (getattr(fresh, "kind", fresh) if before != "socket" else "s")


async def test_a_large_file_is_hashed_off_the_loop(tmp_path: Path) -> None:
    """The loop goes on while a thread reads. The result is the same as for a small file."""
    async with open_world(tmp_path) as world:
        path = world.root / "large"
        path.write_bytes(os.urandom(1 << 20) * 8)
        key = await world.follow("large")
        found = read_entry(str(path), None, Demand(wants_content=True))
        assert world.cache.seen[str(path)].digest == found.digest
        with path.open("r+b") as file:
            file.seek(5 << 20)
            file.write(b"changed")
        await world.noticed(key, "large")


async def test_a_huge_file_holds_up_no_other_target(tmp_path: Path) -> None:
    """Both targets are too large for the loop.

    The one with 64 small files is answered while a terabyte of the other is still being read.
    """
    async with open_world(tmp_path) as world:
        with (world.root / "huge").open("wb") as file:
            file.truncate(1 << 40)
        (world.root / "small").mkdir()
        for number in range(64):
            (world.root / f"small/{number}").touch()
        world.source.follow([FileTarget(key="huge", root=str(world.root), pattern="huge")])
        world.look("huge")
        small = [FileTarget(key=f"small {number}", root=str(world.root), pattern="small/*") for number in range(3)]
        world.source.follow(small)
        for target in small:
            world.look(target.key)
        await eventually_async(lambda: len(world.results) == 3, what="the small targets looked at")
        assert "huge" not in world.results
        # Closing the world does not wait for the huge file either.


async def test_a_file_that_changes_while_it_is_read_is_said_to_be_unstable(tmp_path: Path) -> None:
    """The content that was read is reported, and the target stays dirty until the file stands still (rule 12)."""
    async with open_world(tmp_path) as world:
        path = world.root / "growing"
        path.write_bytes(b"\0" * (32 << 20))
        stop = threading.Event()

        def grow() -> None:
            with path.open("ab", buffering=0) as file:
                while not stop.is_set():
                    file.write(b"more")

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            world.source.follow([FileTarget(key="growing", root=str(world.root), pattern="growing")])
            world.look("growing")
            await eventually_async(lambda: any(result.is_unstable for result in world.results.get("growing", [])))
        finally:
            stop.set()
            writer.join()
        await world.noticed("growing", "growing")
        assert not world.last("growing").is_unstable


UNREADABLE = """
import asyncio, json, os, sys
from wakeful.core.looking.targets import FileTarget
from wakeful.sources.files.source import FileSource
from wakeful.sources.hints.watcher_choice import choose_hints
from wakeful.sources.files.stat_cache import StatCache
os.setgid(65534); os.setuid(65534)
async def main():
    root = sys.argv[1]
    told = []
    source = FileSource(told.append, asyncio.get_running_loop(), root + "/none", choose_hints("inotify"), StatCache(None))
    found = {}
    for pattern in ("secret.txt", "locked/*", "*.txt", "locked/file", "open.txt"):
        source.follow([FileTarget(key=pattern, root=root, pattern=pattern)])
        source.look(pattern, 1)
        result = told[-1].result
        found[pattern] = [result.version, result.problem, result.is_absent]
    print(json.dumps(found))
    await source.close()
asyncio.run(main())
"""


async def test_what_may_not_be_read_is_unknown_and_not_deleted() -> None:
    """An unreadable file or folder, and a file in such a folder, has no version.

    The problem names the path (rule 5).
    """
    if os.geteuid() != 0:
        pytest.skip("needs root, to leave behind a file that another user may not read")
    # Not below tmp_path, because only root may enter its parent folders.
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        root.chmod(0o755)
        (root / "locked").mkdir()
        for name in ("secret.txt", "open.txt", "locked/file"):
            (root / name).write_text("1")
        (root / "secret.txt").chmod(0)
        (root / "locked").chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, temporary], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["open.txt"][0] is not None
    for pattern, named in (
        ("secret.txt", "secret.txt"),
        ("*.txt", "secret.txt"),
        ("locked/*", "locked"),
        ("locked/file", "locked/file"),
    ):
        version, problem, is_absent = found[pattern]
        assert (version, is_absent) == (None, False)
        assert named in problem and "Permission denied" in problem


async def test_a_problem_that_ends_is_noticed(tmp_path: Path) -> None:
    """The source looks again by itself at a target whose version was unknown."""
    async with open_world(tmp_path) as world:
        (world.root / "data").symlink_to("data")
        key = await world.follow("data/file")
        assert world.version(key) is None
        assert "symbolic links" in world.last(key).problem
        (world.root / "data").unlink()
        (world.root / "data").mkdir()
        (world.root / "data/file").write_text("1")
        await world.noticed(key, "data/file")
        assert world.source.describe(key).problem is None


async def test_the_state_folder_is_never_watched_walked_or_read(tmp_path: Path) -> None:
    """The way to the state folder may be a pattern, its own path, a link to it, a link into it, or another name for
    it.
    """
    async with open_world(tmp_path) as world:
        state = tmp_path / "state"
        (state / "log.db").write_text("private")
        (world.root / "link").symlink_to(state / "log.db")
        (world.root / "folder").symlink_to(state)
        above = await world.follow("**", root=tmp_path)
        names = {Path(path).name for path in world.source.find(above).members}
        assert "log.db" not in names and "cache.db" not in names
        assert not any(folder.startswith(str(state)) for folder in world.watcher.ever_armed)
        for pattern in (f"{state}/*", f"{state}/log.db", "folder/log.db", "folder/*"):
            key = await world.follow(pattern)
            assert world.version(key) is None
            assert "state folder" in world.last(key).problem
        assert not any(path.startswith(f"{state}/") for path in world.cache.seen)
        link = await world.follow("link")
        before = world.version(link)
        (state / "log.db").write_text("changed")
        assert await world.truth("folder/none") is not None
        looks = len(world.results[link])
        await world.look_at_all()
        assert len(world.results[link]) > looks and world.version(link) == before

"""The file source over real inotify: it notices every way to change a file, and reports nothing that is not a change.

Each test compares with `truth`: the version that a source without memory and without hints finds at that moment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sources import files_world
from sources.files_world import POLLED, REREAD, SWEPT, World, open_world
from wait_conditions import eventually_async
from wakeful.core.looking.path_reports import Excluded, Found, NearlyMatched
from wakeful.core.looking.targets import FileTarget
from wakeful.sources.files import open_files
from wakeful.sources.files.sweep import Pace
from wakeful.sources.hints.watcher_choice import choose_hints

pytestmark = pytest.mark.asyncio


# -- how editors save: each turns "before" into "after" ---------------------------------------------------------------


def write_in_place(path: Path) -> None:
    path.write_text("after")


def truncate_then_write(path: Path) -> None:
    with path.open("w") as file:
        file.flush()
        file.write("af")
        file.flush()
        file.write("ter")


def rename_over(path: Path) -> None:
    beside = path.with_name("4913")
    beside.write_text("after")
    beside.rename(path)


def rename_over_with_backup(path: Path) -> None:
    path.rename(f"{path}~")
    path.write_text("after")
    Path(f"{path}~").unlink()


def swap_file_beside(path: Path) -> None:
    swap = path.with_name(f".{path.name}.swp")
    swap.write_text("recovery")
    path.write_text("after")
    swap.unlink()


def hard_link_swap(path: Path) -> None:
    beside = path.with_name("new")
    beside.write_text("after")
    path.unlink()
    os.link(beside, path)
    beside.unlink()


def delete_and_recreate(path: Path) -> None:
    path.unlink()
    path.write_text("after")


def keep_mtime(path: Path) -> None:
    found = path.stat()
    path.write_text("after")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def keep_size_and_mtime(path: Path) -> None:
    found = path.stat()
    path.write_text("Before"[: found.st_size])
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (found.st_size, found.st_mtime_ns)


def set_mtime_in_the_future(path: Path) -> None:
    path.write_text("after")
    os.utime(path, (4e9, 4e9))


def set_mtime_in_the_past(path: Path) -> None:
    path.write_text("after")
    os.utime(path, (1, 1))


def replace_its_folder(path: Path) -> None:
    beside = path.parent.with_name("beside")
    shutil.copytree(path.parent, beside)
    (beside / path.name).write_text("after")
    path.parent.rename(path.parent.with_name("old"))
    beside.rename(path.parent)


SAVES = [
    write_in_place, truncate_then_write, rename_over, rename_over_with_backup, swap_file_beside, hard_link_swap, delete_and_recreate,
    keep_mtime, keep_size_and_mtime, set_mtime_in_the_future, set_mtime_in_the_past, replace_its_folder,
]  # fmt: skip


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("pattern", ["data/file.txt", "data/*.txt", "**/*.txt"])
async def test_every_way_to_save_is_one_change(tmp_path: Path, save: Callable[[Path], None], pattern: str) -> None:
    """The result is one new version, and the right one, for a literal path and for a pattern."""
    async with open_world(tmp_path) as world:
        path = world.root / "data/file.txt"
        path.parent.mkdir()
        path.write_text("before")
        # The files of a replaced folder move to other paths, which this test does not follow.
        exclude = ("old", "beside")
        key = await world.follow(pattern, exclude=exclude)
        before = world.version(key)
        await world.hinted(lambda: save(path))
        await world.noticed(key, pattern, exclude=exclude)
        assert world.versions(key) == [before, await world.truth(pattern, exclude=exclude)]
        assert [change.path for change in _all_changes(world, key)] == ["data/file.txt"]


def _all_changes(world: World, key: str) -> list[object]:
    return [change for result in world.results[key] for change in result.changes]


@pytest.mark.parametrize("hints", ["inotify", "watchfiles"])
async def test_both_watchers_notice_what_happens_in_a_tree(tmp_path: Path, hints: str) -> None:
    """With either watcher, the version that was noticed in the end is the version on disk."""
    async with open_world(tmp_path, choose_hints(hints)) as world:
        key = await world.follow("**/*.txt")
        for number in range(5):
            folder = world.root / f"a{number}/b/c"
            folder.mkdir(parents=True)
            (folder / "file.txt").write_text(str(number))
        await world.noticed(key, "**/*.txt")
        shutil.rmtree(world.root / "a1")
        (world.root / "a2/b/c/file.txt").write_text("other")
        (world.root / "a3").rename(world.root / "moved")
        await world.noticed(key, "**/*.txt")
        assert world.source.describe(key).files == 4


def touch(path: Path) -> None:
    path.touch()


def set_times(path: Path) -> None:
    os.utime(path, (1, 1))


def change_rights(path: Path) -> None:
    path.chmod(0o640)


def write_the_same(path: Path) -> None:
    with path.open("r+") as file:
        file.write(path.read_text())


def replace_by_the_same(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text(path.read_text())
    fresh.rename(path)


def write_and_touch(path: Path) -> None:
    path.touch()
    write_the_same(path)
    path.touch()


@pytest.mark.parametrize("change", [touch, set_times, change_rights])
async def test_a_change_of_attributes_alone_is_no_write(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Rule 17: neither the version nor the stamp moves, since the watcher reported no write."""
    async with open_world(tmp_path) as world:
        path = world.root / "file"
        path.write_text("same")
        key = await world.follow("file")
        before = world.last(key)
        for _ in range(3):
            await world.hinted(lambda: change(path))
            last = world.last(key)
            assert (last.version, last.stamp, last.doubt, last.changes) == (
                before.version,
                before.stamp,
                before.doubt,
                (),
            )


async def meet_by_reading_again(world: World, path: Path) -> None:
    """A file that was hashed just after its change is read again some seconds later."""
    world.racy.taken.clear()
    world.racy.add([str(path)])
    await eventually_async(lambda: str(path) in world.racy.taken and not world.lanes.is_any_taken, what="read again")
    world.source.hear()


async def meet_by_sweep(world: World, path: Path) -> None:
    """The sweep compares the stat of every path from time to time.

    In this test only the sweep asks the watcher for queued reports.
    """
    await eventually_async(lambda: world.timers, what="a hint")


async def meet_by_sweep_after_its_report(world: World, path: Path) -> None:
    world.source.hear()
    asked = world.watcher.asked
    await eventually_async(lambda: world.watcher.asked > asked, what="the sweep at a path that moved")


@pytest.mark.parametrize("change", [touch, set_times, change_rights])
@pytest.mark.parametrize(
    ("meet", "pace"),
    [(meet_by_reading_again, REREAD), (meet_by_sweep, SWEPT), (meet_by_sweep_after_its_report, SWEPT)],
)
async def test_a_change_of_attributes_is_no_write_whatever_meets_it_before_its_look(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    meet: Callable[[World, Path], Awaitable[None]],
    pace: Pace,
) -> None:
    """Rule 17: a comparison of stats finds that one changed. The watcher's report decides whether that was a write."""
    # A look happens only when the test asks for it.
    monkeypatch.setattr(files_world, "QUIET_SECONDS", 3600.0)
    async with open_world(tmp_path, pace=pace) as world:
        path = world.root / "file"
        path.write_text("same")
        key = await world.follow("file")
        before = world.last(key)
        world.watcher.is_late = True
        for _ in range(3):
            change(path)
            await meet(world, path)
            assert list(world.timers) == [key]
            world.look(key)
            await world.settled()
            last = world.last(key)
            assert (last.version, last.stamp, last.doubt) == (before.version, before.stamp, before.doubt)


async def test_attributes_that_one_target_found_changed_are_no_write_to_another(tmp_path: Path) -> None:
    """Rules 10 and 17: the report of a path goes to every target that matches the path."""
    async with open_world(tmp_path) as world:
        path = world.root / "file"
        path.write_text("same")
        keys = [await world.follow("file"), await world.follow("*"), await world.follow("**")]
        before = [(world.last(key).stamp, world.last(key).doubt) for key in keys]
        for _ in range(3):
            await world.hinted(lambda: touch(path))
        assert [(world.last(key).stamp, world.last(key).doubt) for key in keys] == before


async def test_after_lost_reports_nobody_knows_whether_a_file_was_written(tmp_path: Path) -> None:
    """Rule 17: after lost reports, a missing report of a write proves nothing."""
    async with open_world(tmp_path) as world:
        path = world.root / "file"
        path.write_text("same")
        key = await world.follow("file")
        before = world.last(key)
        touch(path)
        world.source.hear()
        await world.hinted(world.watcher.lose)
        assert world.last(key).doubt != before.doubt


@pytest.mark.parametrize("change", [write_the_same, replace_by_the_same, write_and_touch])
async def test_a_write_of_the_same_content_moves_the_stamp_and_not_the_version(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Rule 17: the content may have been another one between the two writes."""
    async with open_world(tmp_path) as world:
        path = world.root / "file"
        path.write_text("same")
        key = await world.follow("file")
        before = world.last(key)
        await world.hinted(lambda: change(path))
        await eventually_async(lambda: world.last(key).stamp != before.stamp)
        assert world.version(key) == before.version


@pytest.mark.parametrize("change", [touch, write_the_same])
async def test_where_stats_alone_are_known_an_equal_content_is_a_doubt(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Rule 17: without reports the source only raises the doubt. The core decides what a doubt means."""
    async with open_world(tmp_path, choose_hints("poll"), pace=POLLED) as world:
        path = world.root / "file"
        path.write_text("same")
        os.utime(path, (1, 1))
        key = await world.follow("file")
        before = world.last(key)
        await world.hinted(lambda: change(path))
        last = world.last(key)
        assert (last.version, last.stamp) == (before.version, before.stamp)
        assert last.doubt != before.doubt


async def test_without_hints_a_look_that_is_asked_for_finds_what_is_there(tmp_path: Path) -> None:
    """The outputs of a run are recorded when it ends, not at the next poll."""
    async with open_world(tmp_path, choose_hints("poll")) as world:
        path = world.root / "out"
        path.write_text("before")
        key = await world.follow("out")
        path.write_text("after the run")
        world.look(key)
        await world.settled()
        assert world.version(key) == await world.truth("out")


async def test_a_file_that_is_open_for_writing_is_looked_at_when_it_is_closed(tmp_path: Path) -> None:
    """A half-written file is not a version: the look waits, says so, and then finds the whole file."""
    async with open_world(tmp_path) as world:
        path = world.root / "data"
        path.write_text("whole\n")
        key = await world.follow("data")
        before = world.version(key)
        with path.open("w") as file:
            for piece in range(3):
                file.write(f"piece {piece}\n")
                await world.hinted(file.flush)
                assert world.last(key).held == "data is being written"
        await world.noticed(key, "data")
        assert world.versions(key) == [before, world.version(key)]


async def test_a_second_writer_keeps_a_file_open_although_the_first_has_closed_it(tmp_path: Path) -> None:
    """The watcher reports one close. The kernel still counts the other writer."""
    async with open_world(tmp_path) as world:
        path = world.root / "data"
        path.write_text("")
        key = await world.follow("data")
        with path.open("a") as slow:
            await world.hinted(lambda: path.write_text("one\n"))
            assert world.last(key).held == "data is being written"
            slow.write("two\n")
        await world.noticed(key, "data")
        assert world.last(key).held is None


@pytest.mark.parametrize("bound", ["QUIET_SECONDS", "MOST_SECONDS"])
async def test_a_file_that_stays_open_is_waited_for_no_longer_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """A log may stay open for ever.

    Its readers are woken with its current content all the same, and sooner the next time.
    """
    monkeypatch.setattr(open_files, bound, 0.0)
    async with open_world(tmp_path) as world:
        path = world.root / "log"
        path.write_text("")
        key = await world.follow("log", settle_seconds=0.01, settle_max_seconds=2.0)
        with path.open("a") as log:
            log.write("one\n")
            log.flush()
            await eventually_async(lambda: world.results[key][-1].held is None and len(world.versions(key)) == 2)
            monkeypatch.setattr(open_files, bound, 3600.0)
            log.write("two\n")
            log.flush()
            await world.noticed(key, "log")


async def test_a_settle_max_that_the_spec_names_bounds_the_wait_for_a_close(tmp_path: Path) -> None:
    """An explicit settle_max is the longest time that the reader accepts."""
    async with open_world(tmp_path) as world:
        path = world.root / "log"
        path.write_text("")
        key = await world.follow("log", settle_max_seconds=0.2)
        with path.open("a") as log:
            log.write("one\n")
            log.flush()
            await world.noticed(key, "log")


async def test_a_look_for_what_a_run_left_takes_open_files_as_they_are(tmp_path: Path) -> None:
    """The run has ended, so its outputs are needed now."""
    async with open_world(tmp_path) as world:
        path = world.root / "out"
        path.write_text("")
        key = await world.follow("out")
        with path.open("a") as other:
            other.write("by somebody else\n")
            other.flush()
            await eventually_async(lambda: world.hints)
            world.source.look(key, 1000, takes_open=True)
            assert world.last(key).held is None
            assert world.version(key) == await world.truth("out")


async def test_what_was_written_a_moment_ago_and_is_not_closed_is_heard_when_asked(tmp_path: Path) -> None:
    """Rule 17: a report is withheld while its writer has the file open. The end of a run must not miss it."""
    async with open_world(tmp_path) as world:
        path = world.root / "in"
        path.write_text("")
        key = await world.follow("in")
        with path.open("a") as file:
            file.write("x")
            file.flush()
            world.source.hear()
            assert world.hints == [(key,)]


async def test_the_executable_bit_counts_and_other_bits_do_not(tmp_path: Path) -> None:
    """A version has no property that a checkout on another machine would not reproduce (rule 6)."""
    async with open_world(tmp_path) as world:
        path = world.root / "script"
        path.write_text("#!/bin/sh\n")
        path.chmod(0o644)
        key = await world.follow("script")
        plain = world.version(key)
        await world.hinted(lambda: path.chmod(0o600))
        assert world.version(key) == plain
        await world.hinted(lambda: path.chmod(0o744))
        assert world.version(key) != plain
        await world.hinted(lambda: path.chmod(0o644))
        assert world.version(key) == plain


async def test_a_version_is_free_of_host_and_place(tmp_path: Path) -> None:
    """The same files under another root have the same version, in whatever order they were made."""
    async with open_world(tmp_path) as world:
        for root, names in (("one", "abc"), ("two", "cba")):
            for name in names:
                (world.root / root / "data").mkdir(parents=True, exist_ok=True)
                (world.root / root / "data" / name).write_text(name)
        keys = [await world.follow("data/*", root=world.root / root, key=root) for root in ("one", "two")]
        assert world.version(keys[0]) == world.version(keys[1])
        (world.root / "two/data/a").rename(world.root / "two/data/d")
        assert await world.truth("data/*", root=world.root / "two") != world.version("one")


async def test_changes_name_what_was_added_modified_and_removed(tmp_path: Path) -> None:
    """The changes are those between two known versions, each path once."""
    async with open_world(tmp_path) as world:
        for name in ("kept", "modified", "removed"):
            (world.root / name).write_text(name)
        key = await world.follow("*")
        first = world.version(key)
        assert world.last(key).previous is None
        (world.root / "modified").write_text("other")
        (world.root / "removed").unlink()
        (world.root / "added").touch()
        await world.noticed(key, "*")
        result = world.last(key)
        assert {change.path: change.change for change in _all_changes(world, key)} == {
            "modified": "modified", "removed": "removed", "added": "added",
        }  # fmt: skip
        assert world.results[key][1].previous == first
        assert result.version != first


async def test_a_return_to_the_old_content_is_a_return_to_the_old_version(tmp_path: Path) -> None:
    """A removed part is subtracted exactly, so a change that was undone leaves no trace in the version."""
    async with open_world(tmp_path) as world:
        for number in range(20):
            (world.root / f"{number}").write_text(str(number))
        key = await world.follow("*")
        first = world.version(key)
        await world.hinted(lambda: (world.root / "7").write_text("other"))
        assert world.version(key) != first
        await world.hinted(lambda: (world.root / "7").write_text("7"))
        assert world.version(key) == first


async def test_one_batch_of_hints_is_one_observation(tmp_path: Path) -> None:
    """One report names every target that matches the path (rule 10)."""
    async with open_world(tmp_path) as world:
        path = world.root / "shared"
        path.write_text("1")
        keys = {await world.follow("shared"), await world.follow("*"), await world.follow("**")}
        await world.hinted(lambda: path.write_text("2"))
        assert set(world.hints[0]) == keys
        assert len(world.hints) == 1


async def test_a_change_found_by_one_look_dirties_all_others_that_mean_the_path(tmp_path: Path) -> None:
    """The other targets are named in the same result, before any hint came (rule 10)."""
    async with open_world(tmp_path, choose_hints("poll")) as world:
        path = world.root / "shared"
        path.write_text("1")
        one, other = await world.follow("shared"), await world.follow("*")
        excluding = await world.follow("**", exclude=("shared",))
        path.write_text("2")
        world.look(one)
        await world.settled()
        assert world.last(one).also_dirty == (other,)
        assert world.version(other) == await world.truth("*")
        assert len(world.results[excluding]) == 1


async def test_deep_folders_made_at_once_lose_nothing(tmp_path: Path) -> None:
    """The test makes 300 deep folders with a file in each, faster than they can be armed.

    watchfiles alone loses half of them.
    """
    async with open_world(tmp_path) as world:
        key = await world.follow("**/file")
        for number in range(300):
            folder = world.root / f"{number}/x/y/z"
            folder.mkdir(parents=True)
            (folder / "file").write_text(str(number))
        await world.noticed(key, "**/file")
        assert world.source.describe(key).files == 300


async def test_what_is_written_into_a_new_folder_is_heard_before_the_look(tmp_path: Path) -> None:
    """A new folder is armed when it is reported, so a long unpacking counts as not yet quiet."""
    async with open_world(tmp_path) as world:
        await world.follow("**")
        (world.root / "new/deeper").mkdir(parents=True)
        await eventually_async(lambda: world.hints)
        count = len(world.hints)
        (world.root / "new/deeper/file").touch()
        await eventually_async(lambda: len(world.hints) > count)


async def test_a_populated_folder_moved_in_is_seen_with_all_it_holds(tmp_path: Path) -> None:
    """inotify reports one name. The look finds the files below it, and later changes in them are reported."""
    async with open_world(tmp_path) as world:
        outside = tmp_path / "outside"
        (outside / "deep").mkdir(parents=True)
        (outside / "deep/file.csv").write_text("1")
        key = await world.follow("in/**/*.csv")
        (world.root / "in").mkdir()
        await world.hinted(lambda: outside.rename(world.root / "in/moved"))
        await world.noticed(key, "in/**/*.csv")
        assert world.source.describe(key).files == 1
        await world.hinted(lambda: (world.root / "in/moved/deep/file.csv").write_text("2"))
        await world.noticed(key, "in/**/*.csv")
        (world.root / "in/moved").rename(tmp_path / "away")
        await world.noticed(key, "in/**/*.csv")
        assert world.source.describe(key).files == 0


@pytest.mark.parametrize("pattern", ["data/file", "data/**", "**/file"])
async def test_a_replaced_root_is_watched_again(tmp_path: Path, pattern: str) -> None:
    """While the root is missing the version is unknown (rule 5). Its replacement is read and watched."""
    async with open_world(tmp_path) as world:
        (world.root / "data").mkdir()
        (world.root / "data/file").write_text("1")
        key = await world.follow(pattern)
        world.root.rename(tmp_path / "gone")
        await eventually_async(lambda: world.version(key) is None)
        assert "is not there" in world.last(key).problem
        (world.root / "data").mkdir(parents=True)
        (world.root / "data/file").write_text("2")
        await world.noticed(key, pattern)
        await world.hinted(lambda: (world.root / "data/file").write_text("3"))
        await world.noticed(key, pattern)
        assert world.source.describe(key).problem is None


async def test_a_replaced_folder_above_the_target_is_noticed(tmp_path: Path) -> None:
    """A watch on `a/b` reports nothing when `a` is renamed. Therefore every folder from the root down is armed."""
    async with open_world(tmp_path) as world:
        (world.root / "a/b").mkdir(parents=True)
        (world.root / "a/b/file").write_text("1")
        key = await world.follow("a/b/file")
        shutil.copytree(world.root / "a", tmp_path / "other")
        (tmp_path / "other/b/file").write_text("2")
        (world.root / "a").rename(tmp_path / "away")
        (tmp_path / "other").rename(world.root / "a")
        await world.noticed(key, "a/b/file")
        await world.hinted(lambda: (world.root / "a/b/file").write_text("3"))
        await world.noticed(key, "a/b/file")


async def test_a_literal_path_that_is_not_there_is_absent_and_awaited(tmp_path: Path) -> None:
    """A missing path has a fixed version, also while its parent folders are missing.

    Each of these may appear at its own time.
    """
    async with open_world(tmp_path) as world:
        key = await world.follow("not/yet/there.csv")
        assert (world.version(key), world.last(key).is_absent) == ("absent", True)
        await world.hinted((world.root / "not").mkdir)
        await world.hinted((world.root / "not/yet").mkdir)
        assert world.version(key) == "absent"
        await world.hinted(lambda: (world.root / "not/yet/there.csv").write_text("1"))
        assert world.last(key).changes[0].change == "added"
        assert not world.last(key).is_absent
        await world.hinted(lambda: shutil.rmtree(world.root / "not"))
        assert (world.version(key), world.last(key).is_absent) == ("absent", True)
        assert world.last(key).changes[0].change == "removed"


async def test_a_literal_path_may_turn_out_to_be_a_folder(tmp_path: Path) -> None:
    """The target then covers everything below the folder. It may become a file again."""
    async with open_world(tmp_path) as world:
        (world.root / "data").mkdir()
        (world.root / "data/file").write_text("1")
        key = await world.follow("data")
        assert world.source.describe(key).files == 1
        await world.hinted(lambda: (world.root / "data/file").write_text("2"))
        await world.noticed(key, "data")
        shutil.rmtree(world.root / "data")
        (world.root / "data").write_text("now a file")
        await world.noticed(key, "data")
        assert world.source.describe(key).files == 1


async def test_an_empty_folder_and_a_missing_one_hold_no_files(tmp_path: Path) -> None:
    """A pattern without matches has a version of its own, which is neither `absent` nor unknown."""
    async with open_world(tmp_path) as world:
        key = await world.follow("inbox/*")
        empty = world.version(key)
        (world.root / "inbox").mkdir()
        assert await world.truth("inbox/*") == empty
        assert empty is not None and not world.last(key).is_absent
        await world.hinted(lambda: (world.root / "inbox/letter").write_text("hello"))
        assert world.version(key) != empty


async def test_excluded_paths_are_neither_seen_nor_hinted(tmp_path: Path) -> None:
    """Excluded are the default names, the binding's own excludes, and the outputs of the session itself (rule 7)."""
    async with open_world(tmp_path) as world:
        key = await world.follow("**", exclude=("build", "docs/*.html"), hidden=("out/report.csv",))
        before = world.version(key)
        for name in (".git/HEAD", "node_modules/x/y.js", "a/file.swp", "build/x", "docs/a.html", "out/report.csv"):
            (world.root / name).parent.mkdir(parents=True, exist_ok=True)
            (world.root / name).write_text("noise")
        (world.root / "last").touch()
        await world.noticed(key, "**", exclude=("build", "docs/*.html"), hidden=("out/report.csv",))
        assert [change.path for change in _all_changes(world, key)] == ["last"]
        (world.root / "last").unlink()
        await eventually_async(lambda: world.version(key) == before)
        assert not any("/.git" in folder or "node_modules" in folder for folder in world.watcher.ever_armed)


async def test_a_default_exclude_written_out_is_meant(tmp_path: Path) -> None:
    """A binding that names `notes.tmp` explicitly follows it."""
    async with open_world(tmp_path) as world:
        key = await world.follow("notes.tmp")
        await world.hinted(lambda: (world.root / "notes.tmp").write_text("1"))
        assert not world.last(key).is_absent


async def test_comparing_by_stat_or_names_reads_no_content(tmp_path: Path) -> None:
    """`stat` compares size and time, and `names` only the existing names."""
    async with open_world(tmp_path) as world:
        path = world.root / "huge"
        path.write_text("1")
        by_stat, by_name = (
            await world.follow("*", compare="stat"),
            await world.follow("*", compare="names", key="names"),
        )
        seen = world.cache.seen[str(path)]
        assert seen.digest == b""
        versions = world.version(by_stat), world.version(by_name)
        await world.hinted(lambda: os.utime(path, (1, 1)))
        assert world.version(by_stat) != versions[0]
        assert world.version(by_name) == versions[1]
        await world.hinted((world.root / "second").touch)
        assert world.version(by_name) != versions[1]


async def test_a_pattern_may_reach_outside_of_root(tmp_path: Path) -> None:
    """The pattern is relative with `..`, or absolute.

    The names in the version of a relative one do not depend on the place.
    """
    async with open_world(tmp_path) as world:
        shared = tmp_path / "shared"
        shared.mkdir()
        (shared / "a.csv").write_text("1")
        relative, absolute = await world.follow("../shared/*.csv"), await world.follow(f"{shared}/*.csv")
        await world.hinted(lambda: (shared / "a.csv").write_text("2"))
        await world.noticed(relative, "../shared/*.csv")
        await world.noticed(absolute, f"{shared}/*.csv")
        assert world.last(relative).changes[0].path == "../shared/a.csv"
        shutil.rmtree(shared)
        await eventually_async(lambda: world.version(absolute) is None)
        assert "is not there" in world.last(absolute).problem


async def test_what_is_forgotten_is_no_longer_watched(tmp_path: Path) -> None:
    """The watch of a folder ends with its last target. A look at a forgotten target reports nothing."""
    async with open_world(tmp_path) as world:
        (world.root / "a").mkdir()
        (world.root / "b").mkdir()
        one, other = await world.follow("a/*"), await world.follow("b/*")
        world.source.forget([one])
        assert str(world.root / "a") not in world.watcher.armed
        assert str(world.root / "b") in world.watcher.armed
        count = len(world.results[one])
        world.source.look(one, 99)
        (world.root / "a/file").touch()
        await world.hinted((world.root / "b/file").touch)
        assert len(world.results[one]) == count
        assert all(one not in batch for batch in world.hints)
        world.source.forget([other, "never followed"])
        assert not world.watcher.armed


async def test_following_twice_and_again_after_forgetting_is_harmless(tmp_path: Path) -> None:
    """The same key is the same target. After forget, a target begins with a first look."""
    async with open_world(tmp_path) as world:
        (world.root / "file").write_text("1")
        key = await world.follow("file")
        world.source.follow([FileTarget(key=key, root=str(world.root), pattern="file")])
        assert world.source.explain(str(world.root / "file")) == [(key, Found(is_there=True))]
        world.source.forget([key])
        assert await world.follow("file", key=key) == key
        await world.hinted(lambda: (world.root / "file").write_text("2"))
        await world.noticed(key, "file")


async def test_why_says_what_a_path_means_to_whom(tmp_path: Path) -> None:
    """A path is matched, excluded, nearly matched, or unrelated."""
    async with open_world(tmp_path) as world:
        (world.root / "data").mkdir()
        path = world.root / "data/a.csv"
        path.write_text("1")
        means = await world.follow("data/*.csv")
        excludes = await world.follow("data/**", exclude=("*.csv",))
        misses = await world.follow("data/*.tsv")
        verdicts = dict(world.source.explain(str(path)))
        assert verdicts[means] == Found(is_there=True)
        assert verdicts[excludes] == Excluded("*.csv")
        assert verdicts[misses] == NearlyMatched("data/*.tsv", "has the extension .tsv, not .csv")
        assert dict(world.source.explain(str(world.root / "data/gone.csv")))[means] == Found(is_there=False)
        assert world.source.explain(str(world.root / "elsewhere")) == []
        assert world.source.explain(str(tmp_path / "state/log.db")) == []
        assert world.source.describe("stranger") is None

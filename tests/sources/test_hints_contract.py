"""One contract for every watcher: it reports changes in armed folders, none in other folders, and every loss.

The suite runs unchanged over inotify and watchfiles. Promises that only one of them can keep are tested at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import watchfiles
from watchfiles._rust_notify import RustNotify

from wait_conditions import eventually_async
from wakeful.errors import OperatorError
from wakeful.sources.hints import inotify, watcher_choice
from wakeful.sources.hints import watchfiles as hints_by_watchfiles
from wakeful.sources.hints.contract import Dirt, Dirty, Gone, Hints, Lost
from wakeful.sources.hints.inotify import InotifyHints
from wakeful.sources.hints.watcher_choice import HintsSwitch, NoHints, choose_hints

pytestmark = pytest.mark.asyncio


class Heard:
    """A watcher and all its reports."""

    def __init__(self, setting: str) -> None:
        self.batches: list[tuple[Dirt, ...]] = []
        self.hints: Hints = choose_hints(setting)(asyncio.get_running_loop(), self.batches.append)

    @property
    def dirt(self) -> list[Dirt]:
        return [dirt for batch in self.batches for dirt in batch]

    def is_dirty(self, path: Path) -> bool:
        folder, name = str(path.parent), path.name
        return any(
            isinstance(dirt, Lost)
            or (isinstance(dirt, Dirty) and dirt.folder == folder and (dirt.names is None or name in dirt.names))
            for dirt in self.dirt
        )

    async def hears(self, path: Path) -> None:
        await eventually_async(lambda: self.is_dirty(path), what=f"{path} reported")


@pytest_asyncio.fixture(params=["inotify", "watchfiles"])
async def heard(request: pytest.FixtureRequest) -> AsyncIterator[Heard]:
    heard = Heard(request.param)
    yield heard
    heard.hints.close()


def write(path: Path) -> None:
    path.write_text("x")


def replace(path: Path) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text("y")
    beside.rename(path)


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("z")


def remove(path: Path) -> None:
    path.unlink()


def turn_executable(path: Path) -> None:
    path.chmod(0o755)


@pytest.mark.parametrize("change", [write, replace, append, remove, turn_executable])
async def test_every_way_to_change_a_file_is_reported(
    heard: Heard, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """The file is written, replaced, appended to, removed or made executable.

    The report has its name under its folder.
    """
    path = tmp_path / "file"
    path.write_text("before")
    assert heard.hints.arm([str(tmp_path)]) == {}
    heard.batches.clear()
    change(path)
    await heard.hears(path)


async def test_a_new_file_and_a_new_folder_are_reported(heard: Heard, tmp_path: Path) -> None:
    """The report names the folder itself, not its contents. The caller that arms follows the trees."""
    heard.hints.arm([str(tmp_path)])
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    await heard.hears(tmp_path / "folder")
    await heard.hears(tmp_path / "file")


async def test_only_armed_folders_are_reported(heard: Heard, tmp_path: Path) -> None:
    """A folder below an armed one and a folder that was disarmed again are not reported."""
    for name in ("armed", "disarmed", "armed/below"):
        (tmp_path / name).mkdir()
    heard.hints.arm([str(tmp_path / "armed"), str(tmp_path / "disarmed")])
    heard.hints.disarm([str(tmp_path / "disarmed"), str(tmp_path / "never armed")])
    heard.batches.clear()
    (tmp_path / "disarmed/file").touch()
    (tmp_path / "armed/below/file").touch()
    (tmp_path / "armed/last").touch()
    await heard.hears(tmp_path / "armed/last")
    assert not heard.is_dirty(tmp_path / "disarmed/file")
    assert not heard.is_dirty(tmp_path / "armed/below/file")


async def test_a_folder_armed_later_is_watched_as_well(heard: Heard, tmp_path: Path) -> None:
    """The folders that were armed before are still watched."""
    folders = [tmp_path / f"folder{number}" for number in range(6)]
    for folder in folders:
        folder.mkdir()
        assert heard.hints.arm([str(folder)]) == {}
    heard.batches.clear()
    for folder in folders:
        (folder / "file").touch()
    for folder in folders:
        await heard.hears(folder / "file")


async def test_arming_again_is_harmless(heard: Heard, tmp_path: Path) -> None:
    """Arming again reports nothing by itself. Otherwise a look that arms would lead to endless looks."""
    heard.hints.arm([str(tmp_path)])
    assert heard.hints.arm([str(tmp_path)]) == {}
    (tmp_path / "file").touch()
    await heard.hears(tmp_path / "file")
    heard.batches.clear()
    heard.hints.arm([str(tmp_path)])
    (tmp_path / "another").touch()
    await heard.hears(tmp_path / "another")
    assert all(dirt.names is not None for dirt in heard.dirt if isinstance(dirt, Dirty))


async def test_what_cannot_be_armed_comes_back_with_a_reason(heard: Heard, tmp_path: Path) -> None:
    """The other folders are armed nevertheless."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    problems = heard.hints.arm([str(tmp_path / "missing"), str(tmp_path / "folder"), str(tmp_path / "file")])
    assert problems == {str(tmp_path / "missing"): "not there", str(tmp_path / "file"): "not a folder"}
    (tmp_path / "folder/file").touch()
    await heard.hears(tmp_path / "folder/file")


async def test_a_removed_folder_is_reported_gone_and_can_be_armed_again(heard: Heard, tmp_path: Path) -> None:
    """The new folder at the old path is another folder. It is not watched until it is armed again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    heard.hints.arm([str(folder)])
    shutil.rmtree(folder)
    await eventually_async(lambda: Gone(str(folder)) in heard.dirt)
    folder.mkdir()
    assert heard.hints.arm([str(folder)]) == {}
    heard.batches.clear()
    (folder / "file").touch()
    await heard.hears(folder / "file")


async def test_names_with_spaces_and_newlines_are_reported_as_they_are(heard: Heard, tmp_path: Path) -> None:
    """A name is reported whole."""
    heard.hints.arm([str(tmp_path)])
    path = tmp_path / "new\nline and space"
    path.touch()
    await heard.hears(path)


async def test_a_name_that_is_no_text_is_reported_or_its_loss_is(heard: Heard, tmp_path: Path) -> None:
    """A name that is not text does not stop the reports of later changes."""
    heard.hints.arm([str(tmp_path)])
    path = tmp_path / os.fsdecode(b"bad\xff")
    path.touch()
    await heard.hears(path)
    (tmp_path / "good").touch()
    await heard.hears(tmp_path / "good")


async def test_nothing_is_reported_after_close(tmp_path: Path) -> None:
    """A closed watcher is silent, whatever reports were on their way."""
    for setting in ("inotify", "watchfiles"):
        heard = Heard(setting)
        heard.hints.arm([str(tmp_path)])
        (tmp_path / setting).touch()
        heard.hints.close()
        count = len(heard.batches)
        witness = Heard("inotify")
        witness.hints.arm([str(tmp_path)])
        (tmp_path / f"{setting}2").touch()
        await witness.hears(tmp_path / f"{setting}2")
        witness.hints.close()
        assert len(heard.batches) == count


async def test_inotify_reports_a_moved_folder_gone(tmp_path: Path) -> None:
    """The kernel's watch follows the folder to its new place. Ours stays with the path."""
    heard = Heard("inotify")
    folder = tmp_path / "folder"
    folder.mkdir()
    heard.hints.arm([str(folder)])
    folder.rename(tmp_path / "elsewhere")
    await eventually_async(lambda: Gone(str(folder)) in heard.dirt)
    heard.batches.clear()
    heard.hints.arm([str(tmp_path)])
    (tmp_path / "elsewhere/file").touch()
    (tmp_path / "last").touch()
    await heard.hears(tmp_path / "last")
    assert not any(isinstance(dirt, Dirty) and dirt.folder == str(folder) for dirt in heard.dirt)
    heard.hints.close()


async def test_inotify_reports_one_folder_under_each_of_its_paths(tmp_path: Path) -> None:
    """The kernel knows the folder, not its paths.

    A folder that is also armed through a link is reported under both paths.
    """
    heard = Heard("inotify")
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    heard.hints.arm([str(tmp_path / "real"), str(tmp_path / "alias")])
    (tmp_path / "real/file").touch()
    await heard.hears(tmp_path / "real/file")
    await heard.hears(tmp_path / "alias/file")
    heard.hints.disarm([str(tmp_path / "alias")])
    heard.batches.clear()
    (tmp_path / "real/second").touch()
    await heard.hears(tmp_path / "real/second")
    assert not heard.is_dirty(tmp_path / "alias/second")
    heard.hints.close()


async def test_inotify_waits_for_a_writer_but_not_for_ever(tmp_path: Path) -> None:
    """A saved file is reported once, when it is closed. A file that stays open is reported while it is open."""
    heard = Heard("inotify")
    heard.hints.arm([str(tmp_path)])
    (tmp_path / "saved").write_text("content")
    await heard.hears(tmp_path / "saved")
    assert len(heard.batches) == 1
    with (tmp_path / "open").open("w") as file:
        file.write("line\n")
        file.flush()
        await heard.hears(tmp_path / "open")
    heard.hints.close()


async def test_inotify_says_that_its_queue_overflowed(tmp_path: Path) -> None:
    """More events than the kernel's queue holds arrive before they are read.

    The loss is reported, and later events are, too.
    """
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    heard = Heard("inotify")
    heard.hints.arm([str(tmp_path)])
    # No event reaches the loop before the last file exists. Each file has two events, and no event merges with the
    # next.
    for number in range(queue // 2 + 100):
        os.close(os.open(tmp_path / f"{number:x}", os.O_CREAT | os.O_WRONLY))
    await eventually_async(lambda: any(isinstance(dirt, Lost) for dirt in heard.dirt))
    assert not any(
        isinstance(dirt, Dirty)
        for batch in heard.batches
        if any(isinstance(one, Lost) for one in batch)
        for dirt in batch
    )
    heard.batches.clear()
    (tmp_path / "after").touch()
    await eventually_async(
        lambda: any(isinstance(dirt, Dirty) and "after" in (dirt.names or ()) for dirt in heard.dirt)
    )
    heard.hints.close()


LIMITED = """
import asyncio, os, sys
from wakeful.sources.hints.inotify import InotifyHints
async def main():
    hints = InotifyHints(asyncio.get_running_loop(), lambda batch: None)
    open("/proc/sys/user/max_inotify_watches", "w").write("4")
    folders = [os.path.join(sys.argv[1], str(number)) for number in range(8)]
    for folder in folders: os.mkdir(folder)
    print(sorted(set(hints.arm(folders).values())))
    hints.close()
asyncio.run(main())
"""


async def test_inotify_says_that_the_watch_limit_is_reached(tmp_path: Path) -> None:
    """Some folders are armed. The others come back with the name of the limit."""
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not available: the watch limit cannot be lowered for this test alone")
    command = ["unshare", "-Ur", sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "max_user_watches" in done.stdout, done.stderr


async def test_without_hints_every_folder_comes_back(tmp_path: Path) -> None:
    """`hints: poll` watches nothing, and says why."""
    hints = choose_hints("poll")(asyncio.get_running_loop(), lambda batch: None)
    assert hints.arm([str(tmp_path)]) == {str(tmp_path): "chosen by `hints: poll`"}
    assert hints.degraded == "polling: chosen by `hints: poll`"
    hints.disarm([str(tmp_path)])
    hints.close()


async def test_a_system_that_gives_no_instance_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's limit of inotify instances does not prevent a start."""
    monkeypatch.setattr(watcher_choice, "InotifyHints", _refuse)
    hints = choose_hints("auto")(asyncio.get_running_loop(), lambda batch: None)
    assert isinstance(hints, NoHints)
    assert "max_user_instances" in (hints.degraded or "")


def _refuse(*arguments: object) -> InotifyHints:
    raise OSError(24, "Too many open files")


async def test_inotify_is_refused_in_words_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which setting to write instead."""
    monkeypatch.setattr(watcher_choice, "IS_LINUX", False)
    with pytest.raises(OperatorError, match="hints: auto"):
        choose_hints("inotify")


async def test_inotify_reports_a_burst_in_few_batches(tmp_path: Path) -> None:
    """A burst of saves gives only a limited number of batches in a given time, and no name is missing."""
    heard = Heard("inotify")
    heard.hints.arm([str(tmp_path)])
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(2000):
        (tmp_path / f"{number}").touch()
        await asyncio.sleep(0)
    await heard.hears(tmp_path / "1999")
    breaths = (loop.time() - began) / inotify.SPAN_SECONDS + 2
    assert len({name for dirt in heard.dirt if isinstance(dirt, Dirty) for name in dirt.names or ()}) == 2000
    assert len(heard.batches) <= breaths * inotify.READS_PER_SPAN
    heard.hints.close()


@pytest.mark.parametrize(("before", "after"), [("inotify", "watchfiles"), ("watchfiles", "auto"), ("poll", "inotify")])
async def test_another_watcher_takes_over_while_folders_are_armed(tmp_path: Path, before: str, after: str) -> None:
    """The switch reports a loss, so that everything is looked at.

    Later events are reported without arming again.
    """
    batches: list[tuple[Dirt, ...]] = []
    switch = HintsSwitch(before)
    hints = switch.make(asyncio.get_running_loop(), batches.append)
    is_armed = not hints.arm([str(tmp_path)])
    switch.choose(after)
    assert Lost(f"hints: {after} in wakeful.yaml") in batches[-1]
    assert hints.degraded is None
    if not is_armed:
        assert hints.arm([str(tmp_path)]) == {}
    told = len(batches)
    (tmp_path / "file").touch()
    await eventually_async(
        lambda: any(
            "file" in (dirt.names or ()) for batch in batches[told:] for dirt in batch if isinstance(dirt, Dirty)
        )
    )
    hints.close()


async def test_what_the_new_watcher_cannot_watch_is_said_to_be_gone(tmp_path: Path) -> None:
    """Otherwise the source would wait for events of such a folder for ever.

    Choosing the same setting again changes nothing.
    """
    batches: list[tuple[Dirt, ...]] = []
    switch = HintsSwitch("inotify")
    hints = switch.make(asyncio.get_running_loop(), batches.append)
    assert hints.arm([str(tmp_path)]) == {}
    switch.choose("poll")
    assert batches[-1] == (Lost("hints: poll in wakeful.yaml"), Gone(str(tmp_path)))
    assert hints.degraded == "polling: chosen by `hints: poll`"
    switch.choose("poll")
    assert len(batches) == 1
    hints.close()


async def test_a_setting_this_system_cannot_do_leaves_the_watcher_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is for the operator. The watch continues as before."""
    batches: list[tuple[Dirt, ...]] = []
    switch = HintsSwitch("watchfiles")
    hints = switch.make(asyncio.get_running_loop(), batches.append)
    hints.arm([str(tmp_path)])
    monkeypatch.setattr(watcher_choice, "IS_LINUX", False)
    with pytest.raises(OperatorError, match="needs Linux"):
        switch.choose("inotify")
    (tmp_path / "file").touch()
    await eventually_async(lambda: any(isinstance(dirt, Dirty) for batch in batches for dirt in batch))
    hints.close()


async def test_whoever_asks_what_was_not_told_yet_is_told_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hear` reads as often as needed, up to the share of one turn.

    A file has three events, and one read returns some 17 events.
    """
    monkeypatch.setattr(inotify, "READ_BYTES", inotify.LONGEST_EVENT_BYTES * 2)
    heard = Heard("inotify")
    try:
        heard.hints.arm([str(tmp_path)])
        for number in range(100):
            (tmp_path / f"{number}.txt").write_text("x")
        heard.hints.hear()
        heard.hints.hear()
        assert all(heard.is_dirty(tmp_path / f"{number}.txt") for number in range(100))
    finally:
        heard.hints.close()


def find_inotify() -> set[int]:
    """Return the descriptors of this process that are inotify instances."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "inotify" in os.readlink(f"/proc/self/fd/{number}"):
                found.add(int(number))
    return found


async def test_an_inotify_that_was_closed_under_it_is_begun_anew(tmp_path: Path) -> None:
    """`hear` reports a loss and raises no error.

    Folders that were watched are watched again, and missing ones are reported as gone.
    """
    before = find_inotify()
    heard = Heard("inotify")
    [instance] = find_inotify() - before
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir()
    gone.mkdir()
    assert heard.hints.arm([str(kept), str(gone)]) == {}
    os.close(instance)
    gone.rmdir()
    heard.hints.hear()
    assert (
        heard.dirt == [Lost("inotify cannot be read (Bad file descriptor)")]
        and heard.hints.degraded == "polling: inotify cannot be read (Bad file descriptor)"
    )
    await eventually_async(lambda: Gone(str(gone)) in heard.dirt)
    assert heard.hints.degraded is None
    heard.batches.clear()
    write(kept / "new")
    await heard.hears(kept / "new")
    heard.hints.close()


async def test_the_private_notifier_of_watchfiles_is_the_one_that_was_measured() -> None:
    """With another minor version of watchfiles, check its constructor, batches and constants again, and then add it
    here.
    """
    assert importlib.metadata.version("watchfiles").split(".")[:2] in (["1", "2"], ["1", "3"])
    assert int(watchfiles.Change.deleted) == hints_by_watchfiles.DELETED
    parameters = inspect.signature(RustNotify).parameters
    names = ["watch_paths", "debug", "force_polling", "poll_delay_ms", "recursive", "ignore_permission_denied"]
    assert list(parameters) == names

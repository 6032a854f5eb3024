"""Contents are stored once, within bounds, and only as they were looked at.

A content that is not stored is listed with the reason.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from run_files.recorded_runs import World
from wakeful.errors import OperatorError
from wakeful.run_files.capture import LATE, Capture, Limits, keep_wanted
from wakeful.run_files.file_record import RunFiles, read_record
from wakeful.run_files.path_lists import read_entries


def take(world: World, *names: str, limits: Limits = Limits()) -> dict[str, str | None]:
    entries = Capture(world.blobs, limits).take(str(world.root), world.look(*names))
    return {entry.path: entry.not_kept for entry in entries}


def test_what_is_kept_is_not_read_again(world: World) -> None:
    """This holds also if the file has changed since: the content of the look is found by its digest."""
    world.write("a", "one")
    take(world, "a")
    seen = world.look("a")
    world.write("a", "another content")
    (entry,) = Capture(world.blobs, Limits()).take(str(world.root), seen)
    assert entry.not_kept is None and world.blobs.get(entry.address) == b"one"


@pytest.mark.parametrize("became", ["other", "gone", "folder", "link", "longer"])
def test_what_moved_on_before_it_was_read_is_not_kept(world: World, tmp_path: Path, became: str) -> None:
    path = world.write("a", "one")
    seen = world.look("a")
    path.unlink()
    match became:
        case "other":
            path.write_text("two")
        case "folder":
            path.mkdir()
        case "link":
            (tmp_path / "secret").write_text("one")
            path.symlink_to(tmp_path / "secret")
        case "longer":
            path.write_text("one and more")
    (entry,) = Capture(world.blobs, Limits()).take(str(world.root), seen)
    assert entry.not_kept == "changed" and entry.address is None


def test_bounds_hold_for_a_file_and_for_a_run(world: World) -> None:
    world.write("a", "x" * 10)
    world.write("b", "y" * 10)
    world.write("c", "z" * 30)
    limits = Limits(file_bytes=20, run_bytes=15)
    assert take(world, "a", "b", "c", limits=limits) == {
        "a": None,
        "b": "the run has more than is kept",
        "c": "too large",
    }
    # Contents that are stored already do not count against the bounds.
    assert take(world, "a", "b", "c", limits=limits) == {"a": None, "b": None, "c": "too large"}
    world.write("d", "d")
    world.write("e", "e")
    assert take(world, "d", "e", limits=Limits(run_files=1)) == {"d": None, "e": "the run has more than is kept"}


def test_what_is_kept_later_is_listed_by_its_digest_and_counts_at_once(world: World) -> None:
    """The list reads no file. Contents beyond the bounds are not requested."""
    for name in "abc":
        world.write(name, name)
    capture = Capture(world.blobs, Limits(run_files=2))
    entries = capture.take(str(world.root), world.look(*"abc"), is_later=True)
    assert [entry.not_kept for entry in entries] == [None, None, "the run has more than is kept"]
    assert world.blobs.sizes().blobs == 0 and capture.relied_on == set()
    wanted = capture.take_pending()
    assert capture.take_pending() == [] and [keep_wanted(world.blobs, one) for one in wanted] == [
        entry.address for entry in entries[:2]
    ]
    assert world.blobs.get(entries[0].address) == b"a"


@pytest.mark.parametrize("became", ["gone", "other", "longer"])
def test_what_moved_on_before_its_turn_is_not_kept(world: World, became: str) -> None:
    path = world.write("a", "one")
    capture = Capture(world.blobs, Limits())
    capture.take(str(world.root), world.look("a"), is_later=True)
    (wanted,) = capture.take_pending()
    match became:
        case "gone":
            path.unlink()
        case "other":
            path.write_text("two")
        case "longer":
            path.write_text("one and more")
    assert keep_wanted(world.blobs, wanted) is None and world.blobs.sizes().blobs == 0


def test_outputs_that_are_late_are_said_to_be_and_tried_all_the_same_but_few_small_ones_never_are(world: World) -> None:
    names = [f"f{number:02}" for number in range(20)]
    for name in names:
        world.write(name, name)
    capture = Capture(world.blobs, Limits())
    capture.outputs_until = time.monotonic() - 1
    entries = capture.take(str(world.root), world.look(*names))
    assert [entry.not_kept for entry in entries] == [None] * 16 + [LATE] * 4
    assert [os.path.basename(one.path) for one in capture.take_pending()] == names[16:]


def test_an_input_whose_digest_only_reading_tells_is_read_while_the_run_lasts(world: World) -> None:
    """The file is a link: the look has one digest of the link's text and its target's content."""
    world.write("file", "behind the link")
    (world.root / "link").symlink_to("file")
    capture = Capture(world.blobs, Limits())
    capture.inputs_until = time.monotonic() - 1
    (late,) = capture.take(str(world.root), world.look("link"), is_later=True)
    assert late.not_kept == LATE and capture.take_pending() == []
    (entry,) = Capture(world.blobs, Limits()).take(str(world.root), world.look("link"), is_later=True)
    assert world.blobs.get(entry.address) == b"behind the link"


def test_odd_things_are_listed_and_never_opened(world: World) -> None:
    os.mkfifo(world.root / "fifo")
    (world.root / "dangling").symlink_to("nowhere")
    (world.root / "link").symlink_to("file")
    world.write("file", "behind the link", 0o755)
    entries = {
        entry.path: entry
        for entry in Capture(world.blobs, Limits()).take(str(world.root), world.look("fifo", "dangling", "link"))
    }
    assert entries["fifo"].not_kept == "not a file" and entries["dangling"].link == "nowhere"
    assert entries["dangling"].address is None and entries["dangling"].not_kept is None
    assert entries["link"].link == "file" and world.blobs.get(entries["link"].address) == b"behind the link"


def test_a_record_is_read_back_as_it_was_written(world: World) -> None:
    world.write("a", "one")
    address = world.run(lambda: world.write("b", "two"), "b", inputs=("a",))
    files = read_record(world.blobs, address)
    assert isinstance(files, RunFiles) and [binding.name for binding in files.bindings] == ["in", "out"]
    assert [entry.path for entry in read_entries(world.blobs, files.bindings[1].after)] == ["b"]
    with pytest.raises(OperatorError, match="expected the files of a run"):
        read_record(world.blobs, world.blobs.add(b"something else"))

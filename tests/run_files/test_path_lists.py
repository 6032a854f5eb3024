"""The cost of a long list is that of its changes: unchanged parts are the same blobs, and are not even listed again."""

from __future__ import annotations

import pytest

from run_files.recorded_runs import World
from wakeful.run_files.capture import Capture, Limits
from wakeful.run_files.file_record import Found
from wakeful.run_files.path_lists import keep_listing, read_entries


def keep(world: World, seen: dict, last=None, limits: Limits = Limits()):
    return keep_listing(Capture(world.blobs, limits), str(world.root), seen, last)


@pytest.fixture
def seen(world: World) -> dict:
    names = [f"f{number:04}" for number in range(300)]
    for name in names:
        world.write(name, name)
    return world.look(*names)


def test_a_list_is_read_back_whole_and_ordered(world: World, seen: dict) -> None:
    entries = read_entries(world.blobs, Found(listing=keep(world, seen).address))
    assert [entry.path for entry in entries] == [f"f{number:04}" for number in range(300)]
    assert all(world.blobs.get(entry.address).decode() == entry.path for entry in entries)


def test_a_list_with_fewer_paths_than_parts_is_read_back_whole(world: World, seen: dict) -> None:
    few = dict(list(seen.items())[:3])
    entries = read_entries(world.blobs, Found(listing=keep(world, few).address))
    assert [entry.path for entry in entries] == ["f0000", "f0001", "f0002"]


def test_what_was_seen_the_same_is_neither_read_nor_written_again(world: World, seen: dict) -> None:
    first = keep(world, seen)
    kept = world.blobs.sizes().blobs
    for path in seen:
        # A second look at the file would find it gone.
        (world.root / path).unlink()
    assert keep(world, seen, first).address == first.address and world.blobs.sizes().blobs == kept


@pytest.mark.parametrize("change", ["changed", "added", "gone"])
def test_one_change_makes_one_part_new(world: World, seen: dict, change: str) -> None:
    first = keep(world, seen)
    path = world.write("f0007" if change != "added" else "g", "another content")
    if change == "gone":
        path.unlink()
    now = {name: sight for name, sight in seen.items() if name != str(path)} | world.look(path.name)
    second = keep(world, now, first)
    assert len(set(first.parts) - set(second.parts)) == 1
    assert second.address == keep(world, now).address, "the same list, whatever was known before"
    assert (
        len(read_entries(world.blobs, Found(listing=second.address)))
        == {"changed": 300, "added": 301, "gone": 299}[change]
    )


def test_what_could_not_be_kept_is_tried_again_next_time(world: World, seen: dict) -> None:
    first = keep(world, seen, limits=Limits(run_files=200))
    assert first.unsettled
    second = keep(world, seen, first)
    assert not second.unsettled and all(
        entry.not_kept is None for entry in read_entries(world.blobs, Found(listing=second.address))
    )


def test_what_no_run_has_room_for_is_not_asked_about_again_by_each(world: World, seen: dict) -> None:
    """The remaining contents get their turn run by run, and a changed one comes first."""
    first = keep(world, seen, limits=Limits(run_files=100))
    world.write("f0007", "another content")
    now = seen | world.look("f0007")
    second = keep(world, now, first, limits=Limits(run_files=1))
    assert len(set(first.parts) - set(second.parts)) == 1 and second.unsettled >= first.unsettled
    changed = next(entry for entry in read_entries(world.blobs, Found(listing=second.address)) if entry.path == "f0007")
    assert world.blobs.get(changed.address) == b"another content"
    third = keep(world, now, second)
    assert not third.unsettled and third.address == keep(world, now).address


def test_what_is_too_large_is_too_large_next_time_as_well(world: World, seen: dict) -> None:
    assert keep(world, seen, limits=Limits(file_bytes=2)).unsettled == frozenset()

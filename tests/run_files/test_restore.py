"""Runs are undone file by file: exactly their own writes, no change by others, and each exception is reported."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from run_files.recorded_runs import World
from wakeful.run_files.capture import Limits
from wakeful.run_files.file_record import Found, read_record
from wakeful.run_files.restore import carry_out, keep_record, plan_restore, view_done, view_restore


def actions(world: World, since: int = 1) -> dict[str, str]:
    return {step.path: step.action for step in plan(world, since).steps}


def plan(world: World, since: int = 1):
    return plan_restore(world.blobs, str(world.root), [one for one in world.runs if one[0] >= since])


def test_files_go_back_to_what_the_first_undone_run_found(world: World) -> None:
    """Changed, new and removed files go back, with their modes. An untouched one is not listed."""
    world.write("out/a", "a1")
    world.write("out/gone", "keep me", 0o750)
    world.write("out/still", "same")
    names = ("out/a", "out/b", "out/gone", "out/still")
    world.run(lambda: (world.write("out/a", "a2"), world.write("out/b", "new")), *names)
    world.run(lambda: (world.write("out/a", "a3"), (world.root / "out/gone").unlink()), *names)
    assert actions(world) == {"out/a": "restore", "out/b": "remove", "out/gone": "restore"}
    assert actions(world, since=2) == {"out/a": "restore", "out/gone": "restore"}
    done = carry_out(world.blobs, plan(world))
    assert [(one.path, one.ending) for one in done] == [
        ("out/a", "restored"),
        ("out/b", "removed"),
        ("out/gone", "restored"),
    ]
    assert (world.read("out/a"), world.read("out/b"), world.read("out/gone")) == ("a1", None, "keep me")
    assert stat.S_IMODE(os.stat(world.root / "out/gone").st_mode) == 0o750
    assert sorted(os.listdir(world.root / "out")) == ["a", "gone", "still"]


def test_restoring_twice_changes_nothing_the_second_time(world: World) -> None:
    world.write("a", "one")
    world.run(lambda: world.write("a", "two"), "a")
    carry_out(world.blobs, plan(world))
    assert actions(world) == {"a": "same"}
    assert [one.ending for one in carry_out(world.blobs, plan(world))] == ["same"]


def test_what_a_rewind_wrote_is_the_sessions_own_and_goes_forward_again(world: World) -> None:
    """Changed, new and removed files go back and forth twice. None counts as changed by others."""
    world.write("out/a", "a1")
    world.write("out/gone", "keep me")
    names = ("out/a", "out/gone", "out/new")
    world.run(
        lambda: (world.write("out/a", "a2"), world.write("out/new", "new"), (world.root / "out/gone").unlink()), *names
    )
    texts = {True: ("a1", "keep me", None), False: ("a2", None, "new")}
    writes = list(world.runs)
    for turn in range(4):
        # Each turn undoes the last write: the run first, and then one rewind after the other.
        made = plan_restore(world.blobs, str(world.root), writes[-1:])
        record = keep_record(world.blobs, made, is_forced=False)
        assert record is not None
        assert {one.ending for one in carry_out(world.blobs, made)} == {"restored", "removed"}
        assert tuple(world.read(name) for name in names) == texts[turn % 2 == 0]
        writes.append((f"rewind {turn}", record))
    # Without a change there is no record.
    assert keep_record(world.blobs, plan_restore(world.blobs, str(world.root), []), is_forced=False) is None


def test_what_other_hands_changed_is_refused_unless_forced_and_then_kept_first(world: World) -> None:
    world.write("a", "one")
    world.run(lambda: (world.write("a", "two"), world.write("b", "mine")), "a", "b")
    world.write("a", "by a person")
    (world.root / "b").unlink()
    made = plan(world)
    assert [(step.path, step.action, step.reason) for step in made.steps] == [
        ("a", "refuse", "changed by others since run 1"),
        ("b", "same", None),
    ]
    assert [one.ending for one in carry_out(world.blobs, made)] == ["refused", "same"] and world.read(
        "a"
    ) == "by a person"
    (done, _) = carry_out(world.blobs, made, is_forced=True)
    assert done.ending == "restored" and world.read("a") == "one"
    assert world.blobs.get(done.kept) == b"by a person"
    assert view_done([done])[0]["kept"] == done.kept


def test_what_others_changed_before_the_undone_runs_is_given_back(world: World) -> None:
    """A person's edit that a run overwrote is the content that the run found."""
    world.run(lambda: world.write("a", "by run 1"), "a")
    world.write("a", "by a person")
    world.run(lambda: world.write("a", "by run 2"), "a")
    carry_out(world.blobs, plan(world, since=2))
    assert world.read("a") == "by a person"


def test_what_was_not_kept_is_said_and_left_alone(world: World) -> None:
    world.write("big", "x" * 100)
    world.write("small", "s")
    limits = Limits(file_bytes=50)
    world.run(lambda: (world.write("big", "y" * 100), world.write("small", "t")), "big", "small", limits=limits)
    made = plan(world)
    assert [(step.path, step.action, step.reason) for step in made.steps] == [
        ("big", "cannot", "not kept: too large"),
        ("small", "restore", None),
    ]
    assert [one.ending for one in carry_out(world.blobs, made, is_forced=True)] == ["failed", "restored"]
    assert world.read("big") == "y" * 100 and world.read("small") == "s"


def test_a_run_without_a_record_is_named(world: World) -> None:
    """The record was lost in a crash or erased. The run's writes then cannot be told from those of others."""
    world.write("a", "one")
    world.run(lambda: world.write("a", "two"), "a")
    made = plan_restore(world.blobs, str(world.root), [*world.runs, (2, None), (3, "blake2b-" + "0" * 40)])
    assert made.unrecorded == (2, 3) and view_restore(made)["unrecorded"] == [2, 3]
    assert [step.action for step in made.steps] == ["restore"]


def test_what_changes_between_plan_and_deed_is_refused(world: World) -> None:
    world.write("a", "one")
    world.run(lambda: world.write("a", "two"), "a")
    made = plan(world)
    world.write("a", "just now")
    assert [(one.ending, one.reason) for one in carry_out(world.blobs, made, is_forced=True)] == [
        ("refused", "changed just now; look at it and try again")
    ]
    assert world.read("a") == "just now"


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_no_link_is_followed_on_the_way(world: World, tmp_path: Path, place: str) -> None:
    """A folder that became a link is not followed, wherever it points."""
    world.write("out/a", "one")
    world.run(lambda: world.write("out/a", "two"), "out/a")
    elsewhere = tmp_path / "elsewhere" if place == "outside" else world.root / "elsewhere"
    (world.root / "out").rename(elsewhere)
    (world.root / "out").symlink_to(elsewhere)
    (step,) = plan(world).steps
    assert step.action == "cannot" and "is a link" in step.reason
    assert (elsewhere / "a").read_text() == "two"


def test_a_file_that_became_a_link_is_replaced_and_its_target_left_alone(world: World, tmp_path: Path) -> None:
    world.write("a", "one")
    (tmp_path / "secret").write_text("secret")

    def work() -> None:
        (world.root / "a").unlink()
        (world.root / "a").symlink_to(tmp_path / "secret")

    world.run(work, "a")
    assert [one.ending for one in carry_out(world.blobs, plan(world))] == ["restored"]
    assert not (world.root / "a").is_symlink() and world.read("a") == "one"
    assert (tmp_path / "secret").read_text() == "secret"


def test_links_and_names_that_are_no_text_come_back(world: World) -> None:
    name = os.fsdecode(b"caf\xe9")
    (world.root / "link").symlink_to("target")
    world.write(name, "one")

    def work() -> None:
        (world.root / "link").unlink()
        (world.root / "link").symlink_to("other")
        world.write(name, "two")

    world.run(work, "link", name)
    made = plan(world)
    assert [step.path for step in made.steps] == ["caf\\xe9", "link"]
    assert [one.ending for one in carry_out(world.blobs, made)] == ["restored", "restored"]
    assert os.readlink(world.root / "link") == "target" and world.read(name) == "one"


def test_folders_that_are_gone_are_made_again(world: World) -> None:
    world.write("out/deep/a", "one")

    def work() -> None:
        (world.root / "out/deep/a").unlink()
        (world.root / "out/deep").rmdir()
        (world.root / "out").rmdir()

    world.run(work, "out/deep/a")
    assert [one.ending for one in carry_out(world.blobs, plan(world))] == ["restored"] and world.read(
        "out/deep/a"
    ) == "one"


def test_a_damaged_blob_is_told_and_overwrites_nothing(world: World, tmp_path: Path) -> None:
    world.write("a", "one")
    world.run(lambda: world.write("a", "two"), "a")
    for folder, _, names in os.walk(tmp_path / "blobs"):
        for blob in names:
            path = os.path.join(folder, blob)
            if Path(path).read_bytes() == b"one":
                Path(path).write_bytes(b"eno")
    (done,) = carry_out(world.blobs, plan(world))
    assert done.ending == "failed" and "differs from its address" in done.reason and world.read("a") == "two"


def test_what_a_run_found_is_not_guessed(world: World) -> None:
    """Others changed something there after the last look. The content that the run overwrote is then unknown."""
    world.write("a", "one")
    address = world.run(lambda: world.write("a", "two"), "a")
    files = read_record(world.blobs, address)
    bindings = tuple(replace(one, before=replace(one.before, is_stale=True)) for one in files.bindings)
    doubtful = world.blobs.add(msgspec.json.encode(replace(files, bindings=bindings)))
    (step,) = plan_restore(world.blobs, str(world.root), [(1, doubtful)]).steps
    assert (step.action, step.reason) == ("cannot", "not kept: others changed files there just before the run")


def test_a_run_whose_list_was_erased_is_named_and_the_others_are_undone(world: World) -> None:
    world.write("a", "one")
    world.run(lambda: world.write("a", "two"), "a")
    files = read_record(world.blobs, world.runs[0][1])
    lost = Found(listing="blake2b-" + "0" * 40)
    bindings = tuple(replace(one, before=lost, after=lost if one.is_written else None) for one in files.bindings)
    erased = world.blobs.add(msgspec.json.encode(replace(files, bindings=bindings)))
    made = plan_restore(world.blobs, str(world.root), [*world.runs, (2, erased)])
    assert made.unrecorded == (2,) and [step.action for step in made.steps] == ["restore"]

"""The true version is found although hints are lost, late, refused or never sent, and after a downtime of the daemon.

A fault test proves that its fault fired: the overflow was reported, the limit was reached, or the write gave no event.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from git_repository import git
from sources.files_world import POLLED, REREAD, SWEPT, World, open_world
from wait_conditions import eventually_async
from wakeful.core.looking.patterns import parse_under
from wakeful.core.looking.targets import FileTarget
from wakeful.core.record.observations import TargetLooked, TargetsHinted
from wakeful.sources.files import sweep
from wakeful.sources.files.entry import DIGEST_BYTES, RACY_NANOSECONDS, Seen, read_key
from wakeful.sources.files.mounts import Mounts
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.files.sweep import Polls, Sweep
from wakeful.sources.git import rewrite_holds as git_holds
from wakeful.sources.git.rewrite_holds import Repositories, busy_reason
from wakeful.sources.hints.contract import Lost
from wakeful.sources.hints.watcher_choice import choose_hints

pytestmark = pytest.mark.asyncio


# -- lost --------------------------------------------------------------------------------------------------------------


async def test_after_an_overflow_everything_is_found(tmp_path: Path) -> None:
    """The test makes more files at once than the kernel's queue holds.

    The loss is reported, and every file is found.
    """
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    batches: list[object] = []

    def make_hints(loop: asyncio.AbstractEventLoop, report: object) -> object:
        def listen(batch: tuple[object, ...]) -> None:
            batches.extend(batch)
            report(batch)

        return choose_hints("inotify")(loop, listen)

    async with open_world(tmp_path, make_hints) as world:
        (world.root / "data").mkdir()
        key, other = await world.follow("data/*"), await world.follow("other")
        count = queue // 2 + 200
        # The loop does not turn before the last file exists, as if the daemon had been stopped.
        for number in range(count):
            os.close(os.open(world.root / f"data/{number:x}", os.O_CREAT | os.O_WRONLY))
        (world.root / "other").write_text("changed behind the overflow")
        await eventually_async(lambda: any(isinstance(dirt, Lost) for dirt in batches))
        await world.noticed(other, "other")
        await eventually_async(lambda: world.source.describe(key).files == count)
        await world.noticed(key, "data/*")


async def swept(world: World, key: str, before: str | None) -> None:
    """Wait until the sweep has led to another version, and assert that the watcher reported nothing."""
    await eventually_async(lambda: world.version(key) != before, what="another version")
    world.source.hear()
    assert world.watcher.told == []


async def test_a_write_through_a_hard_link_elsewhere_is_found_by_the_sweep(tmp_path: Path) -> None:
    """No watcher reports the write, because its event belongs to a folder that is not watched."""
    async with open_world(tmp_path, pace=SWEPT) as world:
        (world.root / "file").write_text("1")
        (tmp_path / "elsewhere").mkdir()
        os.link(world.root / "file", tmp_path / "elsewhere/file")
        key = await world.follow("*")
        before = world.version(key)
        (tmp_path / "elsewhere/file").write_text("2")
        await swept(world, key, before)
        assert world.version(key) == await world.truth("*")


async def test_a_write_through_mmap_is_found_by_the_sweep(tmp_path: Path) -> None:
    """The kernel reports no event for it while the mapping is open, and counts the file as open for writing."""
    async with open_world(tmp_path, pace=SWEPT) as world:
        path = world.root / "file"
        path.write_bytes(b"1" * 4096)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
            key = await world.follow("file", settle_max_seconds=0.0)
            before = world.version(key)
            mapped[0:4] = b"2222"
            mapped.flush()
            await swept(world, key, before)


async def test_a_file_whose_creation_nobody_reported_is_found_by_the_sweep(tmp_path: Path) -> None:
    """The sweep lists a folder again when its mtime differs from the recorded one."""
    async with open_world(tmp_path, pace=SWEPT) as world:
        (world.root / "data").mkdir()
        key = await world.follow("data/*")
        before = world.version(key)
        world.watcher.disarm([str(world.root / "data")])
        (world.root / "data/file").write_text("unheard")
        await swept(world, key, before)
        assert world.version(key) == await world.truth("data/*")


async def test_the_sweep_forgets_paths_nobody_means(tmp_path: Path) -> None:
    """The cache does not grow with every file that ever existed."""
    async with open_world(tmp_path, pace=SWEPT) as world:
        (world.root / "file").write_text("1")
        key = await world.follow("*")
        world.source.forget([key])
        assert str(world.root / "file") in world.cache.seen
        await eventually_async(lambda: world.cache.seen == {}, what="nothing in the cache")


async def test_a_round_of_the_sweep_is_spread_over_ten_minutes(tmp_path: Path) -> None:
    """Each second visits its share of the paths, and takes at most a millisecond."""
    assert sweep.SLICE_SECONDS <= 0.001 and sweep.USUAL_PACE.round_seconds <= 600
    visited: list[str] = []
    seen = {str(tmp_path / str(number)): Seen(b"", "f", b"", 0) for number in range(1500)}
    rounds = Sweep(seen, lambda: {str(tmp_path): 0}, lambda path: bool(visited.append(path)))
    # The first slice begins the round.
    rounds.slice()
    for second in range(1, 502):
        # The time limit is generous, because this test is about the share of paths.
        rounds.slice(limit_seconds=60.0)
        assert len(visited) == min(3 * second, 1501)
    assert sorted(visited) == sorted([*seen, str(tmp_path)])


async def test_a_slice_of_the_sweep_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """A slow disk makes the round longer, and not the slice."""
    visited: list[str] = []
    seen = {str(tmp_path / str(number)): Seen(b"", "f", b"", 0) for number in range(1500)}
    rounds = Sweep(seen, dict, lambda path: bool(visited.append(path)))
    rounds.slice()
    rounds.slice(limit_seconds=0.0)
    assert len(visited) == 1


async def test_content_that_changed_within_one_timestamp_is_read_again(tmp_path: Path) -> None:
    """The racy-clean rule: a file that was hashed too soon after its change is read once more, although its stat is
    the same.
    """
    async with open_world(tmp_path, pace=REREAD) as world:
        path = world.root / "file"
        path.write_text("1")
        # As on a file system with a coarse clock: other content was hashed under the same stat key.
        seen = forge(world, path)
        key = await world.follow("file")
        assert world.version(key) != await world.truth("file"), "the forgery was believed"
        seen.hashed_at = time.time_ns()
        assert seen.is_racy
        world.racy.add([str(path)])
        await world.noticed(key, "file")


async def test_an_old_file_is_not_read_twice(tmp_path: Path) -> None:
    """The file was older than the margin when it was hashed, so its stat key is enough from then on."""
    async with open_world(tmp_path) as world:
        path = world.root / "file"
        path.write_text("1")
        seen = forge(world, path)
        await world.follow("*", key="k")
        await world.look_at_all()
        assert len(world.results["k"]) == 2 and world.version("k") != await world.truth("*")
        assert world.cache.seen[str(path)] is seen


def forge(world: World, path: Path) -> Seen:
    """Put a cache entry for this path that has a wrong digest and looks valid."""
    key = read_key(str(path))
    assert key is not None
    seen = Seen(key, "f", b"\1" * DIGEST_BYTES, time.time_ns() + 2 * RACY_NANOSECONDS)
    assert not seen.is_racy
    world.cache.put(str(path), seen)
    return seen


# -- refused -----------------------------------------------------------------------------------------------------------


async def test_without_hints_changes_are_polled(tmp_path: Path) -> None:
    """With `hints: poll` every result says so, and every change is still noticed."""
    async with open_world(tmp_path, choose_hints("poll"), pace=POLLED) as world:
        (world.root / "data").mkdir()
        key, literal = await world.follow("data/**"), await world.follow("file")
        assert world.last(key).degraded == world.source.describe(key).degraded == "polling: chosen by `hints: poll`"
        await world.hinted(lambda: (world.root / "data/new").write_text("1"))
        await world.noticed(key, "data/**")
        await world.hinted(lambda: (world.root / "file").write_text("1"))
        await world.noticed(literal, "file")
        await world.hinted((world.root / "file").unlink)
        await world.noticed(literal, "file")


async def test_a_network_file_system_is_polled_and_not_watched(tmp_path: Path) -> None:
    """Other machines write there without events in this kernel. The longest matching mount point decides."""
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 0:1 / / rw - ext4 /dev/sda rw\n"
        f"23 22 0:2 / {tmp_path}/root/far rw,relatime shared:7 - nfs4 server:/x rw\n"
        f"24 23 0:3 / {tmp_path}/root/far/near rw - tmpfs none rw\n"
        f"25 22 0:4 / {tmp_path}/root/with\\040space rw - fuse.sshfs host: rw\n"
    )
    async with open_world(tmp_path, mounts=Mounts(str(table))) as world:
        for name in ("far/near", "with space", "local"):
            (world.root / name).mkdir(parents=True)
        far, near, fuse, local = [
            await world.follow(f"{name}/*") for name in ("far", "far/near", "with space", "local")
        ]
        assert world.last(far).degraded == "polling: nfs4 file system"
        assert world.last(fuse).degraded == "polling: fuse.sshfs file system"
        assert world.last(local).degraded is None
        # The path leads through the remote folder, which may be replaced without an event.
        assert world.last(near).degraded == "polling: nfs4 file system"


LIMITED = """
import asyncio, json, os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from sources.files_world import POLLED, open_world
from wait_conditions import eventually_async
async def main():
    # The namespace's own limit: fs.inotify.max_user_watches is the whole machine's, also from in here.
    limit = Path("/proc/sys/user/max_inotify_watches")
    async with open_world(Path(sys.argv[1]), pace=POLLED) as world:
        limit.write_text("6")
        for number in range(12):
            (world.root / str(number)).mkdir()
        key = await world.follow("**")
        degraded = world.last(key).degraded
        for number in range(12):
            (world.root / str(number) / "file").write_text("1")
        await world.noticed(key, "**")
        files_seen = world.source.describe(key).files
        limit.write_text("1000")
        await eventually_async(lambda: world.last(key).degraded is None)
        print(json.dumps([degraded, files_seen]))
asyncio.run(main())
"""


async def test_at_the_watch_limit_the_rest_is_polled_until_there_is_room(tmp_path: Path) -> None:
    """A binding is never watched in part without a message.

    It says so, misses no change, and is watched again when there is room.
    """
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not available: the watch limit cannot be lowered for this test alone")
    tests = str(Path(__file__).parent.parent)
    command = ["unshare", "-Ur", sys.executable, "-c", LIMITED, str(tmp_path), tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    degraded, seen = json.loads(done.stdout)
    assert degraded.startswith("polling: watch limit reached")
    assert seen == 12


async def test_polls_come_often_while_things_change_and_rarely_while_they_do_not() -> None:
    """The interval is between 2 and 30 seconds. It grows in proportion to the time that a poll takes."""
    polls = Polls()
    polls.begin("a", 0.0)
    assert polls.take_due(1.9) == [] and polls.take_due(2.0) == ["a"]
    assert polls.take_due(100.0) == [], "not due again before it was noted"
    polls.note("a", 10.0, is_changed=False, took_seconds=0.0)
    assert polls.take_due(12.9) == [] and polls.take_due(13.0) == ["a"]
    for _ in range(10):
        polls.note("a", 100.0, is_changed=False, took_seconds=0.0)
    assert polls.take_due(129.9) == [] and polls.take_due(130.0) == ["a"]
    polls.note("a", 200.0, is_changed=True, took_seconds=0.5)
    assert polls.take_due(209.9) == [] and polls.take_due(210.0) == ["a"]
    polls.end("a")
    polls.note("a", 300.0, is_changed=True, took_seconds=0.0)
    assert polls.take_due(1000.0) == []


# -- git ---------------------------------------------------------------------------------------------------------------


async def test_a_look_waits_while_git_rewrites_the_working_tree(tmp_path: Path) -> None:
    """The look is held with the operation's name, and repeated after a hint when the operation is over.

    Files outside the repository are not held.
    """
    async with open_world(tmp_path) as world:
        git(world.root, "init", "-q", "-b", "main")
        (world.root / "file").write_text("base")
        git(world.root, "add", "file")
        git(world.root, "commit", "-q", "-m", "base")
        git(world.root, "checkout", "-q", "-b", "side")
        (world.root / "file").write_text("side")
        git(world.root, "commit", "-q", "-a", "-m", "side")
        git(world.root, "checkout", "-q", "main")
        (world.root / "file").write_text("main")
        git(world.root, "commit", "-q", "-a", "-m", "main")
        (tmp_path / "elsewhere").mkdir()
        key, free = await world.follow("file"), await world.follow("*", root=tmp_path / "elsewhere")
        before = world.version(key)
        with pytest.raises(subprocess.CalledProcessError):
            git(world.root, "merge", "side")
        await eventually_async(lambda: world.last(key).held == "git merge")
        assert world.version(key) == before
        await world.hinted((tmp_path / "elsewhere/file").touch)
        assert world.last(free).held is None
        git(world.root, "merge", "--abort")
        (world.root / "file").write_text("after")
        await world.noticed(key, "file")
        assert world.last(key).held is None


async def test_a_hold_ends_after_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that a crash left behind does not hide a folder for ever, and is not waited for twice."""
    async with open_world(tmp_path) as world:
        (world.root / ".git").mkdir()
        (world.root / ".git/index.lock").touch()
        key = await world.follow("*")
        assert world.last(key).held == "git checkout"
        monkeypatch.setattr(git_holds, "LONGEST_HOLD_SECONDS", 0.0)
        await eventually_async(lambda: world.last(key).held is None)
        assert world.last(key).version is not None
        await world.hinted((world.root / "file").touch)
        assert world.last(key).held is None


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        ("rebase-merge/", "git rebase"),
        ("rebase-apply/", "git rebase"),
        ("MERGE_HEAD", "git merge"),
        ("CHERRY_PICK_HEAD", "git cherry-pick"),
        ("REVERT_HEAD", "git revert"),
        ("sequencer/", "git cherry-pick"),
        ("BISECT_LOG", "git bisect"),
        ("index.lock", "git checkout"),
    ],
)
async def test_each_operation_is_told_by_its_marker(tmp_path: Path, marker: str, reason: str) -> None:
    """The source recognises the operation without running git."""
    git_dir = tmp_path / ".git"
    git_dir.mkdir()
    assert busy_reason(str(git_dir)) is None
    if marker.endswith("/"):
        (git_dir / marker).mkdir()
    else:
        (git_dir / marker).touch()
    assert busy_reason(str(git_dir)) == reason


async def test_the_git_folder_of_a_worktree_is_its_own(tmp_path: Path) -> None:
    """The git folder is found through the `.git` file, from any folder below it, also a missing one.

    Outside of any repository there is none.
    """
    git(tmp_path, "init", "-q", "main")
    git(tmp_path / "main", "commit", "-q", "--allow-empty", "-m", "base")
    git(tmp_path / "main", "worktree", "add", "-q", "../tree")
    assert Repositories().git_dir(str(tmp_path / "main/not/there")) == str(tmp_path / "main/.git")
    assert Repositories().git_dir(str(tmp_path / "tree")) == str(tmp_path / "main/.git/worktrees/tree")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/.git").write_text("nonsense")
    assert Repositories().git_dir(str(tmp_path / "odd")) is None


# -- down --------------------------------------------------------------------------------------------------------------


async def test_an_edit_while_the_daemon_was_down_has_a_known_delta(tmp_path: Path) -> None:
    """The previous version and the changed paths come from the cache of an earlier daemon."""
    async with open_world(tmp_path) as world:
        (world.root / "data").mkdir()
        for name in ("kept", "modified", "removed"):
            (world.root / "data" / name).write_text(name)
        tree = await world.follow("data/*", key="tree")
        await world.follow("data/modified", key="literal")
        await world.follow("later", key="absent")
        before = {key: world.version(key) for key in ("tree", "literal", "absent")}
    (world.root / "data/modified").write_text("other")
    (world.root / "data/removed").unlink()
    (world.root / "data/added").touch()
    (world.root / "later").touch()
    async with open_world(tmp_path) as world:
        for pattern, key in (("data/*", "tree"), ("data/modified", "literal"), ("later", "absent")):
            await world.follow(pattern, key=key)
            assert world.last(key).previous == before[key]
            assert world.version(key) == await world.truth(pattern)
        changes = {change.path: change.change for change in world.last(tree).changes}
        assert changes == {"data/modified": "modified", "data/removed": "removed", "data/added": "added"}


async def test_after_a_restart_nothing_is_read_that_did_not_change(tmp_path: Path) -> None:
    """The version is the same as before, and no file is opened."""
    async with open_world(tmp_path) as world:
        path = world.root / "file"
        path.write_text("1")
        os.utime(path, (1, 1))
        await world.follow("*", key="k")
        # As for almost every file, the hash was made long after the last change.
        seen = world.cache.seen[str(path)]
        seen.hashed_at += 2 * RACY_NANOSECONDS
        world.cache.put(str(path), seen)
        before = world.last("k")
    async with open_world(tmp_path) as world:
        kept = world.cache.seen[str(path)]
        await world.follow("*", key="k")
        assert world.cache.seen[str(path)] is kept
        assert (world.last("k").previous, world.version("k")) == (before.version, before.version)


async def test_without_a_complete_memory_the_delta_is_unknown(tmp_path: Path) -> None:
    """A list of changes that might be incomplete is not reported."""
    async with open_world(tmp_path) as world:
        for name in ("a", "b"):
            (world.root / name).write_text(name)
        await world.follow("*", key="k")
        world.cache.put(str(world.root / "a"), None)
    (world.root / "b").write_text("other")
    async with open_world(tmp_path) as world:
        await world.follow("*", key="k")
        assert (world.last("k").previous, world.last("k").changes) == (None, ())
        assert world.version("k") == await world.truth("*")


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 4096])
async def test_a_broken_cache_is_rebuilt_silently(tmp_path: Path, damage: bytes) -> None:
    """The cache is not the truth: the files are hashed again, and the next start has the new cache."""
    async with open_world(tmp_path) as world:
        (world.root / "file").write_text("1")
        await world.follow("*", key="k")
    for name in ("cache.db-wal", "cache.db-shm"):
        (tmp_path / "state" / name).unlink(missing_ok=True)
    (tmp_path / "state/cache.db").write_bytes(damage)
    async with open_world(tmp_path) as world:
        await world.follow("*", key="k")
        assert world.last("k").previous is None
        version = world.version("k")
    async with open_world(tmp_path) as world:
        await world.follow("*", key="k")
        assert world.last("k").previous == version


async def test_a_state_folder_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    """Looks work without any cache."""
    cache = StatCache(tmp_path / "missing/folder")
    told: list[TargetsHinted | TargetLooked] = []
    source = FileSource(told.append, asyncio.get_running_loop(), tmp_path / "missing", choose_hints("inotify"), cache)
    (tmp_path / "file").write_text("1")
    source.follow([FileTarget(key="k", root=str(tmp_path), pattern="file")])
    source.look("k", 1)
    (looked,) = told
    assert isinstance(looked, TargetLooked) and looked.result.version is not None
    await source.close()


async def test_a_path_that_holds_a_secret_is_left_out_of_the_cache_and_the_others_are_kept(tmp_path: Path) -> None:
    """The next daemon compares with the remaining entries, mounts included."""
    cache = StatCache(tmp_path, lambda text: b"hunter2hunter2" in text)
    for name in ("plain", "hunter2hunter2"):
        path = tmp_path / name
        path.write_text("1")
        cache.put(str(path), Seen(read_key(str(path)) or b"", "f", bytes(DIGEST_BYTES), 1))
    cache.put_mounts("k", frozenset(["/mnt/share"]))
    cache.write(cache.take_batch())
    cache.close()
    kept = StatCache(tmp_path)
    below = kept.kept_below(parse_under("*", str(tmp_path)))
    assert [Path(path).name for path, _ in below] == ["plain"] and kept.mounts("k") == {"/mnt/share"}
    kept.close()

"""Rule 6: a version does not depend on host and time, and one changed path does not rehash all the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

import wakeful
from sources.files_world import open_world
from wakeful.sources.files.entry import Seen
from wakeful.sources.files.manifest import Manifest, Naming

# Prints the version of data/** below a root, as a process with its own environment finds it.
FIND_VERSION = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sources.files_world import open_world

async def main():
    async with open_world(Path(sys.argv[2])) as world:
        print(world.version(await world.follow("data/**")))

asyncio.run(main())
"""


def write_project(root: Path, *, names: list[str], seconds: int) -> None:
    """Write a few files, always the same, in this order and with this mtime."""
    for name in names:
        path = root / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "link":
            path.symlink_to("deep/b.csv")
            continue
        path.write_text(f"content of {name}")
        path.chmod(0o755 if name == "run.sh" else 0o644)
        os.utime(path, (seconds, seconds))


def find_version(folder: Path, **environ: str) -> str:
    command = [sys.executable, "-c", FIND_VERSION, str(Path(__file__).parent.parent), str(folder)]
    # The package under test, which may not be the installed one.
    environ |= {"PYTHONPATH": str(Path(wakeful.__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, env=os.environ | environ, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_rule_6_the_same_content_has_the_same_version_on_any_host_at_any_time(tmp_path: Path) -> None:
    """Rule 6: another root, inode, order, mtime, time zone, locale and hash seed change nothing."""
    names = ["a.csv", "deep/b.csv", "run.sh", "link"]
    here, there = tmp_path / "here", tmp_path / "some where/else"
    write_project(here / "root", names=names, seconds=1_000_000_000)
    write_project(there / "root", names=names[::-1], seconds=1_700_000_000)
    first = find_version(here, PYTHONHASHSEED="1", TZ="UTC", LC_ALL="C.UTF-8", HOSTNAME="one")
    assert len(first) == 40
    assert find_version(there, PYTHONHASHSEED="2", TZ="Asia/Shanghai", LC_ALL="C", HOSTNAME="two") == first


@pytest.mark.asyncio
@pytest.mark.parametrize("aspect", ["name", "content", "type", "x bit", "one more"])
async def test_rule_6_a_version_is_path_type_x_bit_and_content(tmp_path: Path, aspect: str) -> None:
    """Rule 6: each part of a version changes it. When the part is changed back, the version is the old one."""
    async with open_world(tmp_path) as world:
        write_project(world.root, names=["a.csv", "b.csv"], seconds=1_000_000_000)
        key = await world.follow("data/*")
        first, path = world.version(key), world.root / "data/a.csv"

        def change() -> None:
            match aspect:
                case "name":
                    path.rename(path.with_name("c.csv"))
                case "content":
                    path.write_text("CONTENT of a.csv")
                case "type":
                    path.rename(world.root / "kept")
                    path.symlink_to("nowhere")
                case "x bit":
                    path.chmod(0o755)
                case "one more":
                    (world.root / "data/c.csv").write_bytes(b"")

        def change_back() -> None:
            (world.root / "data/c.csv").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            write_project(world.root, names=["a.csv"], seconds=1_600_000_000)

        await world.hinted(change)
        assert world.version(key) not in (None, first)
        change_back()
        await world.noticed(key, "data/*")
        assert world.version(key) == first


def count_steps(manifest: Manifest, path: str, seen: Seen) -> int:
    """Count the calls, of Python and of C, that replace one member and compute the new version."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        changes = manifest.put_all({path: seen})
        version = manifest.version
    finally:
        sys.setprofile(None)
    assert len(changes) == 1
    assert version
    return steps


def make_seen(text: str) -> Seen:
    return Seen(text.encode().ljust(44, b"\0"), "f", text.encode().ljust(20, b"\0"), 1)


def test_rule_6_one_changed_path_costs_the_same_among_10_and_10_000() -> None:
    """Rule 6: the other members are not touched. The version is the one that a fresh start would compute."""
    steps = {}
    for size in (10, 10_000):
        members = {f"/root/data/{number}": make_seen(str(number)) for number in range(size)}
        naming = Naming("/root", "/root/data", is_absolute=False)
        manifest = Manifest.of(naming, "content", members.items())
        steps[size] = count_steps(manifest, "/root/data/7", make_seen("other"))
        fresh = Manifest.of(naming, "content", (members | {"/root/data/7": make_seen("other")}).items())
        assert manifest.version == fresh.version
    # Four times as many would be allowed for a cost that grows with the logarithm of the size.
    assert steps[10_000] <= 4 * steps[10]

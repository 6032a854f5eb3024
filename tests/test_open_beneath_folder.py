"""Open paths beneath a folder step by step, for kernels without openat2. The results equal those of openat2."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful.system import openat2 as beneath

PATHS = [
    ".", "a", "a/b", "a/b/file", "file", "missing", "a/missing/x", "file/x", "..", "a/..", "a/../file", "a/../..", "a/b/../../..", "/etc/passwd",
    "near", "near/b/file", "up", "up/file", "deep/up/file", "out", "out/x", "absolute", "absolute/x", "circle", "circle/x", "to-file", "chain/file",
    "sneaky", "sneaky/outside/secret", "fifo-free/../file", "a//b/./file", "dangling", "deep/twice/file",
]  # fmt: skip
FLAGS = [
    os.O_PATH,
    os.O_RDONLY | os.O_NONBLOCK,
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK,
    os.O_PATH | os.O_NOFOLLOW,
    os.O_RDONLY | os.O_DIRECTORY,
]


@pytest.fixture
def base(tmp_path: Path) -> Iterator[int]:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "deep").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    for file in (root / "file", root / "a/b/file"):
        file.write_text("file")
    links = {
        "near": "a", "up": "a/..", "deep/up": "..", "out": "../outside", "absolute": str(root / "a"), "circle": "circle", "to-file": "file", "chain": "chain2",
        "chain2": "./a/./b", "sneaky": "a/../..", "dangling": "nowhere", "deep/twice": "../near/b",
    }  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def ask(open_one, path: str) -> tuple[int, bool] | str:
    """Return the inode and whether it is a link, or the name of the error."""
    try:
        fd = open_one(path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    try:
        found = os.fstat(fd)
        return found.st_ino, stat.S_ISLNK(found.st_mode)
    finally:
        os.close(fd)


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("flags", FLAGS)
def test_each_step_leads_where_the_kernel_would(base: int, flags: int, has_links: bool) -> None:
    """Both ways give the same file or the same error, and never a file outside."""
    if ask(lambda path: beneath.open_at(base, path, os.O_PATH), ".") == "ENOSYS":
        pytest.skip("NOT TESTED: there is no openat2 here to compare with")
    by_kernel = {path: ask(lambda one: beneath.open_at(base, one, flags, has_links=has_links), path) for path in PATHS}
    by_steps = {
        path: ask(lambda one: beneath.open_step_by_step(base, one, flags, has_links=has_links), path) for path in PATHS
    }
    assert by_steps == by_kernel
    assert by_kernel["out/x"] in ("EXDEV", "ELOOP", "ENOTDIR") and by_kernel["a/../.."] == "EXDEV"


def test_no_descriptor_is_left_open(base: int) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for flags in FLAGS:
        for path in PATHS:
            ask(lambda one, how=flags: beneath.open_step_by_step(base, one, how, has_links=True), path)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_swapped_for_a_link_on_the_way_leads_nowhere(
    base: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is swapped for a link between the look and the opening. The link is not followed."""
    real = os.open

    def swap(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if path == "file" and not flags & os.O_PATH:
            (tmp_path / "root/a/b/file").unlink()
            (tmp_path / "root/a/b/file").symlink_to(tmp_path / "outside/secret")
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(OSError) as caught:
        beneath.open_step_by_step(base, "a/b/file", os.O_RDONLY, has_links=True)
    assert caught.value.errno == errno.ELOOP

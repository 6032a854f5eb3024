"""Hostile files (H 54 to 56).

They are specs that would fill memory, bundles that would write elsewhere, and links that are swapped while the daemon
works on them.
"""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path

import pytest
import yaml

from bundles.bundle_samples import Place, rewrite
from bundles.test_bundle_refusals import refuse
from run_files.recorded_runs import World
from wakeful.bundles import format as bundle_format
from wakeful.bundles.format import BundleDamaged, BundleTooLarge, FileLine
from wakeful.bundles.load import verify_bundle
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import CommandRun, Confinement, SessionSpec
from wakeful.run_files.capture import Capture, Limits
from wakeful.run_files.present_files import PathBlocked, write_file
from wakeful.sources.files.entry import CannotSee
from wakeful.system.openat2 import open_beneath
from wakeful.workspaces.copy import copy_present

# Run by `make test-long`, because these tests take long.
pytestmark = pytest.mark.long

# -- YAML -------------------------------------------------------------------------------------------

GOOD = "objective: x\nrun: {command: ['true']}\n"
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)
YAML = {
    "a bomb of aliases": (GOOD + LAUGHS, 3),
    "an anchor": (GOOD + "note: &x y\n", 3),
    "a merge key": (GOOD + "env: {<<: *x}\n", 3),
    "brackets": (GOOD + "note: " + "[" * 100_000, 3),
    "braces": (GOOD + "note: " + "{a: " * 50_000, 3),
    "a tag that makes an object": (GOOD + "note: !!python/object/apply:os.system ['true']\n", 3),
    "a tag of its own": (GOOD + "note: !evil x\n", 3),
    "a key that is there twice": (GOOD + "objective: y\n", 3),
    "a key that is there twice, deep": (GOOD + "bindings: {a: {file: x, file: y}}\n", 3),
    "a NUL": (GOOD + "note: a\0b\n", 3),
    "a NUL by its escape": (GOOD + 'note: "a\\0b"\n', 3),
    "a second document": (GOOD + "---\nobjective: y\n", 3),
    "10 MB": (GOOD + "# " + "x" * 10_000_000, 1),
    "10 MB of keys": (GOOD + "".join(map("k{}: 1\n".format, range(1_000_000))), 1),
    "a long quote": (GOOD + 'note: "' + "x\n" * 100_000, None),
}
# YAML 1.1 would read these scalars as other types. Here each stays text, or is refused.
SCALARS = ("on", "no", "NO", "12:30:00", "022", "0x1f", "1e3", "1_000", "2026-11-16", "~", ".inf", "=")
READER = """
import json, os, sys, time
from pathlib import Path
from wakeful.runners.process.procfs import peak_memory
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.folder_reading import NO_DEFAULTS, read_folder
folder = Path(sys.argv[1])
around = Surroundings(str(folder.parent))
hostile = folder / "hostile.yaml"
hostile.rename(folder.parent / "aside")
(folder / "good.yaml").write_text("objective: x\\nrun: {command: ['true']}\\n")
read_folder(folder, around, NO_DEFAULTS, None, {})
before = peak_memory(os.getpid())
spent = []
(folder.parent / "aside").rename(hostile)
for _ in range(3):
    began = time.process_time()
    reading = read_folder(folder, around, NO_DEFAULTS, None, {})
    spent.append(time.process_time() - began)
after = peak_memory(os.getpid())
print(json.dumps({"seconds": min(spent), "bytes": after - before, "refused": reading.refused, "taken": sorted(reading.sessions)}))
"""


def read_hostile(folder: Path, text: str | bytes) -> dict:
    """Read the folder as the daemon does, in a process of its own, so that its memory can be measured."""
    specs = folder / "sessions.d"
    specs.mkdir()
    (specs / "hostile.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    done = subprocess.run([sys.executable, "-c", READER, str(specs)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", YAML)
def test_a_hostile_spec_is_refused_with_its_line_before_it_costs_anything(tmp_path: Path, name: str) -> None:
    """Each refusal costs less than 100 ms of CPU time and 50 MB of memory. The other spec of the folder is taken."""
    text, line = YAML[name]
    found = read_hostile(tmp_path, text)
    assert found["taken"] == ["good"]
    where = f"hostile.yaml:{'' if line is None else f'{line}:'}"
    assert where in found["refused"]["hostile"]
    assert found["seconds"] < 0.1 and found["bytes"] < 50 << 20, found


def test_a_plain_parser_takes_what_is_refused(tmp_path: Path) -> None:
    """A plain parser without our limits takes the same texts.

    The result is 387 million items from a kilobyte, a stack overflow, and a program that is run.
    """
    laughs = yaml.safe_load(GOOD + LAUGHS)
    counts = {id(laughs["a"]): 9}
    for above, here in zip("abcdefgh", "bcdefghi", strict=True):
        counts[id(laughs[here])] = sum(counts[id(one)] for one in laughs[here] if one is laughs[above])
    assert counts[id(laughs["i"])] == 9**9
    with pytest.raises(RecursionError):
        yaml.safe_load(YAML["brackets"][0])
    yaml.unsafe_load(f"note: !!python/object/apply:os.system ['touch {tmp_path}/gotcha']")
    assert (tmp_path / "gotcha").exists()


@pytest.mark.parametrize("scalar", SCALARS)
def test_a_scalar_of_yaml_1_1_means_nothing_else(tmp_path: Path, scalar: str) -> None:
    """The text in the file is the value that is declared, also for `~` and a date."""
    found = read_hostile(tmp_path, f"objective: {scalar}\nrun: {{command: ['true']}}\n")
    assert found["taken"] == ["good", "hostile"]


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    """Some editors write a byte order mark."""
    assert read_hostile(tmp_path, b"\xef\xbb\xbf" + GOOD.encode())["taken"] == ["good", "hostile"]


# -- bundles ----------------------------------------------------------------------------------------


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "there")
    yield place
    place.log.close()


def write_tar(path: Path) -> None:
    """Write a tar file with all known attacks: it escapes from the folder in which it is unpacked.

    It is not a bundle.
    """
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, target in (
            ("../escaped", tarfile.REGTYPE, ""),
            ("/tmp/escaped", tarfile.REGTYPE, ""),
            ("link", tarfile.SYMTYPE, "/"),
            ("link/tmp/escaped", tarfile.REGTYPE, ""),
            ("hard", tarfile.LNKTYPE, "/etc/passwd"),
            ("device", tarfile.CHRTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info, io.BytesIO(b""))


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../escaped", b"\0" * 20_000_000)


def test_an_archiver_writes_elsewhere(tmp_path: Path) -> None:
    """If it is unpacked as archives usually are, the same tar writes outside of its folder."""
    (tmp_path / "unpacked").mkdir()
    write_tar(tmp_path / "evil")
    with tarfile.open(tmp_path / "evil") as tar:
        tar.extract("../escaped", tmp_path / "unpacked", filter="fully_trusted")
    assert (tmp_path / "escaped").exists()


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_an_archive_of_another_kind_is_no_bundle_whatever_it_holds(
    there: Place, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    """A bundle has a format of its own, with only plain files: no links, no devices, no paths that lead out.

    Nothing is ever unpacked by an archiver.
    """
    folder = tmp_path / "from"
    folder.mkdir()
    write(folder / "evil")
    refuse(there, folder / "evil")
    assert not (tmp_path / "escaped").exists() and not Path("/tmp/escaped").exists()


def test_a_million_entries_are_refused_by_their_number(there: Place, tmp_path: Path) -> None:
    """The bundle is refused before any of its entries is written."""
    here = Place(tmp_path / "here")
    here.fill()
    here.save(tmp_path / "sound")
    here.log.close()
    folder = tmp_path / "from"
    folder.mkdir()
    many = rewrite(
        tmp_path / "sound",
        folder / "many",
        lambda lines: chain(lines, (FileLine(path=f"f{number}", size=0) for number in range(1_000_000))),
    )
    refuse(there, many, "more than 100,000 files", BundleTooLarge)
    # Without the limit, all files are taken in. Only the count at the end of the bundle, which differs, stops it.
    with pytest.raises(BundleDamaged, match="1,000,000 files"):
        verify_bundle(many, limits=bundle_format.Limits(files=2_000_000))


# -- paths ------------------------------------------------------------------------------------------

SECRET = "a private key of somebody else"
RACE_SECONDS = 2.0
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names as fast as the kernel can, in a thread, while the block runs."""
    is_over = threading.Event()

    def swap() -> None:
        names = os.fsencode(one), os.fsencode(other)
        while not is_over.is_set():
            # AT_FDCWD and RENAME_EXCHANGE: both names exist at every moment.
            assert _libc.renameat2(-100, names[0], -100, names[1], 2) == 0, os.strerror(ctypes.get_errno())

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        is_over.set()
        swapper.join()


def race(work: Callable[[], object], is_lost: Callable[[], bool], seconds: float = RACE_SECONDS) -> bool:
    """Repeat `work` until `is_lost`, or until the time is over. Return whether the race was lost."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            work()
        except (OSError, PathBlocked, CannotSee):
            pass
        if is_lost():
            return True
    return False


class Trap:
    """`root/dir/file`, where `dir` or the file itself is exchanged with a link to the same name outside."""

    def __init__(self, folder: Path, what: str) -> None:
        self.outside = folder / "outside"
        (self.outside / "dir").mkdir(parents=True)
        # Both files have the same length, so that the size does not reveal which one was read.
        (self.outside / "dir/file").write_text(SECRET)
        self.world = World(folder)
        self.path = self.world.write("dir/file", "b" * len(SECRET))
        self.one = self.world.root / "dir" if what == "folder" else self.path
        self.other = folder / "link"
        self.other.symlink_to(self.outside / "dir" if what == "folder" else self.outside / "dir/file")

    def swapping(self) -> AbstractContextManager[None]:
        return swapping(self.one, self.other)


@pytest.fixture(params=["folder", "file"])
def trap(tmp_path: Path, request: pytest.FixtureRequest) -> Trap:
    return Trap(tmp_path, request.param)


def test_what_is_kept_of_files_never_comes_from_outside(trap: Trap) -> None:
    """A run swaps its output for a link to a file that it may not read.

    The daemon could read that file, but does not keep it. A plain open does read it.
    """
    seen: list[str] = []
    blobs, folder = trap.world.blobs, trap.world.root.parent / "blobs"

    def keep() -> None:
        Capture(blobs, Limits()).take(str(trap.world.root), trap.world.look("dir/file"))

    def holds_secret() -> bool:
        return any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())

    with trap.swapping():
        assert race(lambda: seen.append(trap.path.read_text()), lambda: SECRET in seen[-1:]), (
            "the swapper never won: this proves nothing"
        )
        assert not race(keep, holds_secret)


def test_what_is_written_never_lands_outside(trap: Trap) -> None:
    """Rewinds, merges and replays write files through folders that are opened one by one.

    A plain write goes to the outside.
    """
    target = trap.outside / "dir/file"

    def is_hit() -> bool:
        return target.read_text() != SECRET or len(list(target.parent.iterdir())) > 1

    with trap.swapping():
        assert not race(
            lambda: write_file(str(trap.world.root), "dir/file", b"written", 0o644, is_flushed=False), is_hit
        )
    if trap.other.is_symlink() == trap.one.is_symlink():
        # The work replaced the link itself by a file, so nothing is left to swap.
        return
    with trap.swapping():
        assert race(lambda: trap.path.write_text("written"), is_hit), "the swapper never won: this proves nothing"


def test_what_is_copied_into_a_workspace_never_comes_from_outside(trap: Trap, tmp_path: Path) -> None:
    """A fork's workspace has no content that the session itself could not read. A plain copy has."""
    root, place, plain = str(trap.world.root), tmp_path / "place", tmp_path / "plain"
    spec = SessionSpec(
        name="s", root=root, bindings=(FileBinding(name="in", pattern="dir/**"),), run=CommandRun(argv=("true",))
    )

    def copy_anew() -> None:
        # Files that exist already are not copied again.
        shutil.rmtree(place, ignore_errors=True)
        copy_present(spec, str(place), "")

    def holds_secret() -> bool:
        copy = place / "dir/file"
        return copy.is_file() and not copy.is_symlink() and copy.read_text() == SECRET

    with trap.swapping():
        assert race(lambda: shutil.copyfile(trap.path, plain), lambda: plain.read_text() == SECRET), (
            "the swapper never won: this proves nothing"
        )
        assert not race(copy_anew, holds_secret)


def test_a_link_that_a_run_left_is_copied_as_what_it_leads_to_only_where_the_session_may_read(tmp_path: Path) -> None:
    """The target of the link is copied only if `allow` names it."""
    trap = Trap(tmp_path, "file")
    trap.path.unlink()
    trap.path.symlink_to(trap.outside / "dir/file")
    for allow, number in (((), 1), ((str(trap.outside),), 2), ((str(trap.outside / "dir/file"),), 3)):
        spec = SessionSpec(
            name="s", root=str(trap.world.root), bindings=(FileBinding(name="in", pattern="dir/**"),), run=CommandRun(argv=("true",)),
            confinement=Confinement(allow_read=allow),
        )  # fmt: skip
        place = tmp_path / f"place-{number}"
        copy_present(spec, str(place), "")
        assert (place / "dir/file").exists() == bool(allow)


@pytest.mark.parametrize(
    "path", ["../outside/dir/file", "/etc/passwd", "link", "link/file", "proc/self/root/etc/passwd"]
)
def test_no_way_out_of_a_folder_is_taken(tmp_path: Path, path: str) -> None:
    """Dots, absolute names, links and magic links of /proc work with a plain open.

    Here they fail with EXDEV or ELOOP.
    """
    trap = Trap(tmp_path, "folder")
    root = trap.world.root
    (root / "link").symlink_to(trap.outside / "dir" if path == "link/file" else trap.outside / "dir/file")
    (root / "proc").symlink_to("/proc")
    with open(os.path.join(root, path)) as file:
        assert file.read()
    with pytest.raises(OSError) as caught:
        open_beneath(str(root), path, os.O_RDONLY)
    assert caught.value.errno in (errno.EXDEV, errno.ELOOP)


def test_a_magic_link_inside_the_folder_is_not_followed() -> None:
    """A magic link of /proc/self/fd leads out without any `..`."""
    with open("/etc/passwd") as held:
        assert os.path.exists(f"/proc/self/fd/{held.fileno()}")
        with pytest.raises(OSError) as caught:
            open_beneath("/proc/self", f"fd/{held.fileno()}", os.O_RDONLY)
        assert caught.value.errno in (errno.ELOOP, errno.EXDEV)

"""A power cut at every acknowledgement. A kill cannot show this, because the kernel still has the written data.

A trace of every write and flush of a real process is replayed into an image of the disk that has only flushed data. It
is replayed once more with a random part of the unflushed writes, in any order, the last one torn. Each image must open
and have every record that was acknowledged before it.
"""

import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.sqlite.anchor import read_anchor
from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.sqlite.writer import ANCHOR_GROUPS, LAID_OUT_BYTES

APPENDER = Path(__file__).with_name("append_process.py")
APPENDS = 40

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: NO POWER CUT WAS SIMULATED"
)

_CALL = re.compile(r"^\d+ +(\w+)\((\d+)<([^>]*)>(?:, )?(.*)$")
_WRITE = re.compile(r'^"((?:\\x[0-9a-f]{2})*)", \d+(?:, (\d+))?')
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>")


class Disk:
    """The written and the flushed bytes of each file, and the records acknowledged so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flushed = {path: path.read_bytes() for path in (folder / "log").iterdir()}
        self.pending: dict[Path, list[tuple[int, bytes]]] = {}
        self.flushing: dict[str, Path] = {}
        self.heads: dict[str, int] = {}
        self.said = ""

    def replay(self, line: str) -> bool:
        """Apply one line of the trace, and return whether it acknowledged a record."""
        if resumed := _RESUMED.match(line):
            if path := self.flushing.pop(resumed[1], None):
                self._flush(path)
            return False
        call = _CALL.match(line)
        if call is None:
            return False
        name, descriptor, path, rest = call[1], call[2], Path(call[3]), call[4]
        if name in ("fdatasync", "fsync"):
            if "unfinished" in line:
                self.flushing[line.split()[0]] = path
            else:
                self._flush(path)
            return False
        written = _WRITE.match(rest)
        if written is None:
            return False
        content = bytes.fromhex(written[1].replace("\\x", ""))
        if name == "write" and descriptor == "1":
            return self._acknowledge(content.decode())
        if name == "pwrite64" and path.parent == self.folder / "log" and path.name != "events.db-shm":
            self.pending.setdefault(path, []).append((int(written[2]), content))
        return False

    def image(self, target: Path, chance: random.Random | None) -> None:
        """Write the disk after the cut: the flushed bytes, and with `chance` some of the others."""
        (target / "log").mkdir(parents=True)
        for path in {*self.flushed, *self.pending}:
            content = self.flushed.get(path, b"")
            if chance is not None and (pending := list(self.pending.get(path, ()))):
                some = chance.sample(pending, chance.randrange(len(pending) + 1))
                content = apply(
                    content, [*some[:-1], *((offset, part[: len(part) // 2]) for offset, part in some[-1:])]
                )
            (target / "log" / path.name).write_bytes(content)

    def _flush(self, path: Path) -> None:
        if path.parent == self.folder / "log":
            self.flushed[path] = apply(self.flushed.get(path, b""), self.pending.pop(path, []))

    def _acknowledge(self, text: str) -> bool:
        *lines, self.said = (self.said + text).split("\n")
        for session, seq in re.findall(r"(\w+) (\d+)", "\n".join(lines)):
            self.heads[session] = int(seq)
        return bool(lines and self.heads)


def apply(content: bytes, writes: list[tuple[int, bytes]]) -> bytes:
    image = bytearray(content)
    for offset, part in writes:
        image.extend(bytes(max(0, offset + len(part) - len(image))))
        image[offset : offset + len(part)] = part
    return bytes(image)


@pytest.mark.parametrize(
    ("torn", "wal_bytes"),
    [(False, 0), (True, 0), pytest.param(True, LAID_OUT_BYTES, marks=pytest.mark.long)],
    ids=["only what was flushed", "torn and reordered", "torn and reordered in a log that was laid out"],
)
def test_nothing_acknowledged_is_lost_to_a_power_cut(tmp_path: Path, torn: bool, wal_bytes: int) -> None:
    state_dir, trace = tmp_path / "state", tmp_path / "trace"
    open_log(state_dir).close()
    disk = Disk(state_dir)
    calls = "trace=pwrite64,write,fdatasync,fsync"
    command = [
        "strace",
        "-f",
        "-y",
        "-xx",
        "-qq",
        "-s",
        "70000",
        "-e",
        calls,
        "-o",
        str(trace),
        sys.executable,
        str(APPENDER),
    ]
    subprocess.run(
        [*command, str(state_dir), str(APPENDS), "200", str(wal_bytes)], check=True, capture_output=True, timeout=60
    )
    cuts = 0
    for line in decode_paths(trace.read_text()).splitlines():
        if not disk.replay(line):
            continue
        cuts += 1
        image = tmp_path / f"cut-{cuts}"
        disk.image(image, random.Random(cuts) if torn else None)
        vouched = read_anchor(StoreFiles(image).anchor)
        log = open_log(image)
        found = {name: head.seq for name, head in log.heads().items()}
        assert log.read_only is None
        assert {name: seq for name, seq in disk.heads.items() if found.get(name, 0) < seq} == {}
        assert log.verify().findings == ()
        log.close()
        # A few groups were acknowledged, and one more may be flushed already.
        newest = read_anchor(StoreFiles(image).anchor)
        assert newest.flush - vouched.flush <= ANCHOR_GROUPS + 1
        shutil.rmtree(image)
    assert cuts >= APPENDS


def decode_paths(trace: str) -> str:
    """Decode the paths, which -xx also writes in hexadecimal."""
    return re.sub(
        r"<((?:\\x[0-9a-f]{2})+)>",
        lambda found: f"<{bytes.fromhex(found[1].replace(chr(92) + 'x', '')).decode()}>",
        trace,
    )

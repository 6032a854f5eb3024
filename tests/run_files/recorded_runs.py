"""A folder with a session's files, and runs whose contents are captured as by the daemon: with real looks, into
real blobs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from wakeful.run_files.capture import Capture, Limits
from wakeful.run_files.file_record import BindingFiles, Found, RunFiles
from wakeful.sources.files.entry import Demand, Seen, read_entry
from wakeful.system.blobs import Blobs


class World:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.blobs = Blobs(str(folder / "blobs"))
        self.runs: list[tuple[int, str | None]] = []

    def write(self, name: str, content: str | bytes, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def read(self, name: str) -> str | None:
        path = self.root / name
        return path.read_text() if path.is_file() else None

    def look(self, *names: str) -> dict[str, Seen]:
        """Look at these paths as the daemon does."""
        seen = {
            str(self.root / name): read_entry(str(self.root / name), None, Demand(wants_content=True)) for name in names
        }
        return {path: one for path, one in seen.items() if isinstance(one, Seen)}

    def run(
        self, work: Callable[[], object], *outputs: str, inputs: tuple[str, ...] = (), limits: Limits = Limits()
    ) -> str:
        """Run the work, which may write `outputs`, and return the address of its record."""
        capture = Capture(self.blobs, limits)
        found = {"in": self._find(capture, inputs), "out": self._find(capture, outputs)}
        work()
        after = self._find(capture, outputs)
        bindings = (
            BindingFiles(name="in", access="read", before=found["in"]),
            BindingFiles(name="out", access="write", before=found["out"], after=after),
        )
        number = len(self.runs) + 1
        record = RunFiles(run_id=f"s.{number}", root=str(self.root), bindings=bindings)
        address = self.blobs.add(msgspec.json.encode(record))
        self.blobs.flush()
        self.runs.append((number, address))
        return address

    def _find(self, capture: Capture, names: tuple[str, ...]) -> Found:
        return Found(version="v", entries=capture.take(str(self.root), self.look(*names)))

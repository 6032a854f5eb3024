"""A session to save, and a way to write bundles that must be refused. The tests of bundles share both."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from wakeful.bundles.format import AnyLine, Limits
from wakeful.bundles.reader import OpenBundle
from wakeful.bundles.save import Saved, save
from wakeful.bundles.writer import BundleWriter
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.memory_engine import MemoryLog
from wakeful.system.blobs import Blobs

SESSION = "01session"


class Place:
    """A log, its blobs and a scratch folder, as in a state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log = MemoryLog()
        self.blobs = Blobs(str(folder / "blobs"))
        self.scratch = folder / "scratch"

    def fill(self, records: int = 7) -> None:
        """Record payloads of all sorts, with and without run, parent and reason, over a clock that was set back.

        Store two blobs.
        """
        for number in range(records):
            blob = self.blobs.put(b"output %d" % (number % 2) * 1_000)
            payload = msgspec.json.encode({"run": number, "output": {"head": blob}, "text": f"naïve ☃ \n {number}"})
            draft = Draft(
                "run_finished",
                payload,
                "payroll",
                run=number,
                parent="other:3" if number % 2 else None,
                rationale="because",
            )
            self.log.append_blocking([Append(SESSION, number, (draft,))], at=1_000 - number if number % 3 else number)
        odd = tuple(Draft("note_added", payload, "person") for payload in (b"\xff\x00 not text", b"", b'"plain"'))
        self.log.append_blocking([Append(SESSION, records, odd)], at=5)

    def save(self, out: Path, **words: object) -> Saved:
        return save(self.log, self.blobs, SESSION, out, name="payroll", cut_at=42, **words)  # type: ignore[arg-type]


def rewrite(source: Path, out: Path, change: Callable[[list[AnyLine]], Sequence[AnyLine]]) -> Path:
    """Write a bundle with changed lines and right digests. Only the contents of its lines can reveal it."""
    with OpenBundle(source) as bundle:
        *lines, end = bundle.read_lines()
    with BundleWriter(out, Limits(line_bytes=2**40)) as writer:
        for line in change(list(lines)):
            writer.put(line)
        writer.finish(end.records, end.blobs, end.files)  # type: ignore[union-attr]
    return out

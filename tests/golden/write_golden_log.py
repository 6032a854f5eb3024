"""Write the golden log of this release: `make golden`, for a new kind of event and before a release.

The result is `tests/golden/VERSION/`. It has every record as a line, the changes of each record in the state, the same
session as a bundle, and the store itself. The folders of other releases never change.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

from golden import golden_log
from golden.example_events import ERASED, PAYROLL, SESSIONS
from wakeful import __version__
from wakeful.bundles.save import save
from wakeful.eventlog.codec import encode
from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.sqlite import open_log
from wakeful.system.blobs import Blobs

SECOND = 1_000_000
BEGIN = 1_700_000_000_000_000


def record(log: EventLog) -> None:
    """Record all examples, one second apart, each with the one before it as its parent."""
    at = BEGIN
    for session, examples in SESSIONS.items():
        for seq, example in enumerate(examples, 1):
            event, author = example if isinstance(example, tuple) else (example, "wakeful")
            kind, payload = encode(event)
            parent = f"{session}:{seq - 1}" if seq > 1 else None
            draft = Draft(kind, payload, author, getattr(event, "run", None), parent, getattr(event, "rationale", None))
            log.append_blocking([Append(session, seq - 1, (draft,), key=f"{session}-{seq}")], at)
            at += SECOND
    for session, seq in ERASED:
        log.erase(session, [seq])


def main() -> None:
    # Write beside the old folder, and replace it only when the new one is complete.
    release = golden_log.HERE / f".{__version__}.new"
    shutil.rmtree(release, ignore_errors=True)
    release.mkdir()
    with tempfile.TemporaryDirectory() as text:
        state = Path(text) / "state"
        log = open_log(state)
        record(log)
        records = [one for session in SESSIONS for one in log.read(session)]
        save(log, Blobs(str(Path(text) / "blobs")), PAYROLL, release / "payroll.wakeful", name="payroll", cut_at=BEGIN)
        log.close()
        for name in ("events.db", "anchor"):
            shutil.copyfile(state / "log" / name, release / name)
    golden_log.write_records(release / "records.jsonl", records)
    changes = (msgspec.json.encode(row) + b"\n" for row in golden_log.list_changes(records))
    (release / "states.jsonl").write_bytes(b"".join(changes))
    final = golden_log.HERE / __version__
    shutil.rmtree(final, ignore_errors=True)
    release.rename(final)
    print(f"{final}: {len(records)} records of {len({one.kind for one in records})} kinds")


if __name__ == "__main__":
    main()

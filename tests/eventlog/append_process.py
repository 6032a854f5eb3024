"""A process that appends and prints its acknowledgements. Tests kill it, starve it and break its disk.

python append_process.py STATE_DIR COUNT [PAYLOAD_BYTES [WAL_BYTES [PAUSE_MS]]]

It begins once the write-ahead log has WAL_BYTES. It prints `opened`, then one line `SESSION SEQ` per acknowledged
record, flushed at once. `full` means that an append was refused for lack of space. Every seventh append goes to two
sessions at once. Every record has a key.
"""

import sys
import time
from pathlib import Path

from wakeful.eventlog.contract import Append, Draft, StoreFull
from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.sqlite.files import StoreFiles


def main(state_dir: Path, count: int, payload_bytes: int = 200, wal_bytes: int = 0, pause_ms: int = 0) -> None:
    log = open_log(state_dir)
    assert log.read_only is None, log.read_only
    while StoreFiles(state_dir).database.with_name("events.db-wal").stat().st_size < wal_bytes:
        time.sleep(0.005)
    print("opened", flush=True)
    heads = {name: head.seq for name, head in log.heads().items()}
    for number in range(count):
        time.sleep(pause_ms / 1000)
        names = [f"s{number % 3}"] + (["both"] if number % 7 == 0 else [])
        drafts = (Draft("note_added", b"x" * payload_bytes, "appender"),)
        calls = [Append(name, heads.get(name, 0), drafts, key=f"{name}-{heads.get(name, 0)}") for name in names]
        try:
            landed = log.append_blocking(calls, at=number)
        except StoreFull:
            print("full", flush=True)
            continue
        for one in landed:
            heads[one.session] = one.last_seq
        print("\n".join(f"{one.session} {one.last_seq}" for one in landed), flush=True)
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:]))

"""Import a session from one store into another, and print each batch: a process for the tests to kill."""

import sys
from pathlib import Path

from wakeful.eventlog.sqlite import open_log, open_reader

source, target, session = open_reader(Path(sys.argv[1])), open_log(Path(sys.argv[2])), sys.argv[3]
records, head = list(source.read(session)), source.head(session)
missing = target.begin_import(session, head.seq, head.hash)
for start in range(missing - 1, len(records), 100):
    target.import_records(session, records[start : start + 100])
    print(start, flush=True)
target.finish_import(session)
target.close()

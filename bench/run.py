"""`make bench`: run all benchmarks, or the named ones. Print one table with the machine and the date; assert nothing.

python bench/run.py [latency appends scale burst slices histories listing window dashboard recovery spawn isolation matching
templates agents]
"""

from __future__ import annotations

import signal
import sys

import appends
import burst
import dashboard
import histories
import isolation
import latency
import listing
import matching
import recovery
import scale
import slices
import spawn
import templates
import turns
import window
from place import TookTooLong
from table import Row, describe_machine, print_table

BENCHMARKS = {
    one.__name__: one.measure
    for one in (
        latency,
        appends,
        scale,
        burst,
        slices,
        histories,
        listing,
        window,
        dashboard,
        recovery,
        spawn,
        isolation,
        matching,
        templates,
    )
} | {"agents": turns.measure}  # A module of this name would hide a peer's.


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {' '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    # On SIGTERM, exit normally, so that the daemons and peers under way are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(describe_machine(), flush=True)
    rows: list[Row] = []
    for name in names or BENCHMARKS:
        try:
            measured = BENCHMARKS[name]()
        except TookTooLong as error:
            measured = [Row(name, "not measured", None, "", note=str(error))]
        # Print each table as soon as it is there, because all benchmarks take twenty minutes.
        print_table(measured)
        sys.stdout.flush()
        rows += measured
    barred = [row for row in rows if row.bar is not None and row.value is not None]
    met = sum(row.bar.is_met(row.value) for row in barred if row.bar is not None and row.value is not None)
    print(f"\n{met} of {len(barred)} bars met; at the end {describe_machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Run a Python program with a wall clock that a test sets: `settable_clock.py OFFSET PROGRAM ARGUMENTS...`.

OFFSET is a file with the seconds by which the program's clock differs from the machine's. Linux has no wall clock for
one process alone, so this module replaces the functions that read it. Clocks that cannot be set are the machine's own.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

OFFSET, PROGRAM = Path(sys.argv[1]), sys.argv[2]
read_machine_ns = time.time_ns


def read_ns() -> int:
    return read_machine_ns() + round(float(OFFSET.read_text()) * 1e9)


time.time_ns = read_ns
time.time = lambda: read_ns() / 1e9
sys.argv = sys.argv[2:]
runpy.run_path(PROGRAM, run_name="__main__")

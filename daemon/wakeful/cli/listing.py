"""`wakeful list`: the daemon's rows as they are, or as a table.

The verb people type most, so it stays free of everything that is slow to import: click alone takes three times as long as
all the rest of it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from wakeful.cli.options import Options
from wakeful.cli.text import escape, format_age, format_table, paint, wrap

HEAD = ("NAME", "STATE", "RUNS", "LAST RUN", "REASON")


def print_list(options: Options) -> None:
    client = options.client()
    if options.is_json:
        sys.stdout.buffer.write(client.get_bytes("/sessions") + b"\n")
        return
    found = json.loads(client.get_bytes("/sessions", brief="true"))
    rows, refused = found["sessions"], found["refused"]
    if rows:
        now = time.time()
        colours = [("bold", state, "", outcome or "", "dim") for _, state, _, outcome, _, _ in rows]
        print("\n".join(format_table(HEAD, [_format_row(row, now) for row in rows], colours)))
    elif not refused:
        print("no sessions yet; `wakeful new NAME` writes a first spec")
    for name in sorted(refused):
        for line in _format_refusal(name, refused[name]):
            print(paint(line, "bad"))


def _format_row(row: list[Any], now: float) -> tuple[str, ...]:
    name, state, runs, outcome, finished_us, remark = row
    ran = f"{outcome} {format_age(now - finished_us / 1e6)}" if outcome else "never"
    return escape(name), state, str(runs), ran, escape(remark)


def _format_refusal(name: str, problems: str) -> list[str]:
    """A spec that was not taken: its first problem, which often makes the others."""
    first, *rest = problems.split("\n")
    more = f" (and {len(rest)} more: wakeful check)" if rest else ""
    head, *tail = wrap(escape(f"refused: {name}: {first}{more}"), "  ")
    return [head[2:], *tail]

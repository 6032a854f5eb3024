"""`wakeful list`: the daemon's rows as they are, or as a table in which the sessions of a template are one line.

The verb people type most, so it stays free of everything that is slow to import: click alone takes three times as long as
all the rest of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from wakeful.cli.failure import FAILED, Failure
from wakeful.cli.options import Options
from wakeful.cli.text import count, escape, format_age, format_table, paint, wrap

HEAD = ("NAME", "STATE", "RUNS", "LAST RUN", "REASON")
MIXED = "mixed"
TEMPLATE_MARK = "@"

# As the daemon sends it: name, state, runs, last outcome, when that ended in microseconds, remark.
Row = list[Any]


def print_list(options: Options, names: tuple[str, ...] = (), *, is_all: bool = False) -> None:
    """`names` are sessions, or templates (`ticket@`): then only these, every session of a template on a line of its own."""
    client = options.client()
    if options.is_json:
        _print_json(client.get_bytes("/sessions"), names)
        return
    found = json.loads(client.get_bytes("/sessions", brief="true"))
    rows, refused = _pick(found["sessions"], names, lambda row: row[0]), _pick_refused(found["refused"], names)
    if names and not rows and not refused:
        raise Failure(f"no session is called {' or '.join(map(escape, names))}; `wakeful list` shows those there are", FAILED)
    if rows:
        now = time.time()
        shown = rows if names or is_all else group_rows(rows)
        colours = [("bold", state, "", outcome or "", "dim") for _, state, _, outcome, _, _ in shown]
        print("\n".join(format_table(HEAD, [_format_row(row, now) for row in shown], colours)))
    elif not refused:
        print("no sessions yet; `wakeful new NAME` writes a first spec")
    for line in _format_refusals(refused, is_grouped=not (names or is_all)):
        print(paint(line, "bad"))


def _print_json(answer: bytes, names: tuple[str, ...]) -> None:
    if names:
        answer = json.dumps(_pick(json.loads(answer), names, lambda row: row["name"])).encode()
    sys.stdout.buffer.write(answer + b"\n")


def _pick(rows: list[Any], names: tuple[str, ...], name_of: Callable[[Any], str]) -> list[Any]:
    return [row for row in rows if is_meant(name_of(row), names)] if names else rows


def _pick_refused(refused: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: words for name, words in refused.items() if is_meant(name, names)} if names else refused


def is_meant(name: str, names: tuple[str, ...]) -> bool:
    """Whether somebody who gave these names means this session."""
    return name in names or (TEMPLATE_MARK in name and find_template(name) in names)


# -- one line for the sessions of a template ------------------------------------------------------


def find_template(name: str) -> str | None:
    """As core/spec.py says it, which takes longer to import than all of this takes to run."""
    folder, slash, last = name.rpartition("/")
    head, mark, _ = last.partition(TEMPLATE_MARK)
    return f"{folder}{slash}{head}{mark}" if mark else None


def group_rows(rows: list[Row]) -> list[Row]:
    """Two or more sessions of one template become one row, where the first of them stood."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        # Looked for only where there is a mark: 10,000 plain rows are not to wait for it.
        groups.setdefault((find_template(row[0]) if TEMPLATE_MARK in row[0] else None) or row[0], []).append(row)
    return [own[0] if len(own) == 1 else _sum_up(name, own) for name, own in groups.items()]


def _sum_up(name: str, rows: list[Row]) -> Row:
    """One state where all have the same; the latest run; how many are in which state."""
    states = Counter(row[1] for row in rows)
    latest = max(rows, key=lambda row: row[4] or 0)
    told = ", ".join(f"{number:,} {state}" for state, number in states.most_common())
    failed = sum(row[3] == "failed" for row in rows)
    remark = f"({count(len(rows), 'session')}: {told}{f'; {failed} failed' if failed else ''})"
    return [name, next(iter(states)) if len(states) == 1 else MIXED, sum(row[2] for row in rows), latest[3], latest[4], remark]


def _format_row(row: Row, now: float) -> tuple[str, ...]:
    name, state, runs, outcome, finished_us, remark = row
    ran = f"{outcome} {format_age(now - finished_us / 1e6)}" if outcome else "never"
    return escape(name), state, str(runs), ran, escape(remark)


# -- specs that were not taken --------------------------------------------------------------------


def _format_refusals(refused: dict[str, str], *, is_grouped: bool) -> list[str]:
    """A line for each, and one for all sessions of a template: they mostly have the same problem."""
    groups: dict[str, list[str]] = {}
    for name in sorted(refused):
        groups.setdefault((find_template(name) if is_grouped else None) or name, []).append(name)
    return [line for name, own in groups.items() for line in _format_refusal(name, own, refused[own[0]])]


def _format_refusal(name: str, own: list[str], problems: str) -> list[str]:
    """A spec that was not taken: its first problem, which often makes the others."""
    first, *rest = problems.split("\n")
    others = len(rest) + len(own) - 1
    more = f" (and {others} more: wakeful check)" if others else ""
    head, *tail = wrap(escape(f"refused: {own[0] if len(own) == 1 else name}: {first}{more}"), "  ")
    return [head[2:], *tail]

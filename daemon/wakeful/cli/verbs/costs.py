"""`wakeful costs`: prints the usage of runs by session, agent, cause and day, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.text import columns, escape, fit, format_bytes, measure, pad, paint

# The heading of each figure. The values have their units with them.
HEADINGS = {
    "runs": "RUNS", "failed": "FAIL", "cpu_seconds": "CPU", "wall_seconds": "WALL", "tokens": "TOKENS", "usd": "USD",
    "read_bytes": "READ", "written_bytes": "WROTE", "output_bytes": "PRINTED",
}  # fmt: skip
# Tokens that are estimated because no provider counted them: a mark in the table, a column in CSV.
ESTIMATED = "estimated_tokens"
# Columns to which a longer name is cut on a narrow screen. A day has ten characters, so it is never cut.
NARROWEST_KEY = 10
# The number of figures that even the narrowest screen shows: runs, failed runs, CPU and wall time.
FIGURES_KEPT = 4
_SPANS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def costs_verb(options: Options, by: str, since: str | None, is_csv: bool) -> None:
    if is_csv and options.is_json:
        raise click.UsageError("give --csv or --json, not both")
    found = options.client().get("/costs", by=by, since=since)
    if options.is_json:
        print(json.dumps(found))
    elif is_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        names = (*found["by"], *HEADINGS, ESTIMATED)
        writer.writerow(names)
        writer.writerows([row[name] for name in names] for row in found["rows"])
    elif not found["rows"]:
        print("no run has ended" + (" since then" if since else " yet"))
    else:
        print("\n".join(format_costs(found)))


def format_costs(found: dict[str, Any]) -> Iterator[str]:
    """Format the table: names to the left, figures to the right.

    On a narrow screen, figures are left out before a name is cut.
    """
    keys = found["by"]
    # Without an agent's work the columns of tokens would be empty.
    shown = [name for name in HEADINGS if name not in ("tokens", "usd") or found["total"]["tokens"]]
    rows = [([escape(row[key] or "-") for key in keys], _format_figures(row, shown)) for row in found["rows"]]
    rows.append((["total", *[""] * (len(keys) - 1)], _format_figures(found["total"], shown)))
    rows.insert(0, ([key.upper() for key in keys], [HEADINGS[name] for name in shown]))
    left = [max(map(measure, column)) for column in zip(*(names for names, _ in rows), strict=True)]
    right = [max(map(measure, column)) for column in zip(*(figures for _, figures in rows), strict=True)]
    _squeeze(left, right)
    for index, (names, figures) in enumerate(rows):
        line = _format_row(names, figures, left, right)
        yield paint(line, "dim" if index == 0 else "bold" if index == len(rows) - 1 else "")
    if found["total"][ESTIMATED]:
        yield paint(
            f"~ with {found['total'][ESTIMATED]:,} tokens by estimate: "
            "their provider told no number, or no answer came",
            "dim",
        )


def _squeeze(left: list[int], right: list[int]) -> None:
    """Make the columns narrower until the table fits the screen."""
    while sum(left) + sum(right) + 2 * (len(left) + len(right) - 1) > columns():
        if len(right) > FIGURES_KEPT:
            right.pop()
        elif max(left) > NARROWEST_KEY:
            left[left.index(max(left))] -= 1
        else:
            return


def _format_row(names: Sequence[str], figures: Sequence[str], left: Sequence[int], right: Sequence[int]) -> str:
    cells = [pad(fit(name, width), width) for name, width in zip(names, left, strict=True)]
    return "  ".join([*cells, *(figure.rjust(width) for figure, width in zip(figures, right, strict=False))])


def _format_figures(row: dict[str, Any], shown: Sequence[str]) -> list[str]:
    return [("~" if name == "tokens" and row[ESTIMATED] else "") + _format_figure(name, row[name]) for name in shown]


def _format_figure(name: str, value: float) -> str:
    if name.endswith("_seconds"):
        size, unit = next((one for one in _SPANS if value >= one[0]), _SPANS[-1])
        return f"{value / size:.1f}{unit}" if size > 1 or value < 10 else f"{value:.0f}s"
    if name == "usd":
        return f"{value:.2f}" if value == 0 or value >= 0.01 else f"{value:.4f}"
    return format_bytes(int(value)) if name.endswith("_bytes") else str(value)

"""The overviews of all sessions: `timeline`, `graph` and `costs`, as tables, CSV or JSON; and `health`.

`health` prints the findings that need a person's attention. Exit code 0: healthy. 1: a person should look. 3: no daemon
answers.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import (
    Colour,
    columns,
    count,
    escape,
    find_colour,
    fit,
    format_bytes,
    format_exact,
    format_span,
    format_table,
    measure,
    pad,
    paint,
    parse_time,
    wrap,
)

# The indent of a session's lists. The label before a list is padded to it.
_INDENT = " " * 10
# The heading of each figure. Each value is printed with its unit.
HEADINGS = {
    "runs": "RUNS", "failed": "FAIL", "cpu_seconds": "CPU", "wall_seconds": "WALL", "tokens": "TOKENS", "usd": "USD",
    "read_bytes": "READ", "written_bytes": "WROTE", "output_bytes": "PRINTED",
}  # fmt: skip
# The key of tokens that are estimated, because no provider counted them. A table marks the figure, CSV has a column.
ESTIMATED = "estimated_tokens"
# The width to which a longer name is cut on a narrow screen. A day has ten characters, so it is never cut.
NARROWEST_KEY = 10
# The number of figures that even the narrowest screen shows: runs, failed runs, CPU and wall time.
FIGURES_KEPT = 4
_SPANS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
# The width of the longest kind of finding.
_KIND_WIDTH = 8


def timeline_verb(
    options: Options, name: Sequence[str], since: str | None, until: str | None, limit: int | None
) -> None:
    found = options.client().get("/timeline", name=list(name), since=since, until=until, limit=limit)
    if options.is_json:
        print(json.dumps(found))
        return
    rows = sorted([*map(_make_run_row, found["runs"]), *map(_make_mark_row, found["marks"])])
    if not rows:
        print(f"no run since {format_exact(found['since'])}")
        return
    cells = [row[1:] for row in rows]
    colours: list[tuple[Colour, ...]] = [("dim", "", "", "", find_colour(row[4]), "") for row in cells]
    print("\n".join(format_table(("WHEN", "SESSION", "RUN", "TOOK", "ENDED", "WHY"), cells, colours)))
    if found["is_cut"]:
        print(paint("older ones are not shown; ask for more with --limit, or for a shorter time with --since", "dim"))


def _make_run_row(run: dict[str, Any]) -> tuple[str, ...]:
    """Return the time to sort by, then the cells."""
    took = format_span(run["seconds"]) if run["seconds"] is not None else "-"
    why = run["causes"] if run["outcome"] in (None, "succeeded") else f"{run['reason'] or ''} ({run['causes']})"
    return (
        run["started_at"],
        format_exact(run["started_at"]),
        escape(run["session"]),
        str(run["run"]),
        took,
        run["outcome"] or "running",
        escape(why.strip()),
    )


def _make_mark_row(mark: dict[str, Any]) -> tuple[str, ...]:
    times = f" ({mark['count']} times)" if mark["count"] > 1 else ""
    return (
        mark["at"],
        format_exact(mark["at"]),
        escape(mark["session"]),
        "-",
        "-",
        mark["kind"].replace("_", " "),
        escape(f"{mark['words']}{times}"),
    )


def graph_verb(options: Options, focus: str | None, depth: int | None) -> None:
    found = options.client().get("/graph", focus=_resolve_focus(focus), depth=depth)
    if options.is_json:
        print(json.dumps(found))
        return
    if not found["nodes"]:
        print("no session reads or writes anything yet")
        return
    print("\n".join(format_graph(found)))
    if found["is_cut"]:
        words = f"{found['all_nodes']} places in all; name a session or a file to see only the part around it"
        print(paint("\n".join(wrap(words)), "dim"))


def _resolve_focus(focus: str | None) -> str | None:
    """Return the absolute path if the focus is a file of the present folder. Any other focus is a session's name."""
    return os.path.abspath(focus) if focus is not None and os.path.exists(focus) else focus


def format_graph(found: dict[str, Any]) -> Iterator[str]:
    """Format a block for each session: the paths it reads and writes, and the sessions that its changes wake."""
    nodes = {one["id"]: one for one in found["nodes"]}
    for node in sorted((one for one in found["nodes"] if one["kind"] == "session"), key=lambda one: str(one["what"])):
        own = node["id"]
        reads = [_name_place(nodes[edge["from"]], edge) for edge in found["edges"] if edge["to"] == own]
        written = {edge["to"] for edge in found["edges"] if edge["from"] == own}
        writes = sorted(nodes[one]["label"] for one in written if nodes[one]["kind"] != "session")
        wakes = {one for one in written if nodes[one]["kind"] == "session"}
        wakes |= {edge["to"] for edge in found["edges"] if edge["from"] in written and edge["wake"]}
        yield paint(escape(node["what"]), "bold")
        yield from _list("reads", reads)
        yield from _list("writes", writes)
        yield from _list("wakes", sorted(nodes[one]["label"] for one in wakes - {own} if one.startswith("session:")))


def _name_place(node: dict[str, Any], edge: dict[str, Any]) -> str:
    label = f"session {node['label']}" if node["kind"] == "session" else node["label"]
    return label if edge["wake"] else f"{label} (does not wake)"


def _list(word: str, items: Sequence[str]) -> Iterator[str]:
    for number, item in enumerate(items):
        head = f"  {word}" if number == 0 else ""
        yield f"{head:<{len(_INDENT)}}{escape(item)}"


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
            "their provider reported no number, or no answer came",
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


def health_verb(options: Options) -> None:
    # Without `plain` the daemon gives an error status if something is wrong, as probes expect. The body says the same.
    health = options.client().get("/health", plain="true")
    if options.is_json:
        print(json.dumps(health))
    else:
        _print_health(health)
    if not health["healthy"]:
        raise Failure(code=FAILED)


def _print_health(health: dict[str, Any]) -> None:
    wrong = [one for one in health["findings"] if one["level"] == "wrong"]
    notes = [one for one in health["findings"] if one["level"] == "note"]
    print(paint("healthy", "good") if health["healthy"] else paint("needs attention", "bad"), end="")
    print(f": {_summarise(health)}")
    for one in (*wrong, *notes):
        _print_finding(one)
    if health["left_out"]:
        print(f"  and {count(health['left_out'], 'more finding')}; wakeful list --failed, wakeful doctor")


def _summarise(health: dict[str, Any]) -> str:
    sessions = dict(health["sessions"])
    queued, asking, failed = sessions.pop("queued"), sessions.pop("asking"), sessions.pop("failed")
    parts = [count(sum(sessions.values()), "session")]
    parts += [
        f"{number} {word}" for number, word in ((sessions.get("running", 0), "running"), (queued, "queued")) if number
    ]
    parts += [f"{number} {word}" for number, word in ((failed, "failed"), (asking, "asking")) if number]
    return (
        f"{', '.join(parts)}; log at {health['log']['position']:,}; {format_bytes(health['disk']['free_bytes'])} free"
    )


def _print_finding(one: dict[str, Any]) -> None:
    word = one["what"] if one["level"] == "wrong" else "note"
    since = f", since {_say_since(one['since'])}" if one["since"] else ""
    lead = " " * (_KIND_WIDTH + 4)
    first, *rest = wrap(escape(one["words"] + since), lead)
    print(f"  {paint(f'{word:<{_KIND_WIDTH}}', 'bad' if one['level'] == 'wrong' else 'warn')}  {first.lstrip()}")
    for line in rest:
        print(line)
    if one["mend"]:
        print(f"{lead}{paint(escape(one['mend']), 'bold')}")


def _say_since(text: str) -> str:
    at = parse_time(text).astimezone()
    now = datetime.now(UTC).astimezone()
    when = at.strftime("%H:%M") if at.date() == now.date() else at.strftime("%Y-%m-%d %H:%M")
    minutes = max(0, int((now - at).total_seconds() // 60))
    if minutes < 120:
        return f"{when} ({minutes} min ago)"
    hours = minutes // 60
    return f"{when} ({hours} h ago)" if hours < 48 else f"{when} ({hours // 24} days ago)"

"""`wakeful top`: shows what runs, what it uses and what is owed, live on a terminal or as one frame.

The daemon reports the CPU seconds of a run so far. The share of a core is computed between two frames, and in the first
frame since the run's start. All cells are escaped and passed to rich as plain text, so that rich interprets no markup
in them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wakeful.cli.client import Client, Options
from wakeful.cli.text import (
    columns,
    count,
    escape,
    format_ago,
    format_bytes,
    is_coloured,
    measure,
    parse_time,
    say_slots,
)
from wakeful.cli.verbs.calls import read_duration

STYLES = {"running": "cyan", "sleeping": "yellow", "terminated": "dim", "archived": "dim", "queued": "bold"}
ENDING = ("q", "Q", "\x03", "\x04")
# The order of the rows: running sessions first, then queued ones, held ones and the rest.
RANKS = {"running": 0, "queued": 1, "sleeping": 2, "suspended": 3, "terminated": 4, "archived": 5}
# The lines around the rows: the title, the table's heading, and a line for the rows that did not fit.
LINES_BESIDE_ROWS = 4
HEADINGS = ("NAME", "STATE", "CPU", "MEM", "RUNS", "OWED", "")
WIDEST_NAME = 28
NARROWEST_REMARK = 10


class Row(NamedTuple):
    """One session in a frame. `cpu` is a share of one core, or None if nothing runs."""

    name: str
    state: str
    cpu: float | None
    rss_bytes: int | None
    runs: int
    owed: int
    remark: str


class Frame(NamedTuple):
    heading: str
    rows: list[Row]


def top_verb(options: Options, is_once: bool, every: str, order: str) -> None:
    pause = max(read_duration(every), 0.1)
    client = options.client()
    if options.is_json:
        print(json.dumps(_join(client.get("/top"), None)))
    elif is_once or not sys.stdout.isatty() or not sys.stdin.isatty():
        print(_format_frame(build_frame(client.get("/top"), None, order)))
    else:
        _watch(client, pause, order)


def _make_console(width: int | None) -> Console:
    """Make a console that uses colour as all verbs do, not by rich's own rule."""
    colours: Literal["standard"] | None = "standard" if is_coloured() else None
    return Console(width=width, color_system=colours, highlight=False, markup=False, emoji=False)


def _format_frame(frame: Frame) -> str:
    console = _make_console(columns())
    with console.capture() as capture:
        console.print(_draw(frame, None, console.width))
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def _watch(client: Client, pause: float, order: str) -> None:
    before: dict[str, Any] | None = None
    console = _make_console(None)
    # Ctrl-C ends the display like `q`, with exit code 0.
    with (
        contextlib.suppress(KeyboardInterrupt),
        _reading_keys(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            found = client.get("/top")
            live.update(
                _draw(build_frame(found, before, order), console.height - LINES_BESIDE_ROWS, console.width),
                refresh=True,
            )
            before = found
            if _wait_for_end(pause):
                return


@contextlib.contextmanager
def _reading_keys() -> Iterator[None]:
    """Read keys one by one without echo, and restore the terminal afterwards."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait_for_end(seconds: float) -> bool:
    """Wait for the next frame. True if the person asked to quit. Other keys are ignored."""
    end = time.monotonic() + seconds
    looking = select.poll()
    looking.register(sys.stdin, select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        if looking.poll(left * 1000):
            # An empty read means that the terminal is gone.
            key = os.read(sys.stdin.fileno(), 1).decode(errors="replace")
            if not key or key in ENDING:
                return True
    return False


# -- from an answer to rows -----------------------------------------------------------------------


def build_frame(found: dict[str, Any], before: dict[str, Any] | None, order: str) -> Frame:
    rows = [_build_row(one) for one in _join(found, before)["sessions"]]
    rows.sort(key=lambda row: _rank(row, order))
    return Frame(_say_heading(found, before, rows), rows)


def _join(found: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Join each run to its session, as --json prints it."""
    sessions = []
    for row in found["sessions"]:
        run = found["runs"].get(row["id"])
        cpu = _share(run, found, before, row["id"]) if run is not None and run["usage"] else None
        sessions.append({**row, "run": run and {**run, "cpu": cpu}})
    return {**{key: value for key, value in found.items() if key != "runs"}, "sessions": sessions}


def _share(run: dict[str, Any], found: dict[str, Any], before: dict[str, Any] | None, session: str) -> float:
    """Compute the share of one core since the previous frame.

    If the run was not in the previous frame, the share is that since the run's start.
    """
    usage = run["usage"]
    earlier = before["runs"].get(session) if before is not None else None
    if before is None or earlier is None or earlier["run"] != run["run"] or not earlier["usage"]:
        return float(usage["cpu_seconds"] / max(usage["wall_seconds"], 0.01))
    # The CPU time of ended processes may be counted late, so the difference can be negative.
    return float(max(usage["cpu_seconds"] - earlier["usage"]["cpu_seconds"], 0.0) / _span(found, before))


def _span(found: dict[str, Any], before: dict[str, Any]) -> float:
    return max((parse_time(found["at"]) - parse_time(before["at"])).total_seconds(), 0.01)


def _build_row(one: dict[str, Any]) -> Row:
    run = one["run"]
    usage = run["usage"] if run is not None else None
    state = "queued" if one["queued"] and one["state"] == "suspended" else one["state"]
    return Row(
        one["name"],
        state,
        run["cpu"] if run is not None else None,
        usage["rss_bytes"] if usage else None,
        one["runs"],
        len(one["owed"]),
        _say_remark(one, state),
    )


def _say_remark(one: dict[str, Any], state: str) -> str:
    """Choose the most important remark: since when it runs, why it sleeps, what it waits for, what is new, or how it
    last ended.
    """
    if one["run"] is not None:
        return f"run {one['run']['run']}, began {format_ago(one['run']['started_at'])}"
    if state == "sleeping":
        return one["reason"] or ""
    if state == "queued":
        return f"waits: {one['queued']}"
    if one["owed"]:
        return f"new: {', '.join(one['owed'])}"
    last = one["last_run"]
    return f"{last['outcome']} {format_ago(last['finished_at'])}" if last is not None else ""


def _rank(row: Row, order: str) -> tuple[Any, ...]:
    by_state = (RANKS.get(row.state, 9), -(row.cpu or 0), -row.owed, row.name)
    match order:
        case "cpu":
            return (-(row.cpu if row.cpu is not None else -1), *by_state)
        case "memory":
            return (-(row.rss_bytes if row.rss_bytes is not None else -1), *by_state)
        case "runs":
            return (-row.runs, *by_state)
        case "name":
            return (row.name,)
        case _:
            return by_state


def _say_heading(found: dict[str, Any], before: dict[str, Any] | None, rows: list[Row]) -> str:
    counts = {state: sum(row.state == state for row in rows) for state in ("running", "queued", "sleeping")}
    told = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    own = found["daemon"]
    since = (parse_time(found["at"]) - parse_time(found["started_at"])).total_seconds()
    spent = (
        own["cpu_seconds"] / max(since, 0.01)
        if before is None
        else (own["cpu_seconds"] - before["daemon"]["cpu_seconds"]) / _span(found, before)
    )
    sessions = count(len(rows), "session")
    slots = say_slots(found["slots"])
    return (
        f"{sessions}{f': {told}' if told else ''}; {slots}; daemon {_say_share(spent)}, "
        f"{format_bytes(own['rss_bytes'])}"
    )


# -- from rows to a screen ------------------------------------------------------------------------


def _draw(frame: Frame, most: int | None, width: int) -> Group:
    """Draw a frame. `most` is the number of rows that fit; None draws all.

    On a narrow screen only the remark is cut. Without fixed widths rich would shrink every column.
    """
    shown = frame.rows if most is None else frame.rows[: max(most, 1)]
    rows = [_say_row(row) for row in shown]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    left = width
    for heading, cells in zip(HEADINGS, zip(*rows, strict=True), strict=True) if rows else ():
        wanted = max(map(measure, (heading, *cells)))
        taken = max(left, NARROWEST_REMARK) if not heading else min(wanted, WIDEST_NAME)
        table.add_column(
            heading,
            justify="left" if heading in ("NAME", "STATE", "") else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=min(wanted, taken),
        )
        left -= taken + 2
    for row, cells in zip(shown, rows, strict=True):
        table.add_row(*map(Text, cells), style=STYLES.get(row.state, ""))
    more = [Text(f"… {len(frame.rows) - len(shown)} more", style="dim")] if len(frame.rows) > len(shown) else []
    return Group(Text(frame.heading, style="bold", no_wrap=True, overflow="ellipsis"), table, *more)


def _say_row(row: Row) -> tuple[str, ...]:
    cells = (row.name, row.state, _say_share(row.cpu), _say_memory(row), str(row.runs), str(row.owed or ""), row.remark)
    return tuple(map(escape, cells))


def _say_share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _say_memory(row: Row) -> str:
    return "" if row.rss_bytes is None else format_bytes(row.rss_bytes)

"""`wakeful timeline` and `wakeful graph`: two pages of the dashboard as text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.text import escape, format_exact, format_span, format_table, paint, wrap

# The labels before a session's lists are padded to the longest label.
_INDENT = " " * 10


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
    colours = [("dim", "", "", "", row[4], "") for row in cells]
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
        words = f"{found['all_nodes']} places in all; name a session or a file to see what is around it"
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

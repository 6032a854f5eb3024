"""`why` and `plan`: the daemon's sentences and waves, printed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_values import SESSION_OR_PATH, complete_files
from wakeful.cli.options import Options
from wakeful.cli.text import escape, paint, say_slots, show_local_times, wrap


@verb(
    "why",
    "wakeful why payroll             # why it ran, or does not",
    "wakeful why payroll#3           # what led to run 3",
    "wakeful why out/payroll.csv     # who wrote it, who reads it",
)
@click.argument("x", type=SESSION_OR_PATH, metavar="SESSION|SESSION#RUN|PATH")
@click.option("--run", type=click.IntRange(1), metavar="N", help="Of SESSION, this run: the same as SESSION#N.")
def why_verb(options: Options, x: str, run: int | None) -> None:
    """For a session: why it ran last, or why it does not run. For a run: the whole chain that led to it, across
    sessions. For a path: which run wrote it, what led to that, and who reads it."""
    found = options.client().get("/why", x=x, path=os.path.abspath(x), run=run)
    if options.is_json:
        print(json.dumps(found))
        return
    for sentence in found["words"]:
        print("\n".join(wrap(show_local_times(escape(sentence)))))
    # One link alone says what the sentences said.
    for links in (found.get("links", ()), *(output.get("links", ()) for output in found.get("outputs", ()))):
        if len(links) > 1 or found["about"] == "run":
            print("\n".join(_format_chain(links)))


def _format_chain(links: list[dict[str, Any]]) -> Iterator[str]:
    """The run that was asked about, and below it the runs it came of."""
    for number, link in enumerate(links, 1):
        first, *rest = link["words"]
        head, *more = wrap(show_local_times(escape(f"{number}. {first}")), "   ")
        yield from (paint(line, link["outcome"] or "") for line in (head[3:], *more))
        for sentence in rest:
            yield from (paint(line, "dim") for line in wrap(show_local_times(escape(sentence)), "   "))


@verb(
    "plan",
    "wakeful plan                    # what is owed now",
    "wakeful plan salaries.csv       # what would wake if it changed",
)
@click.argument("paths", nargs=-1, shell_complete=complete_files, metavar="[PATH]...")
def plan_verb(options: Options, paths: tuple[str, ...]) -> None:
    """What would wake if these paths changed, in the order of the graph.

    Without a path: what is owed and queued now.
    """
    found = options.client().get("/plan", path=[os.path.abspath(path) for path in paths] or None)
    if options.is_json:
        print(json.dumps(found))
        return
    for line in _format_now(found) if "now" in found else _format_waves(found):
        print(line)
    for line in wrap(f"Never looked at unless named: {', '.join(found['default_excludes'])}, and the state folder."):
        print(paint(escape(line), "dim"))


def _format_now(found: dict[str, Any]) -> list[str]:
    if not found["now"]:
        return ["Nothing is owed, nothing runs."]
    lines = []
    for entry in found["now"]:
        doing = (
            f"run {entry['run']} is under way"
            if entry["run"]
            else f"waits: {entry['held'] or entry['queued'] or 'settling'}"
        )
        new = f" (new: {', '.join(entry['owed'])})" if entry["owed"] else ""
        lines += _indent(f"{entry['wave']}. {entry['session']}: {doing}{new}")
    return [*lines, f"{say_slots(found['slots'])} in use."]


def _format_waves(found: dict[str, Any]) -> list[str]:
    lines = []
    for number, wave in enumerate(found["waves"], 1):
        for entry in wave:
            lines += _indent(f"{number}. {entry['session']}: {_say_why(entry)}")
    for path in found["unmatched"]:
        lines += _indent(f"{path}: wakes nobody; `wakeful why {path}` says what nearly matches")
    if len(found["waves"]) > 1:
        lines.append("Output that comes out unchanged ends the wave there.")
    return lines


def _say_why(entry: dict[str, Any]) -> str:
    parts = [f"{cause['binding']} covers {cause['path']}" for cause in entry["causes"]]
    parts += [f"reads what {name} writes" for name in entry["upstream"]]
    held = f" (held now: {entry['held']})" if entry["held"] else ""
    return "; ".join(parts) + held


def _indent(text: str) -> list[str]:
    first, *rest = wrap(show_local_times(escape(text)), "   ")
    return [first[3:], *rest]

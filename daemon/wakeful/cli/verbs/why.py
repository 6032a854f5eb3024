"""`why` and `plan`: print the daemon's explanations and waves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.text import escape, find_colour, paint, say_slots, show_local_times, wrap


def why_verb(options: Options, x: str, run: int | None) -> None:
    found = options.client().get("/why", x=x, path=os.path.abspath(x), run=run)
    if options.is_json:
        print(json.dumps(found))
        return
    for sentence in found["words"]:
        print("\n".join(wrap(show_local_times(escape(sentence)))))
    # A chain of one link only repeats the sentences above.
    for links in (found.get("links", ()), *(output.get("links", ()) for output in found.get("outputs", ()))):
        if len(links) > 1 or found["about"] == "run":
            print("\n".join(_format_chain(links)))


def _format_chain(links: list[dict[str, Any]]) -> Iterator[str]:
    """Format the run that was asked about, and below it the runs that led to it."""
    for number, link in enumerate(links, 1):
        first, *rest = link["words"]
        head, *more = wrap(show_local_times(escape(f"{number}. {first}")), "   ")
        yield from (paint(line, find_colour(link["outcome"])) for line in (head[3:], *more))
        for sentence in rest:
            yield from (paint(line, "dim") for line in wrap(show_local_times(escape(sentence)), "   "))


def plan_verb(options: Options, path: tuple[str, ...]) -> None:
    found = options.client().get("/plan", path=[os.path.abspath(one) for one in path] or None)
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
        waiting = {one["binding"]: one["waiting"] for one in entry["deliveries"]}
        owed = [f"{name}: {waiting[name]:,} waiting" if name in waiting else name for name in entry["owed"]]
        new = f" (new: {', '.join(owed)})" if owed else ""
        lines += _indent(f"{entry['wave']}. {entry['session']}: {doing}{new}")
    return [*lines, f"{say_slots(found['slots'])} in use."]


def _format_waves(found: dict[str, Any]) -> list[str]:
    lines = []
    for number, wave in enumerate(found["waves"], 1):
        for entry in wave:
            lines += _indent(f"{number}. {entry['session']}: {_say_why(entry)}")
    for path in found["unmatched"]:
        lines += _indent(f"{path}: wakes no session; `wakeful why {path}` says what nearly matches")
    if len(found["waves"]) > 1:
        lines.append("The wave ends at an output that does not change.")
    return lines


def _say_why(entry: dict[str, Any]) -> str:
    parts = [f"{cause['binding']} covers {cause['path']}" for cause in entry["causes"]]
    parts += [f"reads what {name} writes" for name in entry["upstream"]]
    if entry["on_failure"]:
        parts.append(f"if it fails, {', '.join(entry['on_failure'])} wakes")
    held = f" (held now: {entry['held']})" if entry["held"] else ""
    return "; ".join(parts) + held


def _indent(text: str) -> list[str]:
    first, *rest = wrap(show_local_times(escape(text)), "   ")
    return [first[3:], *rest]

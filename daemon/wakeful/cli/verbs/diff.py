"""`wakeful diff`: compares two positions of a session, or two sessions, and prints only the differences.

Other verbs print their differences by the functions here: the previews of history.py, `replay` and `show`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.text import (
    Colour,
    count,
    escape,
    escape_lines,
    format_bytes,
    format_exact,
    measure,
    pad,
    paint,
    paint_diff,
    wrap,
)
from wakeful.views.times import shorten


def diff_verb(options: Options, a: str, b: str, contents: bool) -> None:
    found = options.client().get("/diff", a=a, b=b, contents=contents)
    if options.is_json:
        print(json.dumps(found))
        return
    print(f"{_say_side(found['a'], 'bad', '-')}\n{_say_side(found['b'], 'good', '+')}")
    lines = [*format_differences(found), *(_format_contents(found["contents"]) if contents else ())]
    print("\n".join(lines) if lines else "no difference")
    if not contents and (found["bindings"] or found["files"]):
        print(paint("\n--contents shows the changes in the files", "dim"))


def _say_side(side: dict[str, Any], colour: Colour, mark: str) -> str:
    return paint(f"{mark} {escape(side['name'])}, seq {side['seq']}", colour) + paint(
        f"  {format_exact(side['at'])}", "dim"
    )


def format_differences(found: dict[str, Any]) -> Iterator[str]:
    yield from _block("SESSION", [_format_keys(found["session"])])
    yield from _block("FACTS", [_format_facts(found["facts"])])
    yield from _block("MEMORY", [_format_keys(found["memory"])])
    yield from _block("TO-DO LIST", [_format_keys(found["todo"])])
    handoff = found["handoff"]
    yield from _block("HAND-OFF", [_format_sides(handoff["a"], handoff["b"])] if handoff else [])
    yield from _block("SPEC", [_format_keys(found["spec"])])
    width = max(
        (measure(escape(one.get("name") or one["binding"])) for one in (*found["bindings"], *found["files"])), default=0
    )
    yield from _block("BINDINGS", [_format_binding(one, width) for one in found["bindings"]])
    yield from _block("FILES", [_format_file(one, width) for one in found["files"]])


def _block(title: str, parts: list[Any]) -> Iterator[str]:
    lines = [line for part in parts for line in part]
    if lines:
        yield from ("", paint(title, "dim"), *lines)


def _format_keys(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        sides = (None if entry[side] is None else f"{entry['key']}: {_show(entry[side])}" for side in ("a", "b"))
        yield from _format_sides(*sides)


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _format_facts(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        yield from _format_sides(*(_say_fact(entry[side]) for side in ("a", "b")))


def _say_fact(fact: dict[str, Any] | None) -> str | None:
    if fact is None:
        return None
    because = f": {fact['rationale']}" if fact["rationale"] else ""
    return f"{fact['key']} = {fact['value']}  ({fact['author']}, seq {fact['seq']}{because})"


def _format_sides(a: str | None, b: str | None) -> Iterator[str]:
    """Format a person's text, and keep its line breaks: the old text, then the new one."""
    sides: tuple[tuple[str | None, str, Colour], ...] = ((a, "-", "bad"), (b, "+", "good"))
    for text, mark, colour in sides:
        for line in escape_lines(text).strip("\n").split("\n") if text is not None else ():
            first, *rest = wrap(line, "    ")
            yield from (paint(part, colour) for part in (f"  {mark} {first[4:]}", *rest))


def _format_binding(entry: dict[str, Any], width: int) -> Iterator[str]:
    head = f"  {pad(escape(entry['name']), width)}"
    if entry["change"] != "moved":
        is_added = entry["change"] == "added"
        line = f"  {'+' if is_added else '-'} {escape(entry['name'])}  {escape(entry['what'])}".rstrip()
        yield paint(line, "good" if is_added else "bad")
        return
    marks = {mark: _say_step(entry[mark]) for mark in ("seen", "good") if entry[mark]["a"] != entry[mark]["b"]}
    if len(marks) == 2 and marks["seen"] == marks["good"]:
        yield f"{head}  {marks['seen']}"
        return
    yield head + "".join(f"  {mark} {step}" for mark, step in marks.items())


def _format_file(entry: dict[str, Any], width: int) -> Iterator[str]:
    runs = entry["runs"]
    by = (
        f"  by run {runs[0]}"
        if len(runs) == 1
        else f"  by {count(len(runs), 'run')}, {runs[0]} to {runs[-1]}"
        if runs
        else ""
    )
    step = _say_step(entry) if entry["a"] != entry["b"] else f"{escape(shorten(entry['b']))} again"
    yield f"  {pad(escape(entry['binding']), width)}  {step}{by}"


def _format_contents(contents: dict[str, Any]) -> Iterator[str]:
    missing = [side for side, is_known in contents["known"].items() if not is_known]
    if missing:
        yield from _block(
            "CONTENTS",
            [[f"  no files of a run are recorded for {' and '.join(missing)}, so there is nothing to compare"]],
        )
        return
    entries = [list(_format_content(file)) for file in contents["files"]]
    if contents["left_out"]:
        entries.append([f"  … {count(contents['left_out'], 'more path')} differ"])
    yield from _block("CONTENTS", entries)


def _format_content(file: dict[str, Any]) -> Iterator[str]:
    colours: dict[str, Colour] = {"added": "good", "removed": "bad"}
    note = f"  ({file['note']})" if file["note"] and file["diff"] is None else ""
    yield paint(f"  {file['change']:<7}  {escape(file['path'])}", colours.get(file["change"], "bold")) + paint(
        escape(f"{_say_sizes(file) if note else ''}{note}"), "dim"
    )
    yield from format_diff(file["diff"])
    if file["note"] and file["diff"] is not None:
        yield paint(f"    … {escape(file['note'])}", "dim")


def _say_sizes(file: dict[str, Any]) -> str:
    sizes = [format_bytes(side["size"]) for side in (file["a"], file["b"]) if side is not None]
    return f"  {' -> '.join(sizes)}"


def format_diff(diff: str | None, indent: str = "    ") -> Iterator[str]:
    """Make each line of a unified diff safe to print. Split it at newlines only, as the text itself was split."""
    for line in diff.removesuffix("\n").split("\n") if diff else ():
        yield paint_diff(escape_lines(line), indent)


def _say_step(sides: dict[str, Any]) -> str:
    return escape(f"{shorten(sides['a'])} -> {shorten(sides['b'])}")


def say_conflict(conflict: dict[str, Any]) -> str:
    """Format a conflict that a merge left open, as `show` lists it."""
    sides = (("was", "base"), ("here", "ours"), (conflict["fork"], "theirs"))
    said = "; ".join(
        f"{who}: {value if (value := conflict.get(side)) is not None else '(none)'}" for who, side in sides
    )
    return f"{conflict['number']}  {conflict['key']}  {said}"

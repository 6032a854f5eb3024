"""The previews that `--dry-run` prints, in the words of the real answer.

history.py prints them below the daemon's sentence. Each function takes the preview of one call as `--json` has it, and
yields lines that are safe to print.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from wakeful.cli.text import escape, paint, quote_prose, wrap
from wakeful.cli.verbs.diff import format_differences


def show_rewind(preview: dict[str, Any]) -> Iterator[str]:
    """List the differences from now; with --files also the change of each path."""
    yield from format_differences(preview | {"files": []})
    files = preview["files"]
    if not isinstance(files, dict):
        return
    steps = [_say_step(step) for step in files["steps"]]
    unknown = [f"{'cannot':<8}  what {_say_writer(one)} wrote: it was not kept" for one in files["unrecorded"]]
    yield from _block(
        "FILES, what would become of them", (*steps, *unknown) or ("none of its runs wrote anything since",)
    )


def _say_step(step: dict[str, Any]) -> str:
    return f"{step['action']:<8}  {step['path']}" + (f": {step['reason']}" if step["reason"] else "")


def _say_writer(run: int | str) -> str:
    return f"run {run}" if isinstance(run, int) else run


def show_merge(preview: dict[str, Any]) -> Iterator[str]:
    yield from _block("FACTS it would take", (_say_fact(fact) for fact in preview["taken"]))
    yield from _block("FACTS it would forget", preview["retracted"])
    yield from _block(
        "CONFLICTS it would open, to be settled with wakeful resolve", map(say_conflict, preview["conflicts"])
    )
    yield from _quote("HAND-OFF it would leave", preview["summary"])
    yield from _block("FILES it would bring", (_say_file(path, words) for path, words in preview["files"].items()))


def _say_fact(fact: dict[str, Any]) -> str:
    because = f"  ({fact['rationale']})" if fact.get("rationale") else ""
    return f"{fact['key']} = {fact['value']}{because}"


def say_conflict(conflict: dict[str, Any]) -> str:
    """Format a conflict that a merge leaves open, as `show` lists it."""
    sides = (("was", "base"), ("here", "ours"), (conflict["fork"], "theirs"))
    said = "; ".join(
        f"{who}: {value if (value := conflict.get(side)) is not None else '(none)'}" for who, side in sides
    )
    return f"{conflict['number']}  {conflict['key']}  {said}"


def _say_file(path: str, words: str) -> str:
    """Format one file as the real answer does: `merged out.csv: …`."""
    ending, _, reason = words.partition(": ")
    return f"{ending:<8}  {path}" + (f": {reason}" if reason else "")


def show_compress(preview: dict[str, Any]) -> Iterator[str]:
    yield from _quote("SUMMARY that would stand for them", preview["summary"])


def show_erase(preview: dict[str, Any]) -> Iterator[str]:
    yield from _block(
        "THE RECORD, as it would be left", (f"{key}: {_say_value(value)}" for key, value in preview["stand_in"].items())
    )
    yield from _block("THE SAME WORDS stand in these records, too: wakeful erase NAME SEQ", preview["also_in"])


def _say_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _block(title: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield a heading and the texts under it, or nothing if there is no text."""
    entries = [wrap(escape(text), "    ") for text in texts]
    if not entries:
        return
    yield from ("", paint(title, "dim"))
    for first, *rest in entries:
        # Further lines of a text are indented, so that each text can be told from the next.
        yield from (first[2:].rstrip(), *rest)


def _quote(title: str, prose: str) -> Iterator[str]:
    if prose:
        yield from ("", paint(title, "dim"), *quote_prose(prose))

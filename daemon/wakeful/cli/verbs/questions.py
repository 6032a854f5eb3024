"""`wakeful answer`: prints a session's question, with the diff that it is about, and sends a person's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.text import escape, format_exact, paint
from wakeful.cli.verbs.calls import carry_out
from wakeful.client.wire import quote_name

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def answer_verb(
    options: Options, name: str, text: str | None, rationale: str | None, idempotency_key: str | None
) -> None:
    if text is not None:
        carry_out(options, "answer", idempotency_key, name=name, text=text, rationale=rationale)
        return
    if rationale is not None:
        raise click.UsageError("--because goes with an answer: wakeful answer NAME yes --because TEXT")
    found = options.client().get(f"/sessions/{quote_name(name)}/question")
    print(json.dumps(found) if options.is_json else "\n".join(_format(found)))


def _format(found: dict[str, Any]) -> Iterator[str]:
    name = escape(found["session"])
    if found["asks"] is None:
        yield f"{name} asks nothing"
        if (last := found["last_answer"]) is not None:
            who = escape(last["author"].removeprefix("person:"))
            because = f": {escape(last['rationale'])}" if last["rationale"] else ""
            yield f"{who} said {escape(last['text'])} at {format_exact(last['at'])}{because}"
        return
    yield f"{name}: {escape(found['words'])}"
    for change in found["changes"]:
        yield ""
        problem = f" (no diffs: {escape(change['problem'])})" if change["problem"] else ""
        yield f"{escape(change['words'])}{problem}"
        shown = {one["path"] for one in change["diffs"] if one["diff"]}
        yield from (f"  {escape(one['path'])} {one['change']}" for one in change["paths"] if one["path"] not in shown)
        for one in change["diffs"]:
            yield from _format_diff(one)
    if (call := found["call"]) is not None:
        yield ""
        yield f"it would call {escape(call['name'])}"
        yield from _format_diff(call["diff"]) if call["diff"] is not None else (f"  {escape(call['arguments'])}",)
    yield ""
    how = "TEXT" if found["asks"] == "question" else "yes, or no --because TEXT"
    yield f"answer with: wakeful answer {name} {how}"


def _format_diff(one: dict[str, Any]) -> Iterator[str]:
    if one["note"]:
        yield f"  {escape(one['path'])}: no diff: {escape(one['note'])}"
    for line in (one["diff"] or "").splitlines():
        yield paint(escape(line), _COLOURS.get(line[:1], ""))

"""`wakeful context`: prints the context that a session's model would get now, in its order, with tokens per part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.text import columns, count, escape, fit, measure, paint, quote_prose, wrap
from wakeful.client.wire import quote_name


def context_verb(options: Options, name: str, agent: str | None, brief: bool) -> None:
    found = options.client().get(f"/sessions/{quote_name(name)}/context", agent=agent)
    if options.is_json:
        print(json.dumps(found))
        return
    for line in format_context(found, is_brief=brief):
        print(line)


def format_context(found: dict[str, Any], *, is_brief: bool) -> Iterator[str]:
    yield from wrap(_say_whose(found))
    for part in found["instructions"]:
        yield from _format_part(f"instructions: {part['name']}", part["tokens"], part["text"], is_brief)
    yield from _format_talk(found, is_brief)
    for part in found["opening"]:
        yield from _format_part(f"opening: {part['name']}", part["tokens"], part["text"], is_brief)
    if not found["opening"]:
        yield from wrap("No opening: the run goes on in the middle, and nothing is new.")
    yield from _format_tools(found["tools"], is_brief)
    yield ""
    yield from wrap(_say_total(found))


def _say_whose(found: dict[str, Any]) -> str:
    name, model = escape(found["session"]), f" ({escape(found['model'])})" if found["model"] else ""
    who = f"agent {escape(found['agent'])}{model}"
    if found["state"] == "running":
        return f"{name} runs: run {found['run']} by {who}. A process that takes it over now would get this."
    if found["wanted"]:
        new = dict.fromkeys(escape(cause["binding"]) for cause in found["causes"])
        return f"{name}, as {who} would see it in run {found['run']} (new: {', '.join(new) or 'nothing'})."
    return f"{name} is owed no run. If it were activated now, {who} would see this."


def _format_part(head: str, tokens: int, text: str, is_brief: bool) -> Iterator[str]:
    yield from ([] if is_brief else [""])
    figure = count(tokens, "token")
    shown = fit(head, max(columns() - len(figure) - 3, 10))
    yield paint(f"{shown} {'.' * max(columns() - measure(shown) - len(figure) - 2, 1)} {figure}", "bold")
    if not is_brief:
        yield from quote_prose(text, "")


def _format_talk(found: dict[str, Any], is_brief: bool) -> Iterator[str]:
    entries = [*found["conversation"], *found["later"]]
    if is_brief and entries:
        yield from _format_part(
            f"conversation: {count(len(entries), 'turn')}", sum(entry["tokens"] for entry in entries), "", True
        )
    for entry in entries if not is_brief else ():
        yield from _format_part(f"conversation: {_name_entry(entry)}", entry["tokens"], _show_entry(entry), False)
    for call in found["pending"]:
        permitted = {True: ", which a person allowed", False: ", which a person refused"}.get(call.get("permitted"), "")
        yield from wrap(f"To be carried out first: {escape(call['name'])}({escape(call['arguments'])}){permitted}")


def _format_tools(tools: dict[str, Any] | None, is_brief: bool) -> Iterator[str]:
    """List the tools that the last run offered its model."""
    if tools is None:
        yield from wrap("Tools: their definitions are recorded from the agent's first run on.")
        return
    if is_brief:
        yield from _format_part(
            f"tools: {len(tools['offered'])}, as run {tools['run']} offered them", tools["tokens"], "", True
        )
    for tool in tools["offered"] if not is_brief else ():
        yield from _format_part(
            f"tool: {escape(tool['name'])}",
            tool["tokens"],
            f"{tool['description']}\n{json.dumps(tool['parameters'])}",
            False,
        )


def _name_entry(entry: dict[str, Any]) -> str:
    match entry["kind"]:
        case "answered":
            return f"answered by {escape(entry['model'])}"
        case "returned":
            return f"{escape(entry['name'])} {'failed' if entry['is_error'] else 'returned'}"
        case _:
            return "asked"


def _show_entry(entry: dict[str, Any]) -> str:
    calls = [f"{call['name']}({call['arguments']})" for call in entry.get("calls", ())]
    return "\n".join(filter(None, (entry["text"], *calls)))


def _say_total(found: dict[str, Any]) -> str:
    tokens, counted = found["tokens"], found["counted"]
    tools = (
        f"{found['tools']['tokens']:,} for tools and the answer"
        if found["tools"] is not None
        else "tools and the answer"
    )
    source = f" (the window: {escape(tokens['window_source'])})" if tokens["window_source"] else ""
    total = (
        f"{tokens['total']:,} of {tokens['window']:,} tokens{source}, by estimate; {tools} come on top. It is "
        f"compressed from {tokens['compress_at']:,} on."
    )
    if counted is None or not counted["estimated"]:
        return total
    error = (counted["counted"] - counted["estimated"]) / counted["estimated"]
    return (
        f"{total} Its last request was estimated at {counted['estimated']:,}; {escape(counted['model'])} counted "
        f"{counted['counted']:,} ({error:+.0%})."
    )

"""`wakeful search`: words over the logs of all sessions, the newest find first."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_values import SESSION
from wakeful.cli.options import Options
from wakeful.cli.text import columns, escape, fit, measure, pad, paint, parse_time

FOUND = 20


@verb("search", "wakeful search tax office", "wakeful search 'wage*' --session payroll --since 7d")
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
@click.option("--session", "name", type=SESSION, metavar="NAME", help="Only records of this session.")
@click.option("--since", metavar="TIME", help="RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 2h.")
@click.option("--until", metavar="TIME", help="The same.")
@click.option("--kind", multiple=True, help="Only this kind, such as note_added; may be repeated.")
@click.option("--author", help="Only records by this author, such as person:root.")
@click.option(
    "--last", type=click.IntRange(1), default=FOUND, metavar="N", help=f"How many at most, {FOUND} unless told."
)
def search_verb(options: Options, text: tuple[str, ...], last: int, **bounds: Any) -> None:
    """Records whose text holds all these words, the newest first.

    wage* finds every word that begins so; "several words" in quotes of their own (so '"tax office"') stand together.
    """
    lines = options.client().stream_lines("/search", text=" ".join(text), last=last, **bounds)
    if options.is_json:
        for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        return
    found = [json.loads(line) for line in lines]
    if not found:
        print("nothing found")
        return
    heads = [f"{escape(one['session'])} {one['seq']}" for one in found]
    width, kinds = max(map(measure, heads)), max(len(one["kind"]) for one in found)
    for head, one in zip(heads, found, strict=True):
        print(_format_find(pad(head, width), one, kinds))
    if len(found) == last:
        print(paint(f"the newest {last}; --last N shows more", "dim"))


def _format_find(head: str, find: dict[str, Any], kinds: int) -> str:
    when = parse_time(find["at"]).astimezone().strftime("%Y-%m-%d %H:%M")
    middle = f"  {when}  {find['kind']:<{kinds}}  "
    excerpt = fit(escape(find["excerpt"] or ""), max(columns() - measure(head) - len(middle), 20))
    return f"{paint(head, 'bold')}{paint(middle, 'dim')}{excerpt}".rstrip()

"""`wakeful notify`: lists the notifiers with their deliveries, and sends a message by hand."""

from __future__ import annotations

import json
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import count, escape, format_ago, measure, pad, paint

_HEADINGS = ("NAME", "BY", "TO", "ON", "DELIVERED", "LAST")


def notify_verb(options: Options, what: str, name: str | None) -> None:
    if (what == "list") != (name is None):
        raise click.UsageError("list takes no name" if what == "list" else "say which: wakeful notify test NAME")
    if what == "test":
        _test(options, str(name))
    else:
        _print_list(options)


def _test(options: Options, name: str) -> None:
    answer = options.client().post("/notify/test", name=name)
    if options.is_json:
        print(json.dumps(answer))
    else:
        verdict = "delivered" if answer["is_delivered"] else "not delivered"
        print(f"{escape(answer['name'])}: {verdict}: {escape(answer['words'])}")
    if not answer["is_delivered"]:
        raise Failure(code=FAILED)


def _print_list(options: Options) -> None:
    rows = options.client().get("/notify")
    if options.is_json:
        print(json.dumps(rows))
        return
    if not rows:
        print("no notifiers; add one to wakeful.yaml, such as: notify: {me: {desktop: true}}")
        return
    shown = [_HEADINGS, *(tuple(map(escape, _cells(row))) for row in rows)]
    widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
    for number, row in enumerate(shown):
        line = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(paint(line, "dim" if number == 0 else ""))
        for problem in _list_problems(rows[number - 1]) if number else ():
            print(f"  {paint(escape(problem), 'warn')}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    last = row["ended"][0] if row["ended"] else None
    return (
        row["name"],
        row["kind"],
        row["target"],
        "all" if len(row["on"]) == 5 else ",".join(row["on"]),
        f"{row['delivered']}" + (f", {row['given_up']} given up" if row["given_up"] else ""),
        f"{format_ago(last['at'])}: {last['title']}" if last is not None else "-",
    )


def _list_problems(row: dict[str, Any]) -> list[str]:
    found = []
    if row["disabled"]:
        found.append(f"disabled: {row['disabled']}")
    if row["trying"]:
        one = row["trying"]
        found.append(
            f"attempt {one['attempts']} of {one['most_attempts']} failed: {one['problem']}; "
            f"again {format_ago(one['next_at'])}"
        )
    elif row["ended"] and row["ended"][0]["problem"] and not row["disabled"]:
        found.append(f"the last one was given up: {row['ended'][0]['problem']}")
    if row["waiting"] and not row["trying"]:
        found.append(f"{count(row['waiting'], 'message')} waiting")
    return found

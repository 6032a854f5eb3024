"""`wakeful webhook`: lists the webhook addresses and their deliveries, and sends a delivery by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.text import escape, format_ago, measure, pad, paint
from wakeful.errors import CallerError

_HEADINGS = ("ADDRESS", "SENDER", "SECRET", "LAST", "ACCEPTED", "WAITING", "FILTERED", "TWICE", "REFUSED")


def webhook_verb(
    options: Options,
    what: str,
    name: str | None,
    file: str | None,
    binding: str | None,
    event: str | None,
    delivery: str | None,
) -> None:
    if what == "list":
        if name or file or binding or event or delivery:
            raise click.UsageError("list takes no other arguments")
        _print_list(options)
        return
    if name is None or file is None:
        raise click.UsageError("give a session and a file: wakeful webhook test NAME FILE")
    given = {"binding": binding, "event": event, "delivery": delivery}
    answer = options.client().post(
        "/webhooks/test",
        name=name,
        payload=_read(file),
        **{key: value for key, value in given.items() if value is not None},
    )
    print(json.dumps(answer) if options.is_json else f"{escape(answer['name'])}: {escape(answer['words'])}")


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except UnicodeDecodeError:
        raise CallerError(f"{file} is not UTF-8 text; deliver it with curl, signed as its sender would") from None
    except OSError as error:
        raise CallerError(f"{file} cannot be read: {error.strerror}") from None


def _print_list(options: Options) -> None:
    found = options.client().get("/webhooks")
    if options.is_json:
        print(json.dumps(found))
        return
    rows = found["webhooks"]
    if not rows:
        print("no webhooks; add one to a spec: hook: {webhook: github, secret: NAME}")
        return
    shown = [_HEADINGS, *(tuple(map(escape, _cells(row))) for row in rows)]
    widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
    for number, cells in enumerate(shown):
        line = "  ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        print(paint(line, "dim") if number == 0 else line)
        _print_trouble(rows[number - 1] if number else {})


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["url"] or row["address"],
        row["sender"],
        ", ".join(row["secrets"]) or "none",
        format_ago(row["last_at"]) if row["last_at"] else "never",
        *(str(row[key]) for key in ("accepted", "waiting", "filtered", "duplicates", "refused")),
    )


def _print_trouble(row: dict[str, Any]) -> None:
    if row.get("problem"):
        print(paint(f"  {escape(row['problem'])}", "bad"))
    if row.get("last_refusal"):
        refusal = row["last_refusal"]
        print(paint(f"  refused {format_ago(refusal['at'])}: {escape(refusal['reason'])}", "warn"))

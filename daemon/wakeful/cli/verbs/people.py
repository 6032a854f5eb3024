"""`wakeful people`: lists the people who may use the daemon, and their roles. `wakeful presence`: lists those who are
here now.
"""

from __future__ import annotations

import json
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.text import escape, format_ago, measure, pad, paint

_PEOPLE = ("NAME", "ROLE", "SESSIONS", "ACCOUNT", "TOKENS", "LET IN", "BY")
_PRESENT = ("PERSON", "SESSION", "DOES", "SINCE")
_CHANGES = ("WHEN", "BY", "NAME", "CHANGE")


def people_verb(options: Options, what: str, name: str | None, role: str | None, session: str | None) -> None:
    if (what in ("list", "changes")) == (name is not None):
        raise click.UsageError(f"{what} takes no NAME" if name is not None else f"say who: wakeful people {what} NAME")
    if what not in ("add", "role") and (role or session):
        raise click.UsageError(f"{what} takes neither --role nor --session")
    if what in ("add", "role") and (role is None or (what == "add" and role == "none")):
        raise click.UsageError("say what they may do with --role: maintainer, contributor or observer")
    match what:
        case "list" | "changes":
            _print_found(options, what)
        case "remove":
            _print_done(options, "/people/remove", name=name)
        case _:
            _print_done(options, f"/people/{what}", name=name, role=None if role == "none" else role, session=session)


def _print_done(options: Options, path: str, **body: Any) -> None:
    answer = options.client().post(path, **body)
    print(json.dumps(answer) if options.is_json else f"{escape(answer['name'])}: {escape(answer['words'])}")


def _print_found(options: Options, what: str) -> None:
    found = options.client().get("/people")
    rows = found["people" if what == "list" else "changes"]
    if options.is_json:
        print(json.dumps(rows))
    elif not rows:
        print("nobody but you; let somebody in with: wakeful people add NAME --role observer")
    elif what == "list":
        print_table(_PEOPLE, [_list_cells(row) for row in rows])
    else:
        print_table(_CHANGES, [(format_ago(row["at"]), row["by"], row["name"], row["words"]) for row in rows])


def _list_cells(row: dict[str, Any]) -> tuple[str, ...]:
    sessions = ", ".join(f"{name}: {role}" for name, role in row["sessions"].items())
    return (
        row["name"],
        row["role"] or "-",
        sessions or ("all" if row["role"] else "-"),
        row["account"] or "-",
        str(row["tokens"]),
        format_ago(row["made_at"]),
        row["made_by"],
    )


def presence_verb(options: Options, name: str | None) -> None:
    rows = options.client().get("/presence", name=name)
    if options.is_json:
        print(json.dumps(rows))
    elif not rows:
        print("nobody looks or writes here now" if name is not None else "nobody looks at a session now")
    else:
        print_table(_PRESENT, [(row["person"], row["session"], row["doing"], format_ago(row["since"])) for row in rows])


def print_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    shown = [headings, *(tuple(map(escape, row)) for row in rows)]
    widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
    for number, row in enumerate(shown):
        line = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(paint(line, "dim" if number == 0 else ""))

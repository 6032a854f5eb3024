"""`wakeful token`: makes, lists and revokes tokens, which let others use the daemon."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.text import escape, format_ago, format_exact, measure, pad, paint
from wakeful.cli.verbs.calls import read_duration

SCOPES = ("read", "send", "run", "admin")
_HEADINGS = ("ID", "PERSON", "SCOPES", "SESSION", "MADE", "ENDS", "NOTE")


def token_verb(
    options: Options,
    what: str,
    token_id: str | None,
    scopes: tuple[str, ...],
    session: str | None,
    length: str | None,
    person: str | None,
    note: str | None,
) -> None:
    if what != "new" and (scopes or session or length or person or note):
        raise click.UsageError(f"{what} takes none of --scope, --session, --for, --person and --note")
    if (what == "revoke") != (token_id is not None):
        raise click.UsageError("say which: wakeful token revoke ID" if what == "revoke" else f"{what} takes no ID")
    match what:
        case "new":
            _make(options, scopes, session, length, person, note)
        case "list":
            _print_list(options)
        case _:
            answer = options.client().post("/tokens/revoke", id=token_id)
            print(json.dumps(answer) if options.is_json else f"{escape(answer['id'])} {escape(answer['words'])}")


def _make(
    options: Options,
    scopes: tuple[str, ...],
    session: str | None,
    length: str | None,
    person: str | None,
    note: str | None,
) -> None:
    if not scopes and person is None:
        raise click.UsageError(f"say what it opens with --scope: {', '.join(SCOPES)}; or whose it is with --person")
    seconds = read_duration(length) if length is not None else None
    made = options.client().post("/tokens", scopes=scopes, session=session, seconds=seconds, note=note, person=person)
    if options.is_json:
        print(json.dumps(made))
        return
    # Standard output has only the token, so that it can be piped to a file or a vault.
    print(made["token"])
    until = f" until {format_exact(made['expires_at'])}" if made["expires_at"] else " until it is revoked"
    where = f" for {escape(made['session'])}" if made["session"] else ""
    opens = ", ".join(made["scopes"])
    if made["person"] is not None:
        opens = f"{opens if scopes else 'everything'} as far as the role of {escape(made['person'])} reaches"
    print(
        f"wakeful: token {made['id']} opens {opens}{where}{until}; it is not shown again",
        file=sys.stderr,
    )


def _print_list(options: Options) -> None:
    rows = options.client().get("/tokens")
    if options.is_json:
        print(json.dumps(rows))
    elif not rows:
        print("no tokens; make one with: wakeful token new --scope read")
    else:
        shown = [_HEADINGS, *(tuple(map(escape, _cells(row))) for row in rows)]
        widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
        for number, row in enumerate(shown):
            line = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
            print(paint(line, "dim" if number == 0 or rows[number - 1]["is_over"] else ""))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    # Such a token lasts until it is revoked, and a revoked token is not listed.
    unused = "30 d unused" if row["is_browser"] else "when revoked"
    ends = "over" if row["is_over"] else format_ago(row["expires_at"]) if row["expires_at"] else unused
    return (
        row["id"],
        row["person"] or "-",
        ",".join(row["scopes"]),
        row["session"] or "all",
        format_ago(row["made_at"]),
        ends,
        row["note"] or "-",
    )

"""The verbs for the people who may use the daemon.

`people` manages people and their roles, `presence` prints who is here now, `token` manages tokens. `dashboard` prints a
link that logs one browser in, and opens it if there is a display.
"""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.text import escape, format_ago, format_exact, measure, pad, paint
from wakeful.cli.verbs.calls import read_duration

_PEOPLE = ("NAME", "ROLE", "SESSIONS", "ACCOUNT", "TOKENS", "LET IN", "BY")
_PRESENT = ("PERSON", "SESSION", "DOES", "SINCE")
_CHANGES = ("WHEN", "BY", "NAME", "CHANGE")
SCOPES = ("read", "send", "run", "admin")
_TOKENS = ("ID", "PERSON", "SCOPES", "SESSION", "MADE", "ENDS", "NOTE")


def people_verb(options: Options, what: str, name: str | None, role: str | None, session: str | None) -> None:
    if (what in ("list", "changes")) == (name is not None):
        raise click.UsageError(f"{what} takes no NAME" if name is not None else f"say who: wakeful people {what} NAME")
    if what not in ("add", "role") and (role or session):
        raise click.UsageError(f"{what} takes neither --role nor --session")
    if what in ("add", "role") and (role is None or (what == "add" and role == "none")):
        raise click.UsageError("give a role with --role: maintainer, contributor or observer")
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
        print("no other people; add a person with: wakeful people add NAME --role observer")
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
        print("no person is at this session now" if name is not None else "no person is at a session now")
    else:
        print_table(_PRESENT, [(row["person"], row["session"], row["doing"], format_ago(row["since"])) for row in rows])


def print_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    shown = [headings, *(tuple(map(escape, row)) for row in rows)]
    widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
    for number, row in enumerate(shown):
        line = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(paint(line, "dim" if number == 0 else ""))


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
            _make_token(options, scopes, session, length, person, note)
        case "list":
            _print_tokens(options)
        case _:
            answer = options.client().post("/tokens/revoke", id=token_id)
            print(json.dumps(answer) if options.is_json else f"{escape(answer['id'])} {escape(answer['words'])}")


def _make_token(
    options: Options,
    scopes: tuple[str, ...],
    session: str | None,
    length: str | None,
    person: str | None,
    note: str | None,
) -> None:
    if not scopes and person is None:
        raise click.UsageError(f"give its scopes with --scope: {', '.join(SCOPES)}; or its person with --person")
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
        opens = f"{opens if scopes else 'everything'} within the role of {escape(made['person'])}"
    print(
        f"wakeful: token {made['id']} opens {opens}{where}{until}; it is not shown again",
        file=sys.stderr,
    )


def _print_tokens(options: Options) -> None:
    rows = options.client().get("/tokens")
    if options.is_json:
        print(json.dumps(rows))
    elif not rows:
        print("no tokens; make one with: wakeful token new --scope read")
    else:
        shown = [_TOKENS, *(tuple(map(escape, _token_cells(row))) for row in rows)]
        widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
        for number, row in enumerate(shown):
            line = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
            print(paint(line, "dim" if number == 0 or rows[number - 1]["is_over"] else ""))


def _token_cells(row: dict[str, Any]) -> tuple[str, ...]:
    # A token without an end lasts until it is revoked, or, in a browser, until it is unused for 30 days. A revoked
    # token is not listed.
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


def dashboard_verb(options: Options, is_quiet: bool, is_closing: bool) -> None:
    answer = options.client().post("/dashboard", is_closing=is_closing)
    if options.is_json:
        print(json.dumps(answer))
        return
    if is_closing:
        print(escape(answer["words"]))
        return
    # Standard output has only the link, so that it can be piped to another program.
    print(escape(answer["link"]), flush=True)
    is_opened = not is_quiet and has_display() and webbrowser.open(answer["link"])
    words = "opened in your browser" if is_opened else "open it in a browser of this machine"
    print(f"wakeful: {words}; the link logs one browser in, once, within five minutes", file=sys.stderr)


def has_display() -> bool:
    """Is there a display? Without a display, `webbrowser` would start a text browser in this terminal."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or sys.platform == "darwin"

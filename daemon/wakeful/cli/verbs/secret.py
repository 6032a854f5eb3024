"""`wakeful secret`: lists the names of secrets and their sources, sets a secret, removes a secret.

A value is never an argument and never printed.
"""

from __future__ import annotations

import getpass
import json
import sys
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.daemon_location import find_secrets
from wakeful.cli.exit_codes import Failure
from wakeful.cli.text import escape, measure, pad, paint
from wakeful.client.refusals import DaemonAway
from wakeful.errors import OperatorError
from wakeful.secrets.secret_encodings import LONGEST_BYTES
from wakeful.secrets.store import SecretPlaces, find_name_problem, find_secret, list_names, remove_secret, save_secret

_HEADINGS = ("NAME", "FROM", "USED BY")


def secret_verb(options: Options, what: str, name: str | None, rest: tuple[str, ...]) -> None:
    if rest:
        # The message does not repeat the argument, which may be the value of a secret.
        raise click.UsageError(
            "a value is never an argument: others can see it, and your shell may remember it now; "
            "give it on standard input, or when asked"
        )
    if (what == "list") != (name is None):
        raise click.UsageError("list takes no name" if what == "list" else f"say which: wakeful secret {what} NAME")
    if what == "list":
        _print_list(options)
    elif what == "set":
        _set(options, str(name))
    else:
        remove_secret(find_secrets(), str(name))
        _tell(options, str(name), "removed")


def _set(options: Options, name: str) -> None:
    # Check the name before the person types the value twice.
    if (wrong := find_name_problem(name)) is not None:
        raise Failure(wrong)
    value = _ask(name) if sys.stdin.isatty() else sys.stdin.buffer.read(LONGEST_BYTES + 2)
    # `echo` and editors add a newline, so one newline at the end is removed, even if it belongs to the value.
    save_secret(find_secrets(), name, value.removesuffix(b"\n").removesuffix(b"\r"))
    _tell(options, name, "set")


def _ask(name: str) -> bytes:
    first = getpass.getpass(f"value of {name}: ")
    if first != getpass.getpass("once more: "):
        raise Failure("the two differ; nothing was set")
    return first.encode(errors="surrogateescape")


def _tell(options: Options, name: str, done: str) -> None:
    """Print the result. Warn if the daemon does not use it, because another folder or source takes precedence."""
    try:
        found = options.client().get("/secrets")
    except DaemonAway:
        found = None
    here = find_secrets()
    row: dict[str, Any] = (
        next((one for one in found["secrets"] if one["name"] == name), {}) if found is not None else {}
    )
    if options.is_json:
        print(
            json.dumps(
                {
                    "name": name,
                    "folder": here,
                    "done": done,
                    "source": row.get("source"),
                    "sessions": row.get("sessions", []),
                }
            )
        )
    else:
        users = row.get("sessions", [])
        print(f"{name} {done}" + (f", used by {', '.join(map(escape, users))}" if users else ""))
    if found is not None and found["folder"] != here:
        print(
            f"wakeful: the daemon reads its secrets from {escape(found['folder'])}, not from {escape(here)}",
            file=sys.stderr,
        )
    elif row.get("source") not in (None, "file"):
        print(
            f"wakeful: the daemon takes {name} from {_FROM[row['source']]}, which takes precedence",
            file=sys.stderr,
        )
    elif done == "set" and row.get("problem"):
        print(f"wakeful: {escape(row['problem'])}", file=sys.stderr)


_FROM = {"credential": "systemd", "file": "file", "environment": "the daemon's environment"}


def _print_list(options: Options) -> None:
    try:
        rows = options.client().get("/secrets")["secrets"]
    except DaemonAway:
        rows = _list_here()
    if options.is_json:
        print(json.dumps(rows))
    elif not rows:
        print("no secrets; set one with: wakeful secret set NAME")
    else:
        table = [
            _HEADINGS,
            *((one["name"], one["problem"] or _FROM[one["source"]], ", ".join(one["sessions"]) or "-") for one in rows),
        ]
        shown = [tuple(map(escape, row)) for row in table]
        widths = [max(map(measure, column)) for column in zip(*shown, strict=True)]
        for number, row in enumerate(shown):
            line = "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
            is_bad = number > 0 and rows[number - 1]["problem"] is not None
            print(paint(line, "dim" if number == 0 else "bad" if is_bad else ""))


def _list_here() -> list[dict[str, Any]]:
    """List the secrets of our own folder without a daemon. The sessions that use the secrets are then unknown."""
    places = SecretPlaces(find_secrets())
    rows: list[dict[str, Any]] = []
    for name in list_names(places):
        try:
            source, problem = find_secret(places, name).source, None
        except OperatorError as error:
            source, problem = None, str(error)
        rows.append({"name": name, "source": source, "problem": problem, "sessions": []})
    return rows

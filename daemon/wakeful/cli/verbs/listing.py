"""`wakeful list`: the daemon's rows as they are, or as a table."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from wakeful.cli.command import Options, verb
from wakeful.cli.text import escape, format_ago, format_table

HEAD = ("NAME", "STATE", "RUNS", "LAST RUN", "")


@verb("list")
def list_verb(options: Options) -> None:
    """All sessions: state, last run, and what a wake waits for."""
    client = options.client()
    if options.is_json:
        sys.stdout.buffer.write(client.get_bytes("/sessions") + b"\n")
        return
    rows = json.loads(client.get_bytes("/sessions", brief="true"))
    if not rows:
        print("no sessions yet; `wakeful new NAME` writes a first spec")
        return
    now = datetime.now(UTC)
    cells = [_cells(row, now) for row in rows]
    colours = [("bold", row["state"], "", (row["last_run"] or {}).get("outcome", ""), "dim") for row in rows]
    print("\n".join(format_table(HEAD, cells, colours)))


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    last = row["last_run"]
    ran = f"{last['outcome']} {format_ago(last['finished_at'], now)}" if last else "never"
    return escape(row["name"]), row["state"], str(row["runs"]), ran, escape(_remark(row))


def _remark(row: dict[str, Any]) -> str:
    """The most telling of: why it sleeps, what its wake waits for, what is new."""
    if row["reason"]:
        return row["reason"]
    if row["queued"]:
        return f"queued: {row['queued']}"
    return f"new: {', '.join(row['owed'])}" if row["owed"] and row["state"] != "running" else ""

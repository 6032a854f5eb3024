"""`wakeful health`: prints what needs a person's attention. Exit 0 if nothing does, 1 if something does, 3 if no daemon
answers.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import count, escape, format_bytes, paint, parse_time, wrap

# The width of the longest kind of finding.
_WIDTH = 8


def health_verb(options: Options) -> None:
    # Without `plain` the daemon answers with an error status for probes. The body already says whether all is well.
    health = options.client().get("/health", plain="true")
    if options.is_json:
        print(json.dumps(health))
    else:
        _print(health)
    if not health["healthy"]:
        raise Failure(code=FAILED)


def _print(health: dict[str, Any]) -> None:
    wrong = [one for one in health["findings"] if one["level"] == "wrong"]
    notes = [one for one in health["findings"] if one["level"] == "note"]
    print(paint("healthy", "good") if health["healthy"] else paint("somebody should look", "bad"), end="")
    print(f": {_summarise(health)}")
    for one in (*wrong, *notes):
        _print_finding(one)
    if health["left_out"]:
        print(f"  and {count(health['left_out'], 'more finding')}; wakeful list --failed, wakeful doctor")


def _summarise(health: dict[str, Any]) -> str:
    sessions = dict(health["sessions"])
    queued, asking, failed = sessions.pop("queued"), sessions.pop("asking"), sessions.pop("failed")
    parts = [count(sum(sessions.values()), "session")]
    parts += [
        f"{number} {word}" for number, word in ((sessions.get("running", 0), "running"), (queued, "queued")) if number
    ]
    parts += [f"{number} {word}" for number, word in ((failed, "failed"), (asking, "asking")) if number]
    return (
        f"{', '.join(parts)}; log at {health['log']['position']:,}; {format_bytes(health['disk']['free_bytes'])} free"
    )


def _print_finding(one: dict[str, Any]) -> None:
    word = one["what"] if one["level"] == "wrong" else "note"
    since = f", since {_say_since(one['since'])}" if one["since"] else ""
    lead = " " * (_WIDTH + 4)
    first, *rest = wrap(escape(one["words"] + since), lead)
    print(f"  {paint(f'{word:<{_WIDTH}}', 'bad' if one['level'] == 'wrong' else 'warn')}  {first.lstrip()}")
    for line in rest:
        print(line)
    if one["mend"]:
        print(f"{lead}{paint(escape(one['mend']), 'bold')}")


def _say_since(text: str) -> str:
    at = parse_time(text).astimezone()
    now = datetime.now(UTC).astimezone()
    when = at.strftime("%H:%M") if at.date() == now.date() else at.strftime("%Y-%m-%d %H:%M")
    minutes = max(0, int((now - at).total_seconds() // 60))
    if minutes < 120:
        return f"{when} ({minutes} min ago)"
    hours = minutes // 60
    return f"{when} ({hours} h ago)" if hours < 48 else f"{when} ({hours // 24} days ago)"

"""`wakeful list`: prints the daemon's rows as JSON, or as a table in which the sessions of a template share one line.

This is the most used verb, so it imports nothing slow. Importing click alone takes three times as long as all its work.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.selection import TEMPLATE_MARK, find_template, is_meant, refuse_empty
from wakeful.cli.text import (
    Colour,
    count,
    escape,
    find_colour,
    format_age,
    format_table,
    paint,
    show_local_times,
    wrap,
)

HEAD = ("NAME", "STATE", "RUNS", "LAST RUN", "REASON")
MIXED = "mixed"
_QUEUED = "queued: "
# The adjective for `--asks` in messages. The adjectives for `--state` and `--failed` are the options' own words.
_ASKING = {"asks": "asking"}

# A row as the daemon sends it (`brief_row` in views/session_rows.py), with times in microseconds: name, state, runs,
# last outcome, end of the last run, remark, what happens next, when that happens, `terminated` or `undeclared`.
Row = list[Any]
# The only keys of `list --json`, a stable contract for scripts. The route sends more, for the dashboard.
CONTRACT_KEYS = ("name", "id", "state", "reason", "agent", "priority", "queued", "owed", "runs", "last_run")


def list_verb(
    options: Options, names: tuple[str, ...], is_all: bool, state: str | None, has_failed: bool, is_asking: bool
) -> None:
    """Carry out `wakeful list` with options, as click parsed them."""
    states = [state] if state is not None else []
    print_list(options, names, is_all=is_all, states=states + ["failed"] * has_failed + ["asks"] * is_asking)


def print_list(
    options: Options, names: tuple[str, ...] = (), *, is_all: bool = False, states: Sequence[str] = ()
) -> None:
    """Print the sessions.

    `names` are sessions, templates (`ticket@`) or patterns. If names are given, each selected session has its own line.
    """
    client = options.client()
    if options.is_json:
        _print_json(client.get_bytes("/sessions", state=states), names)
        return
    found = json.loads(client.get_bytes("/sessions", brief="true", state=states))
    meant, refused = _pick(found["sessions"], names, lambda row: row[0]), _pick_refused(found["refused"], names)
    # Terminated and undeclared sessions are shown only with --all, or if named or selected by state.
    rows = meant if is_all or states else [row for row in meant if row[8] is None or row[0] in names]
    gone = len(meant) - len(rows)
    if names and not rows and not refused:
        raise _refuse(names, found["sessions"], gone, states)
    if rows:
        print("\n".join(_format_rows(rows if names or is_all else group_rows(rows))))
    elif not refused:
        print(_say_nothing(gone, states))
    for line in _format_refusals(refused, is_grouped=not (names or is_all)):
        print(paint(line, "bad"))
    if gone and rows:
        print(
            paint(f"{gone:,} more {'is' if gone == 1 else 'are'} terminated or undeclared: wakeful list --all", "dim")
        )


def _refuse(names: tuple[str, ...], rows: list[Row], gone: int, states: Sequence[str]) -> Failure:
    if states:
        return Failure(
            f"no session of {' or '.join(map(escape, names))} is {_say_states(states)}; `wakeful list "
            f"{escape(names[0])}` shows what they are",
            FAILED,
        )
    return refuse_empty(names, [row[0] for row in rows], gone)


def _say_nothing(gone: int, states: Sequence[str]) -> str:
    if states:
        return f"no session is {_say_states(states)}"
    if gone:
        return (
            f"no session is open; {count(gone, 'session')} {'is' if gone == 1 else 'are'} terminated or "
            "undeclared: wakeful list --all"
        )
    return "no sessions yet; `wakeful new NAME` writes a first spec"


def _say_states(states: Sequence[str]) -> str:
    return " and ".join(_ASKING.get(word, word) for word in states)


def _print_json(answer: bytes, names: tuple[str, ...]) -> None:
    rows = _pick(json.loads(answer), names, lambda row: row["name"])
    print(json.dumps([{key: row[key] for key in CONTRACT_KEYS} for row in rows], ensure_ascii=False))


def _pick(rows: list[Any], names: tuple[str, ...], name_of: Callable[[Any], str]) -> list[Any]:
    return [row for row in rows if is_meant(name_of(row), names)] if names else rows


def _pick_refused(refused: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: words for name, words in refused.items() if is_meant(name, names)} if names else refused


# -- one line for the sessions of a template ------------------------------------------------------


def group_rows(rows: list[Row]) -> list[Row]:
    """Replace two or more sessions of one template by one row, at the position of the first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        # Skip the search for names without a mark, because the table may have 10,000 rows.
        groups.setdefault((find_template(row[0]) if TEMPLATE_MARK in row[0] else None) or row[0], []).append(row)
    return [own[0] if len(own) == 1 else _sum_up(name, own) for name, own in groups.items()]


def _sum_up(name: str, rows: list[Row]) -> Row:
    """Make one row of several: the common state or MIXED, the latest run, the next slot, and the count per state."""
    states = Counter(row[1] for row in rows)
    latest = max(rows, key=lambda row: row[4] or 0)
    told = ", ".join(f"{number:,} {state}" for state, number in states.most_common())
    failed = sum(row[3] == "failed" for row in rows)
    remark = f"({count(len(rows), 'session')}: {told}{f'; {failed} failed' if failed else ''})"
    slot = min((row[7] for row in rows if row[6] == "next slot"), default=None)
    state = next(iter(states)) if len(states) == 1 else MIXED
    return [
        name,
        state,
        sum(row[2] for row in rows),
        latest[3],
        latest[4],
        remark,
        "next slot" if slot is not None else None,
        slot,
        None,
    ]


def _format_rows(rows: list[Row]) -> Iterator[str]:
    now = time.time()
    colours: list[tuple[Colour, ...]] = [("bold", find_colour(row[1]), "", find_colour(row[3]), "dim") for row in rows]
    return format_table(HEAD, [_format_row(row, now) for row in rows], colours)


def _format_row(row: Row, now: float) -> tuple[str, ...]:
    name, state, runs, outcome, finished_us, remark, next_word, next_us, _ = row
    ran = f"{outcome} {format_age(now - finished_us / 1e6)}" if outcome else "never"
    told = say_next(remark, next_word, now - next_us / 1e6) if next_word is not None else remark
    return escape(name), state, str(runs), ran, show_local_times(escape(told))


def say_next(remark: str, next_word: str, age_seconds: float) -> str:
    """Add the next moment to the remark. The moment comes first, because a narrow screen cuts the end of the line."""
    when = format_age(min(age_seconds, 0.0))
    match next_word:
        case "next slot":
            return f"{remark}; next {when}" if remark else f"next {when}"
        case "next start":
            return f"{_QUEUED}{when} ({remark.removeprefix(_QUEUED)})"
        case _:
            return f"{next_word} {when}: {remark}"


# -- refused specs --------------------------------------------------------------------------------


def _format_refusals(refused: dict[str, str], *, is_grouped: bool) -> list[str]:
    """Format one line for each refused spec. Sessions of a template share a line, because their problem is usually the
    same."""
    groups: dict[str, list[str]] = {}
    for name in sorted(refused):
        groups.setdefault((find_template(name) if is_grouped else None) or name, []).append(name)
    return [line for name, own in groups.items() for line in _format_refusal(name, own, refused[own[0]])]


def _format_refusal(name: str, own: list[str], problems: str) -> list[str]:
    """Format a refused spec with its first problem, which often causes the others."""
    first, *rest = problems.split("\n")
    others = len(rest) + len(own) - 1
    more = f" (and {others} more: wakeful check)" if others else ""
    head, *tail = wrap(escape(f"refused: {own[0] if len(own) == 1 else name}: {first}{more}"), "  ")
    return [head[2:], *tail]

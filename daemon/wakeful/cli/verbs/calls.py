"""The system calls a person makes: each says what the daemon answered.

`--key` makes a call safe to repeat: the daemon carries out the first of those with the same key.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from wakeful.cli.client import Client, quote_name
from wakeful.cli.command import verb
from wakeful.cli.completing import SESSION
from wakeful.cli.failure import FAILED, Failure
from wakeful.cli.options import Options
from wakeful.cli.text import escape
from wakeful.views.times import read_time

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--key", metavar="TEXT", help="Makes it safe to repeat: the same key is carried out once.")(function)
    return click.argument("name", type=SESSION)(function)


def named_or_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """One session, or all of them: exactly one of the two is said."""

    @functools.wraps(function)
    def chosen(options: Options, name: str | None, is_all: bool, **own: Any) -> None:
        if (name is None) != is_all:
            raise click.UsageError("give a NAME, or --all for every session")
        function(options, name=name, is_all=is_all, **own)

    chosen = click.option("--key", metavar="TEXT", help="Makes it safe to repeat: the same key is carried out once.")(chosen)
    chosen = click.option("--all", "is_all", is_flag=True, help="Every session, those declared later included.")(chosen)
    return click.argument("name", type=SESSION, required=False)(chosen)


def carry_out_for_all(options: Options, verb_name: str, key: str | None, **body: Any) -> None:
    answer = options.client().call(verb_name, key, **body)
    print(json.dumps(answer) if options.is_json else escape(answer["words"]))


def carry_out(options: Options, verb_name: str, key: str | None, **body: Any) -> None:
    say(options, options.client().call(verb_name, key, **body))


def say(options: Options, answer: dict[str, Any]) -> None:
    print(json.dumps(answer) if options.is_json else f"{escape(answer['name'])}: {escape(answer['words'])}")


@verb("activate", "wakeful activate payroll", "wakeful activate payroll --note 'month end' --wait")
@named
@click.option("--note", metavar="TEXT", help="Why, for the record and for the run.")
@click.option("--fresh", is_flag=True, help="Start without the present conversation.")
@click.option("--wait", "is_waiting", is_flag=True, help="Follow the run to its end; exit 1 if it did not succeed.")
def activate_verb(options: Options, name: str, key: str | None, note: str | None, fresh: bool, is_waiting: bool) -> None:
    """Run a session now, whatever is owed: past settle, pace and holds, not past slots."""
    client = options.client()
    answer = client.call("activate", key, name=name, note=note, fresh=fresh)
    if not is_waiting:
        say(options, answer)
        return
    # Whoever waits should know for what, where that is not this run alone.
    if answer["words"] != "activated":
        print(f"wakeful: {escape(name)}: {escape(answer['words'])}", file=sys.stderr)
    if answer.get("held") is not None:
        # It would wait for a person, or for the turn of a period: without end, as far as anybody knows.
        if options.is_json:
            print(json.dumps(answer))
        raise Failure(code=FAILED)
    ended = wait_for_run(client, name, answer["record"])
    if options.is_json:
        print(json.dumps({"name": name, "run": ended["run"], **ended["payload"]}))
    else:
        print(f"{escape(name)}: {escape(ended['words'])}")
    if ended["payload"].get("outcome") != "succeeded":
        raise Failure(code=FAILED)


def wait_for_run(client: Client, name: str, record: int) -> dict[str, Any]:
    """The end, for good, of the run that takes the activation of this record in; or what keeps it from coming to that."""
    position: int | None = None
    taken: set[int] = set()
    for line in records_after(client, name, record - 1):
        payload = line["payload"] or {}
        match line["kind"]:
            case "activation_requested" if line["seq"] == record:
                position = payload["position"]
            case "run_started" if position is not None and int(payload["versions"].get("activation", 0)) >= position:
                taken.add(payload["run"])
            case "run_finished" if payload["run"] in taken and payload["is_final"]:
                return line
            case "session_slept" if payload["hold"]["kind"] != "snoozed":
                return line
            case "wake_withdrawn" | "session_terminated" | "spec_removed":
                return line
    raise Failure(f"{escape(name)}: the daemon stopped before the run ended")


def records_after(client: Client, name: str, head: int) -> Iterator[dict[str, Any]]:
    """What was recorded, then what will be: following begins before the log is read, so nothing falls between."""
    following = client.stream_lines("/follow", name=name, words="true")
    last = head
    for line in client.stream_lines(f"/sessions/{quote_name(name)}/log", **{"from": head + 1, "words": "true"}):
        record = json.loads(line)
        last = record["seq"]
        yield record
    for line in following:
        record = json.loads(line)
        if record["seq"] > last:
            yield record


@verb("resume", "wakeful resume payroll", "wakeful resume --all          # after wakeful sleep --all")
@named_or_all
def resume_verb(options: Options, name: str | None, key: str | None, is_all: bool) -> None:
    """Lift a hold; the session runs only if something is owed. --all lifts what `sleep --all` did."""
    if is_all:
        carry_out_for_all(options, "resume_all", key)
    else:
        carry_out(options, "resume", key, name=name)


@verb("suspend", "wakeful suspend payroll")
@named
def suspend_verb(options: Options, name: str, key: str | None) -> None:
    """Start nothing more of this run: a command may end. Its causes are parked."""
    carry_out(options, "suspend", key, name=name)


@verb(
    "sleep",
    "wakeful sleep payroll --for 2h --reason 'server move'",
    "wakeful sleep payroll --until 2026-01-31T06:00:00Z",
    "wakeful sleep --all --reason 'the bill is too high'",
)
@named_or_all
@click.option("--for", "length", metavar="DURATION", help="Such as 30s, 5m, 2h, 7d.")
@click.option("--until", metavar="TIME", help="RFC 3339, such as 2026-01-31T06:00:00Z.")
@click.option("--reason", metavar="TEXT", help="The words `list` shows.")
def sleep_verb(
    options: Options, name: str | None, key: str | None, is_all: bool, length: str | None, until: str | None, reason: str | None
) -> None:
    """Hold a session until a time, or until it is resumed. Changes are remembered, none is lost.

    --all is the big red switch: every session sleeps, runs under way are stopped (and owed again), until `resume --all`.
    """
    if length is not None and until is not None:
        raise click.UsageError("give --for or --until, not both")
    if is_all:
        if length is not None or until is not None:
            raise click.UsageError("--all lasts until `wakeful resume --all`; leave --for and --until out")
        carry_out_for_all(options, "sleep_all", key, words=reason)
        return
    seconds = read_duration(length) if length is not None else None
    carry_out(options, "sleep", key, name=name, seconds=seconds, until=read_time(until) if until is not None else None, words=reason)


def read_duration(text: str) -> float:
    parts = _DURATION.fullmatch(text.strip())
    if parts is None:
        raise click.UsageError(f"{text!r} is not a duration; expected one such as 500ms, 30s, 5m, 2h or 7d")
    return float(parts[1]) * _UNIT_SECONDS[parts[2]]


@verb("answer", "wakeful answer payroll yes", "wakeful answer api-docs 'the new scheme, from May on'")
@named
@click.argument("text")
def answer_verb(options: Options, name: str, key: str | None, text: str) -> None:
    """Answer what a session asks: whether it may run (`approve: before_run`), or what its agent wants to know."""
    carry_out(options, "answer", key, name=name, text=text)


@verb("interrupt", "wakeful interrupt payroll       # wakeful activate goes on")
@named
def interrupt_verb(options: Options, name: str, key: str | None) -> None:
    """Stop the present step now and keep its progress. Its causes are parked."""
    carry_out(options, "interrupt", key, name=name)


@verb("cancel", "wakeful cancel payroll")
@named
def cancel_verb(options: Options, name: str, key: str | None) -> None:
    """Abandon the run, or the queued wake; its causes count as seen."""
    carry_out(options, "cancel", key, name=name)


@verb("terminate", "wakeful terminate payroll --reason 'the year is closed'")
@named
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
def terminate_verb(options: Options, name: str, key: str | None, reason: str | None) -> None:
    """Close a session for good. Its record is kept; `open --again` reopens it."""
    carry_out(options, "terminate", key, name=name, reason=reason)


@verb("open", "wakeful open payroll --again")
@named
@click.option("--again", is_flag=True, help="Reopen a terminated session with its history.")
def open_verb(options: Options, name: str, key: str | None, again: bool) -> None:
    """Reopen a terminated session. A new one is opened by its spec: `wakeful new NAME`."""
    carry_out(options, "open", key, name=name, again=again)


@verb("rename", "wakeful rename payroll hr/payroll")
@named
@click.argument("new")
def rename_verb(options: Options, name: str, key: str | None, new: str) -> None:
    """Give a session and its file another name; identity and history stay."""
    carry_out(options, "rename", key, name=name, new=new)

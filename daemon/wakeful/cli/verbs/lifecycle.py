"""The system calls a person makes: each says what the daemon answered.

`--key` makes a call safe to repeat: the daemon carries out the first of those with the same key. A template or a
pattern in the place of a name makes one call for each session it means.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from wakeful.cli.client import Client
from wakeful.cli.command import verb
from wakeful.cli.completion_values import SESSION, SESSIONS, TextType
from wakeful.cli.exit_codes import FAILED, DaemonBusy, Failure, NoDaemon
from wakeful.cli.options import Options
from wakeful.cli.selection import find_sessions, is_several
from wakeful.cli.text import count, escape, show_local_times, wrap
from wakeful.views.times import read_time

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
# Enough names for a person to notice one that was not meant.
_NAMES_SHOWN = 10
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    return _add_name(function, SESSION)


def named_several(function: Callable[..., Any]) -> Callable[..., Any]:
    """One session, those of a template, or those that a pattern matches (cli/selection.py)."""
    return _add_name(function, SESSIONS)


def _add_name(function: Callable[..., Any], kind: TextType) -> Callable[..., Any]:
    function = click.option("--key", metavar="TEXT", help="Makes it safe to repeat: the same key is carried out once.")(
        function
    )
    return click.argument("name", type=kind)(function)


def named_or_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """Some sessions by a name, a template or a pattern, or all of them: exactly one of the two is said."""

    @functools.wraps(function)
    def chosen(options: Options, name: str | None, is_all: bool, **own: Any) -> None:
        if (name is None) != is_all:
            raise click.UsageError("give a NAME, or --all for every session")
        function(options, name=name, is_all=is_all, **own)

    chosen = click.option("--key", metavar="TEXT", help="Makes it safe to repeat: the same key is carried out once.")(
        chosen
    )
    chosen = click.option("--all", "is_all", is_flag=True, help="Every session, those declared later included.")(chosen)
    return click.argument("name", type=SESSIONS, required=False)(chosen)


def carry_out_for_all(options: Options, verb_name: str, key: str | None, **body: Any) -> None:
    answer = options.client().call(verb_name, key, **body)
    print(json.dumps(answer) if options.is_json else escape(answer["words"]))


def carry_out(options: Options, verb_name: str, key: str | None, **body: Any) -> None:
    say(options, options.client().call(verb_name, key, **body))


def say(options: Options, answer: dict[str, Any]) -> None:
    print(
        json.dumps(answer)
        if options.is_json
        else f"{escape(answer['name'])}: {show_local_times(escape(answer['words']))}"
    )


# -- several sessions at once ---------------------------------------------------------------------


def carry_out_each(options: Options, verb_name: str, key: str | None, name: str, **body: Any) -> None:
    """Call every session that `name` means."""
    client = options.client()
    if is_several(name):
        call_each(options, client, verb_name, key, find_sessions(client, name), **body)
    else:
        say(options, client.call(verb_name, key, name=name, **body))


def call_each(options: Options, client: Client, verb_name: str, key: str | None, names: list[str], **body: Any) -> None:
    """A line for each session, or one JSON array.

    A refusal keeps no other session waiting, and makes the exit code 1.
    """
    answers = []
    for name in names:
        answers.append(try_call(client, verb_name, key, name=name, **body))
        if "error" in answers[-1]:
            say_refusal(answers[-1])
        elif not options.is_json:
            say(options, answers[-1])
    if options.is_json:
        print(json.dumps(answers))
    if any("error" in answer for answer in answers):
        raise Failure(code=FAILED)


def try_call(client: Client, verb_name: str, key: str | None, **body: Any) -> dict[str, Any]:
    """The answer, or a refusal as `{name, error}`. A daemon that is gone or busy refuses no session: that is raised."""
    try:
        return client.call(verb_name, key, **body)
    except (NoDaemon, DaemonBusy):
        raise
    except Failure as refusal:
        return {"name": body["name"], "error": str(refusal)}


def say_refusal(answer: dict[str, Any]) -> None:
    sys.stdout.flush()
    # Most refusals begin with the name already.
    name, words = escape(answer["name"]), answer["error"]
    print(f"wakeful: {words if words.startswith(name) else f'{name}: {words}'}", file=sys.stderr)


@verb(
    "resume",
    "wakeful resume payroll",
    "wakeful resume 'ticket@*'     # those that a pattern matches",
    "wakeful resume --all          # after wakeful sleep --all",
)
@named_or_all
def resume_verb(options: Options, name: str | None, key: str | None, is_all: bool) -> None:
    """Lift a hold; the session runs only if something is owed. --all releases the brake."""
    if is_all:
        carry_out_for_all(options, "resume_all", key)
    else:
        assert name is not None
        carry_out_each(options, "resume", key, name)


@verb("suspend", "wakeful suspend payroll")
@named_several
def suspend_verb(options: Options, name: str, key: str | None) -> None:
    """Start nothing more of this run: a command may end. Its causes are parked."""
    carry_out_each(options, "suspend", key, name)


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
    options: Options,
    name: str | None,
    key: str | None,
    is_all: bool,
    length: str | None,
    until: str | None,
    reason: str | None,
) -> None:
    """Hold a session until a time, or until it is resumed. Changes are remembered, none is lost.

    --all is the brake: every session sleeps, runs under way are stopped (and owed again),
    until `resume --all` releases it.
    """
    if length is not None and until is not None:
        raise click.UsageError("give --for or --until, not both")
    if is_all:
        if length is not None or until is not None:
            raise click.UsageError("--all lasts until `wakeful resume --all`; leave --for and --until out")
        carry_out_for_all(options, "sleep_all", key, words=reason)
        return
    seconds = read_duration(length) if length is not None else None
    assert name is not None
    carry_out_each(
        options,
        "sleep",
        key,
        name,
        seconds=seconds,
        until=read_time(until) if until is not None else None,
        words=reason,
    )


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
@named_several
def interrupt_verb(options: Options, name: str, key: str | None) -> None:
    """Stop the present step now and keep its progress. Its causes are parked."""
    carry_out_each(options, "interrupt", key, name)


@verb("cancel", "wakeful cancel payroll")
@named_several
def cancel_verb(options: Options, name: str, key: str | None) -> None:
    """Abandon the run, or the queued wake; its causes count as seen."""
    carry_out_each(options, "cancel", key, name)


@verb("terminate", "wakeful terminate payroll --reason 'the year is closed'", "wakeful terminate 'ticket@*' --yes")
@named_several
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@click.option("--yes", "is_sure", is_flag=True, help="Close several sessions without asking.")
def terminate_verb(options: Options, name: str, key: str | None, reason: str | None, is_sure: bool) -> None:
    """Close a session for good. Its record is kept; `open --again` reopens it.

    A template (ticket@) or a pattern closes all it means, undeclared ones included;
    it asks first if that is more than one.
    """
    client = options.client()
    if not is_several(name):
        say(options, client.call("terminate", key, name=name, reason=reason))
        return
    names = find_sessions(client, name, with_undeclared=True)
    if len(names) > 1 and not is_sure:
        _ask_to_terminate(name, names)
    call_each(options, client, "terminate", key, names, reason=reason)


def _ask_to_terminate(wanted: str, names: list[str]) -> None:
    shown = ", ".join(map(escape, names[:_NAMES_SHOWN])) + (
        f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    )
    told = f"{escape(wanted)} means {count(len(names), 'session')}: {shown}"
    if not sys.stdin.isatty():
        raise Failure(f"{told}; none was terminated: repeat with --yes to close them all", FAILED)
    print("\n".join(wrap(told)), file=sys.stderr)
    if not click.confirm("terminate them all?", default=False, err=True):
        raise Failure("none was terminated", FAILED)


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

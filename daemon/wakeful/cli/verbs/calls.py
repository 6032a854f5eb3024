"""Makes the calls from the command line to the daemon: builds the body, sends it, and prints the words of the answer.

`call_verb` carries out each verb that needs only these steps. If the name is a template or a pattern, one call is made
for each session that it matches.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import click

from wakeful.cli.client import Client, Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.selection import find_sessions, is_several
from wakeful.cli.text import escape, show_local_times
from wakeful.client.refusals import DaemonRefused
from wakeful.verbs.verb import Argument, Verb
from wakeful.views.times import read_time

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def call_verb(options: Options, verb: Verb, idempotency_key: str | None, **given: Any) -> None:
    body = make_body(verb, given)
    if is_for_several(verb):
        carry_out_each(options, verb.name, idempotency_key, **body)
    else:
        carry_out(options, verb.name, idempotency_key, **body)


def is_for_several(verb: Verb) -> bool:
    """Does the verb accept a template or a pattern instead of a name?"""
    return any(one.name == "name" and one.completion == "sessions" for one in verb.typed)


def make_body(verb: Verb, given: dict[str, Any]) -> dict[str, Any]:
    """Make the body of a call from the values as they were typed."""
    return {one.name: _read_value(one, given[one.name]) for one in verb.sent if one.name in given}


def _read_value(argument: Argument, value: Any) -> Any:
    # An empty text for a folder means that the daemon chooses the folder.
    if value is None or value == "":
        return value
    match argument.kind:
        case "duration":
            return read_duration(value)
        case "moment":
            return read_time(value)
        case "file" | "folder":
            return os.path.abspath(value)
        case _:
            return value


def read_duration(text: str) -> float:
    parts = _DURATION.fullmatch(text.strip())
    if parts is None:
        raise click.UsageError(f"{text!r} is not a duration; expected one such as 500ms, 30s, 5m, 2h or 7d")
    return float(parts[1]) * _UNIT_SECONDS[parts[2]]


def carry_out_for_all(options: Options, verb_name: str, key: str | None, /, **body: Any) -> None:
    answer = options.client().call(verb_name, key, **body)
    print(json.dumps(answer) if options.is_json else escape(answer["words"]))


def carry_out(options: Options, verb_name: str, key: str | None, /, **body: Any) -> None:
    say(options, options.client().call(verb_name, key, **body))


def say(options: Options, answer: dict[str, Any]) -> None:
    print(
        json.dumps(answer)
        if options.is_json
        else f"{escape(answer['name'])}: {show_local_times(escape(answer['words']))}"
    )


# -- several sessions at once ---------------------------------------------------------------------


def carry_out_each(options: Options, verb_name: str, key: str | None, /, name: str, **body: Any) -> None:
    """Call the verb for every session that `name` matches."""
    client = options.client()
    if is_several(name):
        call_each(options, client, verb_name, key, find_sessions(client, name), **body)
    else:
        say(options, client.call(verb_name, key, name=name, **body))


def call_each(options: Options, client: Client, verb_name: str, key: str | None, names: list[str], **body: Any) -> None:
    """Call the verb for each name. Print a line for each session, or one JSON array.

    After a refusal the other sessions are called anyway, and the exit code is 1.
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


def try_call(client: Client, verb_name: str, key: str | None, /, **body: Any) -> dict[str, Any]:
    """Call the verb. Return the answer, or a refusal as `{name, error}`.

    Raises if the daemon is gone or busy, because that is not a refusal of this session.
    """
    try:
        return client.call(verb_name, key, **body)
    except DaemonRefused as refusal:
        return {"name": body["name"], "error": str(refusal)}


def say_refusal(answer: dict[str, Any]) -> None:
    sys.stdout.flush()
    # Most refusals begin with the name already.
    name, words = escape(answer["name"]), answer["error"]
    print(f"wakeful: {words if words.startswith(name) else f'{name}: {words}'}", file=sys.stderr)

"""The verbs for a session's memory: `note`, `remember`, `recall`, `facts`.

Inside a run (WAKEFUL_SESSION is set) they use the run's own session and its token, and take no NAME. Outside, a person
names the session first.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import Failure
from wakeful.cli.text import escape, escape_lines, paint
from wakeful.cli.verbs.calls import carry_out
from wakeful.client.wire import quote_name


def own_session() -> str | None:
    return os.environ.get("WAKEFUL_SESSION")


def take_name(verb_name: str, words: tuple[str, ...], expected: str) -> tuple[str, list[str]]:
    """Split the arguments into the session's name and the words after it.

    `expected` names the arguments inside a run; those in `[…]` may be left out.
    """
    own = own_session()
    name, rest = (own, list(words)) if own is not None else (words[0] if words else "", list(words[1:]))
    arguments = expected.split()
    needed = sum(not argument.startswith("[") for argument in arguments)
    if not name or not needed <= len(rest) <= len(arguments):
        where = "inside a run" if own is not None else "outside a run"
        usage = " ".join(["wakeful", verb_name, *([] if own is not None else ["NAME"]), *arguments])
        raise click.UsageError(f"{where} it is: {usage}")
    return name, rest


def note_verb(options: Options, words: tuple[str, ...], idempotency_key: str | None) -> None:
    name, (text,) = take_name("note", words, "TEXT")
    carry_out(options, "note", idempotency_key, name=name, text=text)


def remember_verb(options: Options, words: tuple[str, ...], idempotency_key: str | None, **how: Any) -> None:
    name, (fact, value) = take_name("remember", words, "KEY VALUE")
    carry_out(options, "remember", idempotency_key, name=name, key=fact, value=value, **how)


def recall_verb(options: Options, words: tuple[str, ...]) -> None:
    name, rest = take_name("recall", words, "[KEY]")
    facts = _get_facts(options, name)
    if not rest:
        _print_facts(options, name, facts)
        return
    found = next((fact for fact in facts if fact["key"] == rest[0]), None)
    if found is None:
        raise Failure(
            f"{escape(name)} has no fact {escape(rest[0])!r}; list its facts with: wakeful recall {escape(name)}"
        )
    # Print only the value. Programs get it exactly as it was set. On a terminal it is escaped, so that it cannot
    # control the terminal.
    value = escape_lines(found["value"]) if sys.stdout.isatty() else found["value"]
    print(json.dumps(found) if options.is_json else value)


def facts_verb(options: Options, words: tuple[str, ...]) -> None:
    name = words[0] if len(words) == 1 else take_name("facts", words, "")[0]
    _print_facts(options, name, _get_facts(options, name))


def _get_facts(options: Options, name: str) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = options.client().get(f"/sessions/{quote_name(name)}/facts")
    return facts


def _print_facts(options: Options, name: str, facts: list[dict[str, Any]]) -> None:
    if options.is_json:
        print(json.dumps(facts))
        return
    if not facts and own_session() is None:
        # Only for people: a program inside a run gets an empty output if there are no facts.
        print(paint(f"{escape(name)} knows no facts yet; wakeful remember {escape(name)} KEY VALUE keeps one", "dim"))
    for fact in facts:
        because = f": {fact['rationale']}" if fact["rationale"] else ""
        said = f"  ({fact['author']}, seq {fact['seq']}{because})"
        print(f"{paint(escape(fact['key']), 'bold')} = {escape(fact['value'])}{paint(escape(said), 'dim')}")

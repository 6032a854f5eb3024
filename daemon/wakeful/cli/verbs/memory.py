"""What a session keeps and is told: `note`, `send`, `remember`, `recall`, `facts`.

Inside a run (WAKEFUL_SESSION is set) they speak for the run's own session with its token and take no NAME; outside, a
person names the session first.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from wakeful.cli.client import quote_name
from wakeful.cli.command import verb
from wakeful.cli.completion_values import FACT, NAMED_KEY, SESSION
from wakeful.cli.exit_codes import Failure
from wakeful.cli.options import Options
from wakeful.cli.text import escape, escape_lines, paint
from wakeful.cli.verbs.lifecycle import say


def own_session() -> str | None:
    return os.environ.get("WAKEFUL_SESSION")


def take_name(verb_name: str, words: tuple[str, ...], expected: str) -> tuple[str, list[str]]:
    """The session's name and the words after it.

    `expected` are the arguments inside a run, `[…]` those that may be left out.
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


@verb("note", "wakeful note payroll 'done: March; next: April'", "wakeful note 'done: March'      # inside a run")
@click.argument("words", type=SESSION, nargs=-1, metavar="[NAME] TEXT")
@click.option("--key", metavar="TEXT", help="Makes it safe to repeat.")
def note_verb(options: Options, words: tuple[str, ...], key: str | None) -> None:
    """Leave a hand-off for the next run. Inside a run: note TEXT; outside: note NAME TEXT."""
    name, (text,) = take_name("note", words, "TEXT")
    say(options, options.client().call("note", key, name=name, text=text))


@verb("send", "wakeful send payroll 'the rates changed'", "wakeful send payroll 'for later' --no-wake")
@click.argument("name", type=SESSION)
@click.argument("text")
@click.option("--no-wake", is_flag=True, help="Put it in the mailbox without waking the session.")
@click.option("--key", metavar="TEXT", help="Makes it safe to repeat.")
def send_verb(options: Options, name: str, text: str, no_wake: bool, key: str | None) -> None:
    """Put a message in a session's mailbox. Inside a run its own session is the sender."""
    say(options, options.client().call("send", key, name=name, text=text, wake=not no_wake))


@verb(
    "remember",
    "wakeful remember payroll currency EUR --because 'the contracts'",
    "wakeful remember currency EUR   # inside a run",
)
@click.argument("words", type=NAMED_KEY, nargs=-1, metavar="[NAME] KEY VALUE")
@click.option("--because", metavar="TEXT", help="Why, kept with the fact.")
@click.option("--confidence", type=click.FloatRange(0, 1), help="How sure it is, from 0 to 1.")
@click.option("--source", type=click.IntRange(1), metavar="SEQ", help="The record it was drawn from.")
@click.option("--for-now", is_flag=True, help="Only for the present conversation: a fresh start clears it.")
@click.option("--key", metavar="TEXT", help="Makes it safe to repeat.")
def remember_verb(options: Options, words: tuple[str, ...], because: str | None, key: str | None, **how: Any) -> None:
    """Keep a fact. Inside a run: remember KEY VALUE; outside: remember NAME KEY VALUE."""
    name, (fact, value) = take_name("remember", words, "KEY VALUE")
    say(options, options.client().call("remember", key, name=name, key=fact, value=value, rationale=because, **how))


@verb("forget", "wakeful forget payroll currency --because 'it differs by country'")
@click.argument("name", type=SESSION)
@click.argument("fact", type=FACT, metavar="KEY")
@click.option("--because", metavar="TEXT", help="Why, kept in the log.")
@click.option("--for-now", is_flag=True, help="A key of the present conversation's memory.")
@click.option("--key", metavar="TEXT", help="Makes it safe to repeat.")
def forget_verb(options: Options, name: str, fact: str, because: str | None, for_now: bool, key: str | None) -> None:
    """Let a fact go; the log keeps that it was known."""
    say(options, options.client().call("forget", key, name=name, key=fact, rationale=because, for_now=for_now))


@verb("recall", "wakeful recall payroll currency", "wakeful recall currency         # inside a run")
@click.argument("words", type=NAMED_KEY, nargs=-1, metavar="[NAME] [KEY]")
def recall_verb(options: Options, words: tuple[str, ...]) -> None:
    """One fact's value, or all facts. Inside a run: recall [KEY]; outside: recall NAME [KEY]."""
    name, rest = take_name("recall", words, "[KEY]")
    facts = _get_facts(options, name)
    if not rest:
        _print_facts(options, name, facts)
        return
    found = next((fact for fact in facts if fact["key"] == rest[0]), None)
    if found is None:
        raise Failure(
            f"{escape(name)} has no fact {escape(rest[0])!r}; without a key it shows those there are: "
            f"wakeful recall {escape(name)}"
        )
    # The value alone: programs inside a run read it as it was kept, a person's terminal must not obey it.
    value = escape_lines(found["value"]) if sys.stdout.isatty() else found["value"]
    print(json.dumps(found) if options.is_json else value)


@verb("facts", "wakeful facts payroll")
@click.argument("words", type=SESSION, nargs=-1, metavar="[NAME]")
def facts_verb(options: Options, words: tuple[str, ...]) -> None:
    """A session's facts, with who said so and why. Inside a run NAME is left out."""
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
        # Only for people: a program inside a run that reads no facts gets none.
        print(paint(f"{escape(name)} knows no facts yet; wakeful remember {escape(name)} KEY VALUE keeps one", "dim"))
    for fact in facts:
        because = f": {fact['rationale']}" if fact["rationale"] else ""
        said = f"  ({fact['author']}, seq {fact['seq']}{because})"
        print(f"{paint(escape(fact['key']), 'bold')} = {escape(fact['value'])}{paint(escape(said), 'dim')}")

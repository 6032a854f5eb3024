"""`wakeful list` with everything click adds: names, help, completion, and words about options that do not exist."""

from __future__ import annotations

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_values import SESSIONS
from wakeful.cli.options import Options
from wakeful.cli.session_table import print_list

STATES = ("suspended", "running", "sleeping", "terminated", "archived", "undeclared")


@verb(
    "list",
    "wakeful list",
    "wakeful list ticket@            # every session of a template",
    "wakeful list 'ticket@4*'        # those that a pattern matches",
    "wakeful list --state terminated",
)
@click.argument("names", type=SESSIONS, nargs=-1, metavar="[NAME]...")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Every session on a line of its own: each of a template, terminated and undeclared ones.",
)
@click.option("--state", type=click.Choice(STATES), help="Only sessions in this state.")
@click.option("--failed", "has_failed", is_flag=True, help="Only sessions whose last run failed.")
@click.option("--asks", "is_asking", is_flag=True, help="Only sessions that wait for an answer.")
def list_verb(
    options: Options, names: tuple[str, ...], is_all: bool, state: str | None, has_failed: bool, is_asking: bool
) -> None:
    """All sessions: state, last run, what a wake waits for, and when a session goes on by itself.

    NAME: only these, or all of a template (ticket@), or all that a pattern matches. Terminated and undeclared sessions
    are left out unless they are asked for; with --json they are all there.
    """
    states = [state] if state is not None else []
    print_list(options, names, is_all=is_all, states=states + ["failed"] * has_failed + ["asks"] * is_asking)

"""`wakeful list` with everything click adds: names, help, completion, and words about options that do not exist."""

from __future__ import annotations

import click

from wakeful.cli.command import verb
from wakeful.cli.completing import SESSIONS
from wakeful.cli.listing import print_list
from wakeful.cli.options import Options


@verb("list", "wakeful list", "wakeful list ticket@            # every session of a template")
@click.argument("names", type=SESSIONS, nargs=-1, metavar="[NAME]...")
@click.option("--all", "is_all", is_flag=True, help="Every session on a line of its own, also those of templates.")
def list_verb(options: Options, names: tuple[str, ...], is_all: bool) -> None:
    """All sessions: state, last run, and what a wake waits for. NAME: only these, or all of a template (ticket@)."""
    print_list(options, names, is_all=is_all)

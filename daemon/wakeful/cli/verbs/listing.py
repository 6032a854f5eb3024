"""`wakeful list` with everything click adds: help, completion, and words about options that do not exist."""

from __future__ import annotations

from wakeful.cli.command import verb
from wakeful.cli.listing import print_list
from wakeful.cli.options import Options


@verb("list")
def list_verb(options: Options) -> None:
    """All sessions: state, last run, and what a wake waits for."""
    print_list(options)

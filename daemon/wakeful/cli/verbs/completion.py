"""`wakeful completion`: the shell's own way to complete verbs and options, as click makes it."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from wakeful.cli.command import verb, wakeful
from wakeful.cli.options import Options

VARIABLE = "_WAKEFUL_COMPLETE"


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_verb(options: Options, shell: str) -> None:
    """Print a script to be sourced: eval "$(wakeful completion bash)"."""
    made = get_completion_class(shell)
    assert made is not None
    print(made(wakeful, {}, "wakeful", VARIABLE).source())

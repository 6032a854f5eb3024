"""`wakeful completion`: the script that teaches a shell to complete verbs, options and the names of sessions."""

from __future__ import annotations

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_scripts import SHELLS, make_script
from wakeful.cli.options import Options


@verb(
    "completion",
    'eval "$(wakeful completion bash)"   # in ~/.bashrc; zsh the same',
    "wakeful completion fish > ~/.config/fish/completions/wakeful.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_verb(options: Options, shell: str) -> None:
    """Print a script that completes verbs, options, and names of sessions as the daemon knows them now."""
    print(make_script(shell))

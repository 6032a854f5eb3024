"""The command `wakeful`: reads arguments, calls the daemon, prints text.

`command` makes the click commands from the table of verbs. `client` talks to the daemon, `text` formats, `exit_codes`
turns every ending into an exit code, and `verbs/` carries out each verb. A module that only one verb needs is imported
when that verb is used. A plain `wakeful list` does not even import click.
"""

from __future__ import annotations

import importlib
import sys

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import conclude
from wakeful.cli.session_table import print_list

__all__ = ["main"]


def main() -> int:
    options = read_plain_list(sys.argv[1:])
    if options is not None:
        return conclude(lambda: print_list(options))
    ended: int = importlib.import_module("wakeful.cli.command").main()
    return ended


def read_plain_list(words: list[str]) -> Options | None:
    """Parse `list` with no options except --json and --socket. None for all other commands, which click parses."""
    if words.count("list") != 1:
        return None
    match [word for word in words if word not in ("list", "--json")]:
        case []:
            return Options(None, "--json" in words)
        # The path must directly follow its option: in `--socket list x`, `list` is the path and x is the verb.
        case ["--socket", path] if words[words.index("--socket") + 1] == path and not path.startswith("-"):
            return Options(path, "--json" in words)
        case _:
            return None

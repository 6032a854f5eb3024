"""Arguments in, text out: the command `wakeful`.

`command` has the table of verbs, `client` speaks to the daemon, `text` prints, `ending` makes exit codes, `verbs/` has
what each verb does. What only one verb needs is imported when that verb is used;
a plain `wakeful list` does without click, too.
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
    """The options of a `list` that has nothing but --json and --socket; None for everything else, which click reads."""
    if words.count("list") != 1:
        return None
    match [word for word in words if word not in ("list", "--json")]:
        case []:
            return Options(None, "--json" in words)
        # The path stands right behind its option: in `--socket list x` it is `list`, and x is the verb.
        case ["--socket", path] if words[words.index("--socket") + 1] == path and not path.startswith("-"):
            return Options(path, "--json" in words)
        case _:
            return None

"""Turns every ending of a command into an exit code and at most one message on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from wakeful.cli.text import columns, wrap
from wakeful.client.refusals import DaemonAway
from wakeful.errors import WakefulError
from wakeful.text.display import escape_lines

INTERRUPTED = 130


def conclude(run: Callable[[], object]) -> int:
    """Run a command and return its exit code, whatever it raises.

    A number that the command returns is the exit code.
    """
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Failure as failure:
        return _say(str(failure), failure.code)
    except DaemonAway as error:
        return _say(str(error), NO_DAEMON)
    except WakefulError as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`wakeful log | head`). Without this, Python would complain while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


def _say(words: str, code: int) -> int:
    sys.stdout.flush()
    if words:
        # Escape the message, because errors quote paths, keys and lines from files.
        told = f"wakeful: {escape_lines(words)}"
        # Wrap long lines on a terminal, but not in a file or a pipe.
        width = columns() if sys.stderr.isatty() else len(told)
        print(
            "\n".join(part for line in told.split("\n") for part in (wrap(line) if len(line) > width else (line,))),
            file=sys.stderr,
        )
    return code


DONE = 0
FAILED = 1
USAGE = 2
NO_DAEMON = 3


class Failure(Exception):
    """Ends the command with `code`. `words` are empty if the message was already printed."""

    def __init__(self, words: str = "", code: int = FAILED) -> None:
        super().__init__(words)
        self.code = code

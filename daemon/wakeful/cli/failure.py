"""How a command ends when it cannot do what it was asked: words for stderr, and an exit code.

0 done, 1 refused or failed, 2 usage, 3 no daemon: the codes are part of the outside contract.
"""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
NO_DAEMON = 3


class Failure(Exception):
    """Ends the command with `code`; empty words when everything was said already."""

    def __init__(self, words: str = "", code: int = FAILED) -> None:
        super().__init__(words)
        self.code = code


class NoDaemon(Failure):
    """Nobody answers on the socket."""

    def __init__(self, words: str) -> None:
        super().__init__(words, NO_DAEMON)


class DaemonBusy(Failure):
    """The daemon is there, and has no place for one more connection."""

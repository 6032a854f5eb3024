"""The end of the daemon: requested by a signal or a person, or forced because the log is gone.

All parts that wait check `Shutdown`, and all parts that can end the daemon set it. It closes nothing itself;
`daemon.py` does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable

from wakeful.errors import OperatorError
from wakeful.eventlog.contract import StoreGone
from wakeful.service.reactor import Signal
from wakeful.service.reports import ObservationPort

# The most seconds in which a daemon without its log may end its runs.
ABANDONING_SECONDS = 15.0


class Shutdown:
    """The state of the end.

    Used on the loop. `changed` is told when the daemon must stop, or must not wait any longer.
    """

    def __init__(self, observe: ObservationPort, changed: Signal, redact: Callable[[str], str]) -> None:
        self._observe = observe
        self._changed = changed
        self._redact = redact
        self.stopping = asyncio.Event()
        # True after a second request to stop: do not wait for runs.
        self.is_hurried = False
        # The reason why nothing can be recorded any more.
        self.abandoned: OperatorError | None = None

    def stop(self) -> None:
        """Stop in good order. A second call means: do not wait for runs."""
        self.is_hurried = self.stopping.is_set()
        self.stopping.set()
        self._changed.tell()

    def abandon(self, gone: OperatorError) -> None:
        """End because the log is gone or cannot be read: print the reason, decide nothing more, end the runs and exit
        with 1.

        The service manager starts the next daemon.
        """
        if self.abandoned is not None:
            return
        self.abandoned = gone
        say_end(gone, self._redact)
        # The process ends even if something hangs.
        overdue = threading.Timer(ABANDONING_SECONDS, os._exit, (1,))
        overdue.daemon = True
        overdue.start()
        self._observe.close()
        self.stopping.set()
        self._changed.tell()

    def end_at_once(self, error: BaseException) -> None:
        """End at once, because the log failed, or state and log may disagree."""
        if isinstance(error, StoreGone):
            self.abandon(error)
        else:
            end_at_once(error, self._redact)


def say_end(error: BaseException, redact: Callable[[str], str]) -> None:
    # systemd reads the prefix as the entry's priority if standard error is the journal (sd-daemon(3)).
    prefix = "<2>" if "JOURNAL_STREAM" in os.environ else ""
    print(redact(f"{prefix}wakeful: stopping at once: {error or type(error).__name__}"), file=sys.stderr, flush=True)


def end_at_once(error: BaseException, redact: Callable[[str], str]) -> None:
    """Exit at once, because the log failed, or state and log may disagree. Nothing may be acknowledged any more."""
    try:
        say_end(error, redact)
        if not isinstance(error, OperatorError):
            print(redact("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
    finally:
        # Also if there is no memory for the message, or stderr is closed.
        os._exit(1)

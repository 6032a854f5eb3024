"""The end of the daemon: asked for by a signal or a person, or forced upon it by a log that is gone.

`Ending` is asked by everything that waits and told by everything that can end the daemon. It closes nothing itself: the
daemon's life does (daemon.py).
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

# How long a daemon whose log was taken away may take to end its runs.
ABANDONING_SECONDS = 15.0


class Ending:
    """On the loop. `changed` is told when the daemon is to stop, or to hurry."""

    def __init__(self, observe: ObservationPort, changed: Signal, redact: Callable[[str], str]) -> None:
        self._observe = observe
        self._changed = changed
        self._redact = redact
        self.stopping = asyncio.Event()
        # A second request to stop: do not wait for runs.
        self.is_hurried = False
        # Why nothing can be recorded any more.
        self.abandoned: OperatorError | None = None

    def stop(self) -> None:
        """Stop in good order; asked a second time, do not wait for runs."""
        self.is_hurried = self.stopping.is_set()
        self.stopping.set()
        self._changed.tell()

    def abandon(self, gone: OperatorError) -> None:
        """The log was taken away, or cannot be read: say so, decide nothing more, end the runs and exit with 1.

        The service manager starts the next daemon."""
        if self.abandoned is not None:
            return
        self.abandoned = gone
        say_end(gone, self._redact)
        # The process ends, even if something hangs then.
        overdue = threading.Timer(ABANDONING_SECONDS, os._exit, (1,))
        overdue.daemon = True
        overdue.start()
        self._observe.close()
        self.stopping.set()
        self._changed.tell()

    def end_at_once(self, error: BaseException) -> None:
        """The log failed, or state and log may disagree."""
        if isinstance(error, StoreGone):
            self.abandon(error)
        else:
            end_at_once(error, self._redact)


def say_end(error: BaseException, redact: Callable[[str], str]) -> None:
    # Read as the entry's priority where standard error is the journal (sd-daemon(3)).
    prefix = "<2>" if "JOURNAL_STREAM" in os.environ else ""
    print(redact(f"{prefix}wakeful: stopping at once: {error or type(error).__name__}"), file=sys.stderr, flush=True)


def end_at_once(error: BaseException, redact: Callable[[str], str]) -> None:
    """The log failed, or state and log may disagree: nothing may be acknowledged any more."""
    try:
        say_end(error, redact)
        if not isinstance(error, OperatorError):
            print(redact("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
    finally:
        # Also where there is no memory for words, or nobody reads them.
        os._exit(1)

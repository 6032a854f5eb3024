"""Slows down whoever tries tokens or codes.

Each wrong one is answered later than the one before, and soon with 429. Only wrong ones wait: a right one is taken at
once, so that nobody locks the owner out by guessing. One count for all callers, because on loopback all have one
address.
"""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

from wakeful.api.gate.refusals import RefusalKind
from wakeful.api.problems import TooManyTries, Unauthorised

# A person who pastes an old token a few times waits for nothing.
FREE_TRIES = 5
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
# From here on the answer is 429.
MOST_TRIES = 20
# One wrong try is forgotten every so often.
FORGOTTEN_SECONDS = 3.0


class Guesses:
    """The wrong tries of late."""

    def __init__(self) -> None:
        self._tries = 0.0
        self._counted_at = time.monotonic()

    async def refuse(self, words: str, kind: RefusalKind) -> NoReturn:
        """Count one wrong try, wait, and raise."""
        now = time.monotonic()
        self._tries = max(0.0, self._tries - (now - self._counted_at) / FORGOTTEN_SECONDS) + 1
        self._counted_at = now
        tries = self._tries
        if tries > FREE_TRIES:
            await asyncio.sleep(min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** min(tries - FREE_TRIES, 10.0)))
        if tries > MOST_TRIES:
            seconds = int((tries - MOST_TRIES) * FORGOTTEN_SECONDS) + 1
            raise TooManyTries(f"{words}. Too many wrong ones of late: wait {seconds} s before the next", kind)
        raise Unauthorised(words, kind)

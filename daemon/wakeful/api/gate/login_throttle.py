"""Slows down the guessing of tokens and one-time codes.

Each wrong try is answered later than the one before, and after `MOST_TRIES` with 429. A right token is accepted at
once, so that guessing cannot lock the owner out. There is one count for all callers, because on loopback all of them
have the same address.
"""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

from wakeful.api.problems import RefusalKind, TooManyTries, Unauthorised

# The wrong tries without a delay, for a person who pastes an old token a few times.
FREE_TRIES = 5
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
# After this many wrong tries the answer is 429.
MOST_TRIES = 20
# Seconds after which one wrong try is no longer counted.
FORGOTTEN_SECONDS = 3.0


class LoginThrottle:
    """Counts the recent wrong tries."""

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

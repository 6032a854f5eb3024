"""The login of a browser: one-time codes in links, and a delay against the guessing of codes and tokens.

A person who may use the control socket gets a code, and the person's browser exchanges the code for a login. The code
is in the fragment of an address, which a browser does not send. It is valid for one exchange within five minutes. Other
users of the machine can read the address among the arguments of the browser process. So only a process of the user who
asked for the code may exchange it. Codes are kept only in memory, so they end with the daemon.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import NoReturn

from wakeful.api.gate.access_tokens import BrowserRights
from wakeful.api.problems import RefusalKind, TooManyTries, Unauthorised

LIFE_SECONDS = 300.0
MOST_CODES = 50
CODE_BYTES = 24
# The number of wrong tries without a delay, for a person who pastes an old token a few times.
FREE_TRIES = 5
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
# After this many wrong tries the answer is 429.
MOST_TRIES = 20
# Seconds after which one wrong try is no longer counted.
FORGOTTEN_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Code:
    """A code. `uid` is the user who asked for it. The browser that shows the code gets `rights`."""

    rights: BrowserRights
    uid: int
    ends_at: float


class Codes:
    """The codes that were not exchanged yet, by their digest."""

    def __init__(self) -> None:
        self._codes: dict[str, Code] = {}

    def make(self, rights: BrowserRights, uid: int) -> str:
        self._forget_old()
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        text = secrets.token_urlsafe(CODE_BYTES)
        self._codes[_digest(text)] = Code(rights, uid, time.monotonic() + LIFE_SECONDS)
        return text

    def take(self, text: str) -> Code | None:
        """Find the code and use it up. None if there is no such code, or it has expired."""
        self._forget_old()
        shown = _digest(text)
        # Every code is compared in constant time, so that the duration reveals nothing.
        found = [known for known in self._codes if hmac.compare_digest(known, shown)]
        return self._codes.pop(found[0]) if found else None

    def _forget_old(self) -> None:
        now = time.monotonic()
        self._codes = {digest: one for digest, one in self._codes.items() if one.ends_at > now}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


class LoginThrottle:
    """Counts the recent wrong tries of all callers, and slows down the next ones.

    Each wrong try is answered later than the try before it. After `MOST_TRIES`, the answer is 429. A right token is
    accepted at once, so that guessing cannot lock the owner out. There is one count for all callers, because on
    loopback all of them have the same address.
    """

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
            raise TooManyTries(f"{words}. Too many wrong tries: wait {seconds} s and try again", kind)
        raise Unauthorised(words, kind)

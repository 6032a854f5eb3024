"""One-time codes: a person who may use the control socket gets one, and their browser exchanges it for a login.

A code is part of the fragment of an address, which a browser does not send. It is valid for one exchange within five
minutes, and only for a process of the user who asked for it. Other users of the machine can read the address among the
arguments of the browser that is started. Codes are kept in memory; a restart of the daemon ends them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass

from wakeful.api.gate.access_tokens import BrowserRights

LIFE_SECONDS = 300.0
MOST_CODES = 50
CODE_BYTES = 24


@dataclass(frozen=True, slots=True)
class Code:
    """A code. `uid` is the user who asked for it; `rights` are given to the browser that shows it."""

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

"""One-time codes: a person who may use the control socket gets one, and their browser exchanges it for a login.

A code travels in the fragment of an address, which a browser does not send. It is good for one exchange within five
minutes, and only for a process of the user who asked for it: the address stands in the arguments of the browser that
is started, where other users of the machine can read it. Codes live in memory; a restart of the daemon ends them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass

from wakeful.api.gate.tokens import BrowserRights

LIFE_SECONDS = 300.0
MOST_CODES = 50
CODE_BYTES = 24


@dataclass(frozen=True, slots=True)
class Code:
    """`uid` is the user who asked for it, and `rights` are those of the browser that shows it."""

    rights: BrowserRights
    uid: int
    ends_at: float


class Codes:
    """The codes that nobody exchanged yet, by their digest."""

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
        """The code, which is used up by this; None where there is none such, or it is too old."""
        self._forget_old()
        shown = _digest(text)
        # Every code is compared, and each in the same time: how long it takes tells nothing.
        found = [known for known in self._codes if hmac.compare_digest(known, shown)]
        return self._codes.pop(found[0]) if found else None

    def _forget_old(self) -> None:
        now = time.monotonic()
        self._codes = {digest: one for digest, one in self._codes.items() if one.ends_at > now}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()

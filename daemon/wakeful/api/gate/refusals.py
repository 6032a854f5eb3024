"""Counts the requests that the gate and the routes refused, by kind, since the daemon started.

There is one object for the whole application, at `app.state.refusals`. `read()` also returns the kinds with a count of
0, so that `/metrics` has each of them from the start. Nothing of a request is kept. Used on the loop only.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

# The kinds:
# - `token`: no token, a wrong token, or a browser's token without its cookie
# - `code`: a one-time code that is wrong or expired
# - `host`, `origin`, `content_type`, `body`: the part of the request that was wrong
# - `address`: a token in the address
# - `scope`: a valid token without the right for this request
# - `run`: a process of a run over TCP
# - `signature`: a webhook with a wrong signature
# - `policy`: a browser's report that a page broke its content security policy
RefusalKind = Literal[
    "token", "code", "host", "origin", "content_type", "body", "address", "scope", "run", "signature", "policy"
]
KINDS: tuple[RefusalKind, ...] = get_args(RefusalKind)


class Refusals:
    """The counts of one daemon."""

    def __init__(self) -> None:
        self._counts: Counter[RefusalKind] = Counter()

    def count(self, kind: RefusalKind) -> None:
        self._counts[kind] += 1

    def read(self) -> dict[RefusalKind, int]:
        """Return every kind with its count."""
        return {kind: self._counts[kind] for kind in KINDS}

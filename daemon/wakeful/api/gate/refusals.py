"""Counts what the gate and the routes turned away, by kind, since the daemon started.

One object for the whole application, at `app.state.refusals`. `count(kind)` adds one; `read()` gives every kind with
its count, those that were never met included, so that a reader of `/metrics` sees each from the first moment. Nothing
of a request is kept. On the loop alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

# `token`: none, a wrong one, or one whose cookie is missing. `code`: a one-time code that opens nothing. `host`,
# `origin`, `content_type`, `body`: the part of the request that was wrong. `address`: a token in an address. `scope`: a
# good token that does not reach so far. `run`: a process of a run over TCP. `signature`: a webhook's. `policy`: a
# browser's report that a page broke its content security policy.
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
        """Every kind and how often it was met."""
        return {kind: self._counts[kind] for kind in KINDS}

"""The findings of `wakeful health`, and the interface through which parts of the daemon report them.

A part with problems of its own, such as undelivered notifications, implements `Reporter` and is added to `Monitoring`.
It is called for every `/health` and `/metrics`, so it must answer from memory. Used on the loop only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from wakeful.monitoring.metrics_text import Family

# `wrong`: a person should act, and the daemon counts as unhealthy. `note`: worth knowing.
Level = Literal["wrong", "note"]
What = Literal[
    "failed", "asks", "trust", "sleeps", "held", "budget", "limit", "damaged", "spec", "binding", "log", "disk",
    "defect", "notify", "webhook", "gate", "traces",
]  # fmt: skip


class Finding(Struct, frozen=True, kw_only=True):
    """One problem. `since` is in microseconds. `mend` is the command that a person should type next."""

    what: What
    words: str
    level: Level = "wrong"
    session: str | None = None
    since: int | None = None
    mend: str | None = None


class Reporter(Protocol):
    """A part of the daemon that reports its own problems and metrics."""

    def find_problems(self) -> Iterable[Finding]: ...

    def measure(self) -> Iterable[Family]: ...

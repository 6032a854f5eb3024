"""One thing that is not as it should be, as `wakeful health` tells it, and the port by which parts of the daemon tell.

A part that knows of trouble of its own, such as notifications that nobody received, implements `Reporter` and is added
to `Monitoring`. It is asked for every `/health` and `/metrics`, so it answers from memory. On the loop alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from wakeful.monitoring.metrics_text import Family

# `wrong`: somebody should look, and the daemon counts as unhealthy. `note`: worth knowing.
Level = Literal["wrong", "note"]
What = Literal[
    "failed", "asks", "trust", "sleeps", "held", "budget", "limit", "damaged", "spec", "binding", "log", "disk",
    "defect", "notify", "webhook", "gate", "traces",
]  # fmt: skip


class Finding(Struct, frozen=True, kw_only=True):
    """`since` is in microseconds. `mend` is a command that a person types next."""

    what: What
    words: str
    level: Level = "wrong"
    session: str | None = None
    since: int | None = None
    mend: str | None = None


class Reporter(Protocol):
    """A part of the daemon that tells of itself."""

    def find_problems(self) -> Iterable[Finding]: ...

    def measure(self) -> Iterable[Family]: ...

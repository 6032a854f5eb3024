"""The source of `/health` and `/metrics`: the counters, the survey of sessions, and the reports of other parts.

There is one for each daemon. Used on the loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from wakeful.core.deciding.core import Core
from wakeful.core.record.observations import Moment
from wakeful.monitoring.findings import Finding, Reporter
from wakeful.monitoring.measures import Measures
from wakeful.monitoring.metrics_text import Family
from wakeful.monitoring.session_findings import SessionSurvey, Survey


class Monitoring:
    """The monitoring of one daemon. `reporters` are parts of the daemon that report problems and figures."""

    def __init__(self, core: Core, reporters: Sequence[Reporter] = ()) -> None:
        self.measures = Measures(core.state)
        self._reporters = reporters
        self._core = core
        self._sessions = SessionSurvey()

    async def survey(self, read_moment: Callable[[], Moment]) -> Survey:
        """Survey the sessions. If thousands have changed since the last time, other work gets its turn in between."""
        while (found := self._sessions.survey(self._core, read_moment())) is None:  # noqa: ASYNC110 - yields to others
            await asyncio.sleep(0)
        return found

    def find_reported(self) -> Iterator[Finding]:
        for reporter in self._reporters:
            yield from reporter.find_problems()

    def measure_reported(self) -> Iterator[Family]:
        for reporter in self._reporters:
            yield from reporter.measure()

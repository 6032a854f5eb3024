"""The monitoring of one daemon: its counters since it started, its survey of sessions, and the reports of its parts.

`/health` and `/metrics` read it. The reactor calls `note` for every decision as it is recorded. So `note` must be fast:
it looks up the kind of the event and adds to a few numbers. A label must have few values, so the name of a session is
never a label here. Used on the loop only.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wakeful.core.agents.turns import TokenUsage
from wakeful.core.deciding.decision import Entry
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import events as ev
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import State
from wakeful.monitoring.findings import Finding, Reporter, SessionSurvey, Survey
from wakeful.monitoring.metrics_text import Family, Histogram, Sample, counted

OUTCOMES = ("succeeded", "failed", "cancelled", "interrupted", "lost")
RUN_BOUNDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
START_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600)
FLUSH_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
# The most pairs of agent and model. Specs and providers choose these names freely, so there may be many. Further pairs
# are counted together, as `OTHERS`.
MOST_MODELS = 200
OTHERS = "others"


class Measures:
    """The counters of one daemon."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._starts = 0
        # The keys are the outcome, and True if no retry follows.
        self._ends: Counter[tuple[str, bool]] = Counter({(one, True): 0 for one in OUTCOMES})
        self._causes: Counter[str] = Counter()
        self._run_seconds = {kind: Histogram(RUN_BOUNDS) for kind in ("command", "agent")}
        self._start_seconds = Histogram(START_BOUNDS)
        self._flush_seconds = Histogram(FLUSH_BOUNDS)
        # The keys are agent, model and direction (input, output, cached).
        self._tokens: Counter[tuple[str, str, str]] = Counter()
        self._usd: defaultdict[tuple[str, str], float] = defaultdict(float)
        # Webhook deliveries that left a record.
        self._deliveries: Counter[str] = Counter({"taken": 0, "filtered": 0})
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._models: set[tuple[str, str]] = set()
        # The sessions whose open run has an agent. The set is needed because the record of a run's end does not name
        # the agent.
        self._with_agent: set[str] = set()
        self._noting: dict[type, Callable[[Any, Entry, int], None]] = {
            ev.WakeRequested: self._note_wake,
            ev.RunStarted: self._note_start,
            ev.RunReadopted: self._note_readoption,
            ev.RunFinished: self._note_end,
            ev.DeliveryReceived: self._note_delivery,
            ev.TurnAnswered: self._note_answer,
            ev.TurnFailed: self._note_failed_turn,
        }

    def note(self, entries: Sequence[Entry], at: int) -> None:
        """Count records that were decided at the time `at`, in microseconds. They are not durable yet."""
        for entry in entries:
            note = self._noting.get(type(entry.event))
            if note is not None:
                note(entry.event, entry, at)

    def note_flush(self, seconds: float) -> None:
        """Count a group of records. `seconds` is the time from their decision until they were durable."""
        self._flush_seconds.add(seconds)

    def note_request(self, method: str, route: str | None, status: int) -> None:
        """Count an answered request. `route` is None if there is no such route."""
        self._requests[method if method in ("GET", "POST") else OTHERS, route or OTHERS, status] += 1

    def _note_wake(self, event: ev.WakeRequested, entry: Entry, at: int) -> None:
        self._causes.update({cause.kind for cause in event.causes})

    def _note_start(self, event: ev.RunStarted, entry: Entry, at: int) -> None:
        self._starts += 1
        self._note_kind(entry.session, is_agent=event.agent is not None)
        # The start of a retry is left out, because a retry waits for its backoff pause, not for the daemon.
        found = [cause.at for cause in event.causes if cause.at] if event.attempt == 0 else ()
        if found:
            self._start_seconds.add(max(0, at - min(found)) / 1e6)

    def _note_readoption(self, event: ev.RunReadopted, entry: Entry, at: int) -> None:
        session = self._state.sessions.get(entry.session)
        run = session.run if session is not None else None
        self._note_kind(entry.session, is_agent=run is not None and run.agent is not None)

    def _note_kind(self, session_id: str, *, is_agent: bool) -> None:
        (self._with_agent.add if is_agent else self._with_agent.discard)(session_id)

    def _note_end(self, event: ev.RunFinished, entry: Entry, at: int) -> None:
        self._ends[event.outcome, event.is_final] += 1
        session = self._state.sessions.get(entry.session)
        last = session.last_run if session is not None else None
        if session is not None and last is not None and last.run == event.run:
            kind = "agent" if entry.session in self._with_agent else "command"
            self._run_seconds[kind].add(max(0, last.finished_at - last.started_at) / 1e6)

    def _note_delivery(self, event: ev.DeliveryReceived, entry: Entry, at: int) -> None:
        self._deliveries["filtered" if event.is_filtered else "taken"] += 1

    def _note_answer(self, event: ev.TurnAnswered, entry: Entry, at: int) -> None:
        self._charge(entry, event.answer.model, event.usage, event.usd)

    def _note_failed_turn(self, event: ev.TurnFailed, entry: Entry, at: int) -> None:
        if event.usage is not None:
            self._charge(entry, event.model, event.usage, event.usd)

    def _charge(self, entry: Entry, model: str, usage: TokenUsage, usd: float | None) -> None:
        session = self._state.sessions.get(entry.session)
        agent = session.run.agent.name if session is not None and session.run is not None and session.run.agent else ""
        key = agent, model
        if key not in self._models and len(self._models) >= MOST_MODELS:
            key = OTHERS, OTHERS
        self._models.add(key)
        self._tokens[(*key, "input")] += usage.input
        self._tokens[(*key, "output")] += usage.output
        self._tokens[(*key, "cached")] += usage.cached
        self._usd[key] += usd or 0.0

    def list_families(self) -> list[Family]:
        ends = [
            Sample(count, {"outcome": outcome, "final": "true" if is_final else "false"})
            for (outcome, is_final), count in sorted(self._ends.items())
        ]
        durations = [one for kind, found in self._run_seconds.items() for one in found.list_samples({"kind": kind})]
        tokens = [
            Sample(count, {"agent": agent, "model": model, "direction": direction})
            for (agent, model, direction), count in sorted(self._tokens.items())
        ]
        usd = [Sample(paid, {"agent": agent, "model": model}) for (agent, model), paid in sorted(self._usd.items())]
        requests = [
            Sample(count, {"method": method, "route": route, "status": str(status)})
            for (method, route, status), count in sorted(self._requests.items())
        ]
        return [
            Family("wakeful_runs_started_total", "counter", "Runs that were started.", (Sample(self._starts),)),
            Family(
                "wakeful_runs_total",
                "counter",
                "Runs that ended, by outcome; final is false if a retry, a replacement or a recovery follows.",
                ends,
            ),
            Family("wakeful_run_duration_seconds", "histogram", "From the start of a run to its end.", durations),
            counted(
                "wakeful_wakes_total",
                "counter",
                "Wakes by kind of cause. A wake with causes of two kinds counts for both.",
                "cause",
                self._causes,
            ),
            Family(
                "wakeful_wake_start_seconds",
                "histogram",
                "From the first cause of a wake, as the daemon found it, to the start of its run.",
                list(self._start_seconds.list_samples()),
            ),
            Family(
                "wakeful_log_flush_seconds",
                "histogram",
                "From a decision to its records being durable.",
                list(self._flush_seconds.list_samples()),
            ),
            Family("wakeful_tokens_total", "counter", "Tokens of models, by agent and model.", tokens),
            Family("wakeful_cost_usd_total", "counter", "US dollars paid for models whose prices are known.", usd),
            counted(
                "wakeful_webhook_deliveries_total",
                "counter",
                "Deliveries to webhooks, accepted or filtered.",
                "result",
                self._deliveries,
            ),
            Family("wakeful_http_requests_total", "counter", "Requests answered, by route and status.", requests),
        ]


class Monitoring:
    """The monitoring of one daemon. `reporters` are parts of the daemon that report problems and figures."""

    def __init__(self, core: Core, reporters: Sequence[Reporter] = ()) -> None:
        self.measures = Measures(core.state)
        self._reporters = reporters
        self._core = core
        self._sessions = SessionSurvey()

    async def survey(self, read_moment: Callable[[], Moment]) -> Survey:
        """Survey the sessions. If thousands have changed since the last survey, other work on the loop runs in
        between."""
        while (found := self._sessions.survey(self._core, read_moment())) is None:  # noqa: ASYNC110 - yields to others
            await asyncio.sleep(0)
        return found

    def find_reported(self) -> Iterator[Finding]:
        for reporter in self._reporters:
            yield from reporter.find_problems()

    def measure_reported(self) -> Iterator[Family]:
        for reporter in self._reporters:
            yield from reporter.measure()

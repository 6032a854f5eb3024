"""Sends traces of wakes, runs and tool calls to an OpenTelemetry collector, if one is configured.

It is off unless `otel:` in wakeful.yaml or OTEL_EXPORTER_OTLP_ENDPOINT names a collector. While it is off, nothing is
imported and nothing is sent. Spans are made from the records of the log, after the daemon's work. While the collector
is away nothing is lost: the log is the buffer, and a small file stores the position that was sent. The wiring
constructs it, and the daemon runs `keep` as a task.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from wakeful import __version__
from wakeful.core.deciding.working_state import Core
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.monitoring.findings import Finding
from wakeful.monitoring.metrics_text import Family, single
from wakeful.monitoring.spans import Seen, Span, SpanBuilder
from wakeful.service.reactor import Signal

FILE = "otel-position.json"
# Seconds between two sends, and the most records and bytes that are read at once.
PAUSE_SECONDS = 1.0
RECORDS_AT_ONCE = 500
RECORD_BYTES = 1 << 20
# Seconds until the first retry after a failure, and the longest wait. Each wait is longer than the last.
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 300.0
EXPORT_SECONDS = 10.0
# The most records that are sent later. If a collector was away for longer, it misses the older ones.
MOST_BEHIND = 200_000
VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MISSING = "otel is set, and its libraries are not installed: pip install 'wakeful[otel]', then restart the daemon"
_PATH = "/v1/traces"


class Exporter:
    """The OpenTelemetry library, imported when the first exporter is made. Blocking, so called off the loop."""

    def __init__(self, endpoint: str, service_name: str) -> None:
        """Raises ImportError if the extra is not installed."""
        exporter = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        # The library prints a line for each failed attempt. The daemon prints only one line, and `health` shows the
        # problem until it is over.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        resources = importlib.import_module("opentelemetry.sdk.resources")
        self._sdk = importlib.import_module("opentelemetry.sdk.trace")
        self._api = importlib.import_module("opentelemetry.trace")
        self._success = importlib.import_module("opentelemetry.sdk.trace.export").SpanExportResult.SUCCESS
        scope = importlib.import_module("opentelemetry.sdk.util.instrumentation").InstrumentationScope
        self._scope = scope("wakeful", __version__)
        self._resource = resources.Resource.create({"service.name": service_name, "service.version": __version__})
        self._exporter = exporter.OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)

    def send(self, spans: list[Span]) -> bool:
        return bool(self._exporter.export([self._convert(one) for one in spans]) is self._success)

    def close(self) -> None:
        self._exporter.shutdown()

    def _convert(self, span: Span) -> Any:
        trace_id, kinds = span.place.trace_id, self._api.SpanKind
        status = self._api.Status(
            self._api.StatusCode.ERROR if span.error is not None else self._api.StatusCode.UNSET, span.error
        )
        return self._sdk.ReadableSpan(
            name=span.name,
            context=self._place(trace_id, span.place.span_id),
            parent=self._place(trace_id, span.parent_id) if span.parent_id is not None else None,
            resource=self._resource,
            attributes=span.attributes,
            links=[self._api.Link(self._place(one.trace_id, one.span_id)) for one in span.links],
            kind=kinds.CLIENT if span.kind == "client" else kinds.INTERNAL,
            status=status,
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=self._scope,
        )

    def _place(self, trace_id: int, span_id: int) -> Any:
        return self._api.SpanContext(trace_id, span_id, is_remote=False, trace_flags=self._api.TraceFlags(1))


class OtelTraces:
    """Follows the log while a collector is configured. `warn` prints a message for the operator."""

    def __init__(
        self,
        core: Core,
        log: LogReader,
        state: Path,
        recorded: Signal,
        warn: Callable[[str], None],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._core = core
        self._log = log
        self._file = state / FILE
        self._recorded = recorded
        self._warn = warn
        self._environ = environ
        self._exporter: Exporter | None = None
        self._target: tuple[str, str] | None = None
        # The position before the first record of this daemon. Sending begins later than the daemon's work.
        self._position = log.position()
        self._builder = SpanBuilder()
        self._waiting: list[Span] = []
        self._sent = 0
        self._passed_over = 0
        # The reason why nothing can be sent, and since when.
        self._problem: str | None = None
        self._problem_since = 0

    # -- the port of health and metrics ---------------------------------------------------------

    def find_problems(self) -> Iterator[Finding]:
        if self._problem is not None:
            yield Finding(what="traces", level="note", words=self._problem, since=self._problem_since)

    def measure(self) -> Iterator[Family]:
        if self._target is None:
            return
        yield single("wakeful_otel_spans_sent_total", "counter", "Spans that a collector took.", self._sent)
        behind = max(0, self._log.position() - self._position)
        yield single("wakeful_otel_records_behind", "gauge", "Records whose spans were not sent yet.", behind)
        yield single(
            "wakeful_otel_records_passed_over_total",
            "counter",
            "Records of which nothing was sent, because a collector was away for too long.",
            self._passed_over,
        )

    # -- following ------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Send the records as spans, until cancelled."""
        with self._recorded.listening() as heard:
            while True:
                heard.clear()
                await self._follow_settings()
                if self._exporter is not None:
                    await self._send_all(self._exporter)
                await heard.wait()
                # Wait a moment, so that many records are sent together. At rest nothing is done.
                await asyncio.sleep(PAUSE_SECONDS)

    def _find_target(self) -> tuple[str, str] | None:
        """Return the address of the collector and our name there.

        wakeful.yaml takes precedence over the environment.
        """
        settings = self._core.settings.otel
        own = settings.endpoint if settings is not None else None
        name = settings.service_name if settings is not None else self._environ.get("OTEL_SERVICE_NAME") or "wakeful"
        if own is not None:
            return (own if own.endswith(_PATH) else own.rstrip("/") + _PATH), name
        # The first variable is defined as a full address, the second as the address of a collector for all signals.
        whole, general = (self._environ.get(variable) for variable in VARIABLES)
        if whole:
            return whole, name
        return (general.rstrip("/") + _PATH, name) if general else None

    async def _follow_settings(self) -> None:
        target = self._find_target()
        if target == self._target:
            if target is None:
                # No collector was configured for the records so far, so they are not sent.
                self._position = self._log.position()
            return
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.close)
        self._exporter, self._target, self._problem = None, target, None
        if target is None:
            return
        try:
            self._exporter = await asyncio.to_thread(Exporter, *target)
        except ImportError:
            self._tell(MISSING)
            return
        self._builder, self._waiting = SpanBuilder(), []
        self._position = self._read_position()

    async def _send_all(self, exporter: Exporter) -> None:
        pause = FIRST_BACKOFF_SECONDS
        while True:
            if not self._waiting and not await asyncio.to_thread(self._read_on):
                return
            if not self._waiting or await asyncio.to_thread(exporter.send, self._waiting):
                self._sent += len(self._waiting)
                self._waiting, self._problem, pause = [], None, FIRST_BACKOFF_SECONDS
                await asyncio.to_thread(self._write_position)
                continue
            assert self._target is not None
            self._tell(
                f"traces cannot be sent to {self._target[0]}; they are sent later, from the log, when it answers"
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_BACKOFF_SECONDS)
            if self._find_target() != self._target:
                return

    def _tell(self, words: str) -> None:
        if self._problem is None:
            self._problem, self._problem_since = words, time.time_ns() // 1000
            self._warn(words)

    def _read_on(self) -> bool:
        """Read the next records. False if there are none. Blocking."""
        newest = self._log.position()
        if newest - self._position > MOST_BEHIND:
            self._passed_over += newest - self._position
            self._builder, self._position = SpanBuilder(), newest
        position, records = self._log.read_after(self._position, RECORDS_AT_ONCE, most_bytes=RECORD_BYTES)
        for record in records:
            session = self._core.state.sessions.get(record.session)
            if record.payload is None or session is None:
                continue
            event = decode(record.kind, record.payload)
            # Each record gets the position at which its page begins. Imported records leave gaps, so its own position
            # is not known. After a restart a little more is read again.
            seen = Seen(self._position, record.session, session.name, record.seq, record.at, record.parent, event)
            self._waiting += self._builder.take(seen)
        self._position = position
        return bool(records)

    # -- how far it was sent ----------------------------------------------------------------------

    def _read_position(self) -> int:
        """Read the position at which the last daemon stopped, or at which traces were turned on."""
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=dict[str, int]).get("position")
        except (FileNotFoundError, msgspec.DecodeError):
            return self._position
        return self._position if found is None else min(found, self._log.position())

    def _write_position(self) -> None:
        """Store the position. An open span needs its beginning, so the next daemon reads from there and sends equal
        spans again.
        """
        oldest = self._builder.oldest
        position = self._position if oldest is None else min(oldest, self._position)
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode({"position": position}))
        fresh.replace(self._file)

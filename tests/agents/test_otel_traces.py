"""Traces of real runs, received by a collector on loopback: OTLP over HTTP, decoded with OpenTelemetry's messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agents.provider import Call, Provider, Say
from agents.test_agent_runs import KEY, declare
from e2e.box import Box
from wait_conditions import eventually


class Collector:
    """A collector that keeps spans by name. It answers every request with `status`."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}
        self.services: set[str] = set()
        self.asked: list[str] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.append(self.path)
                if collector.status == 200:
                    collector.take(body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.setdefault(span.name, []).append(span)

    def wait(self, name: str, number: int = 1) -> Any:
        """Wait for the `number`-th span of this name and return it."""
        return eventually(lambda: self.spans.get(name, [])[number - 1 : number], what=f"span {number} {name}")[0]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def read_attributes(span: Any) -> dict[str, Any]:
    values = ((one.key, one.value) for one in span.attributes)
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values}


def declare_command(box: Box, name: str, source: str, target: str, command: str, settle: str = "10ms") -> None:
    box.spec(
        name,
        f"bindings: {{in: {{file: {source}, settle: {settle}}}, out: {{file: {target}, access: write}}}}\n"
        f"run: {{command: [sh, -c, '{command}'], retries: 0}}\n",
    )


def test_a_run_of_an_agent_is_a_trace_of_its_requests_and_tools(
    box: Box, provider: Provider, collector: Collector
) -> None:
    """The trace has the wake, its run, and the requests and tools of the run, with OpenTelemetry's names.

    No word of the conversation is sent.
    """
    provider.play([Call("write", {"path": "page.md", "content": "pay-canary()\n"}), Say("The page is true, canary.")])
    declare(box, provider)
    box.start(env={**KEY, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    assert box.wait_at_rest("docs", runs=1)["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    wake, run = collector.wait("invoke_workflow docs"), collector.wait("invoke_agent docs")
    first, tool = collector.wait("chat claude-test"), collector.wait("execute_tool write")
    assert collector.services == {"wakeful"} and set(collector.asked) == {"/v1/traces"}
    assert {one.trace_id for one in (wake, run, first, tool)} == {wake.trace_id}
    assert not wake.parent_span_id and run.parent_span_id == wake.span_id
    assert first.parent_span_id == tool.parent_span_id == run.span_id
    assert wake.start_time_unix_nano <= run.start_time_unix_nano <= first.start_time_unix_nano < run.end_time_unix_nano
    told = read_attributes(first)
    assert told["gen_ai.operation.name"] == "chat" and told["gen_ai.provider.name"] == "anthropic"
    assert told["gen_ai.usage.input_tokens"] > 0 and told["gen_ai.conversation.id"] == box.row("docs")["id"]
    assert read_attributes(run)["gen_ai.agent.name"] == "docs" and read_attributes(tool)["gen_ai.tool.name"] == "write"
    assert "canary" not in repr(collector.spans)


def test_a_failure_and_a_wave_of_commands(box: Box, collector: Collector) -> None:
    """The reader's wake is linked to the run that wrote its input. A failed run is an error with its reason."""
    box.write("wakeful.yaml", f"otel: {{endpoint: {collector.url}, service_name: house}}\n")
    box.write("a", "1\n")
    declare_command(box, "one", "a", "b", "cp a b")
    # The long settle time makes the session look at its input after the writing run has ended.
    declare_command(box, "two", "b", "c", "false", settle="5s")
    box.start()
    box.wait_for("two", state="sleeping")
    failed = collector.wait("run two")
    assert collector.services == {"house"}
    assert failed.status.code == 2 and failed.status.message == "exit code 1"
    assert read_attributes(failed)["process.exit.code"] == 1
    box.write("a", "2\n")
    assert [one.span_id for one in collector.wait("invoke_workflow two", 2).links] == [
        collector.wait("run one", 2).span_id
    ]


def test_while_the_collector_is_away_the_log_keeps_what_is_to_be_sent(box: Box, collector: Collector) -> None:
    """The spans survive a kill of the daemon. Meanwhile `health` has a note, and the daemon counts as healthy."""
    box.write("wakeful.yaml", f"otel: {collector.url}\n")
    box.write("a", "1\n")
    declare_command(box, "one", "a", "b", "cp a b")
    box.start()
    collector.wait("run one")
    collector.status = 400
    box.write("a", "2\n")
    box.wait_at_rest("one", runs=2)
    eventually(lambda: [one for one in box.json("health")["findings"] if one["what"] == "traces"])
    assert box.json("health")["healthy"] is True
    box.kill()
    collector.status = 200
    box.start()
    assert read_attributes(collector.wait("run one", 2))["wakeful.run"] == 2
    eventually(lambda: box.json("health")["findings"] == [])


def test_nothing_is_loaded_or_sent_unless_somebody_asks(box: Box, collector: Collector) -> None:
    """A daemon without `otel` has not loaded the library."""
    box.write("a", "1\n")
    declare_command(box, "one", "a", "b", "cp a b")
    box.start()
    box.wait_at_rest("one", runs=1)
    assert box.daemon is not None
    maps = {one.path for one in psutil.Process(box.daemon.pid).memory_maps()}
    assert collector.asked == [] and not any("protobuf" in path for path in maps)


@pytest.mark.long
def test_without_the_extra_the_operator_is_told_what_to_install(box: Box, collector: Collector) -> None:
    """The daemon continues to work. `health` and its output name the command to install."""
    box.write("a", "1\n")
    declare_command(box, "one", "a", "b", "cp a b")
    away = box.folder / "away" / "opentelemetry"
    away.mkdir(parents=True)
    (away / "__init__.py").write_text("raise ImportError('not here')\n")
    box.start(env={"PYTHONPATH": str(away.parent), "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    box.wait_at_rest("one", runs=1)
    note = eventually(lambda: [one for one in box.json("health")["findings"] if one["what"] == "traces"])[0]
    assert "pip install 'wakeful[otel]'" in note["words"] and note["level"] == "note"
    assert box.output.read_text().count("pip install 'wakeful[otel]'") == 1
    assert collector.asked == []

"""Steps posted line by line to a real daemon, with the token of a run in progress.

The daemon records each line as it comes, and answers when all lines are recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents.provider import Hold, Provider, Say
from agents.test_agent_crash_recovery import KEYS, declare
from e2e.box import Box
from wait_conditions import eventually, eventually_async
from wakeful.agents.run_setup import Recorder
from wakeful.client.async_client import DaemonClient
from wakeful.client.refusals import DaemonRefused
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import ToolCall

pytestmark = pytest.mark.asyncio


class Run:
    """A run whose model does not answer, so that only the tests post steps in it."""

    def __init__(self, box: Box) -> None:
        self.box = box
        (place,) = box.runtime.rglob("token")
        self.token = place.read_text().strip()

    def link(self) -> DaemonClient:
        return DaemonClient(str(self.box.socket), self.token)

    def told(self, call: str) -> list[str]:
        """Return the kinds of the records of one call."""
        called = (
            ("tool_called", lambda payload: payload["call"]["id"]),
            ("tool_returned", lambda payload: payload["call"]),
        )
        return [
            record["kind"]
            for record in self.box.log("docs")
            for kind, find in called
            if record["kind"] == kind and find(record["payload"]) == call
        ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Start one run for all tests that do not change its state."""
    with start_run(tmp_path_factory.mktemp("steps")) as started:
        yield started


@contextlib.contextmanager
def start_run(folder: Path) -> Iterator[Run]:
    box = Box(folder)
    with Provider() as provider:
        provider.play([Hold("for ever", Say("The end."))])
        declare(box, provider, "anthropic")
        box.start(env=KEYS)
        try:
            box.ask("activate", "docs")
            eventually(lambda: provider.requests)
            yield Run(box)
        finally:
            box.close()


def call(name: str) -> work.CallTool:
    return work.CallTool(call=ToolCall(id=name, name="read", arguments="{}"))


def bring(name: str) -> work.ReturnTool:
    return work.ReturnTool(call=name, name="read", text="found")


async def test_a_line_is_on_record_before_the_post_it_belongs_to_has_ended(run: Run) -> None:
    async with run.link() as link:
        record = Recorder(link, "a")
        await record.tell(call("a"))
        await eventually_async(lambda: run.told("a") == ["tool_called"])
        assert (await record(bring("a"))).end is None
        assert run.told("a") == ["tool_called", "tool_returned"]


async def test_the_same_lines_again_are_recorded_once(run: Run) -> None:
    """Lines of a post that broke off are recorded once, although the client repeats them with the rest."""
    async with run.link() as link:
        await Recorder(link, "b").tell(call("b"))
        await eventually_async(lambda: run.told("b") == ["tool_called"])
        for _ in range(2):
            again = Recorder(link, "b")
            await again.tell(call("b"))
            assert (await again(bring("b"))).end is None
        assert run.told("b") == ["tool_called", "tool_returned"]


async def test_a_line_that_is_refused_leaves_those_before_it_on_record(run: Run) -> None:
    async with run.link() as link:
        post = link.post_lines("/work/steps")
        await post.send({"steps": [call("c")], "key": "c.1"})
        with pytest.raises(DaemonRefused, match="the steps are not valid"):
            await post.end({"steps": ["nothing we know"]})
        assert run.told("c") == ["tool_called"]


async def test_a_process_that_ends_in_the_middle_of_a_post_leaves_what_it_told(run: Run) -> None:
    _, writer = await asyncio.open_unix_connection(str(run.box.socket))
    line = msgspec.json.encode({"steps": [call("d")], "key": "d.1"}) + b"\n"
    head = f"POST /work/steps HTTP/1.1\r\nHost: wakeful\r\nAuthorization: Bearer {run.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode() + b"%x\r\n%b\r\n" % (len(line), line))
    await eventually_async(lambda: run.told("d") == ["tool_called"])
    writer.close()
    await writer.wait_closed()
    async with run.link() as link:
        assert (await Recorder(link, "e")(bring("d"))).end is None
    assert "Traceback" not in run.box.output.read_text()


async def test_the_post_of_an_earlier_release_is_taken_as_it_was(run: Run) -> None:
    """The old post has one object, with its key in a header.

    A run may continue over a restart that brings a new daemon.
    """
    async with run.link() as link:
        for _ in range(2):
            assert await link.post("/work/steps", {"steps": [call("f")]}, "f.1") == {"end": None}
        assert run.told("f") == ["tool_called"]


async def test_once_somebody_wants_the_run_to_end_no_further_line_is_recorded(tmp_path: Path) -> None:
    """A post's first line is still recorded, because it reports a step that has already happened."""
    with start_run(tmp_path) as run:
        async with run.link() as link:
            record = Recorder(link, "g")
            await record.tell(call("g"))
            await eventually_async(lambda: run.told("g") == ["tool_called"])
            run.box.ask("suspend", "docs")
            end = (await record(bring("g"))).end
            assert end is not None and "suspend" in end
            assert run.told("g") == ["tool_called"]
            assert (await Recorder(link, "h")(bring("g"))).end == end
            assert run.told("g") == ["tool_called", "tool_returned"]

"""A client is notified of changes: by `subscriptions/listen` of 2026-07-28, and by the older `resources/subscribe`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceUpdatedNotification

from e2e.box import Box
from mcp_server.clients import declare, open_client
from wait_conditions import PATIENCE_SECONDS, eventually_async

pytestmark = pytest.mark.asyncio

FACTS, LOG, OUTPUT = (f"wakeful://session/pay/{part}" for part in ("facts", "log", "output/1"))


async def test_a_change_is_heard_by_listeners_of_that_resource_alone(box: Box) -> None:
    declare(box)
    declare(box, "other")
    box.start()
    async with open_client(box) as client, client.listen(resource_subscriptions=[FACTS, OUTPUT]) as changes:
        # The facts of this session change neither by a fact of another session nor by a note of this one.
        box.ask("remember", "other", "currency", "CHF")
        box.ask("note", "pay", "done")
        box.ask("remember", "pay", "currency", "EUR")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(changes) == ResourceUpdated(FACTS)
        box.ask("activate", "pay")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(changes) == ResourceUpdated(OUTPUT)


@pytest.mark.long
async def test_new_sessions_change_the_list(box: Box) -> None:
    declare(box)
    box.start()
    async with open_client(box) as client, client.listen(resources_list_changed=True) as changes:
        declare(box, "other")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(changes) == ResourcesListChanged()


@pytest.mark.long
async def test_after_a_restart_of_the_daemon_everything_is_read_again(box: Box) -> None:
    declare(box)
    box.start()
    async with open_client(box) as client, client.listen(resource_subscriptions=[FACTS]) as changes:
        await asyncio.to_thread(box.kill)
        box.start(is_ready=False)
        await asyncio.to_thread(box.wait_ready)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(changes) == ResourceUpdated(FACTS)
        box.ask("remember", "pay", "currency", "EUR")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(changes) == ResourceUpdated(FACTS)


@pytest.mark.long
async def test_nobody_listens_to_what_is_not_there(box: Box) -> None:
    declare(box)
    box.start()
    async with open_client(box) as client:
        for uri, words in (("wakeful://session/nobody", "nobody"), ("wakeful://nothing", "expected one of")):
            with pytest.raises(MCPError, match=words):
                async with client.listen(resource_subscriptions=[uri]):
                    raise AssertionError("it was accepted")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:resources/:mcp.MCPDeprecationWarning")
async def test_a_client_of_before_subscribes_and_unsubscribes(box: Box) -> None:
    declare(box)
    box.start()
    heard: list[str] = []

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with open_client(box, mode="legacy", message_handler=hear) as client:
        assert client.server_capabilities.resources.subscribe
        await client.subscribe_resource(FACTS)
        await client.subscribe_resource(LOG)
        box.ask("remember", "pay", "currency", "EUR")
        await eventually_async(lambda: {FACTS, LOG} <= set(heard))
        await client.unsubscribe_resource(FACTS)
        heard.clear()
        box.ask("remember", "pay", "currency", "CHF")
        await eventually_async(lambda: LOG in heard)
        assert FACTS not in heard

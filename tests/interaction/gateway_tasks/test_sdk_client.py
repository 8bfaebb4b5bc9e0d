"""The SDK's client subscribes to the resource of a call and reads the result from it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ResourceUpdated

from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.support.mcp_wire import WAIT_SECONDS

pytestmark = [pytest.mark.requirement("R15"), pytest.mark.requirement("R20")]


@asynccontextmanager
async def open_sdk_client(harness: TasksHarness) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {await harness.get_api_key('alice')}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as http,
        Client(streamable_http_client(f"{harness.url}/mcp/tasks", http_client=http)) as client,
    ):
        yield client


async def test_the_sdk_client_subscribes_to_a_call_until_it_can_read_the_result(harness: TasksHarness) -> None:
    task_id, task = await harness.start_task()
    uri = f"ringback://calls/{task_id}"
    async with open_sdk_client(harness) as client, client.listen(resource_subscriptions=[uri]) as subscription:
        assert subscription.honored.resource_subscriptions == [uri]
        task.complete_task("done")
        event = await asyncio.wait_for(anext(subscription), WAIT_SECONDS)
        assert event == ResourceUpdated(uri)
        assert "done" in (await client.read_resource(uri)).model_dump_json()

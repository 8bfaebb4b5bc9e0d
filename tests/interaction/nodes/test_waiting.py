"""A client that waits at one node learns what another node does, by a notification, and without it by the slow poll."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest

from ringback.mcp_server import change_publisher, tool_call_responder
from ringback.services import long_polling
from tests.interaction.nodes.conftest import NEVER, Site
from tests.support.application import start_upstream_call
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import ModernClient

pytestmark = pytest.mark.requirement("R34")


@pytest.fixture
def without_slow_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "POLL_INTERVAL_SECONDS", NEVER)
    monkeypatch.setattr(change_publisher, "CALL_REREAD_SECONDS", NEVER)
    monkeypatch.setattr(tool_call_responder, "STORED_PROGRESS_POLL_SECONDS", NEVER)


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        yield client


@pytest.mark.usefixtures("without_slow_polls")
async def test_every_kind_of_wait_at_one_node_ends_with_the_call_at_another(
    site: Site, http: httpx.AsyncClient
) -> None:
    door = await site.cluster.start_node(roles="api")
    await site.cluster.start_node(roles="runner,dispatcher,janitor")
    key = await site.cluster.create_key("alice")
    alice, mcp = await door.client(key), ModernClient(http, f"{door.url}/mcp", key=key)
    call = await start_upstream_call(alice, "hold", site.phone)
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

    async def follow_events() -> str:
        async with alice.stream_events() as events:
            async for event in events:
                return event.name
        raise AssertionError

    async def follow_resource() -> str:
        wanted = {"notifications": {"resourceSubscriptions": [f"ringback://calls/{call.id}"]}}
        async with mcp.open_request("subscriptions/listen", wanted) as messages:
            subscribed.set()
            message = await messages.read_message("notifications/resources/updated")
            return message["params"]["uri"]

    async def follow_task() -> str:
        wanted = {"notifications": {"taskIds": [call.id]}}
        async with mcp.open_request("subscriptions/listen", wanted) as messages:
            first = await messages.read_message("notifications/tasks")
            assert first["params"]["status"] == "working"
            task_seen.set()
            return (await messages.read_message("notifications/tasks"))["params"]["status"]

    async def wait_by_tool() -> str:
        result = await mcp.result(
            "tools/call", {"name": "ringback_wait_for_call", "arguments": {"call_id": call.id, "wait_seconds": 45}}
        )
        return result["structuredContent"]["status"]

    subscribed, task_seen = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        by_rest = group.create_task(alice.wait(call.id))
        by_wait_any = group.create_task(alice.wait_any([call.id]))
        by_events = group.create_task(follow_events())
        by_resource = group.create_task(follow_resource())
        by_task = group.create_task(follow_task())
        by_tool = group.create_task(wait_by_tool())
        async with asyncio.timeout(WAIT_SECONDS):
            await subscribed.wait()
            await task_seen.wait()
        site.stage.release.set()

    assert by_rest.result().status == "completed"
    assert by_wait_any.result()[0].status == "completed"
    assert by_events.result() == "call.finished"
    assert by_resource.result() == f"ringback://calls/{call.id}"
    assert by_task.result() == "completed"
    assert by_tool.result() == "completed"

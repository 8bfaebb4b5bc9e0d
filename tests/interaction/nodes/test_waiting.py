"""A client that waits at one node learns what another node does, by a notification, and without it by the slow poll."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

import httpx
import pytest

from ringback.bootstrap import Environment, workers
from ringback.client import RingbackClient
from ringback.domain.ports import Store
from ringback.domain.signals import Signals
from ringback.mcp_server import change_publisher, tool_call_responder
from ringback.runner import execution
from ringback.runner.leasing import RunnerConfig
from ringback.services import long_polling
from ringback.storage.signals import LocalSignals
from tests.interaction.nodes.conftest import NEVER, Site
from tests.support.application import start_upstream_call
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import ModernClient
from tests.support.stores import StoreWrapper

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
    api_node = await site.cluster.start_node(roles="api")
    await site.cluster.start_node(roles="runner,dispatcher,janitor")
    key = await site.cluster.create_key("alice")
    alice, mcp = await api_node.client(key), ModernClient(http, f"{api_node.url}/mcp", key=key)
    call = await start_upstream_call(alice, "hold", site.phone)
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

    async def follow_events() -> str:
        async with RingbackClient(api_node.url, api_key=key) as client, client.stream_events() as events:
            async for event in events:
                return event.name
        raise AssertionError

    async def follow_resource() -> str:
        wanted = {"resourceSubscriptions": [f"ringback://calls/{call.id}"]}
        async with mcp.open_subscription(wanted) as messages:
            await messages.read_message("notifications/subscriptions/acknowledged")
            subscribed.set()
            message = await messages.read_message("notifications/resources/updated")
            return message["params"]["uri"]

    async def follow_task() -> str:
        async with mcp.open_subscription({"taskIds": [call.id]}) as messages:
            first = await messages.read_message("notifications/tasks")
            assert first["params"]["status"] == "working"
            task_seen.set()
            return (await messages.read_message("notifications/tasks"))["params"]["status"]

    async def wait_by_tool() -> str:
        result = await mcp.request(
            "tools/call", {"name": "ringback_wait_for_call", "arguments": {"call_id": call.id, "wait_seconds": 45}}
        )
        return result["structuredContent"]["status"]

    subscribed, task_seen = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        by_rest = group.create_task(alice.wait(call.id))
        by_wait_any = group.create_task(alice.wait_any([call.id]))
        by_events = group.create_task(follow_events())
        by_resource = group.create_task(follow_resource())
        by_task = group.create_task(follow_task())
        by_tool = group.create_task(wait_by_tool())
        await subscribed.wait()
        await task_seen.wait()
        site.stage.release.set()

    assert by_rest.result().status == "completed"
    assert by_wait_any.result()[0].status == "completed"
    assert by_events.result() == "call.finished"
    assert by_resource.result() == f"ringback://calls/{call.id}"
    assert by_task.result() == "completed"
    assert by_tool.result() == "completed"


class DeafStore(StoreWrapper):
    """A store whose node receives no notification, as if its listener was lost for ever."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._silence = LocalSignals()

    @property
    def signals(self) -> Signals:
        return self._silence


async def test_without_notifications_a_wait_ends_at_the_next_slow_poll(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polling, "POLL_INTERVAL_SECONDS", 0.05)
    api_node = await site.cluster.start_node(roles="api", environment=Environment(wrap_store=DeafStore))
    await site.cluster.start_node(roles="runner,dispatcher,janitor")
    alice = await api_node.client(await site.cluster.create_key("alice"))
    call = await start_upstream_call(alice, "hold", site.phone)
    waiting = asyncio.create_task(alice.wait(call.id))
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

    site.stage.release.set()

    assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).status == "completed"


@pytest.mark.usefixtures("without_slow_polls")
async def test_a_cancellation_at_one_node_reaches_the_upstream_of_another(site: Site) -> None:
    api_node = await site.cluster.start_node(roles="api")
    await site.cluster.start_node(roles="runner,dispatcher,janitor")
    alice = await api_node.client(await site.cluster.create_key("alice"))
    call = await start_upstream_call(alice, "hold", site.phone)
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

    await alice.cancel(call.id)

    await asyncio.wait_for(site.stage.cancelled.wait(), WAIT_SECONDS)
    assert (await alice.wait(call.id)).status == "cancelled"


async def test_a_runner_without_notifications_notices_a_cancellation_with_its_heartbeat(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "RunnerConfig", partial(RunnerConfig, poll_seconds=0.05, heartbeat_seconds=0.05))
    monkeypatch.setattr(execution, "REREAD_SECONDS", NEVER)
    api_node = await site.cluster.start_node(roles="api")
    await site.cluster.start_node(roles="runner", environment=Environment(wrap_store=DeafStore))
    alice = await api_node.client(await site.cluster.create_key("alice"))
    call = await start_upstream_call(alice, "hold", site.phone)
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

    await alice.cancel(call.id)

    await asyncio.wait_for(site.stage.cancelled.wait(), WAIT_SECONDS)

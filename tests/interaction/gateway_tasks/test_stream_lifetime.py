"""Every stream ends after a quarter of an hour, so that a revoked key is refused when its client reconnects."""

import asyncio

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.principal import DEFAULT_SCOPES
from ringback.mcp_server.own_stream import ENDED_STREAM_RETRY_MILLISECONDS, OWN_STREAM_RETRY_MILLISECONDS
from ringback.services.events.event_streams import FOLLOW_SECONDS_MAX
from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.support.engine import wait_until
from tests.support.event_reader import resume_stream
from tests.support.mcp_wire import WAIT_SECONDS, Json, LegacyClientSession, ModernClient

pytestmark = [pytest.mark.requirement("R20"), pytest.mark.requirement("R25")]

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Setting it ends the lifetime of all open streams."""
    over, sleep = asyncio.Event(), SystemClock.sleep

    async def wait_for_lifetime(clock: SystemClock, seconds: float) -> None:
        await (over.wait() if seconds == FOLLOW_SECONDS_MAX else sleep(clock, seconds))

    monkeypatch.setattr(SystemClock, "sleep", wait_for_lifetime)
    return over


async def test_a_subscription_stream_ends_with_a_result_and_can_be_opened_again(
    harness: TasksHarness, modern: ModernClient, over: asyncio.Event
) -> None:
    task_id, _ = await harness.start_task()
    async with modern.open_subscription({"taskIds": [task_id], "toolsListChanged": True}) as stream:
        acknowledged = await stream.read_message()
        assert (await stream.read_message())["params"]["status"] == "working"
        over.set()
        answer = await stream.read_response()
    assert answer["resultType"] == "complete"
    assert answer["_meta"][SUBSCRIPTION] == acknowledged["params"]["_meta"][SUBSCRIPTION]
    over.clear()
    async with modern.open_subscription({"taskIds": [task_id]}) as stream:
        await stream.read_message()
        assert (await stream.read_message())["params"]["status"] == "working"


async def test_a_sessions_own_stream_ends_without_ending_the_session(
    harness: TasksHarness, session: LegacyClientSession, over: asyncio.Event
) -> None:
    async with session.open_event_stream() as stream, asyncio.timeout(WAIT_SECONDS):
        over.set()
        assert b"data: {" not in await stream.response.aread()
    over.clear()
    assert "tools" in await session.request("tools/list", {})

    async def free() -> bool:
        async with harness.http.stream("GET", session.url, headers=session.headers) as again:
            return again.status_code == 200

    await wait_until(free)


async def test_a_sessions_own_stream_that_ends_in_time_brings_its_client_back_at_once(
    session: LegacyClientSession, over: asyncio.Event
) -> None:
    """The `retry` of its first event is that after a restart, for which notifications would wait."""
    async with resume_stream(session, None) as stream:
        first = await stream.next()
        over.set()
        last = await stream.next()
        assert await stream.has_ended()
    assert (first.data, first.retry) == (None, OWN_STREAM_RETRY_MILLISECONDS)
    assert (last.id, last.data, last.retry) == (None, None, ENDED_STREAM_RETRY_MILLISECONDS)


async def test_a_client_that_reconnects_with_a_revoked_key_is_refused(
    harness: TasksHarness, over: asyncio.Event
) -> None:
    keys = harness.ringback.app.services.api_keys
    key, secret = await keys.create_key("leaver", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
    modern = ModernClient(harness.http, f"{harness.url}/mcp/tasks", secret)
    wanted: Json = {"toolsListChanged": True}
    async with modern.open_subscription(wanted) as stream:
        await stream.read_message()
        await keys.revoke_key(key.id)
        over.set()
        await stream.read_response()
    async with modern.open_subscription(wanted) as stream:
        assert stream.response.status_code == 401

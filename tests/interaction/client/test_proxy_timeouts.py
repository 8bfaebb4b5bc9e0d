"""Proxies that end waiting requests too early, or cannot reach the service: the client repeats what may be repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from ringback.client import ConnectionFailed, RingbackClient
from ringback.client.durable import DurableCaller, MemoryRequestState
from ringback.client.durable.ringback_target import RingbackTarget
from ringback.client.http_transport import RETRY_DELAYS_SECONDS
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, PUBLIC_URL, ServiceUnderTest

PROXY_TIMEOUT_SECONDS = 30.0
"""Less than the longest wait of the client: nginx has 60 s, HAProxy 50 s, and others 30 s."""
LONGEST_ALLOWED_WAIT = PROXY_TIMEOUT_SECONDS * 0.8
LEFT_SECONDS = 45.0 - PROXY_TIMEOUT_SECONDS - RETRY_DELAYS_SECONDS[0]
"""Of a wait of 45 s when it is repeated."""


class ScriptedProxy(httpx.AsyncBaseTransport):
    """Ends every request that waits longer than its timeout with a 504. Time passes only on the clock.

    `failures` are the statuses of its next responses, without a request to the service.
    """

    def __init__(self, service: ServiceUnderTest, clock: FakeClock) -> None:
        self._service = httpx.ASGITransport(service.app)
        self._clock = clock
        self.failures: list[int] = []
        self.waits: list[float] = []
        self.on_allowed_wait: Callable[[], Awaitable[Any]] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.failures:
            return httpx.Response(self.failures.pop(0), html="<h1>No service</h1>")
        wait_seconds = _read_wait(request)
        if wait_seconds:
            self.waits.append(wait_seconds)
        if wait_seconds > PROXY_TIMEOUT_SECONDS:
            self._clock.advance(PROXY_TIMEOUT_SECONDS)
            return httpx.Response(504, html="<h1>Gateway time-out</h1>")
        if wait_seconds and self.on_allowed_wait is not None:
            hook, self.on_allowed_wait = self.on_allowed_wait, None
            await asyncio.shield(asyncio.ensure_future(hook()))  # the client may give this request up
        return await self._service.handle_async_request(request)


def _read_wait(request: httpx.Request) -> float:
    body: dict[str, Any] = orjson.loads(request.content) if request.content else {}
    return float(request.url.params.get("wait_seconds") or body.get("wait_seconds") or 0.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def proxy(service: ServiceUnderTest, clock: FakeClock) -> ScriptedProxy:
    return ScriptedProxy(service, clock)


@pytest.fixture
async def client(service: ServiceUnderTest, proxy: ScriptedProxy, clock: FakeClock) -> RingbackClient:
    key = await service.create_api_key("alice")
    return RingbackClient(PUBLIC_URL, api_key=key, transport=proxy, clock=clock)


async def start_call(client: RingbackClient, service: ServiceUnderTest, proxy: ScriptedProxy) -> str:
    """A call that ends during the first wait that the proxy allows."""
    started = await client.start_call(CALL_BODY["upstream"], CALL_BODY["tool"], CALL_BODY["arguments"])
    proxy.on_allowed_wait = lambda: service.finish_call(started.call.id)
    return started.call.id


async def test_a_wait_that_a_proxy_ends_early_is_repeated_for_what_is_left_of_it(
    service: ServiceUnderTest, proxy: ScriptedProxy, client: RingbackClient
) -> None:
    call_id = await start_call(client, service, proxy)

    call = await client.wait(call_id)

    assert call.final
    assert proxy.waits == [45.0, LEFT_SECONDS]


@pytest.mark.parametrize("mode", ["any", "all"])
async def test_a_wait_for_several_calls_is_repeated_too(
    service: ServiceUnderTest, proxy: ScriptedProxy, client: RingbackClient, mode: str
) -> None:
    call_id = await start_call(client, service, proxy)

    (call,) = await (client.wait_any if mode == "any" else client.wait_all)([call_id])

    assert call.final
    assert proxy.waits == [45.0, LEFT_SECONDS]


async def test_later_waits_are_within_the_patience_of_the_proxy(
    service: ServiceUnderTest, proxy: ScriptedProxy, client: RingbackClient
) -> None:
    await client.wait(await start_call(client, service, proxy))
    resumable = await start_call(client, service, proxy)
    token = await client.fresh_resume_token(resumable)
    proxy.waits.clear()

    resumed = await client.resume(token, wait_seconds=45.0)
    page = await client.poll_events(wait_seconds=45.0)

    assert resumed.call.final
    assert page.events
    assert proxy.waits == [LONGEST_ALLOWED_WAIT] * 2


async def test_a_start_that_waits_is_repeated_with_its_key(
    service: ServiceUnderTest, proxy: ScriptedProxy, client: RingbackClient
) -> None:
    async def finish_newest() -> None:
        newest = await anext(client.calls())
        await service.finish_call(newest.id)

    earlier = await client.start_call(
        CALL_BODY["upstream"], CALL_BODY["tool"], CALL_BODY["arguments"], idempotency_key="once"
    )
    proxy.on_allowed_wait = finish_newest

    started = await client.start_call(
        CALL_BODY["upstream"], CALL_BODY["tool"], CALL_BODY["arguments"], idempotency_key="once", wait_seconds=45.0
    )

    assert (started.call.id, started.call.final) == (earlier.call.id, True)


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_504_at_once_says_nothing_about_waits(
    service: ServiceUnderTest, proxy: ScriptedProxy, client: RingbackClient, status: int
) -> None:
    call_id = await start_call(client, service, proxy)
    proxy.failures = [status, status]

    await client.call(call_id, wait_seconds=25.0)

    assert proxy.waits == [25.0 - sum(RETRY_DELAYS_SECONDS)]


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_proxy_that_stays_without_a_service_ends_the_attempts(
    proxy: ScriptedProxy, client: RingbackClient, clock: FakeClock, status: int
) -> None:
    proxy.failures = [status] * 4

    with pytest.raises(ConnectionFailed, match=f"responded with {status}"):
        await client.call("call_1")

    assert len(proxy.failures) == 1
    assert clock.monotonic() == 2.5


async def test_a_durable_caller_joins_through_such_a_proxy(
    service: ServiceUnderTest, proxy: ScriptedProxy, client: RingbackClient
) -> None:
    async def finish_newest() -> None:
        newest = await anext(client.calls())
        await service.finish_call(newest.id)

    proxy.on_allowed_wait = finish_newest
    async with (
        asyncio.timeout(WAIT_SECONDS),
        DurableCaller(RingbackTarget(client=client), state=MemoryRequestState()) as caller,
    ):
        proxy.failures = [502, 504]
        handle = await caller.request_call_tool(
            CALL_BODY["tool"], CALL_BODY["arguments"], upstream=CALL_BODY["upstream"]
        )
        result = await caller.join_call_tool(handle)

    assert result is not None
    assert max(proxy.waits) > PROXY_TIMEOUT_SECONDS

"""The receiver library's subscriber at a real gateway, in both eras, over the session of the MCP SDK."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ringback.receiver import (
    Callback,
    EventRequestError,
    EventSubscriber,
    Gap,
    PolledEvent,
    ReceiverApp,
    Terminated,
    requests_of_session,
)
from ringback.receiver.event_subscriber import NEVER
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_event_polls import call_echo
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import serving

UPSTREAMS: Final = ("plain",)

NAME: Final = "call.finished"


@dataclass(slots=True)
class Agent:
    subscriber: EventSubscriber
    callbacks: "asyncio.Queue[Callback]" = field(default_factory=asyncio.Queue[Callback])
    notices: "asyncio.Queue[Gap | Terminated]" = field(default_factory=asyncio.Queue[Gap | Terminated])

    recovered: asyncio.Event = field(default_factory=asyncio.Event)
    """What was missed has been polled."""

    async def recover(self, notice: Gap | Terminated) -> AsyncGenerator[PolledEvent]:
        async for event in self.subscriber.recover(notice):
            yield event
        self.recovered.set()

    async def next_callback(self) -> Callback:
        return await asyncio.wait_for(self.callbacks.get(), WAIT_SECONDS)

    async def next_notice(self) -> Gap | Terminated:
        return await asyncio.wait_for(self.notices.get(), WAIT_SECONDS)


class LateReceiver:
    """The ASGI application of a receiver that is made once its URL is known."""

    receiver: ReceiverApp

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        await self.receiver(scope, receive, send)  # pyright: ignore[reportArgumentType] - passed on unchanged


@asynccontextmanager
async def running_agent(
    gate: GatewayHarness, principal: str, *, mode: str = "auto", ttl_seconds: float | None = None
) -> AsyncGenerator[Agent]:
    headers = {"authorization": f"Bearer {await gate.get_api_key(principal)}"}
    late = LateReceiver()
    async with (
        httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as http,
        Client(streamable_http_client(f"{gate.url}/mcp/plain", http_client=http), mode=mode) as client,
        serving(late) as server,
    ):
        url = f"http://127.0.0.1:{server.port}/callbacks?agent={principal}%2F{mode}"
        subscriber = EventSubscriber(requests_of_session(client.session), url=url, ttl_seconds=ttl_seconds)
        agent = Agent(subscriber)
        late.receiver = ReceiverApp(
            subscriber.registry,
            on_callback=agent.callbacks.put,
            on_notice=agent.notices.put,
            recover=agent.recover,
        )
        async with late.receiver, subscriber:
            yield agent


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_subscribes_is_called_refreshes_and_unsubscribes(gate: GatewayHarness, mode: str) -> None:
    principal = f"subscriber-{mode}"
    caller = await gate.make_modern_client("plain", principal=principal)
    async with running_agent(gate, principal, mode=mode) as agent:
        subscription = await agent.subscriber.subscribe(NAME, {"client_session_id": principal})
        await call_echo(caller, clientSessionId="another")
        first = await call_echo(caller, clientSessionId=principal)
        callback = await agent.next_callback()
        refreshed = await agent.subscriber.refresh(subscription.id, new_secret=True)
        second = await call_echo(caller, clientSessionId=principal)
        later = await agent.next_callback()
        await agent.subscriber.unsubscribe(subscription.id)

        assert (callback.call_id, callback.subscription_id) == (first, subscription.id)
        assert later.call_id == second, "the new secret is accepted"
        assert refreshed.id == subscription.id
        assert refreshed.refresh_before is not None
        assert agent.subscriber.subscriptions() == []


async def test_what_an_agent_missed_is_polled_from_the_cursor_of_its_gap(gate: GatewayHarness) -> None:
    principal = "subscriber-gap"
    caller = await gate.make_modern_client("plain", principal=principal)
    async with running_agent(gate, principal) as agent:
        subscription = await agent.subscriber.subscribe(NAME)
        called = [await call_echo(caller, clientSessionId=principal) for _ in range(3)]
        for _ in called:
            await agent.next_callback()

        gap = Gap(subscription_id=subscription.id, cursor=subscription.cursor or "")
        missed = [event.data["call_id"] async for event in agent.subscriber.recover(gap)]

        assert missed == called


async def test_an_agent_learns_that_its_subscription_was_removed(gate: GatewayHarness) -> None:
    principal = "subscriber-removed"
    async with running_agent(gate, principal) as agent:
        subscription = await agent.subscriber.subscribe(NAME)
        removed = await gate.request_rest("DELETE", f"/v1/webhooks/{subscription.id}", principal=principal)
        notice = await agent.next_notice()
        await asyncio.wait_for(agent.recovered.wait(), WAIT_SECONDS)

        assert removed.status_code == 204
        assert isinstance(notice, Terminated)
        assert notice.subscription_id == subscription.id
        assert notice.message.startswith("Forbidden: ")
        assert agent.subscriber.subscriptions() == []


async def test_a_subscription_without_expiry_is_granted_to_a_client_with_an_api_key(gate: GatewayHarness) -> None:
    async with running_agent(gate, "subscriber-never", ttl_seconds=NEVER) as agent:
        subscription = await agent.subscriber.subscribe(NAME)

        assert subscription.refresh_before is None


async def test_a_refused_subscription_says_why(gate: GatewayHarness) -> None:
    async with running_agent(gate, "subscriber-refused") as agent:
        with pytest.raises(EventRequestError, match="NotFound") as refused:
            await agent.subscriber.subscribe("call.imagined")

        assert refused.value.data == {"kind": "event"}

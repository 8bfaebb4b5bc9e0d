"""A user's MCP server whose events a Ringback service stores: real server, client and service."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from ringback.domain.principal import DEFAULT_SCOPES
from ringback.extension import Events
from ringback.extension.events.service_methods import ServiceMethods
from ringback.protocol.mcp_events.errors import EventError
from ringback.protocol.mcp_events.names import EventMethod
from ringback.services.events import event_types
from tests.support.application import running_application
from tests.support.event_servers import (
    SHIPPED,
    OrderShipped,
    accept_challenges,
    make_order_server,
    order_client,
    read_occurrences,
    serving_orders,
    subscription_params,
)
from tests.support.extension_servers import FastClock, verify_callback
from tests.support.mcp_wire import JsonRpcErrorResponse, ModernClient
from tests.support.receivers import serving_receiver
from tests.support.subscriptions import OTHER_SECRET
from tests.support.upstreams import serving

POLL: dict[str, Any] = {"name": SHIPPED, "arguments": {}, "cursor": None}


class SwitchedTransport(httpx.AsyncHTTPTransport):
    """The connection to the service, which a test can close."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True
        self.refused = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.is_open:
            self.refused.set()
            raise httpx.ReadTimeout("nobody there")  # the client does not retry this error
        return await super().handle_async_request(request)


@dataclass(slots=True)
class Service:
    url: str
    api_key: str

    def make_events(self, transport: httpx.AsyncBaseTransport | None = None, **options: Any) -> Events:
        return Events.reporting(self.url, api_key=self.api_key, transport=transport, clock=FastClock(), **options)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[Service]:
    async with running_application(tmp_path, public_url=None) as ringback:
        _, key = await ringback.app.services.api_keys.create_key(
            "orders", name="k", scopes=DEFAULT_SCOPES, upstreams=None
        )
        async with serving(ringback.app.api) as http:
            yield Service(http.origin, key)


def event_ids(page: dict[str, Any]) -> list[str]:
    return [event["eventId"] for event in page["events"]]


async def test_poll_stream_and_webhook_have_the_event_that_the_service_stores(service: Service) -> None:
    events = service.make_events()
    server = make_order_server(events, authenticates=True, has_arguments=False)
    async with (
        serving_receiver(accept_challenges) as receiver,
        order_client(server, principal="alice") as client,
        client.open_request("events/stream", POLL) as frames,
    ):
        await frames.read_message("notifications/events/active")
        start = await client.request("events/poll", POLL)
        grant = await client.request("events/subscribe", subscription_params(receiver))
        event_id = await events.emit(OrderShipped(order_id="o1"))
        (delivered,) = await read_occurrences(receiver, 1)
        streamed = (await frames.read_message("notifications/events/event"))["params"]
        page = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
        again = await client.request("events/subscribe", subscription_params(receiver))
        key: dict[str, Any] = {"name": SHIPPED, "delivery": {"url": receiver.url()}}
        with pytest.raises(JsonRpcErrorResponse, match="NotFound"):
            await client.request("events/unsubscribe", {**key, "arguments": {"order_id": "o1"}})
        await client.request("events/unsubscribe", key)
    assert event_ids(page) == [event_id]
    assert (delivered["eventId"], streamed["eventId"]) == (event_id, event_id)
    assert delivered["data"] == streamed["data"] == {"order_id": "o1", "carrier": "post"}
    assert again["id"] == grant["id"]


async def test_a_client_that_knows_the_url_of_another_neither_replaces_its_secret_nor_ends_its_subscription(
    service: Service,
) -> None:
    server = make_order_server(events := service.make_events(), authenticates=True, has_arguments=False)
    async with serving_receiver(accept_challenges) as receiver, serving_orders(server) as (http, url):
        alice, bob = (ModernClient(http, url, key=f"token-{name}") for name in ("alice", "bob"))
        key: dict[str, Any] = {"name": SHIPPED, "delivery": {"url": receiver.url()}}
        of_alice = await alice.request("events/subscribe", subscription_params(receiver))
        with pytest.raises(JsonRpcErrorResponse, match="NotFound"):
            await bob.request("events/unsubscribe", key)
        of_bob = await bob.request("events/subscribe", subscription_params(receiver, secret=OTHER_SECRET))
        challenged = [request.headers["x-mcp-subscription-id"] for request in receiver.requests]
        await bob.request("events/unsubscribe", key)
        await events.emit(OrderShipped(order_id="o1"))
        await read_occurrences(receiver, 1)
    assert challenged == [of_alice["id"], of_bob["id"]]
    (delivered,) = receiver.requests[len(challenged) :]
    assert delivered.headers["x-mcp-subscription-id"] == of_alice["id"]
    assert len(delivered.headers["webhook-signature"].split()) == 1
    verify_callback(delivered)


async def test_events_wait_while_the_service_is_away_and_arrive_once_in_their_order(service: Service) -> None:
    transport = SwitchedTransport()
    events = service.make_events(transport)
    async with order_client(make_order_server(events, has_arguments=False)) as client:
        start = await client.request("events/poll", POLL)
        transport.is_open = False
        emitted = [await events.emit(OrderShipped(order_id=f"o{number}")) for number in range(5)]
        await transport.refused.wait()
        with pytest.raises(JsonRpcErrorResponse, match="InternalError"):
            await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
        transport.is_open = True
        seen: list[str] = []
        cursor = start["cursor"]
        while len(seen) < len(emitted):
            page = await client.request("events/poll", {**POLL, "cursor": cursor, "timeoutMs": 40_000})
            seen, cursor = seen + event_ids(page), page["cursor"]
    assert seen == emitted


async def test_an_error_of_a_service_that_is_away_keeps_nothing_of_earlier_requests(service: Service) -> None:
    transport = SwitchedTransport()
    transport.is_open = False
    async with httpx.AsyncClient(transport=transport) as http:
        methods = ServiceMethods(http, f"{service.url}/mcp")
        depths: list[int] = []
        for _ in range(3):
            with pytest.raises(EventError) as failed:
                await methods.request(EventMethod.POLL, POLL)
            depths.append(len(failed.traceback))
    assert depths == [depths[0]] * 3


async def test_a_shutdown_sends_the_events_that_wait(service: Service) -> None:
    async with order_client(make_order_server(reader := service.make_events(), has_arguments=False)) as client:
        start = await client.request("events/poll", POLL)
        writer = service.make_events()
        async with order_client(make_order_server(writer, has_arguments=False)):
            event_id = await writer.emit(OrderShipped(order_id="o1"))
        page = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
    assert reader is not writer
    assert event_ids(page) == [event_id]


class OrderReturned(BaseModel):
    order_id: str


async def test_a_type_that_is_one_too_many_for_the_service_holds_up_no_event_of_another(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_types, "PUBLISHED_TYPES_MAX", 1)
    events = service.make_events(drain_seconds=0.1)
    server = make_order_server(events, has_arguments=False)
    events.type("order.returned", description="An order came back.")(OrderReturned)
    async with order_client(server) as client:
        start = await client.request("events/poll", POLL)
        await events.emit(OrderReturned(order_id="o1"))
        event_id = await events.emit(OrderShipped(order_id="o1"))
        page = await client.request("events/poll", {**POLL, "cursor": start["cursor"], "timeoutMs": 10_000})
        with pytest.raises(JsonRpcErrorResponse, match="does not take this event type"):
            await client.request("events/poll", {"name": "order.returned"})
    assert event_ids(page) == [event_id]


async def test_what_a_service_cannot_do_is_refused_to_the_author(service: Service) -> None:
    with pytest.raises(ValueError, match=r"order\.shipped.*has arguments"):
        async with order_client(make_order_server(service.make_events())):
            raise AssertionError("unreachable")
    events = service.make_events()
    async with order_client(make_order_server(events, has_arguments=False)):
        with pytest.raises(ValueError, match="Leave `principal` out"):
            await events.emit(OrderShipped(order_id="o1"), principal="alice")


@pytest.mark.parametrize("event_id", ["", "a b", "ä", "git:1", "evt_1", "x" * 129])
async def test_an_id_that_the_service_does_not_take_is_refused_to_the_author_at_once(
    service: Service, event_id: str
) -> None:
    events = service.make_events()
    async with order_client(make_order_server(events, has_arguments=False)):
        with pytest.raises(ValueError, match="event_id"):
            await events.emit(OrderShipped(order_id="o1"), event_id=event_id)
        assert await events.emit(OrderShipped(order_id="o1"), event_id="order/1.~") == "order/1.~"

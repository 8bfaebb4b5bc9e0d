"""Webhook subscriptions to the events of a user's MCP server: who gets which event, and what a bad receiver changes."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ringback.extension import Events
from ringback.signing.standard_webhooks import verify
from tests.support.event_servers import (
    SHIPPED,
    OrderShipped,
    accept_challenges,
    make_order_server,
    order_client,
    read_occurrences,
    subscription_params,
)
from tests.support.extension_servers import LOCAL_RECEIVER_SETTINGS, SECRET
from tests.support.mcp_wire import JsonRpcErrorResponse, ModernClient
from tests.support.receivers import AcceptedConnection, serving_receiver

POLL: dict[str, Any] = {"name": SHIPPED, "arguments": {}, "cursor": None}


def order_ids(occurrences: list[dict[str, Any]]) -> list[str]:
    return sorted(occurrence["data"]["order_id"] for occurrence in occurrences)


async def test_a_webhook_gets_what_a_poll_gets_signed_with_the_clients_secret() -> None:
    events = Events.in_memory(dev=True)
    async with serving_receiver(accept_challenges) as receiver, order_client(make_order_server(events)) as client:
        start = await client.request("events/poll", POLL)
        await client.request("events/subscribe", subscription_params(receiver))
        await events.emit(OrderShipped(order_id="o1"))
        (delivered,) = await read_occurrences(receiver, 1)
        (polled,) = (await client.request("events/poll", {**POLL, "cursor": start["cursor"]}))["events"]
    request = receiver.requests[-1]
    verify(request.headers, request.body, [SECRET], now=datetime.now(UTC))  # noqa: TID251 - signed by the machine's clock
    assert request.headers["webhook-id"] == polled["eventId"]
    assert {name: delivered[name] for name in ("eventId", "name", "timestamp")} == {
        name: polled[name] for name in ("eventId", "name", "timestamp")
    }
    assert delivered["data"] == polled["data"]


async def test_a_webhook_loss_is_recovered_by_a_poll_from_the_body_of_a_callback() -> None:
    events = Events.in_memory(dev=True)
    async with serving_receiver(accept_challenges) as receiver, order_client(make_order_server(events)) as client:
        await client.request("events/subscribe", subscription_params(receiver))
        await events.emit(OrderShipped(order_id="o1"))
        (delivered,) = await read_occurrences(receiver, 1)
        await client.request(
            "events/unsubscribe", {"name": SHIPPED, "arguments": {}, "delivery": {"url": receiver.url()}}
        )
        missed = await events.emit(OrderShipped(order_id="o2"))
        page = await client.request("events/poll", {**POLL, "cursor": delivered["cursor"]})
    assert [event["eventId"] for event in page["events"]][-1] == missed
    assert not page["truncated"]


@pytest.mark.parametrize("arguments", [{"order_id": "o2"}, {"order_id": None}])
async def test_arguments_filter_by_the_members_of_the_data(arguments: dict[str, Any]) -> None:
    events = Events.in_memory(dev=True)
    wants_all = arguments["order_id"] is None
    async with serving_receiver(accept_challenges) as receiver, order_client(make_order_server(events)) as client:
        await client.request("events/subscribe", subscription_params(receiver, arguments=arguments))
        for order_id in ("o1", "o2", "o2"):
            await events.emit(OrderShipped(order_id=order_id))
        delivered = await read_occurrences(receiver, 3 if wants_all else 2)
    assert order_ids(delivered) == (["o1", "o2", "o2"] if wants_all else ["o2", "o2"])


async def test_an_authors_rule_decides_for_polls_and_webhooks_alike() -> None:
    events = Events.in_memory(dev=True)

    class Minimum(BaseModel):
        at_least: int

    def is_enough(arguments: Minimum, data: Mapping[str, Any]) -> bool:
        if data["amount"] == 0:
            raise ZeroDivisionError
        return bool(data["amount"] >= arguments.at_least)

    @events.type("order.paid", description="An order was paid.", arguments=Minimum, matches=is_enough)
    class OrderPaid(BaseModel):
        amount: int

    paid: dict[str, Any] = {"name": "order.paid", "arguments": {"at_least": 10}, "cursor": None}
    async with serving_receiver(accept_challenges) as receiver, order_client(make_order_server(events)) as client:
        start = await client.request("events/poll", paid)
        await client.request("events/subscribe", subscription_params(receiver, **paid))
        for amount in (5, 0, 10, 15):
            await events.emit(OrderPaid(amount=amount))
        delivered = await read_occurrences(receiver, 2)
        polled = await client.request("events/poll", {**paid, "cursor": start["cursor"]})
    assert sorted(event["data"]["amount"] for event in delivered) == [10, 15]
    assert [event["data"]["amount"] for event in polled["events"]] == [10, 15]


async def test_a_webhook_gets_events_for_its_principal_and_for_everybody_also_from_a_cursor() -> None:
    events = Events.in_memory(settings=LOCAL_RECEIVER_SETTINGS)
    server = make_order_server(events, authenticates=True)
    async with (
        serving_receiver(accept_challenges) as of_alice,
        serving_receiver(accept_challenges) as of_bob,
        order_client(server, principal="alice") as alice,
    ):
        assert isinstance(alice, ModernClient)
        bob = ModernClient(alice.http, alice.url, key="token-bob")
        start = await alice.request("events/poll", POLL)
        for order_id, principal in (("hers", "alice"), ("his", "bob"), ("everybody's", None)):
            await events.emit(OrderShipped(order_id=order_id), principal=principal)
        for client, receiver in ((alice, of_alice), (bob, of_bob)):
            await client.request("events/subscribe", subscription_params(receiver, cursor=start["cursor"]))
        await events.emit(OrderShipped(order_id="hers too"), principal="alice")
        await events.emit(OrderShipped(order_id="last"))
        seen = [order_ids(await read_occurrences(of_alice, 4)), order_ids(await read_occurrences(of_bob, 3))]
    assert seen == [["everybody's", "hers", "hers too", "last"], ["everybody's", "his", "last"]]


async def test_each_principal_has_subscriptions_of_its_own() -> None:
    events = Events.in_memory(settings=LOCAL_RECEIVER_SETTINGS)
    server = make_order_server(events, authenticates=True)
    async with (
        serving_receiver(accept_challenges) as receiver,
        order_client(server, principal="alice") as alice,
    ):
        assert isinstance(alice, ModernClient)
        bob = ModernClient(alice.http, alice.url, key="token-bob")
        grant = await alice.request("events/subscribe", subscription_params(receiver, ttlMs=None))
        key = {"name": SHIPPED, "arguments": {}, "delivery": {"url": receiver.url()}}
        with pytest.raises(JsonRpcErrorResponse) as refusal:
            await bob.request("events/unsubscribe", key)
        other = await bob.request("events/subscribe", subscription_params(receiver))
        again = await alice.request("events/subscribe", subscription_params(receiver))
        for _ in range(2):
            await alice.request("events/unsubscribe", key)
    assert (refusal.value.code, refusal.value.data) == (-32011, {"kind": "subscription"})
    assert other["id"] != grant["id"] == again["id"]
    assert grant["refreshBefore"] is not None  # a token may be revoked, so no grant is for ever
    challenges = [request for request in receiver.requests if b"verification" in request.body]
    assert len(challenges) == 2


async def test_a_receiver_that_never_answers_delays_neither_emits_nor_other_receivers() -> None:
    accepted = asyncio.Event()
    release = asyncio.Event()

    async def hang(connection: AcceptedConnection) -> None:
        request = await connection.request()
        assert request is not None
        if json.loads(request.body).get("type") == "verification":
            echo = json.dumps({"challenge": json.loads(request.body)["challenge"]}).encode()
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(echo), echo))
            await connection.request()
        accepted.set()
        await release.wait()

    events = Events.in_memory(dev=True)
    async with (
        serving_receiver(hang) as hung,
        serving_receiver(accept_challenges) as receiver,
        order_client(make_order_server(events)) as client,
    ):
        await client.request("events/subscribe", subscription_params(hung))
        await client.request("events/subscribe", subscription_params(receiver))
        await events.emit(OrderShipped(order_id="o0"))
        await asyncio.wait_for(accepted.wait(), 60)
        emitted = [await events.emit(OrderShipped(order_id=f"o{number}")) for number in range(1, 20)]
        delivered = await read_occurrences(receiver, 20)
        release.set()
    assert {event["eventId"] for event in delivered} >= set(emitted)


async def test_a_failed_challenge_refuses_the_subscription_with_its_reason() -> None:
    async def refuse(connection: AcceptedConnection) -> None:
        while await connection.request() is not None:
            await connection.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    events = Events.in_memory(dev=True)
    async with serving_receiver(refuse) as receiver, order_client(make_order_server(events)) as client:
        with pytest.raises(JsonRpcErrorResponse) as refusal:
            await client.request("events/subscribe", subscription_params(receiver))
    assert (refusal.value.code, refusal.value.data) == (-32015, {"reason": "http_4xx"})


async def test_a_removed_type_ends_its_subscriptions_and_its_receivers_learn_it(tmp_path: Path) -> None:
    removed: dict[str, Any] = {"name": "order.paid", "arguments": {}, "cursor": None}
    async with serving_receiver(accept_challenges) as receiver:
        events = Events.embedded(tmp_path / "events.db", dev=True)

        @events.type("order.paid", description="An order was paid.")
        class OrderPaid(BaseModel):
            amount: int

        async with order_client(make_order_server(events)) as client:
            await client.request("events/subscribe", subscription_params(receiver, **removed))
            await client.request("events/subscribe", subscription_params(receiver))
            await events.emit(OrderPaid(amount=1))
            await read_occurrences(receiver, 1)
        restarted = Events.embedded(tmp_path / "events.db", dev=True)
        async with order_client(make_order_server(restarted)) as client:
            with pytest.raises(JsonRpcErrorResponse) as refusal:
                await client.request("events/poll", removed)
            await restarted.emit(OrderShipped(order_id="o1"))
            await read_occurrences(receiver, 2)
            while not (ends := [each for each in receiver.requests if b'"terminated"' in each.body]):
                await receiver.wait_for_requests(len(receiver.requests) + 1)
    assert (refusal.value.code, refusal.value.data) == (-32011, {"kind": "event"})
    (end,) = [json.loads(each.body) for each in ends]
    assert (end["error"]["code"], end["error"]["data"]) == (-32011, {"kind": "event"})


async def test_deliveries_that_a_stop_interrupts_arrive_after_the_restart(tmp_path: Path) -> None:
    accepts = False

    async def answer(connection: AcceptedConnection) -> None:
        while (request := await connection.request()) is not None:
            body = json.loads(request.body)
            if body.get("type") == "verification":
                echo = json.dumps({"challenge": body["challenge"]}).encode()
                await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(echo), echo))
            else:
                status = b"204 No Content" if accepts else b"503 Service Unavailable\r\nContent-Length: 0"
                await connection.send(b"HTTP/1.1 " + status + b"\r\n\r\n")

    async with serving_receiver(answer) as receiver:
        events = Events.embedded(tmp_path / "events.db", dev=True)
        async with order_client(make_order_server(events)) as client:
            await client.request("events/subscribe", subscription_params(receiver))
            event_id = await events.emit(OrderShipped(order_id="o1"))
            await receiver.wait_for_requests(2)
        accepts = True
        refused = len(receiver.requests)
        async with order_client(make_order_server(Events.embedded(tmp_path / "events.db", dev=True))):
            requests = await receiver.wait_for_requests(refused + 1)
    assert requests[-1].headers["webhook-id"] == event_id
    assert requests[-1].body == requests[-2].body

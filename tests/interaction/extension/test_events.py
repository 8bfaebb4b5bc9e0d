"""A user's MCP server with events of its own: real servers, clients, receivers and files, with the SDK and with FastMCP."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ringback.extension import Events
from ringback.extension.events.log_backend import PAGES_PER_POLL_MAX, LogBackend
from tests.support.event_servers import (
    SEP_DECLARED,
    SHIPPED,
    FastmcpEvents,
    OrderShipped,
    accept_challenges,
    make_fastmcp_order_server,
    make_order_server,
    order_client,
    read_occurrences,
    subscription_params,
)
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import JsonRpcErrorResponse, JsonRpcMessages, ModernClient
from tests.support.receivers import serving_receiver

POLL: dict[str, Any] = {"name": SHIPPED, "arguments": {}, "cursor": None}
FRAMEWORKS = ("sdk", "fastmcp")


def make_server(framework: str, *, authenticates: bool = False, **options: Any) -> tuple[Any, Any]:
    if framework == "sdk":
        events = Events.in_memory(**options)
        return events, make_order_server(events, authenticates=authenticates)
    fastmcp_events = FastmcpEvents.in_memory(**options)
    return fastmcp_events, make_fastmcp_order_server(fastmcp_events, authenticates=authenticates)


def event_ids(page: dict[str, Any]) -> list[str]:
    return [event["eventId"] for event in page["events"]]


async def read_frame(frames: JsonRpcMessages, name: str) -> dict[str, Any]:
    return (await frames.read_message(f"notifications/events/{name}"))["params"]


# -- capability and list -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_both_spellings_of_the_capability_are_advertised_in_both_eras(framework: str, era: str) -> None:
    _, server = make_server(framework)
    async with order_client(server, era=era) as client:
        handshake = (
            await client.request("server/discover", {})
            if isinstance(client, ModernClient)
            else client.initialize_result
        )
    assert handshake["capabilities"]["events"] == {}
    assert handshake["capabilities"]["extensions"]["io.modelcontextprotocol/events"] == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_declared_type_is_listed_with_schemas_of_its_classes(framework: str, era: str) -> None:
    _, server = make_server(framework, dev=True)
    async with order_client(server, era=era) as client:
        (listed,) = (await client.request("events/list", {}))["events"]
    assert (listed["name"], listed["description"]) == (SHIPPED, "An order has left the warehouse.")
    assert listed["delivery"] == ["webhook", "push", "poll"]
    assert listed["payloadSchema"]["properties"].keys() == {"order_id", "carrier"}
    assert listed["inputSchema"]["properties"].keys() == {"order_id"}


async def test_without_authentication_a_type_offers_no_webhooks() -> None:
    _, server = make_server("sdk")
    async with order_client(server) as client:
        (listed,) = (await client.request("events/list", {}))["events"]
    assert listed["delivery"] == ["push", "poll"]


# -- poll and stream ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_emitted_event_is_polled_from_the_cursor_of_the_first_poll(framework: str, era: str) -> None:
    events, server = make_server(framework)
    async with order_client(server, era=era) as client:
        first = await client.request("events/poll", POLL)
        event_id = await events.emit(OrderShipped(order_id="o1"))
        second = await client.request("events/poll", {**POLL, "cursor": first["cursor"]})
    assert first["events"] == []
    (event,) = second["events"]
    assert (event["eventId"], event["name"]) == (event_id, SHIPPED)
    assert event["data"] == {"order_id": "o1", "carrier": "post"}
    assert event["timestamp"].endswith("Z")
    assert not second["truncated"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_stream_confirms_and_then_carries_each_event(framework: str, era: str) -> None:
    events, server = make_server(framework)
    async with (
        order_client(server, era=era) as client,
        client.open_request("events/stream", POLL) as frames,
    ):
        active = await read_frame(frames, "active")
        event_id = await events.emit(OrderShipped(order_id="o1"))
        event = await read_frame(frames, "event")
    assert active["truncated"] is False
    assert event["eventId"] == event_id
    assert event["_meta"] == active["_meta"]
    assert event["_meta"]["io.modelcontextprotocol/subscriptionId"] is not None


async def test_a_poll_waits_for_an_event_that_matches_its_arguments() -> None:
    events, server = make_server("sdk")
    async with order_client(server) as client:
        start = await client.request("events/poll", POLL)
        poll = {**POLL, "cursor": start["cursor"], "arguments": {"order_id": "o2"}, "timeoutMs": 40_000}
        waiting = asyncio.create_task(client.request("events/poll", poll))
        await events.emit(OrderShipped(order_id="o1"))
        wanted = await events.emit(OrderShipped(order_id="o2"))
        page = await waiting
    assert event_ids(page) == [wanted]


async def test_a_poll_goes_on_waiting_after_any_number_of_events_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten it said that there was more, and its client asked again at once: on a busy server, without a pause."""
    has_looked, select_events = asyncio.Event(), LogBackend._select_events  # pyright: ignore[reportPrivateUsage]

    def note_look(*arguments: Any) -> Any:
        has_looked.set()
        return select_events(*arguments)

    events, server = make_server("sdk")
    async with order_client(server) as client:
        start = await client.request("events/poll", POLL)
        monkeypatch.setattr(LogBackend, "_select_events", note_look)
        poll = {**POLL, "cursor": start["cursor"], "arguments": {"order_id": "o2"}, "timeoutMs": 40_000}
        waiting = asyncio.create_task(client.request("events/poll", poll))
        for _ in range(PAGES_PER_POLL_MAX + 1):
            await events.emit(OrderShipped(order_id="o1"))
            looking = asyncio.create_task(has_looked.wait())
            await asyncio.wait([looking, waiting], timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            has_looked.clear()
        wanted = await events.emit(OrderShipped(order_id="o2"))
        page = await waiting
    assert (event_ids(page), page["hasMore"]) == ([wanted], False)


async def test_max_events_cuts_a_page_and_its_cursor_continues_it() -> None:
    events, server = make_server("sdk")
    async with order_client(server) as client:
        page = await client.request("events/poll", POLL)
        emitted = [await events.emit(OrderShipped(order_id=f"o{number}")) for number in range(3)]
        seen: list[str] = []
        for expected_more in (True, True, False):
            page = await client.request("events/poll", {**POLL, "cursor": page["cursor"], "maxEvents": 1})
            seen += event_ids(page)
            assert page["hasMore"] is expected_more
    assert seen == emitted


# -- errors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "sketch", "sep"),
    [
        ("events/poll", {**POLL, "name": "order.lost"}, -32011, -32023),
        ("events/stream", {**POLL, "name": "order.lost"}, -32011, -32023),
        ("events/poll", {**POLL, "arguments": {"order_id": 7}}, -32602, -32602),
        ("events/poll", {**POLL, "arguments": {"colour": "red"}}, -32602, -32602),
        ("events/poll", {"arguments": {}}, -32602, -32602),
        (
            "events/subscribe",
            {**POLL, "delivery": {"mode": "webhook", "url": "https://a.example/", "secret": "whsec_x"}},
            -32012,
            -32024,
        ),
    ],
)
async def test_a_refusal_has_the_codes_of_the_specification_that_the_client_follows(
    method: str, params: dict[str, Any], sketch: int, sep: int
) -> None:
    _, server = make_server("sdk")
    codes: list[int] = []
    async with order_client(server) as client:
        assert isinstance(client, ModernClient)
        for declared in ({}, SEP_DECLARED):
            with pytest.raises(JsonRpcErrorResponse) as refusal:
                await client.request(method, params, declare=declared)
            codes.append(refusal.value.code)
    assert codes == [sketch, sep]


async def test_wrong_data_is_the_authors_error_and_reaches_no_client() -> None:
    events, server = make_server("sdk")
    async with order_client(server) as client:
        start = await client.request("events/poll", POLL)
        with pytest.raises(ValidationError, match="order_id"):
            await events.emit(SHIPPED, {"carrier": "x"})
        with pytest.raises(LookupError, match=r"order\.lost"):
            await events.emit("order.lost", {})
        with pytest.raises(ValueError, match="65536"):
            await events.emit(OrderShipped(order_id="x" * 70_000))
        with pytest.raises(ValueError, match="evt_"):
            await events.emit(OrderShipped(order_id="o1"), event_id="evt_1")
        page = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
    assert page["events"] == []


async def test_events_that_are_not_open_say_how_to_open_them() -> None:
    events, _ = make_server("sdk")
    with pytest.raises(RuntimeError, match=r"lifespan=events\.lifespan"):
        await events.emit(OrderShipped(order_id="o1"))


# -- emitting ----------------------------------------------------------------------------------------------------------------


async def test_the_same_event_id_again_changes_nothing() -> None:
    events, server = make_server("sdk")
    async with order_client(server) as client:
        start = await client.request("events/poll", POLL)
        ids = [await events.emit(OrderShipped(order_id="o1"), event_id="shipment-1") for _ in range(2)]
        page = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
    assert ids == ["shipment-1", "shipment-1"]
    assert event_ids(page) == ["shipment-1"]


async def test_a_tool_a_thread_and_a_background_task_can_emit() -> None:
    events, server = make_server("sdk")
    async with order_client(server) as client:
        start = await client.request("events/poll", POLL)
        for tool in ("ship", "ship_in_thread"):
            result = await client.request("tools/call", {"name": tool, "arguments": {"order_id": tool}})
            assert not result.get("isError"), result
        await asyncio.create_task(events.emit(OrderShipped(order_id="task")))
        page = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
    assert [event["data"]["order_id"] for event in page["events"]] == ["ship", "ship_in_thread", "task"]


# -- principals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_event_for_one_principal_reaches_no_other(framework: str) -> None:
    events, server = make_server(framework, authenticates=True)
    async with order_client(server, principal="alice") as alice:
        assert isinstance(alice, ModernClient)
        bob = ModernClient(alice.http, alice.url, key="token-bob")
        start = await alice.request("events/poll", POLL)
        result = await alice.request("tools/call", {"name": "ship", "arguments": {"order_id": "hers"}})
        for_all = await events.emit(OrderShipped(order_id="everybody's"))
        seen_by_alice = await alice.request("events/poll", {**POLL, "cursor": start["cursor"]})
        seen_by_bob = await bob.request("events/poll", {**POLL, "cursor": start["cursor"]})
    assert event_ids(seen_by_alice) == [result["content"][0]["text"], for_all]
    assert event_ids(seen_by_bob) == [for_all]


# -- webhooks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_poll_stream_and_webhook_have_the_same_event_ids(framework: str, era: str) -> None:
    events, server = make_server(framework, dev=True)
    async with (
        serving_receiver(accept_challenges) as receiver,
        order_client(server, era=era) as client,
        client.open_request("events/stream", POLL) as frames,
    ):
        await read_frame(frames, "active")
        start = await client.request("events/poll", POLL)
        grant = await client.request("events/subscribe", subscription_params(receiver))
        emitted = [await events.emit(OrderShipped(order_id=f"o{number}")) for number in range(3)]
        delivered = await read_occurrences(receiver, 3)
        streamed = [await read_frame(frames, "event") for _ in emitted]
        polled = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
    assert grant["id"].startswith("sub_")
    assert event_ids(polled) == emitted
    assert [event["eventId"] for event in streamed] == emitted
    assert {event["eventId"] for event in delivered} == set(emitted)
    assert {request.headers["x-mcp-subscription-id"] for request in receiver.requests} == {grant["id"]}


async def test_cursors_and_subscriptions_outlive_the_process(tmp_path: Path) -> None:
    async with serving_receiver(accept_challenges) as receiver:
        async with order_client(make_order_server(Events.embedded(tmp_path / "events.db", dev=True))) as client:
            cursor = (await client.request("events/poll", POLL))["cursor"]
            grant = await client.request("events/subscribe", subscription_params(receiver))

        restarted = Events.embedded(tmp_path / "events.db", dev=True)
        async with order_client(make_order_server(restarted)) as client:
            event_id = await restarted.emit(OrderShipped(order_id="o1"))
            (delivered,) = await read_occurrences(receiver, 1)
            polled = await client.request("events/poll", {**POLL, "cursor": cursor})
            refreshed = await client.request("events/subscribe", subscription_params(receiver))
    assert delivered["eventId"] == event_id
    assert event_ids(polled) == [event_id]
    assert refreshed["id"] == grant["id"]

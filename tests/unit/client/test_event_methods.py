"""The requests that read events and deliveries, and their parsed responses."""

import json
from datetime import datetime
from typing import Any

import httpx
import pytest
import respx

from ringback.client import RingbackClient, UnexpectedAnswer
from ringback.schemas import examples
from tests.support.clock import FakeClock
from tests.support.mocked_requests import get_last_request, list_requests, parse_query

CALL = examples.WORKING_CALL
FINISHED = examples.FINISHED_CALL
STARTED: dict[str, Any] = {"call": CALL, "resume_token": "token", "webhooks": []}


def page(*names: str, cursor: str, has_more: bool = False) -> httpx.Response:
    events = [{**examples.EVENT, "eventId": name} for name in names]
    return httpx.Response(200, json={"events": events, "cursor": cursor, "truncated": False, "has_more": has_more})


async def test_a_poll_sends_the_given_filters(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/events").mock(return_value=page("evt_1", cursor="b"))

    polled = await client.poll_events(cursor="a", limit=5, name="call.finished", call_id="call_1")

    assert parse_query(get_last_request(route)) == {
        "cursor": "a",
        "limit": "5",
        "name": "call.finished",
        "call_id": "call_1",
    }
    assert (polled.cursor, polled.truncated, polled.has_more) == ("b", False, False)
    assert polled.events[0].timestamp == datetime.fromisoformat(examples.EVENT["timestamp"])


async def test_an_event_that_nests_deeply_does_not_hide_the_others(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    deep: list[Any] = []
    for _ in range(250):
        deep = [deep]
    events = [{**examples.EVENT, "data": {"deep": deep}}, examples.EVENT]
    service.get("/v1/events").respond(json={"events": events, "cursor": "b"})
    frames = "".join(f"id: {place}\ndata: {json.dumps(event)}\n\n" for place, event in enumerate(events))
    service.get("/v1/events/stream").respond(text=frames, headers={"content-type": "text/event-stream"})

    polled = [event.data async for event in client.events()]
    async with client.stream_events() as stream:
        streamed = [(await anext(stream)).data]

    assert polled == [{"deep": deep}, examples.EVENT["data"]]
    assert streamed == [{"deep": deep}]


async def test_events_are_read_to_the_end_of_the_log(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/events")
    route.side_effect = [page("evt_1", "evt_2", cursor="b", has_more=True), page("evt_3", cursor="c")]

    assert [event.event_id async for event in client.events(cursor="a")] == ["evt_1", "evt_2", "evt_3"]
    assert [parse_query(request)["cursor"] for request in list_requests(route)] == ["a", "b"]


async def test_an_empty_page_with_has_more_is_followed_at_once(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get("/v1/events")
    route.side_effect = [page(cursor="b", has_more=True), page(cursor="c", has_more=True), page("evt_1", cursor="d")]
    began = clock.monotonic()

    assert [event.event_id async for event in client.events(cursor="a")] == ["evt_1"]
    assert [parse_query(request)["cursor"] for request in list_requests(route)] == ["a", "b", "c"]
    assert clock.monotonic() == began


async def test_followed_events_go_on_without_a_hot_loop(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get("/v1/events")
    route.side_effect = [page("evt_1", cursor="b"), page(cursor="b"), page("evt_2", cursor="c")]
    began = clock.monotonic()

    followed = client.events(follow=True)
    names = [(await anext(followed)).event_id for _ in range(2)]

    assert names == ["evt_1", "evt_2"]
    assert clock.monotonic() - began >= 1
    assert [parse_query(request)["wait_seconds"] for request in list_requests(route)] == ["45.0"] * 3


async def test_followed_events_survive_a_restart_of_the_service(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get("/v1/events")
    restart = [httpx.ConnectError("refused")] * 4
    route.side_effect = [page("evt_1", cursor="b"), *restart, page("evt_2", cursor="c")]

    followed = client.events(follow=True)
    names = [(await anext(followed)).event_id for _ in range(2)]

    assert names == ["evt_1", "evt_2"]
    assert {parse_query(request).get("cursor") for request in list_requests(route)[1:]} == {"b"}


@pytest.mark.parametrize("status", [200, 403, 404])
async def test_followed_events_survive_a_proxy_that_answers_for_a_service_that_restarts(
    client: RingbackClient, service: respx.MockRouter, status: int
) -> None:
    page_of_proxy = httpx.Response(status, html="<h1>No such application</h1>")
    service.get("/v1/events").side_effect = [
        page("evt_1", cursor="b"),
        page_of_proxy,
        page_of_proxy,
        page("evt_2", cursor="c"),
    ]

    followed = client.events(follow=True)

    assert [(await anext(followed)).event_id for _ in range(2)] == ["evt_1", "evt_2"]


async def test_followed_events_end_with_the_error_of_a_page_that_no_repetition_repairs(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get("/v1/events").side_effect = [page("evt_1", cursor="b"), httpx.Response(200, json={"events": [{}]})]

    followed = client.events(follow=True)
    await anext(followed)

    with pytest.raises(UnexpectedAnswer, match="invalid"):
        await anext(followed)


async def test_an_expired_cursor_of_a_poll_is_reported(client: RingbackClient, service: respx.MockRouter) -> None:
    document = {"events": [examples.EVENT], "cursor": "b", "truncated": True, "has_more": False}
    service.get("/v1/events").respond(json=document)
    truncations: list[bool] = []

    events = [event async for event in client.events(cursor="old", on_truncated=lambda: truncations.append(True))]

    assert (len(events), truncations) == (1, [True])


async def test_deliveries_are_listed_and_read_with_their_attempts(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.get("/v1/deliveries").respond(json={"deliveries": [examples.DELIVERY], "next_cursor": None})
    service.get("/v1/deliveries/dlv_1").respond(json={**examples.DELIVERY, "attempts": [examples.ATTEMPT]})

    listed = [delivery.id async for delivery in client.deliveries(state="dead", webhook_id="wh_1")]
    delivery = await client.delivery("dlv_1")

    assert listed == [examples.DELIVERY["id"]]
    assert parse_query(get_last_request(route)) == {"state": "dead", "webhook_id": "wh_1"}
    assert delivery.attempt_count == examples.DELIVERY["attempt_count"]
    assert [attempt.category for attempt in delivery.attempts] == [examples.ATTEMPT["category"]]

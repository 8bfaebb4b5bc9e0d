"""Polling the event log."""

import httpx
import pytest

from ringback.domain.call import Progress
from tests.support.service import CALL_BODY, ServiceUnderTest

pytestmark = pytest.mark.requirement("R20")


async def finish_new_call(service: ServiceUnderTest, client: httpx.AsyncClient, **over: str) -> str:
    call_id = (await client.post("/v1/calls", json=CALL_BODY | over)).json()["call"]["id"]
    await service.finish_call(call_id)
    return call_id


async def test_an_event_has_the_data_of_its_callback_without_the_token(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await finish_new_call(service, alice)

    (event,) = (await alice.get("/v1/events")).json()["events"]

    assert event["eventId"].startswith("evt_")
    assert event["name"] == "call.finished"
    assert event["timestamp"].endswith("Z")
    assert event["data"]["call_id"] == call_id
    assert (event["data"]["client_session_id"], event["data"]["correlation_id"]) == ("session-1", "report-1")
    assert (event["data"]["status"], event["data"]["outcome"]) == ("completed", "result")
    assert "resume_token" not in event["data"]


async def test_the_log_is_read_in_order_page_by_page(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    calls = [await finish_new_call(service, alice) for _ in range(5)]

    first = (await alice.get("/v1/events", params={"limit": 3})).json()
    second = (await alice.get("/v1/events", params={"limit": 3, "cursor": first["cursor"]})).json()
    third = (await alice.get("/v1/events", params={"cursor": second["cursor"]})).json()

    assert [event["data"]["call_id"] for event in first["events"] + second["events"]] == calls
    assert (first["has_more"], second["has_more"], third["events"]) == (True, False, [])


async def test_polls_with_a_rare_filter_continue_over_empty_pages(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.storage.rows.events.ROWS_SCANNED_MAX", 3)
    for _ in range(4):
        await finish_new_call(service, alice)
    rare = await finish_new_call(service, alice, client_session_id="rare")
    question = {"limit": "2", "client_session_id": "rare", "wait_seconds": "60"}

    first = (await alice.get("/v1/events", params=question)).json()
    second = (await alice.get("/v1/events", params=question | {"cursor": first["cursor"]})).json()

    assert (first["events"], first["has_more"]) == ([], True)
    assert [event["data"]["call_id"] for event in second["events"]] == [rare]
    assert second["has_more"] is False


async def test_an_events_own_cursor_is_the_place_after_it(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    calls = [await finish_new_call(service, alice) for _ in range(3)]
    events = (await alice.get("/v1/events")).json()["events"]

    rest = (await alice.get("/v1/events", params={"cursor": events[0]["cursor"]})).json()["events"]

    assert [event["data"]["call_id"] for event in rest] == calls[1:]


async def test_events_are_filtered_by_each_of_their_ids(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    first = await finish_new_call(service, alice, client_session_id="session-1", correlation_id="a")
    second = await finish_new_call(service, alice, client_session_id="session-2", correlation_id="b")
    third = (await alice.post("/v1/calls", json=CALL_BODY | {"correlation_id": "c"})).json()["call"]["id"]
    await service.mark_dispatched(third)
    await service.record_progress(third, Progress(progress=1))

    async def found(**question: str) -> list[str]:
        events = (await alice.get("/v1/events", params=question)).json()["events"]
        return [event["data"]["call_id"] for event in events]

    assert await found(name="call.finished") == [first, second]
    assert await found(name="call.progress") == [third]
    assert await found(call_id=second) == [second]
    assert await found(client_session_id="session-2") == [second]
    assert await found(correlation_id="a") == [first]
    assert await found(correlation_id="nothing of mine") == []


async def test_a_cursor_whose_events_expired_returns_truncated_and_the_remaining_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await finish_new_call(service, alice)
    cursor = (await alice.get("/v1/events")).json()["events"][0]["cursor"]
    await finish_new_call(service, alice)
    service.clock.advance(15 * 86400)
    await service.run_janitor()
    last = await finish_new_call(service, alice)

    page = (await alice.get("/v1/events", params={"cursor": cursor})).json()

    assert page["truncated"] is True
    assert [event["data"]["call_id"] for event in page["events"]] == [last]
    assert (await alice.get("/v1/events", params={"cursor": page["cursor"]})).json()["truncated"] is False

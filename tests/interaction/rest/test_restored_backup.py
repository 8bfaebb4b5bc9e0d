"""A restored backup: clients with a cursor of the lost log get `truncated`, and miss no event silently."""

from typing import Any

import httpx
import orjson
import pytest

from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery import DeliveryKind
from ringback.domain.webhook import WebhookState
from tests.support.databases import query_rows
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R20")


async def finish_calls(service: ServiceUnderTest, client: httpx.AsyncClient, count: int) -> list[str]:
    """Calls that have ended, each with an event in the log."""
    if count == 0:
        return []
    started = await client.post("/v1/calls/batch", json={"calls": [CALL_BODY] * count})
    calls = [each["call_id"] for each in started.json()["calls"]]
    for call_id in calls:
        await service.finish_call(call_id)
    return calls


def restore_backup(service: ServiceUnderTest, head: int) -> None:
    """Cut the log at `head`, as a backup from that time would."""
    query_rows(service.folder, "DELETE FROM events WHERE seq > ?", head)
    query_rows(service.folder, "UPDATE log_heads SET seq = ?", head)


async def poll_events(client: httpx.AsyncClient, cursor: str | None = None) -> dict[str, Any]:
    return (await client.get("/v1/events", params={} if cursor is None else {"cursor": cursor})).json()


def names(page: dict[str, Any]) -> list[str]:
    return [event["data"]["call_id"] for event in page["events"]]


async def make_lost_cursor(
    service: ServiceUnderTest, client: httpx.AsyncClient, *, grown_by: int
) -> tuple[str, list[str]]:
    """A cursor at the fourth event of a log that was restored to two events and has grown since, and its calls."""
    before = await finish_calls(service, client, 4)
    cursor = (await poll_events(client))["cursor"]
    restore_backup(service, 2)
    return cursor, before[:2] + await finish_calls(service, client, grown_by)


@pytest.mark.parametrize("grown_by", [0, 1, 2, 4])
async def test_a_cursor_of_the_lost_log_gives_truncated_and_all_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient, grown_by: int
) -> None:
    cursor, calls = await make_lost_cursor(service, alice, grown_by=grown_by)

    page = await poll_events(alice, cursor)

    assert page["truncated"] is True
    assert names(page) == calls
    again = await poll_events(alice, page["cursor"])
    assert (again["truncated"], again["events"]) == (False, [])


async def test_an_events_own_cursor_is_recognised_as_well(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await finish_calls(service, alice, 4)
    events = (await poll_events(alice))["events"]
    common, lost = events[1]["cursor"], events[3]["cursor"]
    restore_backup(service, 2)
    later = await finish_calls(service, alice, 4)

    assert (await poll_events(alice, lost))["truncated"] is True
    page = await poll_events(alice, common)  # events of the backup belong to the same log
    assert (page["truncated"], names(page)) == (False, later)


async def test_a_cursor_of_an_earlier_release_is_read_by_its_number(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    calls = await finish_calls(service, alice, 3)

    known, ahead = [await poll_events(alice, encode_log_position(LogPosition(seq))) for seq in (2, 9)]

    assert (known["truncated"], names(known)) == (False, calls[2:])
    assert (ahead["truncated"], names(ahead)) == (True, calls)


async def test_a_waiting_reader_gets_the_error_at_once(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await finish_calls(service, alice, 3)
    cursor = (await poll_events(alice))["cursor"]
    restore_backup(service, 0)

    page = (await alice.get("/v1/events", params={"cursor": cursor, "wait_seconds": 45})).json()

    assert (page["truncated"], page["events"]) == (True, [])


async def test_a_resumed_stream_sends_truncated_first(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    cursor, calls = await make_lost_cursor(service, alice, grown_by=4)
    service.services.lifecycle.begin_shutdown()  # the stream sends the existing events and ends

    frames = (await alice.get("/v1/events/stream", headers={"Last-Event-ID": cursor})).text.split("\n\n")

    assert [frame for frame in frames if "event: truncated" in frame] == [frames[1]]
    assert sum("event: call.finished" in frame for frame in frames) == len(calls)


async def test_a_cursor_whose_event_retention_deleted_stays_valid(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await finish_calls(service, alice, 3)
    last = (await poll_events(alice))["cursor"]
    service.clock.advance(15 * 86400)
    await service.run_janitor()

    page = await poll_events(alice, last)
    later = await finish_calls(service, alice, 1)

    assert (page["truncated"], page["events"]) == (False, [])
    assert [names(await poll_events(alice, cursor)) for cursor in (last, page["cursor"])] == [later, later]


async def test_a_resume_token_of_the_lost_log_gives_all_events_of_its_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()
    await finish_calls(service, alice, 4)
    fresh = (await alice.post("/v1/resume", json={"resume_token": started["resume_token"]})).json()
    restore_backup(service, 2)
    await service.finish_call(started["call"]["id"])
    await finish_calls(service, alice, 4)

    lost, first = [
        (await alice.post("/v1/resume", json={"resume_token": token})).json()
        for token in (fresh["resume_token"], started["resume_token"])
    ]
    again = (await alice.post("/v1/resume", json={"resume_token": lost["resume_token"]})).json()

    assert [event["name"] for event in lost["events"]] == ["call.finished"]
    assert (fresh["truncated"], lost["truncated"], first["truncated"], again["truncated"]) == (
        False,
        True,
        False,
        False,
    )
    assert again["events"] == []


@pytest.mark.parametrize("state", [WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION])
async def test_a_webhook_with_a_lost_cursor_gets_a_gap_and_then_new_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient, state: WebhookState
) -> None:
    cursor, calls = await make_lost_cursor(service, alice, grown_by=2)

    registered = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "cursor": cursor})
    await service.set_webhook_state(registered.json()["id"], state)
    later = await finish_calls(service, alice, 1)

    event, gap = await service.read_deliveries("alice")
    assert (gap.kind, event.call_id) == (DeliveryKind.GAP, later[0])
    envelope = orjson.loads(gap.body)
    assert envelope["type"] == "gap"
    assert names(await poll_events(alice, envelope["cursor"])) == calls + later


async def test_the_cursor_of_a_callback_is_recognised(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await finish_calls(service, alice, 2)
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    await finish_calls(service, alice, 2)
    newest, *_ = await service.read_deliveries("alice")
    cursor = orjson.loads(newest.body)["cursor"]
    assert (await poll_events(alice, cursor))["truncated"] is False

    restore_backup(service, 1)
    await finish_calls(service, alice, 4)

    assert (await poll_events(alice, cursor))["truncated"] is True


async def test_a_replay_from_a_lost_place_is_refused_with_what_to_do(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    cursor, _ = await make_lost_cursor(service, alice, grown_by=4)

    refused = await alice.post(f"/v1/webhooks/{webhook}/replay", json={"cursor": cursor})

    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid-cursor")
    assert "since" in refused.json()["detail"]

"""Replays: the same body and webhook-id, for one webhook only, without deliveries that are still open."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import orjson
import pytest

from ringback.domain.clock import format_iso
from ringback.domain.delivery import OPEN_STATES, Delivery, DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.webhook import WebhookState
from ringback.services.deliveries import replays
from ringback.services.limits.pacing import BatchPace
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service

pytestmark = [pytest.mark.requirement("R22"), pytest.mark.requirement("R27")]


async def registered(client: httpx.AsyncClient, **body: Any) -> str:
    return (await client.post("/v1/webhooks", json={"url": CALLBACK_URL} | body)).json()["id"]


async def finish_new_call(service: ServiceUnderTest, client: httpx.AsyncClient) -> str:
    call_id = (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.finish_call(call_id)
    return call_id


async def settle(service: ServiceUnderTest, *deliveries: Delivery, state: DeliveryState = DeliveryState.DEAD) -> None:
    """End these deliveries as the dispatcher does."""
    await service.settle_deliveries([delivery for delivery in deliveries if delivery.state in OPEN_STATES], state)


async def list_deliveries(
    service: ServiceUnderTest, webhook_id: str, *, generation: int | None = None
) -> list[Delivery]:
    """The deliveries by generation, each in the order of the log."""
    found = [
        delivery
        for delivery in await service.read_deliveries("alice")
        if delivery.webhook_id == webhook_id and generation in {None, delivery.generation}
    ]
    return sorted(found, key=lambda delivery: (delivery.generation, delivery.seq or 0))


async def register_with_dead_deliveries(service: ServiceUnderTest, client: httpx.AsyncClient, count: int) -> str:
    """The id of a new webhook that has missed the ends of so many calls."""
    webhook_id = await registered(client)
    for _ in range(count):
        await finish_new_call(service, client)
    await settle(service, *await list_deliveries(service, webhook_id))
    return webhook_id


async def replay(client: httpx.AsyncClient, webhook_id: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/webhooks/{webhook_id}/replay", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


def parse_deliveries(deliveries: Sequence[Delivery]) -> list[tuple[str, bytes]]:
    """The requests as the receiver gets them."""
    return [(delivery.message_id, delivery.body) for delivery in deliveries]


@pytest.mark.usefixtures("shared_service")
async def test_a_dead_delivery_is_replayed_to_its_webhook_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    mine, other = await registered(alice), await registered(alice)
    for _ in range(3):
        await finish_new_call(service, alice)
    dead = (await list_deliveries(service, mine))[:2]
    await settle(service, *dead, *(await list_deliveries(service, other)))

    answer = await replay(alice, mine, dead=True)

    again = await list_deliveries(service, mine, generation=2)
    counts = {"replayed": 2, "still_open": 0, "more": False, "cursor": None, "due_now": 3, "held": 0, "in_flight": 0}
    assert answer.items() >= counts.items()
    assert parse_deliveries(again) == parse_deliveries(dead)
    assert {(delivery.state, delivery.attempts) for delivery in again} == {("pending", 0)}
    assert await list_deliveries(service, other, generation=2) == []


@pytest.mark.usefixtures("shared_service")
async def test_a_repeated_replay_sends_nothing_twice(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    webhook_id = await registered(alice)
    await finish_new_call(service, alice)
    beginning = (await alice.get("/v1/events", params={"name": "call.progress", "limit": 1})).json()
    await settle(service, *await list_deliveries(service, webhook_id))

    answers = [await replay(alice, webhook_id, dead=True) for _ in range(2)]
    by_time = await replay(alice, webhook_id, since="2020-01-01T00:00:00Z")

    assert [answer["replayed"] for answer in answers] == [1, 0]
    assert (by_time["replayed"], by_time["still_open"]) == (0, 1)
    assert beginning["events"] == []
    assert len(await list_deliveries(service, webhook_id)) == 2


@pytest.mark.parametrize("body", [{"dead": True}, {"since": "2020-01-01T00:00:00Z"}])
async def test_a_replay_does_not_send_again_what_ends_while_it_runs(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    """A receiver that refuses for good got the same callbacks up to ten thousand times, and one that works got them twice."""
    monkeypatch.setattr(replays, "REPLAY_BATCH_SIZE", 2)
    monkeypatch.setattr(replays, "REPLAY_BATCHES_MAX", 9)
    webhook_id = await register_with_dead_deliveries(service, alice, 3)

    @asynccontextmanager
    async def end_all_afterwards(_: BatchPace) -> AsyncGenerator[None]:
        yield
        service.clock.advance(1)
        await finish_new_call(service, alice)
        await settle(service, *await list_deliveries(service, webhook_id))

    monkeypatch.setattr(BatchPace, "next_batch", end_all_afterwards)

    assert (await replay(alice, webhook_id, **body))["replayed"] == 3


@pytest.mark.usefixtures("shared_service")
async def test_each_replay_is_a_generation_of_its_own(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    webhook_id = await registered(alice)
    await finish_new_call(service, alice)
    for _ in range(3):
        await settle(service, *(await list_deliveries(service, webhook_id))[-1:])
        assert (await replay(alice, webhook_id, dead=True))["replayed"] == 1

    deliveries = await list_deliveries(service, webhook_id)
    assert [delivery.generation for delivery in deliveries] == [1, 2, 3, 4]
    assert len({delivery.message_id for delivery in deliveries}) == 1


async def test_delivered_events_are_replayed_since_a_time_or_after_a_cursor(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = await registered(alice)
    calls: list[str] = []
    for _ in range(3):
        calls.append(await finish_new_call(service, alice))
        service.clock.advance(60)
    events = (await alice.get("/v1/events")).json()["events"]

    async def replayed(**body: Any) -> list[str | None]:
        await settle(service, *await list_deliveries(service, webhook_id), state=DeliveryState.DELIVERED)
        before = {delivery.id for delivery in await list_deliveries(service, webhook_id)}
        await replay(alice, webhook_id, **body)
        new = [delivery for delivery in await list_deliveries(service, webhook_id) if delivery.id not in before]
        return [delivery.call_id for delivery in sorted(new, key=lambda delivery: delivery.seq or 0)]

    assert await replayed(since=events[1]["timestamp"]) == calls[1:]
    assert await replayed(cursor=events[0]["cursor"]) == calls[1:]
    assert await replayed(since=format_iso(service.clock.now() + timedelta(hours=1))) == []
    assert await replayed(cursor=events[2]["cursor"]) == []
    assert await replayed(since="2020-01-01T00:00:00+01:00") == calls


@pytest.mark.usefixtures("shared_service")
async def test_events_that_never_matched_a_webhook_are_not_replayed_to_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await finish_new_call(service, alice)
    webhook_id = await registered(alice)

    assert (await replay(alice, webhook_id, since="2020-01-01T00:00:00Z"))["replayed"] == 0


async def test_a_replay_is_bounded_and_says_where_to_go_on(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "REPLAY_DELIVERIES_MAX", 3)
    monkeypatch.setattr(replays, "REPLAY_BATCH_SIZE", 2)
    webhook_id = await registered(alice)
    calls = [await finish_new_call(service, alice) for _ in range(5)]
    await settle(service, *await list_deliveries(service, webhook_id))

    first = await replay(alice, webhook_id, since="2020-01-01T00:00:00Z")
    second = await replay(alice, webhook_id, cursor=first["cursor"])

    assert (first["replayed"], first["more"], second["replayed"], second["more"]) == (3, True, 2, False)
    assert [delivery.call_id for delivery in await list_deliveries(service, webhook_id, generation=2)] == calls


@pytest.mark.requirement("R34")
@pytest.mark.parametrize("selection", [{"dead": True}, {"since": "2020-01-01T00:00:00Z"}], ids=["dead", "since"])
async def test_a_replay_of_large_bodies_takes_more_transactions(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, selection: dict[str, Any]
) -> None:
    """A hundred bodies of 256 KiB were one transaction of 170 ms, on the event loop."""
    monkeypatch.setattr(replays, "REPLAY_BYTES_MAX", 1)
    webhook_id = await registered(alice)
    for _ in range(4):
        await finish_new_call(service, alice)
    first, open_one, *others = await list_deliveries(service, webhook_id)
    await settle(service, first, *others)

    answer = await replay(alice, webhook_id, **selection)

    again = await list_deliveries(service, webhook_id, generation=2)
    assert (answer["replayed"], answer["more"]) == (3, False)
    assert answer["still_open"] == (0 if "dead" in selection else 1)
    assert parse_deliveries(again) == parse_deliveries([first, *others])
    assert open_one.body


async def test_a_quota_that_is_used_up_while_a_replay_runs_ends_it_before_its_next_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request sent ten thousand deliveries again, whatever the quota of their bytes."""
    monkeypatch.setattr(replays, "REPLAY_BATCH_SIZE", 1)
    async with running_service(tmp_path) as service:
        alice = await service.create_client("alice")
        webhook_id = await register_with_dead_deliveries(service, alice, 4)
        used = await service.store.read(lambda tx: tx.usage.get_log_usage(Principal("alice")))
        limit = used.delivery_bytes * 5 // 4 + 100  # room for one more, and the next may exceed it
        monkeypatch.setattr(QuotaEnforcer, "get_quotas", Mock(return_value=Quotas(delivery_bytes=limit)))

        answer = await replay(alice, webhook_id, dead=True)
        refused = await alice.post(f"/v1/webhooks/{webhook_id}/replay", json={"dead": True})

    assert (answer["replayed"], answer["more"]) == (2, True)
    assert (refused.status_code, refused.json()["quota"]) == (429, "delivery_bytes")


async def test_a_replay_reads_a_bounded_part_of_a_log_without_deliveries_and_says_where_to_go_on(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "REPLAY_BATCHES_MAX", 2)
    monkeypatch.setattr(replays, "REPLAY_BATCH_SIZE", 2)
    for _ in range(5):
        await finish_new_call(service, alice)
    webhook_id = await register_with_dead_deliveries(service, alice, 1)

    counted = await replay(alice, webhook_id, since="2020-01-01T00:00:00Z", dry_run=True)
    first = await replay(alice, webhook_id, since="2020-01-01T00:00:00Z")
    second = await replay(alice, webhook_id, cursor=first["cursor"])

    assert (counted["replayed"], counted["more"]) == (first["replayed"], first["more"]) == (0, True)
    assert (second["replayed"], second["more"]) == (1, False)


async def test_dead_deliveries_beyond_one_replay_go_with_the_next(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "REPLAY_DELIVERIES_MAX", 3)
    monkeypatch.setattr(replays, "REPLAY_BATCH_SIZE", 2)
    webhook_id = await register_with_dead_deliveries(service, alice, 5)

    answers = [await replay(alice, webhook_id, dead=True) for _ in range(3)]

    assert [(answer["replayed"], answer["more"]) for answer in answers] == [(3, True), (2, False), (0, False)]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dead": True, "cursor": "MTpldmVudHM6MA"},
        {"dead": True, "since": "2026-11-20T17:00:00Z"},
        {"dead": False},
        {"since": "2026-11-20T17:00:00"},
        {"since": "yesterday"},
        {"cursor": "nonsense"},
    ],
)
async def test_a_replay_takes_exactly_one_selection(
    service: ServiceUnderTest, alice: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    webhook_id = await registered(alice)
    before = service.count_rows()

    answer = await alice.post(f"/v1/webhooks/{webhook_id}/replay", json=body)

    assert answer.status_code == 422
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
async def test_a_redelivery_skips_a_delivery_that_is_still_open(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = await registered(alice)
    await finish_new_call(service, alice)
    (first,) = await list_deliveries(service, webhook_id)

    open_one = (await alice.post(f"/v1/deliveries/{first.id}/redeliver")).json()
    await settle(service, first, state=DeliveryState.DELIVERED)
    answer = await alice.post(f"/v1/deliveries/{first.id}/redeliver")
    repeated = (await alice.post(f"/v1/deliveries/{first.id}/redeliver")).json()

    again = answer.json()
    assert answer.status_code == 202
    assert (open_one["id"], open_one["generation"]) == (first.id, 1)
    assert (again["generation"], again["state"], again["event_id"]) == (2, "pending", first.event_id)
    assert repeated["id"] == again["id"]
    assert parse_deliveries(await list_deliveries(service, webhook_id)) == parse_deliveries([first, first])


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("path", ["/v1/webhooks/{webhook}/replay", "/v1/webhooks/{webhook}/test"])
async def test_a_disabled_webhook_gets_no_replay(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str
) -> None:
    webhook_id = await registered(alice)
    await finish_new_call(service, alice)
    (delivery,) = await list_deliveries(service, webhook_id)
    await settle(service, delivery)
    await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "disabled"})
    before = service.count_rows()

    body = {"dead": True} if path.endswith("replay") else None
    for answer in (
        await alice.post(path.format(webhook=webhook_id), json=body),
        await alice.post(f"/v1/deliveries/{delivery.id}/redeliver"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/webhook-not-active")
        assert webhook_id in answer.json()["detail"]
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
async def test_a_delivery_whose_webhook_was_removed_stays_as_it_is(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = await registered(alice)
    await finish_new_call(service, alice)
    (delivery,) = await list_deliveries(service, webhook_id)
    await alice.delete(f"/v1/webhooks/{webhook_id}")

    answer = await alice.post(f"/v1/deliveries/{delivery.id}/redeliver")

    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/webhook-not-active")
    assert len(await list_deliveries(service, webhook_id)) == 1


@pytest.mark.usefixtures("shared_service")
async def test_of_a_replay_to_a_suspended_webhook_one_probes_it_and_the_rest_is_held_until_it_is_active_again(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = await register_with_dead_deliveries(service, alice, 2)
    await service.set_webhook_state(webhook_id, WebhookState.SUSPENDED)

    answer = await replay(alice, webhook_id, dead=True)
    held, probe = sorted((await list_deliveries(service, webhook_id))[-2:], key=lambda each: each.state)
    await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"})

    assert (answer["due_now"], answer["held"]) == (1, 1)
    assert (probe.state, held.state) == (DeliveryState.PENDING, DeliveryState.HELD)
    (released,) = [each for each in await list_deliveries(service, webhook_id) if each.id == held.id]
    assert released == replace(held, state=DeliveryState.PENDING, due_at=released.due_at)


async def test_a_replay_does_not_move_later_cursors_backwards(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = await register_with_dead_deliveries(service, alice, 2)
    await replay(alice, webhook_id, dead=True)

    await finish_new_call(service, alice)

    events = (await alice.get("/v1/events")).json()["events"]
    latest = (await list_deliveries(service, webhook_id, generation=1))[-1]
    assert orjson.loads(latest.body)["cursor"] == events[1]["cursor"]

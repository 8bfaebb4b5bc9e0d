"""Cancellation and redelivery by filter: bounded, of the caller's own, with a dry run."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.principal import Principal
from ringback.services.calls import cancellation
from ringback.services.deliveries import bulk_redelivery
from ringback.services.limits.pacing import BatchPace
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from tests.support.examples import ALICE
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R22")


async def start(client: httpx.AsyncClient, **body: Any) -> str:
    return (await client.post("/v1/calls", json=CALL_BODY | body)).json()["call"]["id"]


async def statuses(client: httpx.AsyncClient) -> list[str]:
    return sorted(call["status"] for call in (await client.get("/v1/calls")).json()["calls"])


# -- cancellation ----------------------------------------------------------------------------------------------------------


async def test_calls_of_a_session_are_cancelled_as_each_of_them_would_be(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    queued, running, ended = [await start(alice) for _ in range(3)]
    await service.mark_dispatched(running)
    await service.finish_call(ended)
    other, foreign = await start(alice, client_session_id="other"), await start(bob)
    where = {"client_session_id": "session-1"}

    counted = (await alice.post("/v1/calls/cancel", json={**where, "dry_run": True})).json()
    before = await statuses(alice)
    cancelled = (await alice.post("/v1/calls/cancel", json=where)).json()
    repeated = (await alice.post("/v1/calls/cancel", json=where)).json()

    assert counted == cancelled == {"cancelled": 1, "requested": 1, "more": False}
    assert repeated == {"cancelled": 0, "requested": 0, "more": False}
    assert before == ["completed", "working", "working", "working"]
    assert [(await service.read_call(each)).cancel_requested for each in (queued, running, other, foreign)] == [
        *(True, True, False, False),
    ]
    assert (await service.read_call(queued)).status == "cancelled"


async def test_a_cancellation_is_bounded_and_a_repeated_one_continues(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "CANCELLATIONS_MAX", 3)
    monkeypatch.setattr(cancellation, "CANCELLED_CALLS_BATCH_SIZE", 2)
    for _ in range(5):
        await start(alice)

    answers = [(await alice.post("/v1/calls/cancel", json={"upstream": "git"})).json() for _ in range(2)]

    assert [(answer["cancelled"], answer["more"]) for answer in answers] == [(3, True), (2, False)]
    assert await statuses(alice) == ["cancelled"] * 5


async def test_a_cancellation_goes_on_behind_many_calls_whose_cancellation_was_requested(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "CANCELLED_CALLS_BATCH_SIZE", 1)
    monkeypatch.setattr(cancellation, "CANCELLATIONS_MAX", 2)
    monkeypatch.setattr(cancellation, "SPARSE_PAGES_MAX", 2)
    for _ in range(5):
        await service.mark_dispatched(await start(alice))

    answers = [(await alice.post("/v1/calls/cancel", json={"upstream": "git"})).json() for _ in range(3)]

    assert [(answer["requested"], answer["more"]) for answer in answers] == [(2, True), (2, True), (1, False)]


@pytest.mark.parametrize("body", [{}, {"dry_run": True}, {"status": "completed"}, {"colour": "red"}])
async def test_a_cancellation_needs_a_filter_of_open_calls(alice: httpx.AsyncClient, body: dict[str, Any]) -> None:
    await start(alice)

    assert (await alice.post("/v1/calls/cancel", json=body)).status_code == 422
    assert await statuses(alice) == ["working"]


async def test_a_second_bulk_request_of_a_principal_is_refused_until_the_first_one_ends(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await start(alice)
    where = {"client_session_id": "session-1", "dry_run": True}

    with service.quotas.open_bulk_request(ALICE):
        refused = [
            await alice.post("/v1/calls/cancel", json=where),
            await alice.post("/v1/deliveries/redeliver", json={}),
        ]
        foreign = await bob.post("/v1/calls/cancel", json=where)
    accepted = await alice.post("/v1/calls/cancel", json=where)

    assert [(each.status_code, each.headers["retry-after"], each.json()["quota"]) for each in refused] == [
        (429, "5", "bulk_requests"),
        (429, "5", "bulk_requests"),
    ]
    assert [foreign.status_code, accepted.status_code] == [200, 200]


# -- redelivery ------------------------------------------------------------------------------------------------------------


async def register(client: httpx.AsyncClient, **body: Any) -> str:
    return (await client.post("/v1/webhooks", json={"url": CALLBACK_URL, **body})).json()["id"]


async def end_calls(service: ServiceUnderTest, client: httpx.AsyncClient, number: int, **body: Any) -> None:
    """Calls whose deliveries are dead."""
    for _ in range(number):
        await service.finish_call(await start(client, **body))
    pending = [each for each in await service.read_deliveries("alice") if each.state is DeliveryState.PENDING]
    await service.settle_deliveries(pending, DeliveryState.DEAD)


async def replayed(service: ServiceUnderTest) -> list[Delivery]:
    return [each for each in await service.read_deliveries("alice") if each.generation == 2]


async def test_dead_deliveries_are_sent_again_to_all_webhooks_that_are_enabled(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    first, second, disabled = [await register(alice) for _ in range(3)]
    await end_calls(service, alice, 2)
    await alice.patch(f"/v1/webhooks/{disabled}", json={"state": "disabled"})

    counted = (await alice.post("/v1/deliveries/redeliver", json={"dry_run": True})).json()
    unchanged = await replayed(service)
    answer = await alice.post("/v1/deliveries/redeliver", json={})
    repeated = (await alice.post("/v1/deliveries/redeliver", json={})).json()

    numbers = {"redelivered": 4, "skipped": 2, "webhooks": 2, "due_now": 4, "held": 0, "in_flight": 0, "cursor": None}
    assert counted == numbers | {"next_attempt_at": None}
    assert unchanged == []
    assert answer.status_code == 202
    assert answer.json().items() >= numbers.items()
    assert answer.json()["next_attempt_at"] is not None
    assert sorted(each.webhook_id for each in await replayed(service)) == sorted([first, first, second, second])
    assert (repeated["redelivered"], repeated["skipped"]) == (0, 2)
    assert (await bob.post("/v1/deliveries/redeliver", json={"webhook_id": first})).json()["redelivered"] == 0


async def test_a_redelivery_takes_what_matches_all_its_filters(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = await register(alice)
    await end_calls(service, alice, 2)
    await end_calls(service, alice, 1, client_session_id="other", correlation_id="report-2")

    async def count(**body: Any) -> int:
        return (await alice.post("/v1/deliveries/redeliver", json={"dry_run": True, **body})).json()["redelivered"]

    assert await count(client_session_id="session-1") == 2
    assert await count(client_session_id="other", correlation_id="report-2", webhook_id=webhook_id) == 1
    assert await count(client_session_id="other", correlation_id="report-1") == 0
    assert await count(category="timeout") == 0
    assert await count(state="cancelled") == 0
    assert await count(since="2020-01-01T00:00:00Z") == 3
    assert await count(since="0001-01-01T00:00:00Z") == 3
    assert await count(until="2020-01-01T00:00:00Z") == 0


async def test_a_redelivery_is_bounded_and_says_where_to_continue(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_redelivery, "REDELIVERIES_MAX", 4)
    monkeypatch.setattr(bulk_redelivery, "REPLAY_BATCH_SIZE", 2)
    await register(alice)
    await end_calls(service, alice, 5)

    first = (await alice.post("/v1/deliveries/redeliver", json={})).json()
    second = (await alice.post("/v1/deliveries/redeliver", json={"cursor": first["cursor"]})).json()

    assert [each["redelivered"] for each in (first, second)] == [4, 1]
    assert second["cursor"] is None
    assert len(await replayed(service)) == 5


@pytest.mark.requirement("R34")
async def test_a_redelivery_of_large_bodies_takes_more_transactions_and_sends_each_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier transaction of the request has sent again may have ended before the next one."""
    monkeypatch.setattr(bulk_redelivery, "REPLAY_BYTES_MAX", 1)
    _, _, disabled = [await register(alice) for _ in range(3)]
    await end_calls(service, alice, 2)
    await alice.patch(f"/v1/webhooks/{disabled}", json={"state": "disabled"})
    monkeypatch.setattr(BatchPace, "next_batch", settling_before_each(service))

    answer = (await alice.post("/v1/deliveries/redeliver", json={})).json()

    assert (answer["redelivered"], answer["skipped"], answer["webhooks"], answer["cursor"]) == (4, 2, 2, None)
    again = await service.read_deliveries("alice")
    assert sorted(each.generation for each in again) == [1] * 6 + [2] * 4
    assert len({(each.webhook_id, each.event_id, each.body) for each in again}) == 6


def settling_before_each(service: ServiceUnderTest) -> Callable[..., AbstractAsyncContextManager[None]]:
    """Batches before which all replays so far end."""

    @asynccontextmanager
    async def next_batch(_: BatchPace) -> AsyncGenerator[None]:
        replays = [each for each in await replayed(service) if each.state is DeliveryState.PENDING]
        await service.settle_deliveries(replays, DeliveryState.DEAD)
        yield

    return next_batch


async def test_a_quota_that_is_used_up_while_a_redelivery_runs_ends_it_before_its_next_transaction(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_redelivery, "REPLAY_BATCH_SIZE", 1)
    await register(alice)
    await end_calls(service, alice, 4)
    used = await service.store.read(lambda tx: tx.usage.get_log_usage(Principal("alice")))
    limit = used.delivery_bytes * 5 // 4 + 100  # room for one more, and the next may exceed it
    with monkeypatch.context() as low:
        low.setattr(QuotaEnforcer, "get_quotas", Mock(return_value=Quotas(delivery_bytes=limit)))

        answer = (await alice.post("/v1/deliveries/redeliver", json={})).json()
        refused = await alice.post("/v1/deliveries/redeliver", json={"cursor": answer["cursor"]})
    rest = (await alice.post("/v1/deliveries/redeliver", json={"cursor": answer["cursor"]})).json()

    assert (answer["redelivered"], rest["redelivered"], rest["cursor"]) == (2, 2, None)
    assert (refused.status_code, refused.json()["quota"]) == (429, "delivery_bytes")


async def test_a_continued_redelivery_ends_although_its_own_deliveries_end_meanwhile(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_redelivery, "REDELIVERIES_MAX", 2)
    monkeypatch.setattr(bulk_redelivery, "REPLAY_BATCH_SIZE", 2)
    await register(alice)
    await end_calls(service, alice, 4)
    service.clock.advance(1)

    answers: list[dict[str, Any]] = []
    while not answers or (answers[-1]["cursor"] is not None and len(answers) < 8):
        cursor = answers[-1]["cursor"] if answers else None
        answers.append((await alice.post("/v1/deliveries/redeliver", json={"cursor": cursor})).json())
        await service.settle_deliveries(await replayed(service), DeliveryState.DEAD)
        service.clock.advance(1)

    assert sum(each["redelivered"] for each in answers) == 4
    assert len(await replayed(service)) == 4


@pytest.mark.parametrize(
    "body", [{"state": "pending"}, {"category": "boring"}, {"since": "yesterday"}, {"cursor": "x"}]
)
async def test_a_wrong_redelivery_sends_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    await register(alice)
    await end_calls(service, alice, 1)

    assert (await alice.post("/v1/deliveries/redeliver", json=body)).status_code == 422
    assert await replayed(service) == []

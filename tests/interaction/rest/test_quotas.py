"""Quotas: a request above one is refused with a retry time, writes nothing, and does not affect other principals."""

import asyncio
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.admission import AdmissionGate
from ringback.domain.delivery import DeliveryState
from ringback.domain.jsontext import dumps
from ringback.domain.principal import ALL_SCOPES, Principal
from ringback.protocol.mcp_events.errors import EventError, EventErrorName
from ringback.services.limits.quotas import Quotas
from tests.support.service import CALL_BODY, CALLBACK_URL, RESULT, ServiceUnderTest, running_service
from tests.support.subscriptions import CLIENT, make_request

PAID: dict[str, Any] = {"name": "order.paid", "data": {"order": 7}}
REPORT = {"key": "one", "upstream": "elsewhere", "tool": "build", "arguments": {"a": 1}}


def assert_quota_exceeded(answer: httpx.Response, quota: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["quota"]) == (429, "/problems/quota-exceeded", quota)
    assert "Nothing was done" in problem["detail"]
    assert int(answer.headers["retry-after"]) > 0


async def start(client: httpx.AsyncClient, **over: Any) -> httpx.Response:
    return await client.post("/v1/calls", json=CALL_BODY | over)


async def test_open_calls_are_bounded_until_one_has_ended(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(open_calls=2)) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        first = (await start(alice)).json()["call"]["id"]
        await start(alice)
        before = service.count_rows()

        assert_quota_exceeded(await start(alice, callback={"url": CALLBACK_URL}), "open_calls")
        assert service.count_rows() == before
        assert (await start(bob)).status_code == 202

        await service.finish_call(first)
        assert (await start(alice)).status_code == 202


async def test_starts_of_a_principal_with_half_of_its_open_calls_or_all_of_them_have_no_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait_for_admission = list[tuple[str, bool]](), AdmissionGate.wait_for_admission

    async def record(gate: AdmissionGate, principal: Principal, *, is_background: bool) -> AbstractContextManager[None]:
        waits.append((principal, is_background))
        return await wait_for_admission(gate, principal, is_background=is_background)

    monkeypatch.setattr(AdmissionGate, "wait_for_admission", record)
    async with running_service(tmp_path, quotas=Quotas(open_calls=6)) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        statuses = [(await start(alice)).status_code for _ in range(8)]
        statuses.append((await start(bob)).status_code)

    assert statuses == [202] * 6 + [429] * 2 + [202]
    with_priority, without = ("alice", False), ("alice", True)
    assert waits == [*[with_priority] * 4, *[without] * 4, ("bob", False)]


async def test_a_quota_is_not_overrun_by_many_at_once(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(open_calls=7)) as service:
        alice = await service.create_client("alice")

        answers = await asyncio.gather(*(start(alice) for _ in range(30)))

        assert sorted(answer.status_code for answer in answers) == [202] * 7 + [429] * 23
        assert service.count_rows()["calls"] == 7


async def test_a_repeated_start_succeeds_at_the_limit_of_the_quota(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(open_calls=1, starts_per_minute=1)) as service:
        alice = await service.create_client("alice")
        answers = [await alice.post("/v1/calls", json=CALL_BODY, headers={"Idempotency-Key": "once"}) for _ in range(3)]

        assert [answer.status_code for answer in answers] == [202] * 3


async def test_calls_are_refused_while_stored_results_exhaust_the_quota(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(result_bytes=2 * len(RESULT))) as service:
        alice = await service.create_client("alice")
        for _ in range(2):
            await service.finish_call((await start(alice)).json()["call"]["id"])

        assert_quota_exceeded(await start(alice), "result_bytes")

        service.clock.advance(8 * 86400)
        await service.run_janitor()
        assert (await start(alice)).status_code == 202


async def test_calls_that_have_ended_count_until_they_expire(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(stored_calls=2)) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        for _ in range(2):
            await service.finish_call((await start(alice)).json()["call"]["id"])
        before = service.count_rows()

        assert_quota_exceeded(await start(alice), "stored_calls")

        assert service.count_rows() == before
        assert (await start(bob)).status_code == 202
        service.clock.advance(8 * 86400)
        await service.run_janitor()
        assert (await start(alice)).status_code == 202


async def test_arguments_of_stored_calls_are_bounded_until_the_calls_expire(tmp_path: Path) -> None:
    two_calls = 2 * len(dumps(CALL_BODY["arguments"])) + 2 * len(b"{}")
    async with running_service(tmp_path, quotas=Quotas(argument_bytes=two_calls)) as service:
        alice, bob = await service.create_client("alice", scopes=ALL_SCOPES), await service.create_client("bob")
        ended = (await start(alice)).json()["call"]["id"]
        later = (service.clock.now() + timedelta(days=1)).isoformat()
        assert (await start(alice, not_before=later)).status_code == 202
        await service.finish_call(ended)
        before = service.count_rows()

        refused = await start(alice, callback={"url": CALLBACK_URL})

        assert_quota_exceeded(refused, "argument_bytes")
        assert f"no room for {two_calls // 2} bytes: {two_calls} are used" in refused.json()["detail"]
        assert_quota_exceeded(await alice.post("/v1/calls/report", json=REPORT), "argument_bytes")
        assert service.count_rows() == before
        assert (await start(bob)).status_code == 202
        service.clock.advance(8 * 86400)
        await service.run_janitor()
        assert (await start(alice)).status_code == 202


async def test_arguments_of_an_erased_call_are_free_again(tmp_path: Path) -> None:
    one_call = len(dumps(CALL_BODY["arguments"])) + len(b"{}")
    async with running_service(tmp_path, quotas=Quotas(argument_bytes=one_call)) as service:
        alice = await service.create_client("alice")
        call_id = (await start(alice)).json()["call"]["id"]
        await service.finish_call(call_id)
        assert_quota_exceeded(await start(alice), "argument_bytes")

        await alice.delete(f"/v1/calls/{call_id}")

        assert (await start(alice)).status_code == 202


async def test_a_batch_starts_only_if_all_its_arguments_fit(tmp_path: Path) -> None:
    size = len(dumps(CALL_BODY["arguments"])) + len(b"{}")
    async with running_service(tmp_path, quotas=Quotas(argument_bytes=2 * size)) as service:
        alice = await service.create_client("alice")
        calls = [CALL_BODY | {"idempotency_key": str(number)} for number in range(3)]

        refused = await alice.post("/v1/calls/batch", json={"calls": calls})

        assert_quota_exceeded(refused, "argument_bytes")
        assert service.count_rows()["calls"] == 0
        for _ in range(2):  # the second time, the quota is full
            started = await alice.post("/v1/calls/batch", json={"calls": calls[:2]})
            assert started.status_code == 202
        assert_quota_exceeded(await alice.post("/v1/calls/batch", json={"calls": calls[1:]}), "argument_bytes")
        assert service.count_rows()["calls"] == 2


async def test_a_repeated_start_succeeds_although_the_arguments_fill_the_quota(tmp_path: Path) -> None:
    one_call = len(dumps(CALL_BODY["arguments"])) + len(b"{}")
    async with running_service(tmp_path, quotas=Quotas(argument_bytes=one_call)) as service:
        alice = await service.create_client("alice", scopes=ALL_SCOPES)
        answers = [await alice.post("/v1/calls", json=CALL_BODY, headers={"Idempotency-Key": "once"}) for _ in range(3)]
        reports = [await alice.post("/v1/calls/report", json=REPORT) for _ in range(2)]

        assert [answer.status_code for answer in answers] == [202] * 3
        assert len({answer.json()["call"]["id"] for answer in answers}) == 1
        assert [answer.status_code for answer in reports] == [429] * 2


async def publish(client: httpx.AsyncClient, *ids: str) -> httpx.Response:
    return await client.post("/v1/events/batch", json={"events": [PAID | {"id": each} for each in ids]})


async def test_published_events_are_bounded_until_they_expire(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(event_bytes=3 * len(dumps(PAID["data"])))) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        assert (await publish(alice, "1", "2", "3")).status_code == 200
        before = service.count_rows()

        assert_quota_exceeded(await publish(alice, "3", "4"), "event_bytes")
        assert_quota_exceeded(await alice.post("/v1/events", json={"name": "order.new", "data": {}}), "event_bytes")

        assert service.count_rows() == before
        assert (await publish(alice, "2", "3")).status_code == 200  # repeated
        assert (await publish(bob, "1")).status_code == 200
        service.clock.advance(15 * 86400)
        await service.run_janitor()
        assert (await publish(alice, "4")).status_code == 200


async def test_the_ends_of_calls_are_recorded_although_events_fill_the_quota(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(event_bytes=len(dumps(PAID["data"])))) as service:
        alice = await service.create_client("alice")
        call_id = (await start(alice, callback={"url": CALLBACK_URL})).json()["call"]["id"]
        await publish(alice, "1")

        await service.finish_call(call_id)

        assert await list_event_names(alice) == ["order.paid", "call.finished"]
        assert len(await service.read_deliveries("alice")) == 1


async def test_progress_gets_events_until_half_of_the_quota_is_used(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(event_bytes=1000)) as service:
        alice = await service.create_client("alice", scopes=ALL_SCOPES)
        for progress in range(4):
            reported = REPORT | {"progress": {"progress": progress, "message": "x" * 300}}
            answer = await alice.post("/v1/calls/report", json=reported)
            assert answer.json()["call"]["progress"]["progress"] == progress

        assert await list_event_names(alice) == ["call.progress"]
        assert (await publish(alice, "1")).status_code == 200


async def test_bodies_of_callbacks_are_bounded_until_they_expire(tmp_path: Path) -> None:
    """One event has a body for each webhook: a thousand webhooks make a thousand bodies of each published event."""
    async with running_service(tmp_path, quotas=Quotas(delivery_bytes=30_000)) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        await publish(alice, "0")  # declares the type
        body = {"url": CALLBACK_URL, "events": ["call.finished", "order.paid"]}
        webhook, *_ = [(await alice.post("/v1/webhooks", json=body)).json()["id"] for _ in range(3)]
        call_id = (await start(alice)).json()["call"]["id"]
        large = {"name": "order.paid", "data": {"text": "x" * 10_000}}
        assert (await alice.post("/v1/events", json=large)).status_code == 201
        deliveries = await service.read_deliveries("alice")
        await service.settle_deliveries(deliveries, DeliveryState.DEAD)
        delivery, cursor = deliveries[0].id, (await alice.get("/v1/events")).json()["cursor"]
        before = service.count_rows()

        for answer in (
            await start(alice),
            await publish(alice, "1"),
            await alice.post(f"/v1/webhooks/{webhook}/replay", json={"since": "2026-01-01T00:00:00Z"}),
            await alice.post(f"/v1/deliveries/{delivery}/redeliver"),
            await alice.post("/v1/deliveries/redeliver", json={"state": "dead"}),
            await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "cursor": cursor}),
        ):
            assert_quota_exceeded(answer, "delivery_bytes")

        assert service.count_rows() == before
        assert (await start(bob)).status_code == 202
        await service.finish_call(call_id)
        ends = [each for each in await service.read_deliveries("alice") if each.call_id == call_id]
        assert len(ends) == 3
        await service.settle_deliveries(ends, DeliveryState.DELIVERED)
        service.clock.advance(15 * 86400)
        await service.run_janitor()
        assert (await start(alice)).status_code == 202


async def test_earlier_events_and_tests_are_not_delivered_again_and_again_above_the_quota(tmp_path: Path) -> None:
    """Each subscription or webhook that begins with earlier events has a body for each of them, also if it ends at once."""
    url = f"{CALLBACK_URL}?mcp_event_subscription=1"
    async with running_service(tmp_path, quotas=Quotas(delivery_bytes=1)) as service:
        alice, subscriptions = await service.create_client("alice"), service.services.event_subscriptions
        beginning = (await alice.get("/v1/events")).json()["cursor"]
        earlier, call_id = [(await start(alice)).json()["call"]["id"] for _ in range(2)]
        await service.finish_call(earlier)
        live = await subscriptions.subscribe(CLIENT, make_request(url=f"{url}&live", cursor=None))
        webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
        await service.finish_call(call_id)  # its callbacks use up the quota
        before = service.count_rows()

        for refused in (
            make_request(url=f"{url}&new", cursor=beginning),
            make_request(url=f"{url}&live", cursor=beginning),
        ):
            with pytest.raises(EventError) as error:
                await subscriptions.subscribe(CLIENT, refused)
            assert error.value.name is EventErrorName.RESOURCE_EXHAUSTED
            assert (error.value.data or {})["limit"] == "delivery_bytes"
        for_call = {"url": CALLBACK_URL, "call_id": call_id}
        assert_quota_exceeded(await alice.post("/v1/webhooks", json=for_call), "delivery_bytes")
        assert_quota_exceeded(await alice.post(f"/v1/webhooks/{webhook}/test"), "delivery_bytes")

        after = service.count_rows()
        tables = ("webhooks", "subscriptions", "deliveries", "catch_ups", "audit_entries")
        assert {table: after[table] for table in tables} == {table: before[table] for table in tables}
        refreshed = await subscriptions.subscribe(CLIENT, make_request(url=f"{url}&live", cursor=None))
        assert refreshed.id == live.id


async def list_event_names(client: httpx.AsyncClient) -> list[str]:
    return [event["name"] for event in (await client.get("/v1/events")).json()["events"]]


async def test_the_webhook_quota_does_not_count_callbacks_of_calls(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(webhooks=1)) as service:
        alice = await service.create_client("alice")
        for _ in range(3):
            assert (await start(alice, callback={"url": CALLBACK_URL})).status_code == 202
        registered = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
        before = service.count_rows()

        assert_quota_exceeded(await alice.post("/v1/webhooks", json={"url": CALLBACK_URL}), "webhooks")

        assert service.count_rows() == before
        await alice.delete(registered.headers["location"])
        assert (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).status_code == 201


async def test_all_requests_that_start_calls_count_towards_one_rate(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(starts_per_minute=3)) as service:
        alice = await service.create_client("alice")
        webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
        delivery = (await alice.post(f"/v1/webhooks/{webhook}/test")).json()["id"]
        await alice.post(f"/v1/webhooks/{webhook}/replay", json={"dead": True})
        await start(alice)
        before = service.count_rows()

        for answer in (
            await start(alice),
            await alice.post(f"/v1/webhooks/{webhook}/test"),
            await alice.post(f"/v1/webhooks/{webhook}/replay", json={"dead": True}),
            await alice.post(f"/v1/deliveries/{delivery}/redeliver"),
        ):
            assert_quota_exceeded(answer, "starts_per_minute")

        assert service.count_rows() == before
        assert (await alice.get("/v1/calls")).status_code == 200
        assert (await start(await service.create_client("bob"))).status_code == 202


@pytest.mark.requirement("R25")
async def test_there_are_no_quotas_by_default(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    batch = {"calls": [CALL_BODY] * 100}
    answers = [await alice.post("/v1/calls/batch", json=batch) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [202, 202]

"""Quotas: a request above one is refused with a retry time, writes nothing, and does not affect other principals."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.admission import AdmissionGate
from ringback.domain.principal import Principal
from ringback.services.limits.quotas import Quotas
from tests.support.service import CALL_BODY, CALLBACK_URL, RESULT, ServiceUnderTest, running_service


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
    answers = await asyncio.gather(*(start(alice) for _ in range(200)))

    assert {answer.status_code for answer in answers} == {202}

"""Waiting for several calls in one request."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome, failed_completion
from ringback.services.calls.call_reads import get_own_call
from ringback.services.calls.calls import JOINED_AT_ONCE_MAX
from tests.support.service import CALL_BODY, RETENTION_SECONDS, ServiceUnderTest
from tests.support.upstreams import wait_until_true

pytestmark = [pytest.mark.requirement("R11"), pytest.mark.usefixtures("only_rings")]

SHORT_WAIT_SECONDS = 50.0
"""Shorter than a wait without a signal, so a faster response was woken by one."""
LONG = 60
UNKNOWN = "call_01KAGZ8A00QW7T3M5N9R1S2V4X"


async def start(client: httpx.AsyncClient) -> str:
    return (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]


async def wait_for_calls(client: httpx.AsyncClient, *call_ids: str, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/calls/wait", json={"call_ids": list(call_ids)} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("ended", [0, 1, 2])
async def test_calls_are_returned_in_the_requested_order_with_whether_enough_have_ended(
    service: ServiceUnderTest, alice: httpx.AsyncClient, ended: int
) -> None:
    calls = [await start(alice) for _ in range(2)]
    for call_id in calls[:ended]:
        await service.finish_call(call_id)

    joined = await wait_for_calls(alice, calls[1], calls[0], calls[1], mode="all")

    assert [call["id"] for call in joined["calls"]] == [calls[1], calls[0], calls[1]]
    assert joined["done"] is (ended == 2)
    assert (await wait_for_calls(alice, *calls, mode="any"))["done"] is (ended > 0)


@pytest.mark.usefixtures("shared_service")
async def test_waiting_for_any_wakes_at_the_first_end(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    calls = [await start(alice) for _ in range(3)]
    async with asyncio.timeout(SHORT_WAIT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait_for_calls(alice, *calls, mode="any", wait_seconds=LONG))
        await service.finish_call(calls[2], failed_completion(CallOutcome.UNKNOWN, "lost"))

    joined = waiting.result()
    assert [call["status"] for call in joined["calls"]] == ["working", "working", "failed"]
    assert joined["done"]


@pytest.mark.usefixtures("shared_service")
async def test_waiting_for_all_wakes_at_the_last_end(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    calls = [await start(alice) for _ in range(3)]
    async with asyncio.timeout(SHORT_WAIT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait_for_calls(alice, *calls, mode="all", wait_seconds=LONG))
        for call_id in calls:
            assert not waiting.done()
            await service.finish_call(call_id)

    assert waiting.result()["done"]


async def test_calls_that_have_ended_are_not_read_again_and_many_calls_are_read_beside_the_event_loop(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, scans, scan = Counter[str](), list[str](), service.store.scan

    async def count_read(tx: Any, principal: Any, call_id: str) -> Call:
        reads[call_id] += 1
        return await get_own_call(tx, principal, call_id)

    async def count_scan(principal: Any, work: Any) -> Any:
        scans.append(principal)
        return await scan(principal, work)

    monkeypatch.setattr("ringback.services.calls.calls.get_own_call", count_read)
    monkeypatch.setattr(service.store, "scan", count_scan)
    calls = [await start(alice) for _ in range(JOINED_AT_ONCE_MAX + 1)]
    for call_id in calls[1:]:
        await service.finish_call(call_id)
    async with asyncio.timeout(SHORT_WAIT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait_for_calls(alice, *calls, *calls, mode="all", wait_seconds=LONG))
        await wait_until_true(lambda: reads[calls[-1]] > 0)
        await service.finish_call(calls[0])

    assert waiting.result()["done"]
    assert reads[calls[0]] >= 2
    assert {reads[call_id] for call_id in calls[1:]} == {1}
    assert set(scans) == {"alice"}
    scans.clear()
    await wait_for_calls(alice, *calls[:JOINED_AT_ONCE_MAX])
    assert scans == []


@pytest.mark.usefixtures("shared_service")
async def test_a_wait_that_is_over_shows_the_calls_as_they_are(alice: httpx.AsyncClient) -> None:
    joined = await wait_for_calls(alice, await start(alice), wait_seconds=0.05)

    assert (joined["done"], joined["calls"][0]["status"]) == (False, "working")


async def test_a_shutdown_ends_waiting_requests(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)
    async with asyncio.timeout(SHORT_WAIT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait_for_calls(alice, call_id, wait_seconds=LONG))
        service.services.lifecycle.begin_shutdown()

    assert not waiting.result()["done"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R25")
async def test_a_foreign_call_among_them_is_reported_as_unknown(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    mine, hers = await start(bob), await start(alice)

    answers = [
        await bob.post("/v1/calls/wait", json={"call_ids": [mine, other], "wait_seconds": 1})
        for other in (hers, UNKNOWN, "call_", "x")
    ]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["detail"].startswith("call_ids[1]: No call of yours has this id.")
    assert answers[0].json()["index"] == 1


async def test_an_expired_call_among_them_says_so(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id)
    service.clock.advance(RETENTION_SECONDS + 1)
    await service.run_janitor()

    answer = await alice.post("/v1/calls/wait", json={"call_ids": [call_id]})

    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/call-expired")


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"call_ids": []},
        {"call_ids": [UNKNOWN] * 101},
        {"call_ids": "call_1"},
        {"call_ids": [UNKNOWN], "mode": "most"},
        {"call_ids": [UNKNOWN], "wait_seconds": 61},
        {"call_ids": [UNKNOWN], "wait_seconds": "5"},
        {"call_ids": ["a" * 65]},
    ],
)
async def test_a_wait_is_bounded(alice: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await alice.post("/v1/calls/wait", json=body)

    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-request")

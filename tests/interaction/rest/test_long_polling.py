"""Long polls over REST return when the state changes, not at their time limit."""

import asyncio

import httpx
import pytest

from ringback.domain.signals import CALL_QUEUED_TOPIC
from tests.support.service import CALL_BODY, RESULT, ServiceUnderTest

pytestmark = pytest.mark.usefixtures("only_rings")

PROMPT_SECONDS = 40.0
"""Shorter than a wait without a signal, so a faster response was woken by one."""
LONG = 60


@pytest.mark.requirement("R12")
async def test_reading_a_call_wakes_when_it_ends(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    async with asyncio.timeout(PROMPT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(alice.get(f"/v1/calls/{call_id}", params={"wait_seconds": LONG}))
        await service.finish_call(call_id)

    assert waiting.result().json()["status"] == "completed"


@pytest.mark.requirement("R14")
async def test_starting_a_call_may_wait_for_its_result(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PROMPT_SECONDS), asyncio.TaskGroup() as group:
        with service.store.signals.listen(CALL_QUEUED_TOPIC) as bell:
            waiting = group.create_task(alice.post("/v1/calls", json=CALL_BODY | {"wait_seconds": LONG}))
            assert await bell.wait(PROMPT_SECONDS)
        (call,) = (await alice.get("/v1/calls")).json()["calls"]
        await service.finish_call(call["id"])

    answer = waiting.result()
    assert answer.status_code == 200
    assert answer.content.endswith(b'"result":' + RESULT + b"}")
    assert "hint" not in answer.json()


async def test_resuming_wakes_when_the_call_ends(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()
    body = {"resume_token": started["resume_token"], "wait_seconds": LONG}
    async with asyncio.timeout(PROMPT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(alice.post("/v1/resume", json=body))
        await service.finish_call(started["call"]["id"])

    assert waiting.result().content.endswith(b'"result":' + RESULT + b"}")


async def test_polling_events_wakes_at_the_first_one(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    async with asyncio.timeout(PROMPT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(alice.get("/v1/events", params={"wait_seconds": LONG}))
        await service.finish_call(call_id)

    assert [event["data"]["call_id"] for event in waiting.result().json()["events"]] == [call_id]


@pytest.mark.requirement("R14")
async def test_a_wait_that_times_out_returns_the_current_state(alice: httpx.AsyncClient) -> None:
    started = await alice.post("/v1/calls", json=CALL_BODY | {"wait_seconds": 0.05})
    call_id = started.json()["call"]["id"]
    read = await alice.get(f"/v1/calls/{call_id}", params={"wait_seconds": 0.05})
    polled = await alice.get("/v1/events", params={"wait_seconds": 0.05})

    assert (started.status_code, read.json()["status"], polled.json()["events"]) == (202, "working", [])


async def test_a_shutdown_ends_waiting_requests(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    async with asyncio.timeout(PROMPT_SECONDS), asyncio.TaskGroup() as group:
        waiting = group.create_task(alice.get(f"/v1/calls/{call_id}", params={"wait_seconds": LONG}))
        service.services.lifecycle.begin_shutdown()

    assert waiting.result().json()["status"] == "working"

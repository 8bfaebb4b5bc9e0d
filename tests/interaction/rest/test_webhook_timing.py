"""A webhook that is registered before, during or after the end of a call gets exactly one callback."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = [pytest.mark.requirement("R16"), pytest.mark.requirement("R27")]

EXAMPLES: Final = max(8, settings().max_examples // 4)
loop_turns = st.integers(min_value=0, max_value=60)
"""Turns of the event loop before each task starts: either can be first, and often both share a group commit."""


async def after_turns(turns_before: int, step: Awaitable[Any]) -> Any:
    for _ in range(turns_before):
        await asyncio.sleep(0)
    return await step


async def count_deliveries(client: httpx.AsyncClient, webhook_id: str) -> list[str]:
    answer = await client.get("/v1/deliveries", params={"webhook_id": webhook_id})
    return [delivery["call_id"] for delivery in answer.json()["deliveries"]]


async def started(client: httpx.AsyncClient) -> str:
    return (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]


@settings(max_examples=EXAMPLES)
@given(registering=loop_turns, ending=loop_turns)
async def test_a_webhook_for_one_call_gets_one_callback_at_any_registration_time(
    service: ServiceUnderTest, alice: httpx.AsyncClient, registering: int, ending: int
) -> None:
    call_id = await started(alice)
    body = {"url": CALLBACK_URL, "call_id": call_id}

    answer, _ = await asyncio.gather(
        after_turns(registering, alice.post("/v1/webhooks", json=body)),
        after_turns(ending, service.finish_call(call_id)),
    )

    assert await count_deliveries(alice, answer.json()["id"]) == [call_id]
    await alice.delete(f"/v1/webhooks/{answer.json()['id']}")


@settings(max_examples=EXAMPLES)
@given(registering=loop_turns, ending=loop_turns)
async def test_a_webhook_with_a_cursor_gets_one_callback_at_any_registration_time(
    service: ServiceUnderTest, alice: httpx.AsyncClient, registering: int, ending: int
) -> None:
    call_id = await started(alice)
    nothing = (await alice.get("/v1/events", params={"name": "call.progress"})).json()
    body = {"url": CALLBACK_URL, "cursor": nothing["cursor"]}

    answer, _ = await asyncio.gather(
        after_turns(registering, alice.post("/v1/webhooks", json=body)),
        after_turns(ending, service.finish_call(call_id)),
    )

    assert await count_deliveries(alice, answer.json()["id"]) == [call_id]
    await alice.delete(f"/v1/webhooks/{answer.json()['id']}")


async def test_a_webhook_without_a_cursor_does_not_get_past_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await service.finish_call(await started(alice))
    webhook_id = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    call_id = await started(alice)
    await service.finish_call(call_id)

    assert await count_deliveries(alice, webhook_id) == [call_id]


async def test_a_webhook_for_a_call_gets_its_events_from_the_first_with_any_cursor(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await started(alice)
    await service.finish_call(call_id)
    cursor = (await alice.get("/v1/events")).json()["cursor"]

    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "call_id": call_id, "cursor": cursor})

    assert await count_deliveries(alice, answer.json()["id"]) == [call_id]

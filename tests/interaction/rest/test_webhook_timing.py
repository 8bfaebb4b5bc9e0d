"""A webhook registered before, while, or after a call ends is rung for it exactly once."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.service import CALL_BODY, CALLBACK_URL, Service

pytestmark = [pytest.mark.requirement("R16"), pytest.mark.requirement("R27")]

turns = st.integers(min_value=0, max_value=60)
"""Turns of the event loop before each sets out: either may be first, and often both meet in one group commit."""


async def after(turns_before: int, step: Awaitable[Any]) -> Any:
    for _ in range(turns_before):
        await asyncio.sleep(0)
    return await step


async def rung(client: httpx.AsyncClient, webhook_id: str) -> list[str]:
    answer = await client.get("/v1/deliveries", params={"webhook_id": webhook_id})
    return [delivery["call_id"] for delivery in answer.json()["deliveries"]]


async def started(client: httpx.AsyncClient) -> str:
    return (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]


@given(registering=turns, ending=turns)
async def test_a_webhook_for_one_call_is_rung_once_whenever_it_comes(
    service: Service, alice: httpx.AsyncClient, registering: int, ending: int
) -> None:
    call_id = await started(alice)
    body = {"url": CALLBACK_URL, "call_id": call_id}

    answer, _ = await asyncio.gather(
        after(registering, alice.post("/v1/webhooks", json=body)), after(ending, service.finish(call_id))
    )

    assert await rung(alice, answer.json()["id"]) == [call_id]
    await alice.delete(f"/v1/webhooks/{answer.json()['id']}")


@given(registering=turns, ending=turns)
async def test_a_webhook_from_a_cursor_on_is_rung_once_whenever_it_comes(
    service: Service, alice: httpx.AsyncClient, registering: int, ending: int
) -> None:
    call_id = await started(alice)
    nothing = (await alice.get("/v1/events", params={"name": "call.progress"})).json()
    body = {"url": CALLBACK_URL, "cursor": nothing["cursor"]}

    answer, _ = await asyncio.gather(
        after(registering, alice.post("/v1/webhooks", json=body)), after(ending, service.finish(call_id))
    )

    assert await rung(alice, answer.json()["id"]) == [call_id]
    await alice.delete(f"/v1/webhooks/{answer.json()['id']}")


async def test_a_webhook_that_hears_from_now_on_does_not_hear_the_past(
    service: Service, alice: httpx.AsyncClient
) -> None:
    await service.finish(await started(alice))
    webhook_id = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    call_id = await started(alice)
    await service.finish(call_id)

    assert await rung(alice, webhook_id) == [call_id]


async def test_a_webhook_for_a_call_hears_it_from_its_beginning_whatever_the_cursor(
    service: Service, alice: httpx.AsyncClient
) -> None:
    call_id = await started(alice)
    await service.finish(call_id)
    cursor = (await alice.get("/v1/events")).json()["cursor"]

    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "call_id": call_id, "cursor": cursor})

    assert await rung(alice, answer.json()["id"]) == [call_id]

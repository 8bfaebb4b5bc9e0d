"""Deliveries over REST: list them and read their attempts."""

import httpx

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import Attempt
from ringback.domain.ids import DeliveryId
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest


async def delivered(service: ServiceUnderTest, client: httpx.AsyncClient, *, webhooks: int = 1) -> list[str]:
    for _ in range(webhooks):
        await client.post("/v1/webhooks", json={"url": CALLBACK_URL})
    await service.finish_call((await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    return [delivery["id"] for delivery in (await client.get("/v1/deliveries")).json()["deliveries"]]


async def test_a_listed_delivery_names_its_webhook_event_and_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await delivered(service, alice)
    (event,) = (await alice.get("/v1/events")).json()["events"]
    (webhook,) = (await alice.get("/v1/webhooks")).json()["webhooks"]

    (delivery,) = (await alice.get("/v1/deliveries")).json()["deliveries"]

    assert delivery["event_id"] == event["eventId"]
    assert delivery["webhook_id"] == webhook["id"]
    assert delivery["call_id"] == event["data"]["call_id"]
    assert (delivery["state"], delivery["attempt_count"], delivery["last_category"]) == ("pending", 0, None)


async def test_a_delivery_is_read_with_its_attempts(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    (delivery_id,) = await delivered(service, alice)
    attempt = Attempt(
        id=service.ids.new_attempt_id(),
        delivery_id=DeliveryId(delivery_id),
        number=1,
        started_at=service.clock.now(),
        duration_ms=12,
        category=AttemptCategory.HTTP_5XX,
        status_code=503,
        excerpt="deploying",
    )
    await service.store.write(lambda tx: tx.delivery_queue.insert_attempts([attempt]))

    (shown,) = (await alice.get(f"/v1/deliveries/{delivery_id}")).json()["attempts"]

    assert (shown["id"], shown["number"], shown["category"]) == (attempt.id, 1, "http_5xx")
    assert (shown["status_code"], shown["excerpt"], shown["duration_ms"]) == (503, "deploying", 12)


async def test_a_body_is_never_shown(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    (delivery_id,) = await delivered(service, alice)

    for path in ("/v1/deliveries", f"/v1/deliveries/{delivery_id}"):
        shown = (await alice.get(path)).text
        assert "body" not in shown
        assert "resume_token" not in shown
        assert "lease" not in shown


async def test_deliveries_are_filtered_and_paged(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    every = await delivered(service, alice, webhooks=3)
    webhook_id = (await alice.get(f"/v1/deliveries/{every[0]}")).json()["webhook_id"]

    async def found(**question: str | int) -> list[str]:
        answer = await alice.get("/v1/deliveries", params=question)
        return [delivery["id"] for delivery in answer.json()["deliveries"]]

    assert await found(webhook_id=webhook_id) == [every[0]]
    assert await found(state="pending") == every
    assert await found(state="dead") == []
    assert await found(call_id=(await alice.get("/v1/calls")).json()["calls"][0]["id"]) == every
    first = (await alice.get("/v1/deliveries", params={"limit": 2})).json()
    assert await found(limit=2, cursor=first["next_cursor"]) == every[2:]

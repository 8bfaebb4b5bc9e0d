"""A retry schedule of the owner's own: what is accepted, shown and followed, and a dead letter within a minute."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from ringback.domain.retry import OWN_STEPS_SECONDS_MAX, own_retry_schedule
from ringback.janitor import GIVE_UP_SECONDS_MAX
from tests.support.engine import Engine
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R27")

REHEARSAL = {"schedule": [5, 10, 20]}


async def test_a_dead_letter_is_rehearsed_within_a_minute(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "retries": REHEARSAL})
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    dispatcher = Engine(service.store, service.clock).make_dispatcher(lambda _: httpx.Response(500))
    began = service.clock.now()

    while (delivery := (await service.read_deliveries("alice"))[0]).finished_at is None:
        await dispatcher.run_once()
        service.clock.advance(1)

    assert (delivery.state, delivery.attempts) == ("dead", 4)
    assert timedelta(seconds=30) < delivery.finished_at - began < timedelta(seconds=60)


async def test_an_own_schedule_is_shown_changed_and_replaced_by_a_named_one(alice: httpx.AsyncClient) -> None:
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "retries": REHEARSAL})).json()
    path = f"/v1/webhooks/{webhook['id']}"

    shown = (await alice.get(path)).json()["retries"]
    kept = (await alice.patch(path, json={"description": "mine"})).json()["retries"]
    changed = (await alice.patch(path, json={"retries": {"schedule": [1]}})).json()["retries"]
    named = (await alice.patch(path, json={"retries": "minutes"})).json()["retries"]

    assert webhook["retries"] == shown == kept == REHEARSAL
    assert changed == {"schedule": [1]}
    assert (named, (await alice.get(path)).json()["retries"]) == ("minutes", "minutes")


async def test_a_registration_with_an_own_schedule_repeats_by_its_idempotency_key(alice: httpx.AsyncClient) -> None:
    async def register(retries: Any) -> httpx.Response:
        body = {"url": CALLBACK_URL, "retries": retries}
        return await alice.post("/v1/webhooks", json=body, headers={"Idempotency-Key": "mine"})

    assert [(await register(each)).status_code for each in (REHEARSAL, REHEARSAL, "days")] == [201, 200, 409]


@pytest.mark.parametrize("schedule", [[1], [86_400] * 4, [1] * 20])
async def test_schedules_at_the_limits_are_accepted(alice: httpx.AsyncClient, schedule: list[int]) -> None:
    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "retries": {"schedule": schedule}})

    assert answer.json()["retries"] == {"schedule": schedule}
    assert own_retry_schedule(tuple(schedule)).give_up_seconds <= GIVE_UP_SECONDS_MAX


@pytest.mark.parametrize(
    "retries",
    [
        *("weeks", 5, [], {}, {"schedule": []}, {"schedule": [0]}, {"schedule": [86_401]}, {"schedule": [1] * 21}),
        *({"schedule": [86_400] * 4 + [1]}, {"schedule": [1.5]}, {"schedule": ["1"]}, {"schedule": [True]}),
        *({"schedule": [1], "more": 1}, {"steps": [1]}),
    ],
)
@pytest.mark.parametrize("member", ["webhook", "callback"])
async def test_a_schedule_beyond_the_limits_is_refused_with_the_limits(
    alice: httpx.AsyncClient, retries: Any, member: str
) -> None:
    webhook = {"url": CALLBACK_URL, "retries": retries}
    if member == "webhook":
        answer = await alice.post("/v1/webhooks", json=webhook)
    else:
        answer = await alice.post("/v1/calls", json=CALL_BODY | {"callback": webhook})

    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"].endswith("/retries")
    assert "1 to 20 steps of 1 to 86,400 seconds" in error["detail"]
    assert f"{OWN_STEPS_SECONDS_MAX:,} seconds (4 days)" in error["detail"]


@pytest.mark.parametrize("schedule", [[1], [1, 2], [5, 10, 20]])
async def test_a_delivery_with_short_steps_outlasts_the_longest_pause_of_a_breaker(
    service: ServiceUnderTest, alice: httpx.AsyncClient, schedule: list[int]
) -> None:
    """Otherwise it is dead without an attempt although its receiver works again."""
    receiver, works = Engine(service.store, service.clock), False
    dispatcher = receiver.make_dispatcher(lambda _: httpx.Response(200 if works else 500))
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "retries": {"schedule": schedule}})
    for _ in range(12):
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    (webhook,) = (await alice.get("/v1/webhooks")).json()["webhooks"]
    while (await alice.get(f"/v1/webhooks/{webhook['id']}")).json()["paused_until"] is None:
        await dispatcher.run_once()
        service.clock.advance(1)
    works = True
    call = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.finish_call(call)
    while (delivery := (await service.read_deliveries("alice"))[0]).finished_at is None:
        await dispatcher.run_once()
        service.clock.advance(1)

    assert (delivery.call_id, delivery.state) == (call, "delivered")

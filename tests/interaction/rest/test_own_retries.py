"""A retry schedule of the owner's own: what is accepted, shown and followed, and a dead letter within a minute."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from ringback.domain.circuit_breaker import OPEN_SECONDS_STEPS
from ringback.domain.retry import OWN_STEPS_SECONDS_MAX, own_retry_schedule
from ringback.janitor.config import GIVE_UP_SECONDS_MAX
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


@pytest.mark.usefixtures("shared_service")
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


@pytest.mark.usefixtures("shared_service")
async def test_a_registration_with_an_own_schedule_repeats_by_its_idempotency_key(alice: httpx.AsyncClient) -> None:
    async def register(retries: Any) -> httpx.Response:
        body = {"url": CALLBACK_URL, "retries": retries}
        return await alice.post("/v1/webhooks", json=body, headers={"Idempotency-Key": "mine"})

    assert [(await register(each)).status_code for each in (REHEARSAL, REHEARSAL, "days")] == [201, 200, 409]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("schedule", [[1], [86_400] * 4, [1] * 20])
async def test_schedules_at_the_limits_are_accepted(alice: httpx.AsyncClient, schedule: list[int]) -> None:
    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "retries": {"schedule": schedule}})

    assert answer.json()["retries"] == {"schedule": schedule}
    assert own_retry_schedule(tuple(schedule)).give_up_seconds <= GIVE_UP_SECONDS_MAX


@pytest.mark.usefixtures("shared_service")
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
    answers = [500]
    dispatcher = Engine(service.store, service.clock).make_dispatcher(lambda _: httpx.Response(answers[0]))
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "retries": {"schedule": schedule}})).json()

    async def make_delivery() -> str:
        call = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        await service.finish_call(call)
        return call

    async def remaining_pause_seconds() -> float:
        paused_until = (await alice.get(f"/v1/webhooks/{webhook['id']}")).json()["paused_until"]
        return (
            0 if paused_until is None else (datetime.fromisoformat(paused_until) - service.clock.now()).total_seconds()
        )

    while (pause_seconds := await remaining_pause_seconds()) < OPEN_SECONDS_STEPS[-1] / 2:
        service.clock.advance(pause_seconds)
        await make_delivery()
        await dispatcher.run_once()
        service.clock.advance(1 if pause_seconds <= 0 else 0)
    call = await make_delivery()
    answers[0] = 200
    while True:
        (delivery,) = [each for each in await service.read_deliveries("alice") if each.call_id == call]
        if delivery.finished_at is not None:
            break
        await dispatcher.run_once()
        service.clock.advance(5)

    assert delivery.state == "delivered"

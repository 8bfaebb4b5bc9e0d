"""What an owner does to a failing webhook acts at once, and the response says what happens when."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import httpx
import pytest

from ringback.domain.circuit_breaker import WEBHOOK_BREAKER_POLICY
from ringback.domain.ports import Transaction
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile
from ringback.domain.webhook import Webhook, WebhookState
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler, OpenDeliveries
from tests.support.engine import Engine
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.stores import refuse_work

pytestmark = [pytest.mark.requirement("R22"), pytest.mark.requirement("R27")]

EVENTS = 7
"""More than the failures that open a webhook's breaker."""


class Receiver:
    """Records the deliveries that arrive, and answers with a status that the test changes."""

    def __init__(self) -> None:
        self.status_code = 500
        self.arrived: list[str] = []
        self.attempts = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.attempts += 1
        if self.status_code < 300:
            self.arrived.append(request.headers["webhook-id"])
        return httpx.Response(self.status_code)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


Deliver = Callable[[], Awaitable[int]]


@pytest.fixture
def deliver(service: ServiceUnderTest, receiver: Receiver) -> Deliver:
    """Make all attempts that are possible now, and return their number."""
    dispatcher = Engine(service.store, service.clock).make_dispatcher(receiver)

    async def deliver() -> int:
        before = receiver.attempts
        while await dispatcher.run_once():
            pass
        return receiver.attempts - before

    return deliver


async def register_failing(
    service: ServiceUnderTest, client: httpx.AsyncClient, deliver: Deliver, **body: Any
) -> tuple[str, list[str]]:
    """A webhook whose breaker is open, with pending deliveries that wait for a later attempt; their events in order."""
    webhook_id = (await client.put(NAMED_PATH, json={"url": CALLBACK_URL, **body})).json()["id"]
    started = (await client.post("/v1/calls/batch", json={"calls": [CALL_BODY] * EVENTS})).json()["calls"]
    for each in started:
        await service.finish_call(each["call_id"])
    await deliver()
    for pause in RETRY_SCHEDULES[RetryProfile.DAYS].delays_seconds[: WEBHOOK_BREAKER_POLICY.failures_to_open - 1]:
        service.clock.advance(1.2 * pause)  # an ordered webhook has one attempt after each step
        await deliver()
    events = (await client.get("/v1/events")).json()["events"]
    assert (await client.get(f"/v1/webhooks/{webhook_id}")).json()["paused_until"] is not None
    return webhook_id, [event["eventId"] for event in events]


NAMED_PATH = "/v1/webhooks/by-name/reports"

Act = Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]

ACTS: dict[str, Act] = {
    "enable": lambda client, webhook_id: client.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"}),
    "resume": lambda client, webhook_id: client.patch(f"/v1/webhooks/{webhook_id}", json={"paused": False}),
    "change the URL": lambda client, webhook_id: client.patch(
        f"/v1/webhooks/{webhook_id}", json={"url": "https://agent.example/mended"}
    ),
    "change the URL by name": lambda client, _: client.put(NAMED_PATH, json={"url": "https://agent.example/mended"}),
    "rotate the secret": lambda client, webhook_id: client.post(f"/v1/webhooks/{webhook_id}/rotate-secret"),
    "verify": lambda client, webhook_id: client.post(f"/v1/webhooks/{webhook_id}/verify"),
    "test": lambda client, webhook_id: client.post(f"/v1/webhooks/{webhook_id}/test"),
    "replay": lambda client, webhook_id: client.post(f"/v1/webhooks/{webhook_id}/replay", json={"dead": True}),
}


@pytest.mark.parametrize("act", ACTS)
async def test_after_an_act_of_its_owner_a_mended_receiver_gets_everything_without_waiting(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver, act: str
) -> None:
    webhook_id, events = await register_failing(service, alice, deliver)
    assert await deliver() == 0
    receiver.status_code = 204

    answer = await ACTS[act](alice, webhook_id)
    await deliver()

    assert answer.is_success, answer.text
    assert set(events) <= set(receiver.arrived)


@pytest.mark.parametrize("act", [act for act in ACTS if act != "change the URL by name"])
async def test_the_answer_to_an_act_says_what_happens_when(
    service: ServiceUnderTest, alice: httpx.AsyncClient, deliver: Deliver, act: str
) -> None:
    webhook_id, _ = await register_failing(service, alice, deliver)

    body, now = (await ACTS[act](alice, webhook_id)).json(), service.clock.now()

    assert body["due_now"] == EVENTS + (act == "test")
    assert (body["held"], body["in_flight"]) == (0, 0)
    assert now - timedelta(seconds=60) < datetime.fromisoformat(body["next_attempt_at"]) <= now


async def test_a_redelivery_makes_the_next_attempt_of_an_open_delivery_and_of_its_webhooks_others_now(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver
) -> None:
    _, events = await register_failing(service, alice, deliver)
    newest = max((await alice.get("/v1/deliveries")).json()["deliveries"], key=itemgetter("due_at"))
    receiver.status_code = 204

    answer = (await alice.post(f"/v1/deliveries/{newest['id']}/redeliver")).json()
    await deliver()

    assert (answer["id"], answer["generation"], answer["due_now"]) == (newest["id"], 1, EVENTS)
    assert answer["due_at"] < newest["due_at"]
    assert set(receiver.arrived) == set(events)


@pytest.mark.parametrize("act", ["change the URL by name", "rotate the secret", "test"])
async def test_a_stored_act_is_reported_although_the_store_is_unavailable_right_after_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    webhook_id = (await alice.put(NAMED_PATH, json={"url": CALLBACK_URL})).json()["id"]
    refuse_work(monkeypatch, service.store, "write", "AttemptScheduler.schedule_rest")

    answer = await ACTS[act](alice, webhook_id)

    assert answer.is_success, answer.text


async def test_an_ordered_webhook_keeps_its_order(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver
) -> None:
    webhook_id, events = await register_failing(service, alice, deliver, ordered=True)
    receiver.status_code = 204

    await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"})
    while await deliver():
        service.clock.advance(1)  # the dispatcher looks again for what waited behind another delivery

    assert receiver.arrived == events


async def test_a_receiver_that_is_still_broken_gets_one_attempt_for_each_request(
    service: ServiceUnderTest, alice: httpx.AsyncClient, deliver: Deliver
) -> None:
    webhook_id, _ = await register_failing(service, alice, deliver)

    attempts: list[int] = []
    for _ in range(3):
        await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"})
        attempts.append(await deliver())

    assert attempts == [1, 1, 1]


@pytest.mark.parametrize(
    "change",
    [{"state": "active"}, {"paused": False}, {"url": "https://agent.example/mended"}, {"headers": {"x-tenant": "7"}}],
    ids=lambda change: next(iter(change)),
)
async def test_a_change_half_opens_the_breaker_once(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    deliver: Deliver,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
) -> None:
    webhook_id, _ = await register_failing(service, alice, deliver)
    schedule, scheduled = AttemptScheduler.schedule_now, list[str]()

    async def count(scheduler: AttemptScheduler, tx: Transaction, webhook: Webhook) -> OpenDeliveries:
        scheduled.append(webhook.id)
        return await schedule(scheduler, tx, webhook)

    monkeypatch.setattr(AttemptScheduler, "schedule_now", count)
    answer = (await alice.patch(f"/v1/webhooks/{webhook_id}", json=change)).json()

    assert scheduled == [webhook_id]
    assert answer["due_now"] == EVENTS


async def test_the_requested_attempt_is_the_test(
    service: ServiceUnderTest, alice: httpx.AsyncClient, deliver: Deliver
) -> None:
    webhook_id, _ = await register_failing(service, alice, deliver)

    test = (await alice.post(f"/v1/webhooks/{webhook_id}/test")).json()
    await deliver()

    shown = (await alice.get(f"/v1/deliveries/{test['id']}")).json()
    assert [attempt["category"] for attempt in shown["attempts"]] == ["http_5xx"]


async def test_a_dry_run_has_the_numbers_and_changes_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver
) -> None:
    webhook_id, _ = await register_failing(service, alice, deliver)
    service.clock.advance(5 * 86400)  # past the age at which deliveries are given up
    await deliver()
    before = (await alice.get("/v1/deliveries")).json()

    counted = (await alice.post(f"/v1/webhooks/{webhook_id}/replay", json={"dead": True, "dry_run": True})).json()

    assert (counted["replayed"], counted["due_now"], counted["next_attempt_at"]) == (EVENTS, EVENTS, None)
    assert (await alice.get("/v1/deliveries")).json() == before


# -- pauses ----------------------------------------------------------------------------------------------------------------


async def test_a_paused_webhook_holds_its_deliveries_until_it_is_resumed(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver
) -> None:
    receiver.status_code = 204
    webhook_id = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]

    async def finish_call() -> None:
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])

    await finish_call()
    paused = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"paused": True})).json()
    await finish_call()
    await service.run_janitor()
    attempts_while_paused = await deliver()
    shown = (await alice.get(f"/v1/webhooks/{webhook_id}")).json()
    resumed = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"paused": False})).json()

    assert (paused["state"], paused["held"], paused["due_now"], paused["next_attempt_at"]) == ("active", 1, 0, None)
    assert shown["paused_at"] == paused["paused_at"] is not None
    assert attempts_while_paused == 0
    assert (resumed["paused_at"], resumed["held"], resumed["due_now"]) == (None, 0, 2)
    assert await deliver() == 2


@pytest.mark.parametrize("seconds", [0, 20, 3600])
async def test_a_disabled_webhook_holds_what_was_not_delivered_until_it_is_enabled_whenever_that_is(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver, seconds: int
) -> None:
    """The dispatcher cancelled them one by one as they became due, so an enable after some seconds found none."""
    webhook_id, events = await register_failing(service, alice, deliver)
    receiver.status_code = 204

    disabled = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "disabled"})).json()
    service.clock.advance(seconds)
    attempts_while_disabled = await deliver()
    await service.run_janitor()
    enabled = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"})).json()
    await deliver()

    assert (disabled["held"], disabled["due_now"], disabled["next_attempt_at"]) == (EVENTS, 0, None)
    assert attempts_while_disabled == 0
    assert (enabled["held"], enabled["due_now"]) == (0, EVENTS)
    assert sorted(receiver.arrived) == sorted(events)


async def test_what_happened_while_a_webhook_was_disabled_is_in_the_event_log_and_in_no_replay(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver
) -> None:
    receiver.status_code = 204
    path = f"/v1/webhooks/{(await alice.post('/v1/webhooks', json={'url': CALLBACK_URL})).json()['id']}"
    await alice.patch(path, json={"state": "disabled"})
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    await alice.patch(path, json={"state": "active"})
    replayed = (await alice.post(f"{path}/replay", json={"since": "2020-01-01T00:00:00Z"})).json()["replayed"]

    assert (replayed, await deliver()) == (0, 0)
    assert len((await alice.get("/v1/events")).json()["events"]) == 1


@pytest.mark.parametrize("change", [{"paused": True}, {"state": "disabled"}], ids=["paused", "disabled"])
async def test_deliveries_of_a_webhook_that_takes_none_count_as_held_and_not_as_due(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """The change holds one batch, and the dispatcher the rest when they fall due: these counted as due now."""
    monkeypatch.setattr("ringback.services.webhooks.webhook_updates.RELEASE_BATCH_SIZE", 1)
    webhook_id = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    for _ in range(3):
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])

    changed = (await alice.patch(f"/v1/webhooks/{webhook_id}", json=change)).json()

    assert (changed["due_now"], changed["held"]) == (0, 3)


async def test_a_pause_outlives_the_proof_of_a_new_url_and_a_suspension(
    service: ServiceUnderTest, alice: httpx.AsyncClient, receiver: Receiver, deliver: Deliver
) -> None:
    receiver.status_code = 204
    webhook_id = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    await alice.patch(f"/v1/webhooks/{webhook_id}", json={"paused": True})
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])

    await service.set_webhook_state(webhook_id, WebhookState.SUSPENDED)
    enabled = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"})).json()

    assert (enabled["state"], enabled["held"], enabled["due_now"]) == ("active", 1, 0)
    assert await deliver() == 0

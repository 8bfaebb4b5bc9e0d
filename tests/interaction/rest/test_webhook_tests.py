"""Webhook tests and secret rotations."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest
from standardwebhooks.webhooks import Webhook as StandardVerifier

from ringback.domain.delivery import DeliveryState
from ringback.domain.webhook import PREVIOUS_SECRETS_MAX, WebhookState
from tests.support.engine import Engine
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R22")

Deliver = Callable[[], Awaitable[None]]

DAY = 86400
OWN_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class RequestedTestReceiver:
    """A receiver that records requests and responds with a given status."""

    def __init__(self) -> None:
        self.posts: list[httpx.Request] = []
        self.answer = 204

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.posts.append(request)
        return httpx.Response(self.answer)


@pytest.fixture
def mailman() -> RequestedTestReceiver:
    return RequestedTestReceiver()


@pytest.fixture
def deliver(service: ServiceUnderTest, mailman: RequestedTestReceiver) -> Deliver:
    """Send all due deliveries."""
    dispatcher = Engine(service.store, service.clock).make_dispatcher(mailman)

    async def deliver() -> None:
        while await dispatcher.run_once():
            pass

    return deliver


async def registered(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    return (await client.post("/v1/webhooks", json={"url": CALLBACK_URL} | body)).json()


async def send_test(client: httpx.AsyncClient, webhook_id: str) -> dict[str, Any]:
    answer = await client.post(f"/v1/webhooks/{webhook_id}/test")
    assert answer.status_code == 202, answer.text
    return answer.json()


def is_signed_with(post: httpx.Request, secret: str) -> bool:
    try:
        StandardVerifier(secret).verify(post.content, dict(post.headers))
    except Exception:  # noqa: BLE001 - whatever an off-the-shelf verifier raises is a refusal
        return False
    return True


# -- webhook.test ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R23")
async def test_a_test_is_sent_signed_and_its_delivery_shows_the_outcome(
    service: ServiceUnderTest, alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver
) -> None:
    webhook = await registered(alice, client_session_id="session-1", correlation_id="inbox-3")

    delivery = await send_test(alice, webhook["id"])
    await deliver()

    (post,) = mailman.posts
    body = orjson.loads(post.content)
    assert is_signed_with(post, webhook["secret"])
    assert (body["name"], body["eventId"]) == ("webhook.test", delivery["event_id"])
    assert (post.headers["webhook-id"], post.headers["x-mcp-subscription-id"]) == (delivery["event_id"], webhook["id"])
    assert body["data"] == {
        "webhook_id": webhook["id"],
        "client_session_id": "session-1",
        "subscription_id": webhook["id"],
        "webhook_correlation_id": "inbox-3",
    }
    shown = (await alice.get(f"/v1/deliveries/{delivery['id']}")).json()
    assert (shown["state"], shown["call_id"], len(shown["attempts"])) == ("delivered", None, 1)


async def test_a_test_that_fails_is_tried_again_like_everything_else(
    service: ServiceUnderTest, alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver
) -> None:
    webhook_id = (await registered(alice))["id"]
    delivery = await send_test(alice, webhook_id)
    mailman.answer = 500

    await deliver()
    service.clock.advance(10)
    mailman.answer = 204
    await deliver()

    shown = (await alice.get(f"/v1/deliveries/{delivery['id']}")).json()
    assert (shown["state"], [attempt["category"] for attempt in shown["attempts"]]) == (
        "delivered",
        ["delivered", "http_5xx"],
    )
    assert mailman.posts[0].content == mailman.posts[1].content


@pytest.mark.usefixtures("shared_service")
async def test_a_test_is_sent_to_its_webhook_only(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    webhook_id, other = (await registered(alice))["id"], (await registered(alice))["id"]
    before = (await alice.get("/v1/events")).json()

    await send_test(alice, webhook_id)

    assert (await alice.get("/v1/events")).json() == before
    assert (await alice.get("/v1/deliveries", params={"webhook_id": other})).json()["deliveries"] == []


async def test_a_test_that_is_still_open_does_not_hold_back_the_cursor_of_what_comes_later(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = (await registered(alice))["id"]
    await send_test(alice, webhook_id)
    for _ in range(2):
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
        await service.settle_deliveries(
            [each for each in await service.read_deliveries("alice") if each.call_id and each.state == "pending"],
            DeliveryState.DELIVERED,
        )

    last = (await service.read_deliveries("alice"))[0]
    events = (await alice.get("/v1/events")).json()["events"]
    assert orjson.loads(last.body)["cursor"] == events[0]["cursor"]


async def test_a_test_of_a_webhook_that_waits_for_its_proof_is_held(
    service: ServiceUnderTest, alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver
) -> None:
    webhook_id = (await registered(alice))["id"]
    await service.set_webhook_state(webhook_id, WebhookState.PENDING_VERIFICATION)

    delivery = await send_test(alice, webhook_id)
    await deliver()

    assert delivery["state"] == "held"
    assert mailman.posts == []


@pytest.mark.usefixtures("shared_service")
async def test_no_webhook_can_select_the_test_event(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "events": ["webhook.test"]})

    assert answer.status_code == 422


# -- new secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R23")
async def test_through_three_rotations_no_receiver_refuses_a_callback(
    alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver, *, deep: bool
) -> None:
    """Receivers change to a new secret at different times, so a callback must verify with either secret."""
    webhook = await registered(alice)
    secrets, refused = [webhook["secret"]], 0
    for _ in range(3):
        rotated = await alice.post(f"/v1/webhooks/{webhook['id']}/rotate-secret")
        secrets.append(rotated.json()["secret"])
        for _ in range(334 if deep else 5):
            await send_test(alice, webhook["id"])
        await deliver()
        refused += sum(not is_signed_with(post, secret) for post in mailman.posts for secret in secrets)
        assert len(mailman.posts) == (334 if deep else 5)
        mailman.posts.clear()

    assert len(set(secrets)) == 4
    assert refused == 0


async def test_an_old_secret_signs_until_its_overlap_is_over_and_no_longer(
    service: ServiceUnderTest, alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver
) -> None:
    webhook = await registered(alice)
    await alice.post(f"/v1/webhooks/{webhook['id']}/rotate-secret", json={"overlap_seconds": 60})

    async def old_one_does() -> bool:
        await send_test(alice, webhook["id"])
        await deliver()
        signatures = mailman.posts[-1].headers["webhook-signature"].split(" ")
        assert len(signatures) in {1, 2}
        return len(signatures) == 2

    assert await old_one_does()
    service.clock.advance(61)
    assert not await old_one_does()


async def test_a_leaked_secret_is_ended_at_once(
    alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver
) -> None:
    webhook = await registered(alice)
    rotated = await alice.post(f"/v1/webhooks/{webhook['id']}/rotate-secret", json={"overlap_seconds": 0})
    await send_test(alice, webhook["id"])
    await deliver()

    assert not is_signed_with(mailman.posts[0], webhook["secret"])
    assert is_signed_with(mailman.posts[0], rotated.json()["secret"])


@pytest.mark.usefixtures("shared_service")
async def test_a_generated_secret_is_shown_once_and_a_client_supplied_one_never(alice: httpx.AsyncClient) -> None:
    webhook_id = (await registered(alice))["id"]

    generated = await alice.post(f"/v1/webhooks/{webhook_id}/rotate-secret")
    brought = await alice.post(f"/v1/webhooks/{webhook_id}/rotate-secret", json={"secret": OWN_SECRET})

    assert generated.json()["secret"].startswith("whsec_")
    assert generated.json()["overlap_ends_at"] > generated.json()["updated_at"]
    assert brought.status_code == 200
    assert "whsec_" not in brought.text
    assert "whsec_" not in (await alice.get(f"/v1/webhooks/{webhook_id}")).text


@pytest.mark.usefixtures("shared_service")
async def test_the_number_of_previous_secrets_is_limited_with_a_retry_time(alice: httpx.AsyncClient) -> None:
    webhook_id = (await registered(alice))["id"]
    path = f"/v1/webhooks/{webhook_id}/rotate-secret"
    for _ in range(PREVIOUS_SECRETS_MAX):
        assert (await alice.post(path)).status_code == 200

    refused = await alice.post(path)

    assert (refused.status_code, refused.json()["quota"]) == (429, "old_secrets")
    assert 0 < int(refused.headers["retry-after"]) <= DAY
    assert (await alice.post(path, json={"overlap_seconds": 0})).status_code == 200
    assert (await alice.post(path)).status_code == 200


@pytest.mark.parametrize(
    "body", [{"overlap_seconds": -1}, {"overlap_seconds": 7 * DAY + 1}, {"secret": "hunter2"}, {"overlap": 1}]
)
async def test_a_wrong_rotation_changes_nothing(
    alice: httpx.AsyncClient, mailman: RequestedTestReceiver, deliver: Deliver, body: dict[str, Any]
) -> None:
    webhook = await registered(alice)

    answer = await alice.post(f"/v1/webhooks/{webhook['id']}/rotate-secret", json=body)
    await send_test(alice, webhook["id"])
    await deliver()

    assert answer.status_code == 422
    assert "hunter2" not in answer.text
    assert is_signed_with(mailman.posts[0], webhook["secret"])

"""Event subscriptions of MCP clients as their owner sees them over REST: among the webhooks, and not the owner's to change."""

from typing import Any

import httpx
import pytest

from ringback.domain.errors import InvalidRequest
from ringback.domain.event_subscriptions import SubscriptionEnd
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal, Scope
from ringback.services.webhooks.shared_webhooks import get_named_webhook
from tests.support.service import CALLBACK_URL, ServiceUnderTest
from tests.support.subscriptions import CLIENT, make_request

Json = dict[str, Any]


@pytest.fixture
async def subscription_id(service: ServiceUnderTest) -> str:
    return await subscribe(service, {"client_session_id": "session-1"})


async def subscribe(service: ServiceUnderTest, arguments: Json) -> str:
    request = make_request(arguments=arguments, url=f"{CALLBACK_URL}?mcp_event_subscription=1")
    grant = await service.services.event_subscriptions.subscribe(CLIENT, request)
    return grant.id


async def test_a_subscription_is_listed_and_read_among_the_webhooks_of_its_owner(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, subscription_id: str
) -> None:
    registered = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]

    first_page = (await alice.get("/v1/webhooks", params={"limit": "1"})).json()
    second_page = (await alice.get("/v1/webhooks", params={"limit": "1", "cursor": first_page["next_cursor"]})).json()
    read = (await alice.get(f"/v1/webhooks/{subscription_id}")).json()

    assert [each["id"] for each in (*first_page["webhooks"], *second_page["webhooks"])] == [registered, subscription_id]
    assert (read["origin"], read["events"], read["retries"]) == ("mcp", ["call.finished"], "minutes")
    assert read["client_session_id"] == "session-1"
    assert (await bob.get(f"/v1/webhooks/{subscription_id}")).status_code == 404


async def test_an_operator_reads_a_subscription_of_any_principal(
    service: ServiceUnderTest, subscription_id: str
) -> None:
    operator = await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))

    read = await operator.get(f"/v1/webhooks/{subscription_id}", params={"principal": "*"})

    assert read.json()["principal"] == "alice"


async def test_an_operator_ends_a_subscription_of_another_principal_and_its_receiver_is_notified(
    service: ServiceUnderTest, alice: httpx.AsyncClient, subscription_id: str
) -> None:
    operator = await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))

    removed = await operator.delete(f"/v1/webhooks/{subscription_id}", params={"principal": "alice"})

    assert removed.status_code == 204
    subscription = await service.store.read(lambda tx: tx.subscriptions.get(WebhookId(subscription_id)))
    assert subscription is not None
    assert subscription.end is SubscriptionEnd.REMOVED
    deliveries = (await alice.get("/v1/deliveries", params={"webhook_id": subscription_id})).json()["deliveries"]
    assert len(deliveries) == 1  # the envelope `terminated`


@pytest.mark.parametrize(
    "change",
    [
        {"url": CALLBACK_URL},
        {"events": ["call.progress"]},
        {"retries": "days"},
        {"include_result": True},
        {"headers": {"x-api-key": "v"}},
        {"state": "disabled"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_the_client_decides_cannot_be_changed_over_rest(
    alice: httpx.AsyncClient, service: ServiceUnderTest, subscription_id: str, change: Json
) -> None:
    before = service.count_rows()

    refused = await alice.patch(f"/v1/webhooks/{subscription_id}", json=change)

    assert refused.status_code == 422
    assert "subscri" in refused.json()["detail"]
    assert service.count_rows() == before
    rotated = await alice.post(f"/v1/webhooks/{subscription_id}/rotate-secret", json={})
    assert rotated.status_code == 422


async def test_the_owner_pauses_tests_replays_and_removes_a_subscription(
    alice: httpx.AsyncClient, service: ServiceUnderTest, subscription_id: str
) -> None:
    path = f"/v1/webhooks/{subscription_id}"

    paused = await alice.patch(path, json={"paused": True, "description": "too chatty", "rate_per_second": 2})
    resumed = await alice.patch(path, json={"paused": False})
    tested = await alice.post(f"{path}/test")
    replayed = await alice.post(f"{path}/replay", json={"dead": True})
    verified = await alice.post(f"{path}/verify")
    removed = await alice.delete(path)

    assert [each.status_code for each in (paused, resumed, tested, replayed, verified, removed)] == [
        200,
        200,
        202,
        202,
        200,
        204,
    ]
    ended = await service.store.read(lambda tx: tx.webhooks.get(WebhookId(subscription_id)))
    assert ended is not None  # until its receiver was notified
    assert ended.expires_at is not None
    assert ended.expires_at <= service.clock.now()
    limits = {each["name"]: each for each in (await alice.get("/v1/usage")).json()["limits"]}
    assert limits["subscriptions"]["used"] == 0


async def test_a_call_names_no_subscription_as_its_webhook(service: ServiceUnderTest, subscription_id: str) -> None:
    with pytest.raises(InvalidRequest, match="one event type"):
        await service.store.read(lambda tx: get_named_webhook(tx, Principal("alice"), subscription_id))


async def test_subscriptions_have_a_quota_of_their_own_beside_that_of_webhooks(
    alice: httpx.AsyncClient, subscription_id: str
) -> None:
    limits = {each["name"]: each for each in (await alice.get("/v1/usage")).json()["limits"]}

    assert limits["subscriptions"]["used"] == 1
    assert limits["webhooks"]["used"] == 0


async def test_the_erasure_of_a_session_ends_its_subscriptions(
    alice: httpx.AsyncClient, service: ServiceUnderTest, subscription_id: str
) -> None:
    kept = await subscribe(service, {"client_session_id": "another"})

    erased = await alice.delete("/v1/sessions/session-1")
    await service.run_janitor()
    await service.run_janitor()

    assert erased.status_code in {200, 202}
    assert (await alice.get(f"/v1/webhooks/{subscription_id}")).status_code == 404
    assert (await alice.get(f"/v1/webhooks/{kept}")).status_code == 200

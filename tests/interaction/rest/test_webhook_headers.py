"""Headers of a webhook's own: sent with every callback, sealed at rest, shown by name, and kept from other origins."""

from typing import Any

import httpx
import pytest

from ringback.domain.callback_headers import HEADERS_MAX, CallbackHeaders
from ringback.domain.ids import WebhookId
from tests.support.databases import query_rows
from tests.support.service import CALLBACK_URL, ServiceUnderTest
from tests.support.signed_posts import SECRET

VALUE = "Bearer key-of-a-gateway"
HEADERS = {"Authorization": VALUE, "X-Tenant": "reports"}


async def register(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/webhooks", json={"url": CALLBACK_URL, "headers": HEADERS} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.usefixtures("shared_service")
async def test_no_response_shows_a_value(alice: httpx.AsyncClient) -> None:
    registered = await register(alice)

    assert registered["header_names"] == ["authorization", "x-tenant"]
    for answer in (
        await alice.get(f"/v1/webhooks/{registered['id']}"),
        await alice.get("/v1/webhooks"),
        await alice.patch(f"/v1/webhooks/{registered['id']}", json={"headers": {"X-Key": VALUE}}),
        await alice.patch(f"/v1/webhooks/{registered['id']}", json={"headers": {"X-Key": VALUE + "\n"}}),
        await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "headers": {"Host": VALUE}}),
    ):
        assert VALUE not in answer.text
    assert (await alice.get(f"/v1/webhooks/{registered['id']}")).json()["header_names"] == ["x-key"]


async def test_values_are_sealed_in_the_database(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    registered = await register(alice)

    (row,) = query_rows(service.folder, "SELECT * FROM webhooks")
    stored = b" ".join(column if isinstance(column, bytes) else str(column).encode() for column in row)
    assert registered["id"].encode() in stored
    assert VALUE.encode() not in stored


@pytest.mark.usefixtures("shared_service")
async def test_another_origin_needs_the_headers_again(alice: httpx.AsyncClient) -> None:
    path = f"/v1/webhooks/{(await register(alice))['id']}"

    same = await alice.patch(path, json={"url": f"{CALLBACK_URL}/moved"})
    other = await alice.patch(path, json={"url": "https://other.example/hook"})
    given = await alice.patch(path, json={"url": "https://other.example/hook", "headers": {}})

    assert (same.status_code, other.status_code, given.status_code) == (200, 422, 200)
    assert "Send the headers again" in other.json()["detail"]
    assert given.json()["header_names"] == []


@pytest.mark.usefixtures("shared_service")
async def test_the_default_port_in_a_url_is_the_same_origin(alice: httpx.AsyncClient) -> None:
    path = f"/v1/webhooks/{(await register(alice, url='https://agent.example/hook'))['id']}"

    answers = [
        await alice.patch(path, json={"url": f"https://{authority}/hook"})
        for authority in ("agent.example:443", "Agent.example", "agent.example:8443")
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 422]


async def test_a_named_webhook_keeps_its_headers_without_the_member(alice: httpx.AsyncClient) -> None:
    async def put(**body: Any) -> httpx.Response:
        return await alice.put("/v1/webhooks/by-name/reports", json={"url": CALLBACK_URL} | body)

    first = await put(headers=HEADERS)
    kept = await put()
    elsewhere = await put(url="https://other.example/hook")
    removed = await put(headers={})

    assert [answer.status_code for answer in (first, kept, elsewhere, removed)] == [201, 200, 422, 200]
    assert kept.json()["header_names"] == ["authorization", "x-tenant"]
    assert removed.json()["header_names"] == []


@pytest.mark.parametrize(
    "headers", [{"Connection": "close"}, {f"x-{number}": "a" for number in range(HEADERS_MAX + 1)}, {"x-key": 7}, []]
)
async def test_unusable_headers_are_refused_and_nothing_is_registered(alice: httpx.AsyncClient, headers: Any) -> None:
    refused = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "headers": headers})

    assert refused.status_code == 422
    assert (await alice.get("/v1/webhooks")).json()["webhooks"] == []


@pytest.mark.usefixtures("shared_service")
async def test_rotating_the_secret_keeps_the_headers(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    registered = await register(alice)

    await alice.post(f"/v1/webhooks/{registered['id']}/rotate-secret", json={})

    webhook = await service.store.read(lambda tx: tx.webhooks.get(WebhookId(registered["id"])))
    assert webhook is not None
    assert webhook.headers == (("authorization", VALUE), ("x-tenant", "reports"))


# -- while the key that sealed them is missing ------------------------------------------------------------------------------


def lose_key(service: ServiceUnderTest, webhook_id: str) -> bytes:
    """Name another key in the sealed value. Return the value as it was: with it, the key is back."""
    ((sealed,),) = query_rows(service.folder, "SELECT secrets FROM webhooks WHERE id = ?", webhook_id)
    key_id_length = sealed[1]
    store_sealed(service, webhook_id, sealed[:1] + b"\x04lost" + sealed[2 + key_id_length :])
    return sealed


def store_sealed(service: ServiceUnderTest, webhook_id: str, sealed: bytes) -> None:
    query_rows(service.folder, "UPDATE webhooks SET secrets = ? WHERE id = ?", sealed, webhook_id)


async def read_headers(service: ServiceUnderTest, webhook_id: str) -> CallbackHeaders:
    webhook = await service.store.read(lambda tx: tx.webhooks.get(WebhookId(webhook_id)))
    assert webhook is not None
    return webhook.headers


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "change", [{"headers": {"X-Key": "new"}}, {"headers": {}}, {"url": "https://other.example/hook"}], ids=str
)
async def test_headers_that_cannot_be_read_are_neither_changed_nor_sent_to_another_origin(
    service: ServiceUnderTest, alice: httpx.AsyncClient, change: dict[str, Any]
) -> None:
    """The response said that they were changed. When the key came back, the old ones were sent, also to the new origin."""
    webhook_id = (await register(alice))["id"]
    sealed = lose_key(service, webhook_id)

    refused = await alice.patch(f"/v1/webhooks/{webhook_id}", json=change)
    described = await alice.patch(
        f"/v1/webhooks/{webhook_id}", json={"description": "mine", "url": f"{CALLBACK_URL}/a"}
    )

    assert (refused.status_code, described.status_code) == (422, 200)
    assert "Rotate the secret first" in refused.json()["detail"]
    store_sealed(service, webhook_id, sealed)
    assert (await read_headers(service, webhook_id))[0] == ("authorization", VALUE)


@pytest.mark.usefixtures("shared_service")
async def test_after_a_new_secret_the_headers_are_those_that_the_owner_sends(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = (await register(alice))["id"]
    lose_key(service, webhook_id)

    await alice.post(f"/v1/webhooks/{webhook_id}/rotate-secret", json={})
    changed = await alice.patch(f"/v1/webhooks/{webhook_id}", json={"headers": {"X-Key": "new"}})

    assert changed.json()["header_names"] == ["x-key"]
    assert await read_headers(service, webhook_id) == (("x-key", "new"),)


async def test_a_named_webhook_with_a_lost_key_gets_headers_with_a_secret_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    async def put(**body: Any) -> httpx.Response:
        return await alice.put("/v1/webhooks/by-name/reports", json={"url": CALLBACK_URL} | body)

    webhook_id = (await put(headers=HEADERS)).json()["id"]
    lose_key(service, webhook_id)

    without = await put(headers={"X-Key": "new"})
    having = await put(headers={"X-Key": "new"}, secret=SECRET)

    assert (without.status_code, having.status_code) == (422, 200)
    assert await read_headers(service, webhook_id) == (("x-key", "new"),)

"""Headers of a webhook's own: sent with every callback, sealed at rest, shown by name, and kept from other origins."""

from typing import Any

import httpx
import pytest

from ringback.domain.callback_headers import HEADERS_MAX
from ringback.domain.ids import WebhookId
from tests.support.databases import query_rows
from tests.support.service import CALLBACK_URL, ServiceUnderTest

VALUE = "Bearer key-of-a-gateway"
HEADERS = {"Authorization": VALUE, "X-Tenant": "reports"}


async def register(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/webhooks", json={"url": CALLBACK_URL, "headers": HEADERS} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


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


async def test_another_origin_needs_the_headers_again(alice: httpx.AsyncClient) -> None:
    path = f"/v1/webhooks/{(await register(alice))['id']}"

    same = await alice.patch(path, json={"url": f"{CALLBACK_URL}/moved"})
    other = await alice.patch(path, json={"url": "https://other.example/hook"})
    given = await alice.patch(path, json={"url": "https://other.example/hook", "headers": {}})

    assert (same.status_code, other.status_code, given.status_code) == (200, 422, 200)
    assert "Send the headers again" in other.json()["detail"]
    assert given.json()["header_names"] == []


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


async def test_rotating_the_secret_keeps_the_headers(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    registered = await register(alice)

    await alice.post(f"/v1/webhooks/{registered['id']}/rotate-secret", json={})

    webhook = await service.store.read(lambda tx: tx.webhooks.get(WebhookId(registered["id"])))
    assert webhook is not None
    assert webhook.headers == (("authorization", VALUE), ("x-tenant", "reports"))

"""Webhooks for changes of upstreams: valid registrations and permissions."""

from typing import Any

import httpx
import pytest

from ringback.domain.change_subscriptions import RESOURCE_URI_LENGTH_MAX
from tests.support.service import CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R17")

CHANGE_SUBSCRIPTION: dict[str, Any] = {"url": CALLBACK_URL, "events": ["upstream.changed"], "upstream": "git"}
BOOK_URI = "file:///srv/report.md"


async def registration_error(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | body)
    assert answer.status_code == 422, answer.text
    return answer.json()


@pytest.mark.usefixtures("shared_service")
async def test_a_change_webhook_describes_its_events_and_keeps_its_resources(alice: httpx.AsyncClient) -> None:
    lists = (await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION)).json()
    book = (await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"resource_uri": BOOK_URI})).json()
    both = (
        await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"events": ["upstream.changed", "call.finished"]})
    ).json()

    assert lists["hears"] == (
        "Receives upstream.changed when upstream 'git' reports that its tools, resources or prompts change, from now on."
    )
    assert book["hears"] == (
        "Receives upstream.changed when upstream 'git' reports that the resource you name changes, from now on."
    )
    assert both["hears"].startswith("Receives call.finished of your calls with upstream 'git', from now on. Receives")
    read = (await alice.get(f"/v1/webhooks/{book['id']}")).json()
    assert (read["upstream"], read["resource_uri"]) == ("git", BOOK_URI)


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"upstream": None}, "Say which: upstream"),
        ({"tool": "git_log"}, "Register another webhook"),
        ({"client_session_id": "s"}, "Register another webhook"),
        ({"correlation_id": "c", "match_correlation": True}, "Register another webhook"),
        ({"events": ["call.finished"], "resource_uri": BOOK_URI}, "Add it to events"),
    ],
)
async def test_a_webhook_that_matches_nothing_is_refused_with_a_reason(
    alice: httpx.AsyncClient, body: dict[str, Any], words: str
) -> None:
    problem = await registration_error(alice, **body)

    assert problem["type"] == "/problems/invalid-request"
    assert words in problem["detail"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("uri", ["", "x" * (RESOURCE_URI_LENGTH_MAX + 1), "書" * 1000, "file:///a\nb", 7])
async def test_a_resource_is_named_within_bounds(alice: httpx.AsyncClient, uri: Any) -> None:
    await registration_error(alice, resource_uri=uri)


@pytest.mark.usefixtures("shared_service")
async def test_an_unknown_upstream_cannot_be_subscribed(alice: httpx.AsyncClient) -> None:
    assert (await registration_error(alice, upstream="gti"))["type"] == "/problems/unknown-upstream"


@pytest.mark.usefixtures("shared_service")
async def test_a_key_without_access_to_an_upstream_cannot_subscribe_to_it(service: ServiceUnderTest) -> None:
    limited = await service.create_client("alice", upstreams=frozenset({"time"}))

    assert (await registration_error(limited))["type"] == "/problems/unknown-upstream"
    assert (await limited.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"upstream": "time"})).status_code == 201


@pytest.mark.usefixtures("shared_service")
async def test_a_change_of_events_has_the_same_rules(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    plain = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()
    book = (await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"resource_uri": BOOK_URI})).json()
    of_git = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "upstream": "git"})).json()
    limited = await service.create_client("alice", upstreams=frozenset({"time"}))
    asked = {"events": ["upstream.changed"]}

    assert (await alice.patch(f"/v1/webhooks/{plain['id']}", json=asked)).status_code == 422
    assert (await alice.patch(f"/v1/webhooks/{book['id']}", json={"events": ["call.finished"]})).status_code == 422
    assert (await limited.patch(f"/v1/webhooks/{of_git['id']}", json=asked)).status_code == 422
    assert (await alice.patch(f"/v1/webhooks/{of_git['id']}", json=asked)).status_code == 200


async def test_the_subscribed_resources_of_an_upstream_are_limited(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.domain.change_subscriptions.RESOURCE_URIS_MAX", 1)
    for uri, status in ((BOOK_URI, 201), (BOOK_URI, 201), ("file:///other", 429)):
        answer = await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"resource_uri": uri})
        assert answer.status_code == status, answer.text
    assert answer.json()["quota"] == "watched_resources"
    assert (await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION)).status_code == 201


async def test_one_principal_leaves_room_for_the_resources_of_others(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.domain.change_subscriptions.OWN_RESOURCE_URIS_MAX", 1)
    bob = await service.create_client("bob")
    answers = [
        (await client.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"resource_uri": uri})).status_code
        for client, uri in (
            (alice, BOOK_URI),
            (alice, "file:///other"),
            (bob, "file:///other"),
            (alice, "file:///other"),
        )
    ]
    assert answers == [201, 429, 201, 201], "a resource that is watched already costs nothing more"


async def test_the_limit_holds_for_a_webhook_that_is_enabled_again(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.domain.change_subscriptions.RESOURCE_URIS_MAX", 1)
    first = (await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"resource_uri": BOOK_URI})).json()

    async def change(**asked: str) -> httpx.Response:
        return await alice.patch(f"/v1/webhooks/{first['id']}", json=asked)

    assert (await change(state="disabled")).status_code == 200
    other = (await alice.post("/v1/webhooks", json=CHANGE_SUBSCRIPTION | {"resource_uri": "file:///other"})).json()

    refused = await change(state="active")
    assert (refused.status_code, refused.json()["quota"]) == (429, "watched_resources")
    assert (await change(description="still off")).json()["state"] == "disabled"
    await alice.delete(f"/v1/webhooks/{other['id']}")
    assert (await change(state="active")).json()["state"] == "active"
    assert (await change(description="on")).status_code == 200, "it is one of those that count"

"""Webhooks over REST: register, list, read, change, remove."""

from typing import Any

import httpx
import pytest

from ringback.domain.webhook import WebhookState
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R22")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def register(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/webhooks", json={"url": CALLBACK_URL} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R23")
async def test_a_generated_secret_is_shown_once_and_never_again(alice: httpx.AsyncClient) -> None:
    registered = await register(alice)

    assert registered["secret"].startswith("whsec_")
    for answer in (
        await alice.get(f"/v1/webhooks/{registered['id']}"),
        await alice.get("/v1/webhooks"),
        await alice.patch(f"/v1/webhooks/{registered['id']}", json={"description": "mine"}),
    ):
        assert answer.status_code == 200
        assert "whsec_" not in answer.text
        assert "secret" not in answer.text


@pytest.mark.usefixtures("shared_service")
async def test_a_client_supplied_secret_is_never_shown(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "secret": SECRET})

    assert answer.status_code == 201
    assert "whsec_" not in answer.text


@pytest.mark.usefixtures("shared_service")
async def test_a_registration_describes_its_events_in_a_sentence(alice: httpx.AsyncClient) -> None:
    registered = await register(alice, upstream="git", client_session_id="session-1")

    assert registered["hears"] == (
        "Receives call.finished, call.input_required of your calls with upstream 'git' and client_session_id "
        "'session-1', from now on."
    )


@pytest.mark.usefixtures("shared_service")
async def test_a_registration_for_an_upstream_that_is_not_listed_says_so(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    limited = await service.create_client("alice", upstreams=frozenset({"git"}))

    misspelt = await register(alice, upstream="gti")
    named = await alice.put("/v1/webhooks/by-name/agent", json={"url": CALLBACK_URL, "upstream": "farm"})
    hidden = await register(limited, upstream="time")

    assert misspelt["hears"].endswith("from now on. GET /v1/upstreams lists no 'gti' now. Did you mean 'git'?")
    assert named.json()["hears"].endswith("from now on. GET /v1/upstreams lists no 'farm' now.")
    assert hidden["hears"].endswith("from now on. GET /v1/upstreams lists no 'time' now.")


@pytest.mark.usefixtures("shared_service")
async def test_everything_that_was_registered_can_be_read(alice: httpx.AsyncClient) -> None:
    asked = {
        "events": ["call.finished", "call.progress"],
        "upstream": "git",
        "tool": "git_log",
        "client_session_id": "session-1",
        "correlation_id": "report-1",
        "match_correlation": True,
        "retries": "minutes",
        "include_result": True,
        "description": "the weekly report",
    }
    registered = await register(alice, **asked, expires_in_seconds=60)
    read = (await alice.get(f"/v1/webhooks/{registered['id']}")).json()

    assert read == {name: value for name, value in registered.items() if name not in {"secret", "hears"}}
    assert {name: read[name] for name in asked} == asked
    assert (read["state"], read["origin"]) == ("active", "rest")
    assert read["expires_at"] > read["created_at"]


@pytest.mark.usefixtures("shared_service")
async def test_a_new_webhook_returns_its_location(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})

    assert (await alice.get(answer.headers["location"])).json()["id"] == answer.json()["id"]


async def test_webhooks_are_listed_newest_first_and_in_pages(alice: httpx.AsyncClient) -> None:
    registered = {(await register(alice))["id"] for _ in range(3)}

    first = (await alice.get("/v1/webhooks", params={"limit": 2})).json()
    second = (await alice.get("/v1/webhooks", params={"limit": 2, "cursor": first["next_cursor"]})).json()

    listed = [webhook["id"] for webhook in first["webhooks"] + second["webhooks"]]
    assert (len(first["webhooks"]), len(second["webhooks"]), second["next_cursor"]) == (2, 1, None)
    assert set(listed) == registered


@pytest.mark.usefixtures("shared_service")
async def test_a_change_keeps_omitted_members(alice: httpx.AsyncClient) -> None:
    registered = await register(alice, description="before", retries="minutes")
    change = {"url": "https://agent.example/other", "events": ["call.progress"], "include_result": True}

    changed = (await alice.patch(f"/v1/webhooks/{registered['id']}", json=change)).json()

    assert {name: changed[name] for name in change} == change
    assert (changed["description"], changed["retries"]) == ("before", "minutes")
    shown = (await alice.get(f"/v1/webhooks/{registered['id']}")).json()
    assert shown == {name: changed[name] for name in shown}


@pytest.mark.parametrize("change", [{}, {"description": "mine"}, {"events": ["call.finished"]}, {"url": CALLBACK_URL}])
async def test_a_change_to_the_values_that_a_webhook_has_changes_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, change: dict[str, Any]
) -> None:
    registered = await register(alice, description="mine", events=["call.finished"])
    path = f"/v1/webhooks/{registered['id']}"
    before = await alice.get(path)
    service.clock.advance(60)

    changed = await alice.patch(path, json=change)

    assert changed.status_code == 200
    assert before.json().items() <= changed.json().items()
    assert (await alice.get(path)).json() == before.json()


async def test_a_disabled_webhook_gets_nothing_until_it_is_active_again(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = (await register(alice))["id"]

    async def rung_with(state: str) -> int:
        await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": state})
        before = len(await service.read_deliveries("alice"))
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
        return len(await service.read_deliveries("alice")) - before

    assert [await rung_with(state) for state in ("disabled", "active")] == [0, 1]


async def test_a_removed_webhook_is_not_found_and_its_deliveries_are_cancelled(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = (await register(alice))["id"]
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])

    removed = await alice.delete(f"/v1/webhooks/{webhook_id}")

    assert (removed.status_code, removed.content) == (204, b"")
    assert (await alice.get(f"/v1/webhooks/{webhook_id}")).status_code == 404
    assert (await alice.delete(f"/v1/webhooks/{webhook_id}")).status_code == 404
    assert [delivery.state for delivery in await service.read_deliveries("alice")] == ["cancelled"]


@pytest.mark.usefixtures("shared_service")
async def test_a_limit_of_the_rate_is_changed_and_removed(alice: httpx.AsyncClient) -> None:
    webhook_id = (await register(alice, rate_per_second=2.0))["id"]

    async def rate_after(**change: object) -> float | None:
        return (await alice.patch(f"/v1/webhooks/{webhook_id}", json=change)).json()["rate_per_second"]

    assert await rate_after(description="other") == 2.0
    assert await rate_after(rate_per_second=5.0) == 5.0
    assert await rate_after(rate_per_second=None) is None


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("member", ["url", "events", "description", "include_result", "retries", "state"])
async def test_null_is_refused_in_a_change(alice: httpx.AsyncClient, member: str) -> None:
    webhook_id = (await register(alice))["id"]

    answer = await alice.patch(f"/v1/webhooks/{webhook_id}", json={member: None})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"#/{member}"


@pytest.mark.usefixtures("shared_service")
async def test_the_url_of_a_change_is_judged_like_that_of_a_registration(alice: httpx.AsyncClient) -> None:
    webhook_id = (await register(alice))["id"]

    answer = await alice.patch(f"/v1/webhooks/{webhook_id}", json={"url": "https://inside.example/"})

    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-callback-url")
    assert (await alice.get(f"/v1/webhooks/{webhook_id}")).json()["url"] == CALLBACK_URL


@pytest.mark.usefixtures("shared_service")
async def test_a_state_that_only_the_service_sets_cannot_be_requested(alice: httpx.AsyncClient) -> None:
    webhook_id = (await register(alice))["id"]

    answer = await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "suspended"})

    assert answer.status_code == 422


# -- states ----------------------------------------------------------------------------------------------------------------


async def test_the_owner_can_reactivate_a_suspended_webhook_and_its_held_deliveries_are_sent(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id, other = (await register(alice))["id"], (await register(alice))["id"]
    for suspended in (webhook_id, other):
        await service.set_webhook_state(suspended, WebhookState.SUSPENDED)
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    before = {delivery.webhook_id: delivery.state for delivery in await service.read_deliveries("alice")}

    changed = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": "active"})).json()

    after = {delivery.webhook_id: delivery.state for delivery in await service.read_deliveries("alice")}
    assert before == {webhook_id: "held", other: "held"}
    assert after == {webhook_id: "pending", other: "held"}
    assert (changed["state"], changed["failing_since"], changed["last_error"]) == ("active", None, None)


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R26")
@pytest.mark.parametrize("state", ["active", "disabled"])
async def test_a_webhook_that_waits_for_its_proof_cannot_be_enabled(
    service: ServiceUnderTest, alice: httpx.AsyncClient, state: str
) -> None:
    """Its owner can neither enable nor disable it, because disabling and enabling would skip the proof."""
    webhook_id = (await register(alice))["id"]
    await service.set_webhook_state(webhook_id, WebhookState.PENDING_VERIFICATION)

    answer = await alice.patch(f"/v1/webhooks/{webhook_id}", json={"state": state, "description": "mine"})

    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/webhook-not-verified")
    read = (await alice.get(f"/v1/webhooks/{webhook_id}")).json()
    assert (read["state"], read["description"]) == ("pending_verification", None)


@pytest.mark.usefixtures("shared_service")
async def test_a_webhook_that_waits_for_its_proof_may_be_changed_otherwise(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    webhook_id = (await register(alice))["id"]
    await service.set_webhook_state(webhook_id, WebhookState.PENDING_VERIFICATION)

    changed = (await alice.patch(f"/v1/webhooks/{webhook_id}", json={"description": "mine"})).json()

    assert (changed["state"], changed["description"]) == ("pending_verification", "mine")

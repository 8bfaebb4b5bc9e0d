"""A webhook that its owner registers again and again is one webhook: by its name, or by an idempotency key."""

import asyncio
from typing import Any

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.services.webhooks.verification import VerificationPolicy
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.stores import refuse_work

pytestmark = pytest.mark.requirement("R22")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_ZXhhbXBsZSBzZWNyZXQsIG5vdCBhIHJlYWwgb25l"
PATH = "/v1/webhooks/by-name/reports-agent"
KEY = {"Idempotency-Key": "boot of agent 7"}
CONCURRENT_REQUESTS = 20
ALICE_CALLER = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)


async def put(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.put(PATH, json={"url": CALLBACK_URL} | body)


async def test_putting_a_webhook_at_every_start_is_one_webhook(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    first, second = await put(alice), await put(alice)

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["secret"].startswith("whsec_")
    assert "secret" not in second.json()
    assert (first.json()["id"], first.json()["name"]) == (second.json()["id"], "reports-agent")
    assert first.headers["location"] == second.headers["location"] == f"/v1/webhooks/{first.json()['id']}"
    assert service.count_rows()["webhooks"] == 1


async def test_a_generated_secret_is_shown_although_the_store_is_unavailable_during_the_challenge(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        service.services.registrations._verification,  # pyright: ignore[reportPrivateUsage] - as an operator's setting
        "_policy",
        VerificationPolicy(mode="always", first_challenge_wait_seconds=1.0),
    )
    refuse_work(monkeypatch, service.store, "read", "WebhookVerification.wait_for_challenge")

    answer = await put(alice)

    assert (answer.status_code, answer.json()["state"]) == (201, "pending_verification")
    assert answer.json()["secret"].startswith("whsec_")


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("name", ["wh_reports", "sub_reports"])
async def test_a_name_that_looks_like_an_id_is_refused_because_commands_take_either(
    service: ServiceUnderTest, alice: httpx.AsyncClient, name: str
) -> None:
    before = service.count_rows()

    refused = await alice.put(f"/v1/webhooks/by-name/{name}", json={"url": CALLBACK_URL})

    assert (refused.status_code, "look like ids" in refused.json()["detail"]) == (422, True)
    assert service.count_rows() == before


async def test_concurrent_puts_of_one_name_make_one_webhook_and_one_secret(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    answers = await asyncio.gather(*(put(alice) for _ in range(CONCURRENT_REQUESTS)))

    assert sorted(answer.status_code for answer in answers) == [200] * (CONCURRENT_REQUESTS - 1) + [201]
    assert sum("secret" in answer.json() for answer in answers) == 1
    assert service.count_rows()["webhooks"] == 1


async def test_a_put_gives_the_webhook_exactly_its_settings(alice: httpx.AsyncClient) -> None:
    await put(alice, client_session_id="session-1", retries="minutes", outcomes=["unknown"], description="before")

    changed = (await put(alice, url="https://agent.example/other", upstream="git", expires_in_seconds=60)).json()

    assert (changed["url"], changed["upstream"]) == ("https://agent.example/other", "git")
    assert changed["expires_at"] > changed["updated_at"]
    assert [changed[name] for name in ("client_session_id", "outcomes", "description")] == [None] * 3
    assert (changed["retries"], changed["events"]) == ("days", ["call.finished", "call.input_required"])
    assert (await alice.get(PATH)).json() == {name: value for name, value in changed.items() if name != "hears"}


async def test_a_put_that_changes_nothing_writes_nothing(alice: httpx.AsyncClient, service: ServiceUnderTest) -> None:
    first = (await put(alice, secret=SECRET)).json()
    service.clock.advance(60)

    assert (await put(alice, secret=SECRET)).json() == first


async def test_events_match_the_new_filters_after_a_put(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await put(alice, client_session_id="another session")
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call_id"])
    assert await service.read_deliveries("alice") == []

    await put(alice, client_session_id=CALL_BODY["client_session_id"])
    await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call_id"])

    assert len(await service.read_deliveries("alice")) == 1


async def test_a_put_with_another_secret_rotates_it(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    webhook_id = (await put(alice, secret=SECRET)).json()["id"]
    answer = await put(alice, secret=OTHER_SECRET)
    await put(alice)

    webhook = await service.services.webhooks.get_webhook(ALICE_CALLER, webhook_id)
    assert answer.status_code == 200
    assert "whsec_" not in answer.text
    assert [secret.value for secret in webhook.secrets] == [OTHER_SECRET, SECRET]
    assert webhook.secrets[1].ends_at is not None


async def test_a_webhook_that_its_owner_disabled_stays_disabled(alice: httpx.AsyncClient) -> None:
    registered = await put(alice)
    await alice.patch(registered.headers["location"], json={"state": "disabled"})

    again = (await put(alice)).json()

    assert (again["state"], again["hears"]) == ("disabled", "Receives nothing: the webhook is disabled.")


async def test_a_name_belongs_to_its_principal(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    hers, his = await put(alice), await put(bob)
    removed = await bob.delete(PATH)

    assert (his.status_code, removed.status_code) == (201, 204)
    assert (await alice.get(PATH)).json()["id"] == hers.json()["id"] != his.json()["id"]


async def test_a_removed_name_is_free_again(alice: httpx.AsyncClient) -> None:
    first = (await put(alice)).json()

    assert (await alice.delete(PATH)).status_code == 204
    missing = [await alice.get(PATH), await alice.delete(PATH)]
    assert [answer.status_code for answer in missing] == [404, 404]
    assert "PUT /v1/webhooks/by-name/reports-agent" in missing[0].json()["detail"]
    assert (await put(alice)).json()["id"] != first["id"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("name", [".hidden", "a b", "ä", "x" * 65, "a%2Fb"])
async def test_a_name_is_a_plain_segment_of_a_path(
    service: ServiceUnderTest, alice: httpx.AsyncClient, name: str
) -> None:
    before = service.count_rows()

    answer = await alice.put(f"/v1/webhooks/by-name/{name}", json={"url": CALLBACK_URL})

    assert answer.status_code in {404, 422}
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
async def test_a_named_webhook_is_for_no_single_call(alice: httpx.AsyncClient) -> None:
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call_id"]

    assert (await put(alice, call_id=call_id)).status_code == 422


@pytest.mark.usefixtures("shared_service")
async def test_a_webhook_without_a_name_shows_that_it_has_none(alice: httpx.AsyncClient) -> None:
    assert (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["name"] is None


# -- idempotency keys --


async def test_a_repeated_registration_with_a_key_is_one_webhook_and_shows_its_secret_again(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    body = {"url": CALLBACK_URL, "events": ["call.progress", "call.finished"]}
    answers = await asyncio.gather(
        *(alice.post("/v1/webhooks", json=body, headers=KEY) for _ in range(CONCURRENT_REQUESTS))
    )

    (created,) = [answer for answer in answers if answer.status_code == 201]
    repeated = [answer for answer in answers if answer.status_code == 200]
    assert len(repeated) == CONCURRENT_REQUESTS - 1
    assert {answer.headers["idempotent-replayed"] for answer in repeated} == {"true"}
    assert "idempotent-replayed" not in created.headers
    assert all(answer.json() == created.json() for answer in repeated)
    assert service.count_rows()["webhooks"] == 1


async def test_the_secret_of_an_old_or_changed_webhook_is_not_shown_again(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    async def register(key: str) -> httpx.Response:
        return await alice.post("/v1/webhooks", json={"url": CALLBACK_URL}, headers={"Idempotency-Key": key})

    old, rotated = await register("old"), await register("rotated")
    service.clock.advance(1)
    await alice.post(f"{rotated.headers['location']}/rotate-secret")
    assert ("secret" in (await register("old")).json(), "secret" in (await register("rotated")).json()) == (True, False)

    service.clock.advance(3600)

    assert "secret" not in (await register("old")).json()
    assert (await register("old")).json()["id"] == old.json()["id"]


@pytest.mark.parametrize("other", [{"events": ["call.progress"]}, {"secret": SECRET}, {"client_session_id": "s"}])
async def test_a_key_that_was_used_for_another_registration_is_a_conflict(
    service: ServiceUnderTest, alice: httpx.AsyncClient, other: dict[str, Any]
) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL}, headers=KEY)

    answer = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL} | other, headers=KEY)

    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/idempotency-conflict")
    assert service.count_rows()["webhooks"] == 1


async def test_a_key_lives_as_long_as_its_webhook(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    first = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "expires_in_seconds": 60}, headers=KEY)
    service.clock.advance(60)
    expired = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "expires_in_seconds": 60}, headers=KEY)
    await alice.delete(first.headers["location"])
    other = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL}, headers=KEY)

    assert (first.status_code, expired.status_code, other.status_code) == (201, 410, 201)


async def test_two_principals_may_register_with_the_same_key(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    hers = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL}, headers=KEY)
    his = await bob.post("/v1/webhooks", json={"url": CALLBACK_URL}, headers=KEY)

    assert (hers.status_code, his.status_code) == (201, 201)

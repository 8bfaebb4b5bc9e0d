"""Resume tokens over REST: valid for the owner of the call while its result is stored."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from ringback.domain.call import Progress
from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest

pytestmark = pytest.mark.requirement("R24")


async def start(client: httpx.AsyncClient) -> dict[str, Any]:
    return (await client.post("/v1/calls", json=CALL_BODY)).json()


async def resume(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/v1/resume", json={"resume_token": token})


@pytest.mark.usefixtures("shared_service")
async def test_the_token_of_a_start_shows_the_call_while_it_runs(alice: httpx.AsyncClient) -> None:
    started = await start(alice)

    resumed = (await resume(alice, started["resume_token"])).json()

    assert resumed["call"] == started["call"]
    assert resumed["events"] == []
    assert "result" not in resumed


@pytest.mark.requirement("R18")
@pytest.mark.requirement("R21")
async def test_the_token_of_a_callback_gives_the_result(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "correlation_id": "inbox-3"})
    started = await start(alice)
    await service.finish_call(started["call"]["id"])
    (delivery,) = await service.read_deliveries("alice")
    data = orjson.loads(delivery.body)["data"]

    resumed = (await resume(alice, data["resume_token"])).json()

    assert (data["correlation_id"], data["webhook_correlation_id"]) == ("report-1", "inbox-3")
    assert resumed["call"]["status"] == "completed"
    assert resumed["result"]["content"] == [{"type": "text", "text": "done"}]


@pytest.mark.usefixtures("shared_service")
async def test_each_token_stands_after_the_events_that_came_with_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    started = await start(alice)
    await service.finish_call(started["call"]["id"])

    first = (await resume(alice, started["resume_token"])).json()
    second = (await resume(alice, first["resume_token"])).json()

    assert [event["name"] for event in first["events"]] == ["call.finished"]
    assert second["events"] == []
    assert second["result"] == first["result"]


async def test_an_expired_token_gets_410_gone(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    started = await start(alice)
    await service.finish_call(started["call"]["id"])
    token = (await resume(alice, started["resume_token"])).json()["resume_token"]
    service.clock.advance(RETENTION_SECONDS + 1)

    answer = await resume(alice, token)

    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/resume-token-expired")


@pytest.mark.usefixtures("shared_service")
async def test_forged_truncated_and_foreign_tokens_get_the_same_error(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    token = (await start(bob))["resume_token"]
    payload, signature = token.split(".")
    wrong = [
        token,
        token[:-10],
        token[:-1],
        f"{payload}.{signature[::-1]}",
        f"{payload[:-2]}AA.{signature}",
        payload,
        "nonsense",
        "é" * 100,
    ]

    answers = [await resume(alice, text) for text in wrong]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert (await resume(bob, token)).status_code == 200


@pytest.mark.usefixtures("shared_service")
async def test_a_token_does_not_stand_in_for_an_api_key(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    token = (await start(alice))["resume_token"]
    anonymous = await service.create_anonymous_client()

    answer = await resume(anonymous, token)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.usefixtures("shared_service")
async def test_an_overlong_token_is_refused_before_it_is_parsed(alice: httpx.AsyncClient) -> None:
    answer = await resume(alice, "a" * 5000)

    assert answer.status_code == 422
    assert "aaaa" not in answer.text


@pytest.mark.usefixtures("shared_service")
async def test_a_fresh_token_stands_at_the_end_of_the_log(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    started = await start(alice)
    await service.finish_call(started["call"]["id"])

    answer = await alice.post(f"/v1/calls/{started['call']['id']}/resume-token")
    fresh = (await resume(alice, answer.json()["resume_token"])).json()

    assert (answer.status_code, fresh["events"]) == (200, [])
    assert fresh["result"]["content"] == [{"type": "text", "text": "done"}]
    assert (await resume(alice, started["resume_token"])).status_code == 200


@pytest.mark.usefixtures("shared_service")
async def test_fifty_uses_at_once_of_a_revoked_token_are_all_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    started = await start(alice)
    path = f"/v1/calls/{started['call']['id']}/resume-token"
    fresh = (await alice.post(path, json={"revoke_older": True})).json()["resume_token"]

    answers = await asyncio.gather(*(resume(alice, started["resume_token"]) for _ in range(50)))

    assert {(answer.status_code, answer.json()["type"]) for answer in answers} == {(404, "/problems/not-found")}
    assert answers[0].content == (await resume(alice, "nonsense")).content
    assert (await resume(alice, fresh)).status_code == 200


async def test_a_revocation_stays_valid_through_all_changes_of_the_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "events": ["call.finished", "call.progress"]})
    started = await start(alice)
    call_id = started["call"]["id"]
    await service.mark_dispatched(call_id)
    await alice.post(f"/v1/calls/{call_id}/resume-token", json={"revoke_older": True})
    await service.record_progress(call_id, Progress(progress=1))
    await service.finish_call(call_id)

    tokens = [
        orjson.loads(delivery.body)["data"]["resume_token"] for delivery in await service.read_deliveries("alice")
    ]

    assert (await resume(alice, started["resume_token"])).status_code == 404
    assert [(await resume(alice, token)).status_code for token in tokens] == [200, 200]


async def test_a_pending_progress_callback_carries_a_valid_token(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """A runner holds the call as it was before its tokens were revoked."""
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "events": ["call.progress"]})
    call_id = (await start(alice))["call"]["id"]
    await service.mark_dispatched(call_id)
    stale = await service.read_call(call_id)
    await alice.post(f"/v1/calls/{call_id}/resume-token", json={"revoke_older": True})
    await service.store.write(
        lambda tx: service.recorder.record_progress(tx, stale, Progress(progress=1), lease_token="lease_1")
    )

    (delivery,) = await service.read_deliveries("alice")

    assert (await resume(alice, orjson.loads(delivery.body)["data"]["resume_token"])).status_code == 200


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("body", [b"{", b'{"revoke_older": "yes"}', b'{"revoke": true}', b"[]"])
async def test_a_token_is_not_made_from_a_wrong_body(alice: httpx.AsyncClient, body: bytes) -> None:
    started = await start(alice)
    path = f"/v1/calls/{started['call']['id']}/resume-token"

    answer = await alice.post(path, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in {400, 422}
    assert (await resume(alice, started["resume_token"])).status_code == 200

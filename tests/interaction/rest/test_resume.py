"""Resume tokens over REST: they name a call, to its owner, for as long as its result lives."""

from typing import Any

import httpx
import orjson
import pytest

from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, Service

pytestmark = pytest.mark.requirement("R24")


async def start(client: httpx.AsyncClient) -> dict[str, Any]:
    return (await client.post("/v1/calls", json=CALL_BODY)).json()


async def resume(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/v1/resume", json={"resume_token": token})


async def test_the_token_of_a_start_shows_the_call_while_it_runs(alice: httpx.AsyncClient) -> None:
    started = await start(alice)

    resumed = (await resume(alice, started["resume_token"])).json()

    assert resumed["call"] == started["call"]
    assert resumed["events"] == []
    assert "result" not in resumed


@pytest.mark.requirement("R18")
@pytest.mark.requirement("R21")
async def test_the_token_of_a_callback_gives_the_result(service: Service, alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "correlation_id": "inbox-3"})
    started = await start(alice)
    await service.finish(started["call"]["id"])
    (delivery,) = await service.deliveries("alice")
    data = orjson.loads(delivery.body)["data"]

    resumed = (await resume(alice, data["resume_token"])).json()

    assert (data["correlation_id"], data["webhook_correlation_id"]) == ("report-1", "inbox-3")
    assert resumed["call"]["status"] == "completed"
    assert resumed["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_each_token_stands_after_the_events_that_came_with_it(service: Service, alice: httpx.AsyncClient) -> None:
    started = await start(alice)
    await service.finish(started["call"]["id"])

    first = (await resume(alice, started["resume_token"])).json()
    second = (await resume(alice, first["resume_token"])).json()

    assert [event["name"] for event in first["events"]] == ["call.finished"]
    assert second["events"] == []
    assert second["result"] == first["result"]


async def test_an_expired_token_is_gone_and_says_so(service: Service, alice: httpx.AsyncClient) -> None:
    started = await start(alice)
    await service.finish(started["call"]["id"])
    token = (await resume(alice, started["resume_token"])).json()["resume_token"]
    service.clock.advance(RETENTION_SECONDS + 1)

    answer = await resume(alice, token)

    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/resume-token-expired")


async def test_forged_truncated_and_foreign_tokens_look_alike(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
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


async def test_a_token_does_not_stand_in_for_an_api_key(service: Service, alice: httpx.AsyncClient) -> None:
    token = (await start(alice))["resume_token"]
    nobody = await service.anonymous()

    answer = await resume(nobody, token)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_an_overlong_token_is_refused_before_it_is_looked_at(alice: httpx.AsyncClient) -> None:
    answer = await resume(alice, "a" * 5000)

    assert answer.status_code == 422
    assert "aaaa" not in answer.text

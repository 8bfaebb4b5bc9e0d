"""One idempotency key starts one call, for repeated and for concurrent requests."""

import asyncio
from typing import Any, Final

import httpx
import pytest

from ringback.domain.principal import Scope
from tests.support.rejections import assert_rejected
from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest

KEY = {"Idempotency-Key": "weekly report 47"}
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CONCURRENT_REQUESTS = 50
WORKING_OPERATIONS: Final[list[tuple[str, dict[str, Any] | None]]] = [
    ("/v1/keys", {"principal": "carol"}),
    ("/v1/keys/KEY/rotate", None),
    ("/v1/portal-links", None),
    ("/v1/webhooks/WEBHOOK/test", None),
    ("/v1/webhooks/WEBHOOK/rotate-secret", None),
    ("/v1/webhooks/WEBHOOK/replay", {"dead": True}),
    ("/v1/deliveries/redeliver", {}),
    ("/v1/deliveries/dlv_1/redeliver", None),
    ("/v1/events", {"name": "order.paid", "data": {}}),
    ("/v1/events/batch", {"events": [{"name": "order.paid", "data": {}}]}),
    ("/v1/upstreams/git/login", None),
]
"""Operations that do their work with each request: their paths and bodies."""

pytestmark = pytest.mark.requirement("R13")


async def test_fifty_concurrent_requests_with_one_key_start_one_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    body = CALL_BODY | {"callback": {"url": CALLBACK_URL}}
    answers = await asyncio.gather(
        *(alice.post("/v1/calls", json=body, headers=KEY) for _ in range(CONCURRENT_REQUESTS))
    )

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["call"]["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert len({answer.json()["callback_secret"] for answer in answers}) == 1
    assert (service.count_rows()["calls"], service.count_rows()["webhooks"]) == (1, 1)


async def test_a_repeated_key_returns_the_same_call_in_its_current_state(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    first = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    second = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    await service.finish_call(first.json()["call"]["id"])
    third = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)

    assert [answer.status_code for answer in (first, second, third)] == [202, 202, 200]
    assert [answer.headers.get("idempotent-replayed") for answer in (first, second, third)] == [None, "true", "true"]
    assert third.json()["call"]["id"] == first.json()["call"]["id"]
    assert third.json()["result"]["isError"] is False


async def test_a_repeated_start_shows_the_generated_secret_of_its_callback_for_an_hour(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """A client repeats a start whose response was lost, and without the secret it could verify no callback."""

    async def start(**callback: str) -> dict[str, Any]:
        body = CALL_BODY | {"callback": {"url": CALLBACK_URL} | callback}
        return dict((await alice.post("/v1/calls", json=body, headers=KEY)).json())

    first, again, other = await start(), await start(), await start(correlation_id="another callback")
    service.clock.advance(3601)

    assert again["callback_secret"] == first["callback_secret"]
    assert "callback_secret" not in other
    assert "callback_secret" not in await start()


async def test_a_repeated_start_shows_neither_a_secret_of_the_client_nor_one_that_was_replaced(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    async def start(key: str, **callback: str) -> dict[str, Any]:
        body = CALL_BODY | {"callback": {"url": CALLBACK_URL} | callback}
        return dict((await alice.post("/v1/calls", json=body, headers={"Idempotency-Key": key})).json())

    await start("own", secret=SECRET)
    rotated = await start("rotated")
    service.clock.advance(1)
    await alice.post(f"/v1/webhooks/{rotated['webhooks'][0]['id']}/rotate-secret", json={"overlap_seconds": 0})

    assert "callback_secret" not in await start("own")
    assert "callback_secret" not in await start("rotated")


@pytest.mark.parametrize(
    "other", [{"tool": "git_status"}, {"arguments": {"repo_path": "/elsewhere"}}, {"callback": {"url": CALLBACK_URL}}]
)
async def test_a_key_that_was_used_for_another_request_is_a_conflict(
    service: ServiceUnderTest, alice: httpx.AsyncClient, other: dict[str, object]
) -> None:
    await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    before = service.count_rows()

    answer = await alice.post("/v1/calls", json=CALL_BODY | other, headers=KEY)

    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/idempotency-conflict")
    assert service.count_rows() == before


async def test_the_order_of_arguments_does_not_make_another_request(alice: httpx.AsyncClient) -> None:
    forwards = CALL_BODY | {"arguments": {"repo_path": "/srv/repo", "max_count": 3}}
    backwards = CALL_BODY | {"arguments": {"max_count": 3, "repo_path": "/srv/repo"}}

    first = await alice.post("/v1/calls", json=forwards, headers=KEY)
    second = await alice.post("/v1/calls", json=backwards, headers=KEY)

    assert second.json()["call"]["id"] == first.json()["call"]["id"]


async def test_two_principals_may_use_the_same_key(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    hers = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    his = await bob.post("/v1/calls", json=CALL_BODY, headers=KEY)

    assert his.status_code == 202
    assert "idempotent-replayed" not in his.headers
    assert his.json()["call"]["id"] != hers.json()["call"]["id"]


async def test_a_key_outlives_its_expired_call_and_starts_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = (await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)).json()["call"]["id"]
    await service.finish_call(call_id)
    service.clock.advance(RETENTION_SECONDS + 1)
    await service.run_janitor()

    same = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    other = await alice.post("/v1/calls", json=CALL_BODY | {"tool": "git_status"}, headers=KEY)

    assert (same.status_code, same.json()["type"]) == (410, "/problems/call-expired")
    assert other.status_code == 409
    assert service.count_rows()["calls"] == 0


async def test_during_a_shutdown_a_repeated_key_still_returns_its_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """Otherwise a client whose first response was lost reads that nothing was started."""
    first = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    service.services.lifecycle.begin_shutdown()

    again = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)
    batch = await alice.post(
        "/v1/calls/batch", json={"calls": [CALL_BODY | {"idempotency_key": KEY["Idempotency-Key"]}]}
    )
    new = await alice.post("/v1/calls/batch", json={"calls": [CALL_BODY]})

    assert (again.status_code, again.json()["call"]["id"]) == (202, first.json()["call"]["id"])
    assert [each["call"]["id"] for each in batch.json()["calls"]] == [first.json()["call"]["id"]]
    assert (new.status_code, new.json()["type"]) == (503, "/problems/shutting-down")


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("path", "body"), WORKING_OPERATIONS)
async def test_an_operation_that_does_its_work_with_each_request_refuses_a_key(
    service: ServiceUnderTest, path: str, body: dict[str, Any] | None
) -> None:
    """Ignored, the key would let a client repeat the request, and have two keys or another secret."""
    admin = await service.create_client("alice", scopes=frozenset(Scope))
    webhook = (await admin.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    key, *_ = await service.services.api_keys.list_keys()
    path = path.replace("WEBHOOK", webhook).replace("KEY", key.id)

    problem = await assert_rejected(service, admin, "POST", path, json=body, headers=KEY)

    assert problem["status"] == 422
    assert problem["detail"].startswith("This operation takes no Idempotency-Key")


@pytest.mark.usefixtures("shared_service")
async def test_an_operation_whose_repetition_changes_nothing_may_have_a_key(alice: httpx.AsyncClient) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()

    resumed = await alice.post("/v1/resume", json={"resume_token": started["resume_token"]}, headers=KEY)
    cancelled = await alice.post(f"/v1/calls/{started['call_id']}/cancel", headers=KEY)

    assert (resumed.status_code, cancelled.status_code) == (200, 200)


EVENT_WITH_ID: dict[str, Any] = {"name": "order.paid", "data": {}, "id": "order-1"}


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/events", EVENT_WITH_ID, 200),
        ("/v1/events/batch", {"events": [EVENT_WITH_ID]}, 200),
        ("/v1/calls/batch", {"calls": [CALL_BODY | {"idempotency_key": "a"}]}, 202),
    ],
)
async def test_a_request_whose_members_all_have_their_own_keys_may_have_a_key(
    alice: httpx.AsyncClient, path: str, body: dict[str, Any], status: int
) -> None:
    """A generated client sends the header with every POST, and such a request can be repeated."""
    first = await alice.post(path, json=body, headers=KEY)
    again = await alice.post(path, json=body, headers=KEY)

    assert first.is_success, first.text
    assert again.status_code == status, again.text


@pytest.mark.usefixtures("shared_service")
async def test_a_key_is_refused_if_one_member_has_no_key_of_its_own(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    event: dict[str, Any] = {"name": "order.paid", "data": {}}
    events: dict[str, Any] = {"events": [event | {"id": "order-1"}, event]}
    calls: dict[str, Any] = {"calls": [CALL_BODY | {"idempotency_key": "a"}, CALL_BODY]}

    for path, body, advice in (
        ("/v1/events/batch", events, "an `id`"),
        ("/v1/calls/batch", calls, "`idempotency_key`"),
    ):
        problem = await assert_rejected(service, alice, "POST", path, json=body, headers=KEY)
        assert advice in problem["detail"]

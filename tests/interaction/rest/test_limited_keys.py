"""A key that is limited to upstreams reads all calls of its principal, and changes those at its own upstreams only."""

from typing import Any

import httpx
import pytest

from ringback.services.calls import cancellation
from tests.support.service import CALL_BODY, ServiceUnderTest

ANSWER: dict[str, Any] = {"responses": {"r1.1": {"action": "accept", "content": {"sure": True}}}}
TIME_BODY: dict[str, Any] = CALL_BODY | {"upstream": "time", "tool": "get_time", "arguments": {}}

pytestmark = pytest.mark.requirement("R25")


@pytest.fixture
async def limited(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("alice", upstreams=frozenset({"time"}))


async def start(client: httpx.AsyncClient, body: dict[str, Any] = CALL_BODY) -> str:
    return (await client.post("/v1/calls", json=body | {"accepts_input": True})).json()["call"]["id"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/input", ANSWER),
        ("POST", "/cancel", None),
        ("DELETE", "", None),
        ("DELETE", "?cancel=true", None),
        ("POST", "/resume-token", {"revoke_older": True}),
    ],
)
async def test_a_limited_key_changes_no_call_at_another_upstream(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    limited: httpx.AsyncClient,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    call_id = await start(alice)
    await service.request_input(call_id, "sure")
    before = await service.read_call(call_id)

    refused = await limited.request(method, f"/v1/calls/{call_id}{path}", json=body)

    problem = refused.json()
    assert (refused.status_code, problem["type"], problem["upstream"]) == (403, "/problems/forbidden", "git")
    assert "'git'" in problem["detail"]
    assert await service.read_call(call_id) == before
    assert (await limited.get(f"/v1/calls/{call_id}")).json()["status"] == "input_required"


@pytest.mark.usefixtures("shared_service")
async def test_a_limited_key_changes_calls_at_its_own_upstreams(
    service: ServiceUnderTest, alice: httpx.AsyncClient, limited: httpx.AsyncClient
) -> None:
    call_id = await start(alice, TIME_BODY)
    await service.request_input(call_id, "sure")

    answered = await limited.post(f"/v1/calls/{call_id}/input", json=ANSWER)
    cancelled = await limited.post(f"/v1/calls/{call_id}/cancel")
    erased = await limited.delete(f"/v1/calls/{call_id}?cancel=true")

    assert answered.json()["accepted"] == ["r1.1"]
    assert (cancelled.status_code, erased.status_code) == (200, 200)


@pytest.mark.usefixtures("shared_service")
async def test_a_limited_key_still_gets_resume_tokens_of_calls_that_it_reads(
    alice: httpx.AsyncClient, limited: httpx.AsyncClient
) -> None:
    call_id = await start(alice)

    assert (await limited.post(f"/v1/calls/{call_id}/resume-token", json={})).status_code == 200


@pytest.mark.parametrize("where", [{"upstream": "git"}, {"client_session_id": CALL_BODY["client_session_id"]}])
async def test_a_filter_of_a_limited_key_leaves_calls_at_other_upstreams_out(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    limited: httpx.AsyncClient,
    where: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancellation, "CANCELLED_CALLS_BATCH_SIZE", 2)
    allowed = await start(alice, TIME_BODY)
    others = [await start(alice) for _ in range(3)]  # newer, so that they fill the first page

    counted = (await limited.post("/v1/calls/cancel", json={**where, "dry_run": True})).json()
    cancelled = (await limited.post("/v1/calls/cancel", json=where)).json()

    expected = 0 if "upstream" in where else 1
    assert counted == cancelled == {"cancelled": expected, "requested": 0, "more": False}
    assert (await service.read_call(allowed)).is_final == (expected == 1)
    assert not any([(await service.read_call(each)).is_final for each in others])


@pytest.mark.usefixtures("shared_service")
async def test_a_limited_key_erases_no_session_because_other_keys_may_have_added_calls(
    service: ServiceUnderTest, alice: httpx.AsyncClient, limited: httpx.AsyncClient
) -> None:
    call_id = await start(alice)

    refused = await limited.delete(f"/v1/sessions/{CALL_BODY['client_session_id']}", params={"cancel": "true"})

    assert refused.status_code == 403
    assert refused.json()["detail"].endswith(
        "a session's calls may belong to all of them. Use a key that is limited to no upstream. Or erase the calls at your "
        "upstreams one by one: DELETE /v1/calls/{id}"
    )
    assert not (await service.read_call(call_id)).is_final

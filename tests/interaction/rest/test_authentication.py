"""Authentication and scopes of every operation."""

import json
import re
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, CALLBACK_URL, PUBLIC_URL, ServiceUnderTest, running_service

pytestmark = pytest.mark.requirement("R25")

DOCUMENT: Final = json.loads((Path(__file__).parents[3] / "openapi" / "ringback.json").read_text(encoding="utf-8"))
OPERATIONS = [
    ("GET", "/v1/calls", Scope.READ),
    ("POST", "/v1/calls", Scope.CALLS),
    ("GET", "/v1/calls/call_1", Scope.READ),
    ("POST", "/v1/calls/batch", Scope.CALLS),
    ("POST", "/v1/calls/wait", Scope.READ),
    ("POST", "/v1/calls/adopt", Scope.ADOPT),
    ("POST", "/v1/calls/report", Scope.ADOPT),
    ("GET", "/v1/calls/call_1/history", Scope.READ),
    ("GET", "/v1/calls/call_1/result", Scope.READ),
    ("HEAD", "/v1/calls/call_1/result", Scope.READ),
    ("POST", "/v1/calls/call_1/resume-token", Scope.CALLS),
    ("POST", "/v1/calls/call_1/cancel", Scope.CALLS),
    ("POST", "/v1/calls/call_1/input", Scope.CALLS),
    ("POST", "/v1/resume", Scope.READ),
    ("GET", "/v1/webhooks", Scope.READ),
    ("POST", "/v1/webhooks", Scope.WEBHOOKS),
    ("PUT", "/v1/webhooks/by-name/git", Scope.WEBHOOKS),
    ("GET", "/v1/webhooks/by-name/git", Scope.READ),
    ("DELETE", "/v1/webhooks/by-name/git", Scope.WEBHOOKS),
    ("GET", "/v1/webhooks/wh_1", Scope.READ),
    ("PATCH", "/v1/webhooks/wh_1", Scope.WEBHOOKS),
    ("DELETE", "/v1/webhooks/wh_1", Scope.WEBHOOKS),
    ("POST", "/v1/webhooks/wh_1/test", Scope.WEBHOOKS),
    ("POST", "/v1/webhooks/wh_1/verify", Scope.WEBHOOKS),
    ("POST", "/v1/webhooks/wh_1/rotate-secret", Scope.WEBHOOKS),
    ("POST", "/v1/webhooks/wh_1/replay", Scope.WEBHOOKS),
    ("GET", "/v1/events", Scope.READ),
    ("POST", "/v1/events", Scope.CALLS),
    ("POST", "/v1/events/batch", Scope.CALLS),
    ("GET", "/v1/event-types", Scope.READ),
    ("PUT", "/v1/event-types/order.paid", Scope.CALLS),
    ("DELETE", "/v1/event-types/order.paid", Scope.CALLS),
    ("GET", "/v1/events/stream", Scope.READ),
    ("GET", "/v1/deliveries", Scope.READ),
    ("GET", "/v1/deliveries/dlv_1", Scope.READ),
    ("POST", "/v1/deliveries/dlv_1/redeliver", Scope.WEBHOOKS),
    ("POST", "/v1/deliveries/redeliver", Scope.WEBHOOKS),
    ("POST", "/v1/calls/cancel", Scope.CALLS),
    ("DELETE", "/v1/calls/call_1", Scope.CALLS),
    ("DELETE", "/v1/sessions/git", Scope.CALLS),
    ("DELETE", "/v1/principals/git", Scope.ADMIN),
    ("GET", "/v1/erasures/era_1", Scope.READ),
    ("GET", "/v1/keys", Scope.ADMIN),
    ("POST", "/v1/keys", Scope.ADMIN),
    ("GET", "/v1/keys/key_1", Scope.ADMIN),
    ("POST", "/v1/keys/key_1/rotate", Scope.ADMIN),
    ("DELETE", "/v1/keys/key_1", Scope.ADMIN),
    ("GET", "/v1/portal-links", Scope.READ),
    ("POST", "/v1/portal-links", Scope.READ),
    ("DELETE", "/v1/portal-links/link_1", Scope.READ),
    ("GET", "/v1/audit", Scope.READ),
    ("GET", "/v1/usage", Scope.READ),
    ("GET", "/v1/insights", Scope.READ),
    ("GET", "/v1/sessions", Scope.READ),
    ("GET", "/v1/sessions/git", Scope.READ),
    ("GET", "/v1/upstreams", Scope.READ),
    ("GET", "/v1/upstreams/git/tools", Scope.READ),
    ("POST", "/v1/upstreams/git/login", Scope.CALLS),
    ("POST", "/v1/upstreams/git/login/complete", Scope.CALLS),
    ("DELETE", "/v1/upstreams/git/login", Scope.CALLS),
    ("POST", "/v1/upstreams/reload", Scope.ADMIN),
    ("POST", "/v1/upstreams/git/pause", Scope.ADMIN),
    ("POST", "/v1/upstreams/git/drain", Scope.ADMIN),
    ("POST", "/v1/upstreams/git/resume", Scope.ADMIN),
    ("POST", "/v1/upstreams/git/restart", Scope.ADMIN),
    ("GET", "/v1/status", Scope.ADMIN),
]
OPERATIONS_ON_THE_SERVICE = [each for each in OPERATIONS if each[2] is Scope.ADMIN or each[1] == "/v1/events/stream"]
OPERATIONS_OF_AGENTS = [each for each in OPERATIONS if each not in OPERATIONS_ON_THE_SERVICE]
PUBLISHING = {operation for operation in OPERATIONS if "/event" in operation[1] and operation[2] is Scope.CALLS}
"""A server that reports its calls publishes its events with the same key, so the scope `adopt` is enough too."""
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/calls"): CALL_BODY,
    ("POST", "/v1/calls/batch"): {"calls": [CALL_BODY]},
    ("POST", "/v1/webhooks"): {"url": CALLBACK_URL},
    ("PUT", "/v1/webhooks/by-name/git"): {"url": CALLBACK_URL},
    ("PATCH", "/v1/webhooks/wh_1"): {"description": "mine"},
    ("POST", "/v1/resume"): {"resume_token": "none"},
    ("POST", "/v1/calls/wait"): {"call_ids": ["call_1"]},
    ("POST", "/v1/calls/call_1/input"): {"responses": {"r1.name": {"action": "decline"}}},
    ("POST", "/v1/calls/adopt"): {"upstream": "git", "task_id": "task-1"},
    ("POST", "/v1/calls/report"): {"key": "build-1", "upstream": "farm", "tool": "build_report"},
    ("POST", "/v1/webhooks/wh_1/replay"): {"dead": True},
    ("POST", "/v1/upstreams/git/login/complete"): {"redirected_to": "https://us.example/?code=c&state=s"},
    ("POST", "/v1/keys"): {"principal": "carol"},
    ("POST", "/v1/deliveries/redeliver"): {"webhook_id": "wh_1"},
    ("POST", "/v1/calls/cancel"): {"client_session_id": "s1"},
    ("POST", "/v1/events"): {"name": "order.paid", "data": {}},
    ("POST", "/v1/events/batch"): {"events": [{"name": "order.paid", "data": {}}]},
    ("PUT", "/v1/event-types/order.paid"): {"description": "An order is paid."},
}


def test_every_authenticated_operation_is_covered_here() -> None:
    described = {
        (method.upper(), _shape(path))
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
        if path.startswith("/v1/")
    }
    assert {(method, _shape(path)) for method, path, _ in OPERATIONS} == described


def _shape(path: str) -> str:
    return re.sub(r"\{\w+\}|(call|wh|dlv|key|era|link)_1|git|order\.paid", "*", path)


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS)
async def test_a_request_without_a_key_is_rejected_before_its_body_is_read(
    service: ServiceUnderTest, method: str, path: str, scope: Scope
) -> None:
    anonymous = await service.create_anonymous_client()

    answer = await anonymous.request(method, path, content=b"this is not even JSON")

    assert answer.status_code == 401
    assert method == "HEAD" or answer.json()["type"] == "/problems/unauthenticated"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS_OF_AGENTS)
async def test_a_key_without_the_scope_is_refused_and_one_with_it_is_not(
    service: ServiceUnderTest, method: str, path: str, scope: Scope
) -> None:
    await assert_scope_is_needed(service, method, path, scope)


@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS_ON_THE_SERVICE)
async def test_a_key_without_the_scope_is_refused_for_what_changes_the_service_or_waits_for_its_end(
    service: ServiceUnderTest, method: str, path: str, scope: Scope
) -> None:
    await assert_scope_is_needed(service, method, path, scope)


async def assert_scope_is_needed(service: ServiceUnderTest, method: str, path: str, scope: Scope) -> None:
    """A key without the scope is refused, and one with it alone is not."""
    body = BODIES.get((method, path))
    insufficient = frozenset(Scope) - {scope, Scope.ADMIN}
    if (method, path, scope) in PUBLISHING:
        insufficient -= {Scope.ADOPT}
    without = await service.create_client("alice", scopes=insufficient)
    only = await service.create_client("alice", scopes=frozenset({scope}))

    refused = await without.request(method, path, json=body)
    if path.endswith("/stream"):
        service.services.lifecycle.begin_shutdown()  # so that an accepted stream ends
    allowed = await only.request(method, path, json=body)

    assert refused.status_code == 403
    assert method == "HEAD" or str(scope) in refused.json()["detail"]
    assert allowed.status_code in {200, 201, 202, 204, 404, 409}


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS)
async def test_an_unknown_query_parameter_is_refused(
    service: ServiceUnderTest, method: str, path: str, scope: Scope
) -> None:
    admin = await service.create_client("alice", scopes=frozenset(Scope))
    before = service.count_rows()

    answer = await admin.request(method, path, params={"wait_secods": "5"}, json=BODIES.get((method, path)))

    assert answer.status_code == 422
    assert method == "HEAD" or answer.json()["errors"][0]["parameter"] == "wait_secods"
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
async def test_no_cache_keeps_what_belongs_to_the_caller(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    """Responses to POST have secrets and tokens. A proxy that adds the API key would store the others for all its clients."""
    registered = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    started = await alice.post("/v1/calls", json=CALL_BODY | {"callback": {"url": CALLBACK_URL}})
    token, call_path = started.json()["resume_token"], f"/v1/calls/{started.json()['call_id']}"
    responses = [
        registered,
        started,
        await alice.put("/v1/webhooks/by-name/agent", json={"url": CALLBACK_URL}),
        await alice.post(f"/v1/webhooks/{registered.json()['id']}/rotate-secret"),
        await alice.post("/v1/calls/batch", json={"calls": [CALL_BODY]}),
        await alice.post("/v1/resume", json={"resume_token": token}),
        await alice.post(f"{call_path}/resume-token"),
        await alice.get(call_path),
        await alice.get("/v1/webhooks"),
        await alice.delete(f"/v1/webhooks/{registered.json()['id']}"),
    ]

    missing = [await alice.get("/v1/webhooks/by-name/none"), await alice.get("/v1/none")]

    assert all(each.is_success for each in responses)
    assert [each.status_code for each in missing] == [404, 404]
    assert {each.headers.get("cache-control") for each in (*responses, *missing)} == {"no-store"}


async def test_a_call_with_a_callback_needs_the_scope_webhooks(service: ServiceUnderTest) -> None:
    body = CALL_BODY | {"callback": {"url": CALLBACK_URL}}
    starter = await service.create_client("alice", scopes=frozenset({Scope.CALLS}))
    both = await service.create_client("alice", scopes=frozenset({Scope.CALLS, Scope.WEBHOOKS}))

    refused = await starter.post("/v1/calls", json=body)

    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/forbidden")
    assert "'webhooks'" in refused.json()["detail"]
    assert service.count_rows()["calls"] == 0
    assert (await both.post("/v1/calls", json=body)).status_code == 202


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YWxpY2U6", "Bearer rbk_unknown", "Bearer not-a-key", "rbk_x"]
)
async def test_an_unknown_key_is_refused(service: ServiceUnderTest, header: str) -> None:
    anonymous = await service.create_anonymous_client(headers={"Authorization": header})

    assert (await anonymous.get("/v1/calls")).status_code == 401


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
async def test_the_scheme_may_be_spelt_in_any_case(service: ServiceUnderTest, scheme: str) -> None:
    other = await service.create_anonymous_client(
        headers={"Authorization": f"{scheme} {await service.create_api_key('alice')}"}
    )

    assert (await other.get("/v1/calls")).status_code == 200


async def test_a_revoked_key_is_refused_at_once(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    (key,) = await service.services.api_keys.list_keys()
    assert (await alice.get("/v1/calls")).status_code == 200

    await service.services.api_keys.revoke_key(key.id)

    assert (await alice.get("/v1/calls")).status_code == 401


@pytest.mark.usefixtures("shared_service")
async def test_two_keys_of_one_principal_see_the_same(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    other = await service.create_client("alice")
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]

    assert (await other.get(f"/v1/calls/{call_id}")).status_code == 200


async def test_with_authentication_off_all_clients_are_one_principal(tmp_path: Path) -> None:
    async with running_service(tmp_path, auth="off") as service:
        anonymous = await service.create_anonymous_client()
        other = await service.create_anonymous_client(headers={"Authorization": "Bearer whatever"}, base_url=PUBLIC_URL)

        call_id = (await anonymous.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]

        assert (await other.get(f"/v1/calls/{call_id}")).status_code == 200

"""Pausing, draining and resuming an upstream over REST."""

import logging

import httpx
import pytest

from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, ServiceUnderTest

pytestmark = pytest.mark.requirement("R22")


@pytest.fixture
async def operator(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN, Scope.READ}))


async def intakes(client: httpx.AsyncClient) -> dict[str, str]:
    return {each["name"]: each["intake"] for each in (await client.get("/v1/upstreams")).json()["upstreams"]}


async def test_a_draining_upstream_refuses_new_calls_with_words_and_repeats_old_ones(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    key = {"Idempotency-Key": "mine"}
    started = (await alice.post("/v1/calls", json=CALL_BODY, headers=key)).json()["call"]["id"]
    drained = await operator.post("/v1/upstreams/git/drain")
    before = service.count_rows()
    refused = await alice.post("/v1/calls", json=CALL_BODY)
    batch = await alice.post("/v1/calls/batch", json={"calls": [CALL_BODY]})
    shown = await intakes(alice)
    repeated = await alice.post("/v1/calls", json=CALL_BODY, headers=key)

    assert (drained.status_code, drained.json()) == (200, {"name": "git", "intake": "draining", "skipped": None})
    for answer in (refused, batch):
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/upstream-draining")
        assert "'git' is being drained" in answer.json()["detail"]
        assert "retry-after" in answer.headers
    assert batch.json()["index"] == 0
    assert shown["git"] == "draining"
    assert set(shown.values()) == {"draining", "open"}
    assert repeated.json()["call"]["id"] == started
    assert service.count_rows() == before
    assert (await operator.post("/v1/upstreams/git/resume")).json()["intake"] == "open"
    assert (await alice.post("/v1/calls", json=CALL_BODY)).status_code == 202


async def test_a_paused_upstream_accepts_calls_and_says_so(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await operator.post("/v1/upstreams/git/pause")

    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()
    (batched,) = (await alice.post("/v1/calls/batch", json={"calls": [CALL_BODY]})).json()["calls"]

    assert started["call"]["status"] == "working"
    for each in (started, batched):
        assert "an operator has paused its upstream, git. No webhook receives" in each["hint"]
    assert (await intakes(alice))["git"] == "paused"


@pytest.mark.parametrize("operation", ["pause", "drain", "resume", "restart"])
async def test_only_an_operator_controls_upstreams_and_only_those_that_exist(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient, operation: str
) -> None:
    forbidden = await alice.post(f"/v1/upstreams/git/{operation}")
    unknown = await operator.post(f"/v1/upstreams/gti/{operation}")

    assert (forbidden.status_code, unknown.status_code) == (403, 404)
    assert set((await intakes(alice)).values()) == {"open"}


@pytest.mark.parametrize("operation", ["pause", "drain", "resume", "restart"])
async def test_an_operator_whose_key_may_use_some_upstreams_controls_only_these(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operation: str
) -> None:
    key_of_other = await service.create_client(
        "limited", scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"other"})
    )
    key_of_git = await service.create_client("limited", scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"git"}))

    refused = await key_of_other.post(f"/v1/upstreams/git/{operation}")
    unknown = await key_of_other.post(f"/v1/upstreams/gti/{operation}")
    shown = await intakes(alice)
    allowed = await key_of_git.post(f"/v1/upstreams/git/{operation}")

    assert (refused.status_code, shown["git"], allowed.status_code) == (404, "open", 200)
    assert refused.json()["detail"] == unknown.json()["detail"].replace("gti", "git")


async def test_a_key_for_some_upstreams_does_not_reload_the_configuration_of_all(service: ServiceUnderTest) -> None:
    limited = await service.create_client("limited", scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"git"}))

    assert (await limited.post("/v1/upstreams/reload")).status_code == 403


async def test_the_log_says_who_paused_an_upstream(
    operator: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ringback")
    await operator.post("/v1/upstreams/git/pause")

    (said,) = [each.__dict__ for each in caplog.records if each.msg == "upstream.intake_changed"]
    assert (said["upstream"], said["intake"], said["by"]) == ("git", "paused", "operator")


async def test_a_restart_of_an_upstream_is_in_the_audit_log(operator: httpx.AsyncClient) -> None:
    restarted = await operator.post("/v1/upstreams/git/restart")
    entries = (await operator.get("/v1/audit", params={"principal": "*"})).json()["entries"]

    assert restarted.json() == {"name": "git", "connections": 0, "calls": 0}
    assert ("restart_upstream", "operator", "git") in {
        (each["operation"], each["principal"], each["target"]) for each in entries
    }


@pytest.mark.parametrize("path", ["pause", "drain", "resume", "restart", "login", "tools"])
async def test_the_name_that_was_probably_meant_is_suggested_for_an_unknown_upstream(
    operator: httpx.AsyncClient, path: str
) -> None:
    refused = await operator.request("GET" if path == "tools" else "POST", f"/v1/upstreams/gitt/{path}")

    assert refused.status_code == 404
    assert refused.json()["detail"] == "There is no upstream 'gitt'. Did you mean 'git'? List them: GET /v1/upstreams"

"""Upstreams and tools over REST."""

import httpx
import pytest

from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, ServiceUnderTest


@pytest.mark.usefixtures("shared_service")
async def test_upstreams_are_listed_with_their_state(alice: httpx.AsyncClient) -> None:
    upstreams = (await alice.get("/v1/upstreams")).json()["upstreams"]

    assert [upstream["name"] for upstream in upstreams] == ["git", "time"]
    assert upstreams[0]["state"] == "ready"


@pytest.mark.usefixtures("shared_service")
async def test_tools_are_listed_as_their_upstream_lists_them(alice: httpx.AsyncClient) -> None:
    tools = (await alice.get("/v1/upstreams/git/tools")).json()["tools"]

    assert tools[0]["inputSchema"]["required"] == ["repo_path"]
    assert tools[1] == {
        "name": "git_status",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }


@pytest.mark.usefixtures("shared_service")
async def test_an_unknown_upstream_is_not_found(alice: httpx.AsyncClient) -> None:
    answer = await alice.get("/v1/upstreams/svn/tools")

    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


async def test_only_an_operator_sees_what_a_failing_command_wrote(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    connection = service.connections["git"]
    connection.last_error, connection.error_output = "connection_lost", "exit code 2: ACME_TOKEN is not set"
    operator = await service.create_client("operator", scopes=frozenset(Scope))

    shown = [(await client.get("/v1/upstreams")).json()["upstreams"][0] for client in (operator, alice)]
    status = (await operator.get("/v1/status")).json()["upstreams"][0]

    assert [each["error_output"] for each in shown] == ["exit code 2: ACME_TOKEN is not set", None]
    assert status["error_output"] == "exit code 2: ACME_TOKEN is not set"


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R25")
async def test_a_forbidden_upstream_is_reported_as_unknown(service: ServiceUnderTest) -> None:
    limited = await service.create_client("alice", upstreams=frozenset({"time"}))

    listed = (await limited.get("/v1/upstreams")).json()["upstreams"]
    forbidden = await limited.get("/v1/upstreams/git/tools")
    started = await limited.post("/v1/calls", json=CALL_BODY)
    unknown = await limited.post("/v1/calls", json=CALL_BODY | {"upstream": "svn"})

    assert [upstream["name"] for upstream in listed] == ["time"]
    assert forbidden.status_code == 404
    assert (started.status_code, started.json()["type"]) == (422, "/problems/unknown-upstream")
    assert started.text.replace("git", "svn") == unknown.text

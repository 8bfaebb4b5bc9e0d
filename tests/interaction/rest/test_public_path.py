"""Below a path of its host, the service is the same: whether the proxy removes the path or not."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.application import RunningApplication, running_application
from tests.support.service import CALLBACK_URL, running_service

HOST = "https://tools.example"
PUBLIC_URL = f"{HOST}/ringback"
BOTH_WAYS = pytest.mark.parametrize(
    "prefix", ["", "/ringback"], ids=["the proxy removes the path", "it leaves the path"]
)
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture(scope="module")
async def ringback(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunningApplication]:
    folder = module_path_factory.mktemp("prefixed")
    async with running_application(folder, public_url=PUBLIC_URL, oidc_issuer="https://issuer.example") as running:
        yield running


@pytest.fixture
async def http(ringback: RunningApplication) -> AsyncGenerator[httpx.AsyncClient]:
    keys = ringback.app.services.api_keys
    _, key = await keys.create_key("alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
    transport = httpx.ASGITransport(app=ringback.app.api)
    async with httpx.AsyncClient(
        transport=transport, base_url=HOST, headers={"Authorization": f"Bearer {key}"}
    ) as http:
        yield http


@BOTH_WAYS
async def test_a_location_leads_to_what_was_created(http: httpx.AsyncClient, prefix: str) -> None:
    created = await http.post(f"{prefix}/v1/webhooks", json={"url": CALLBACK_URL})
    followed = await http.get(urljoin(f"{PUBLIC_URL}/v1/webhooks", created.headers["location"]))

    assert created.headers["location"].startswith("/ringback/v1/webhooks/wh_")
    assert followed.json()["id"] == created.json()["id"]


@BOTH_WAYS
async def test_the_type_of_a_problem_leads_to_its_meaning(http: httpx.AsyncClient, prefix: str) -> None:
    problem = await http.get(f"{prefix}/v1/calls/none")
    type_ = problem.json()["type"]
    meaning = await http.get(urljoin(f"{PUBLIC_URL}/v1/calls/none", type_))

    assert (type_, problem.headers["content-length"]) == ("/ringback/problems/not-found", str(len(problem.content)))
    assert meaning.json()["type"] == type_


async def test_a_refusal_before_the_operations_has_such_a_type_too(http: httpx.AsyncClient) -> None:
    refused = await http.get("/v1/calls", headers={"Host": "evil.example"})

    assert (refused.status_code, refused.json()["type"]) == (421, "/ringback/problems/foreign-host")


@pytest.mark.parametrize("resource", ["", "/mcp", "/mcp/git"])
@pytest.mark.parametrize(
    "well_known",
    [
        "/.well-known/oauth-protected-resource/ringback",
        "/.well-known/oauth-protected-resource",
        "/ringback/.well-known/oauth-protected-resource",
    ],
    ids=["at the root of the host", "without the path", "below the path"],
)
async def test_the_metadata_of_a_protected_resource_is_found_on_every_route(
    http: httpx.AsyncClient, well_known: str, resource: str
) -> None:
    answer = await http.get(well_known + resource)

    assert answer.json()["resource"] == PUBLIC_URL + resource


@BOTH_WAYS
async def test_the_challenge_of_an_mcp_endpoint_names_the_metadata_at_the_root(
    http: httpx.AsyncClient, prefix: str
) -> None:
    headers = {"Authorization": "", "Accept": "application/json, text/event-stream"}
    refused = await http.post(f"{prefix}/mcp", json=INITIALIZE, headers=headers)

    assert refused.status_code == 401
    assert f"{HOST}/.well-known/oauth-protected-resource/ringback/mcp" in refused.headers["www-authenticate"]


@pytest.mark.parametrize("path", ["/", "/ringback", "/ringback/"])
async def test_a_browser_at_the_public_url_gets_to_the_dashboard(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path, headers={"Accept": "text/html"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/ringback/ui")


async def test_a_path_that_only_begins_like_the_public_path_is_none_of_the_service(http: httpx.AsyncClient) -> None:
    answer = await http.get("/ringbacks/v1/calls")

    assert (answer.status_code, answer.json()["type"]) == (404, "/ringback/problems/unknown-path")


@BOTH_WAYS
async def test_an_mcp_session_opens(http: httpx.AsyncClient, prefix: str) -> None:
    answer = await http.post(
        f"{prefix}/mcp", json=INITIALIZE, headers={"Accept": "application/json, text/event-stream"}
    )

    assert (answer.status_code, "mcp-session-id" in answer.headers) == (200, True)


@BOTH_WAYS
async def test_the_documents_name_the_public_url(http: httpx.AsyncClient, prefix: str) -> None:
    document = (await http.get(f"{prefix}/openapi.json")).json()
    text = (await http.get(f"{prefix}/llms.txt")).text

    assert document["servers"] == [{"url": PUBLIC_URL}]
    assert f"`{PUBLIC_URL}`" in text


async def test_a_public_path_that_is_also_an_own_path_must_be_removed_by_the_proxy(tmp_path: Path) -> None:
    async with running_service(tmp_path, public_url=f"{HOST}/v1") as service:
        alice = await service.create_client("alice")
        created = await alice.post(f"{HOST}/v1/webhooks", json={"url": CALLBACK_URL})

    assert created.headers["location"].startswith("/v1/v1/webhooks/")


@pytest.mark.parametrize(
    ("origin", "status"),
    [(HOST, 200), (f"{HOST}:443", 403), ("http://tools.example", 403), ("https://other.example", 403)],
)
async def test_the_origin_of_the_public_url_may_call(http: httpx.AsyncClient, origin: str, status: int) -> None:
    assert (await http.get("/v1/webhooks", headers={"Origin": origin})).status_code == status

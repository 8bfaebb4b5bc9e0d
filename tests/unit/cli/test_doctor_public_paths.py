"""`ringback doctor` requests each route that a proxy must send to the service, and names the one that leads elsewhere."""

from collections.abc import Generator
from typing import Any

import httpx
import pytest
import respx

from ringback.cli.installation_checks.public_url import check_public_paths
from ringback.settings import Settings

HOST = "https://tools.example"
PUBLIC_URL = f"{HOST}/ringback"
METADATA_PATH = "/.well-known/oauth-protected-resource/ringback/mcp"
PROBLEM = {"content-type": "application/problem+json"}
ELSEWHERE = httpx.Response(404, html="<h1>Not found</h1>")


def make_settings(**changes: Any) -> Settings:
    return Settings.model_validate({"public_url": PUBLIC_URL, "oidc_issuer": "https://issuer.example", **changes})


@pytest.fixture
def proxy() -> Generator[respx.MockRouter]:
    """A proxy that sends every route to the service."""
    problem: dict[str, Any] = {"type": "/ringback/problems/unauthenticated", "title": "", "status": 401, "detail": ""}
    with respx.mock(base_url=HOST, assert_all_called=False) as router:
        router.get("/ringback/openapi.json").respond(json={"servers": [{"url": PUBLIC_URL}]})
        router.post("/ringback/v1/resume").respond(401, json=problem, headers=PROBLEM)
        router.get(problem["type"]).respond(json={"type": problem["type"]})
        router.get(METADATA_PATH).respond(json={"resource": f"{PUBLIC_URL}/mcp"})
        yield router


async def test_a_proxy_that_sends_every_route_is_reported_once(proxy: respx.MockRouter) -> None:
    (found,) = await check_public_paths(make_settings())

    assert (found.about, found.ok) == ("public paths", True)
    assert all(route.called for route in proxy.routes)


async def test_without_a_public_url_or_an_answer_there_is_no_finding(proxy: respx.MockRouter) -> None:
    proxy.get("/ringback/openapi.json").mock(side_effect=httpx.ConnectError("refused"))

    assert await check_public_paths(make_settings()) == []
    assert await check_public_paths(make_settings(public_url=None)) == []


@pytest.mark.parametrize(
    ("method", "path", "answer", "reason"),
    [
        ("GET", "/ringback/openapi.json", ELSEWHERE, f"send all of {PUBLIC_URL}/ to it"),
        (
            "GET",
            "/ringback/openapi.json",
            httpx.Response(200, json={"servers": [{"url": "https://other.example"}]}),
            "RINGBACK_PUBLIC_URL is https://other.example",
        ),
        ("POST", "/ringback/v1/resume", httpx.Response(405, html="<h1>No</h1>"), "gets 405, and not from Ringback"),
        ("GET", "/ringback/problems/unauthenticated", ELSEWHERE, "the type of a problem, leads elsewhere"),
        ("GET", METADATA_PATH, ELSEWHERE, "OAuth clients look at"),
    ],
    ids=["document", "another service", "method", "problem type", "metadata"],
)
async def test_a_route_that_leads_elsewhere_is_named(
    proxy: respx.MockRouter, method: str, path: str, answer: httpx.Response, reason: str
) -> None:
    proxy.request(method, path).mock(return_value=answer)

    (found,) = await check_public_paths(make_settings())

    assert not found.ok
    assert reason in found.detail


@pytest.mark.parametrize(
    ("resume", "reason"),
    [
        ({"return_value": httpx.Response(401, json={}, headers=PROBLEM)}, "v1/None, the type of a problem"),
        ({"return_value": httpx.Response(401, json={"type": "/blank"}, headers=PROBLEM)}, "/blank, the type"),
        ({"side_effect": httpx.ReadError("closed")}, f"POST {PUBLIC_URL}/v1/resume gets no response"),
    ],
    ids=["no type", "a type that cannot be requested", "no response"],
)
async def test_a_route_that_fails_hides_no_other_fault(
    proxy: respx.MockRouter, resume: dict[str, Any], reason: str
) -> None:
    proxy.get("/ringback/openapi.json").mock(return_value=ELSEWHERE)
    proxy.post("/ringback/v1/resume").mock(**resume)
    proxy.get("/ringback/v1/None").mock(return_value=ELSEWHERE)
    proxy.get("/blank").mock(side_effect=httpx.UnsupportedProtocol("as for about:blank"))

    (found,) = await check_public_paths(make_settings())

    assert f"send all of {PUBLIC_URL}/ to it" in found.detail
    assert reason in found.detail


async def test_without_an_issuer_no_metadata_are_requested(proxy: respx.MockRouter) -> None:
    proxy.get(METADATA_PATH).mock(return_value=ELSEWHERE)

    (found,) = await check_public_paths(make_settings(oidc_issuer=None))

    assert found.ok

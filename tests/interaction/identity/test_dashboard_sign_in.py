"""People sign in to the dashboard at the issuer: a real issuer over sockets, and a browser that keeps cookies."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.types import ASGIApp

from tests.support.application import PUBLIC_URL, running_application
from tests.support.token_issuer import LIFETIME_SECONDS, FakeTokenIssuer
from tests.support.upstreams import serving

CODE = "code-1"


@dataclass(slots=True)
class CodeIssuer(FakeTokenIssuer):
    """Gives a token for `CODE`, if the verifier fits the challenge."""

    challenge: str = ""
    claims: dict[str, Any] = field(default_factory=dict[str, Any])

    def _respond(self, request: dict[str, str]) -> dict[str, Any]:
        digest = hashlib.sha256(request["code_verifier"].encode()).digest()
        if request["code"] != CODE or urlsafe_b64encode(digest).decode().rstrip("=") != self.challenge:
            return {"error": "invalid_grant"}
        claims: dict[str, Any] = {"aud": request["resource"], "scope": "ringback:read"} | self.claims
        token = self.sign_token(**claims)
        return {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_SECONDS}


@dataclass(slots=True, kw_only=True)
class Stage:
    issuer: CodeIssuer
    browser: httpx.AsyncClient
    other_browser: httpx.AsyncClient

    async def begin(self) -> dict[str, str]:
        """Go to the issuer; the query of its page."""
        begun = await self.browser.get("/ui/sign-in/issuer", params={"next": "/calls"})
        assert begun.status_code == 303, begun.text
        location = urlsplit(begun.headers["location"])
        assert begun.headers["location"].startswith(f"{self.issuer.url}/authorization?")
        query = {name: values[0] for name, values in parse_qs(location.query).items()}
        self.issuer.challenge = query["code_challenge"]
        return query


@asynccontextmanager
async def running_with_issuer(folder: Path) -> AsyncGenerator[tuple[CodeIssuer, ASGIApp]]:
    issuer = CodeIssuer()
    async with (
        serving(issuer) as issuing,
        running_application(
            folder,
            oidc_issuer=f"http://127.0.0.1:{issuing.port}",
            ui_oidc_client_id="dashboard",
            ui_oidc_client_secret="client secret",
        ) as service,
    ):
        issuer.url = f"http://127.0.0.1:{issuing.port}"
        yield issuer, service.app.api


@pytest.fixture(scope="module")
async def shared_issuer(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[CodeIssuer, ASGIApp]]:
    async with running_with_issuer(module_path_factory.mktemp("issuer")) as running:
        yield running


@pytest.fixture
async def stage(shared_issuer: tuple[CodeIssuer, ASGIApp]) -> AsyncGenerator[Stage]:
    issuer, api = shared_issuer
    issuer.claims = {}
    issuer.token_requests.clear()
    async with open_browser(api) as browser, open_browser(api) as other_browser:
        yield Stage(issuer=issuer, browser=browser, other_browser=other_browser)


ADDRESSES: Final = ip_network("192.0.2.0/24").hosts()


def open_browser(api: ASGIApp) -> httpx.AsyncClient:
    """A browser with an address of its own, because the sign-ins of an address are limited."""
    transport = httpx.ASGITransport(api, client=(str(next(ADDRESSES)), 50_000))
    return httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL)


async def test_a_person_signs_in_at_the_issuer_and_sees_the_pages_of_the_token_s_principal(stage: Stage) -> None:
    form = await stage.browser.get("/ui/sign-in")
    query = await stage.begin()

    signed_in = await stage.browser.get(
        "/ui/sign-in/callback", params={"code": CODE, "state": query["state"], "iss": stage.issuer.url}
    )
    page = await stage.browser.get("/ui/calls")

    assert "/ui/sign-in/issuer" in form.text
    assert query["redirect_uri"] == f"{PUBLIC_URL}/ui/sign-in/callback"
    assert query["resource"] == PUBLIC_URL
    assert query["code_challenge_method"] == "S256"
    assert query["scope"] == "ringback:calls ringback:read ringback:webhooks"
    assert signed_in.headers["location"] == "/ui/calls"
    assert stage.issuer.token_requests[0]["client_id"] == "dashboard"
    assert ":ada" in page.text
    assert "eyJ" not in str(signed_in.headers.raw), "the token stays in the service"
    max_age = int(signed_in.headers["set-cookie"].partition("Max-Age=")[2].partition(";")[0])
    assert LIFETIME_SECONDS - 60 < max_age <= LIFETIME_SECONDS


@pytest.mark.parametrize(
    "redirect",
    [
        {"code": CODE, "state": "another"},
        {"code": CODE},
        {"state": "{state}"},
        {"code": "code-2", "state": "{state}"},
        {"code": "c" * 5_000, "state": "{state}"},
        {"code": CODE, "state": "{state}", "iss": "https://evil.example"},
        {"error": "access_denied", "error_description": "<script>", "state": "{state}"},
    ],
)
async def test_a_redirect_that_does_not_match_completes_no_login(stage: Stage, redirect: dict[str, str]) -> None:
    query = await stage.begin()

    answer = await stage.browser.get(
        "/ui/sign-in/callback",
        params={name: value.format(state=query["state"]) for name, value in redirect.items()},
    )

    assert answer.status_code == 403
    assert "<script>" not in answer.text
    assert (await stage.browser.get("/ui/calls")).status_code == 303


async def test_a_sign_in_belongs_to_the_browser_in_which_it_began_and_is_finished_once(stage: Stage) -> None:
    query = await stage.begin()
    redirect = {"code": CODE, "state": query["state"]}

    foreign = await stage.other_browser.get("/ui/sign-in/callback", params=redirect)
    own = await stage.browser.get("/ui/sign-in/callback", params=redirect)
    again = await stage.browser.get("/ui/sign-in/callback", params=redirect)

    assert [foreign.status_code, own.status_code, again.status_code] == [403, 303, 403]
    assert len(stage.issuer.token_requests) == 1


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"aud": "https://other.example"}, 401),
        ({"exp": 1}, 401),
        ({"scope": "ringback:calls"}, 403),
        ({"scope": None}, 403),
        ({"nonce": "n", "scope": "ringback:admin"}, 303),
    ],
)
async def test_the_token_is_judged_as_for_every_request(stage: Stage, claims: dict[str, Any], status: int) -> None:
    stage.issuer.claims = claims
    query = await stage.begin()

    answer = await stage.browser.get("/ui/sign-in/callback", params={"code": CODE, "state": query["state"]})

    assert answer.status_code == status
    assert (await stage.browser.get("/ui/calls")).status_code == (200 if status == 303 else 303)


async def test_without_the_issuer_a_page_says_so_and_keys_still_work(tmp_path: Path) -> None:
    async with running_with_issuer(tmp_path) as (issuer, api), open_browser(api) as browser:
        issuer.unreachable = True

        answer = await browser.get("/ui/sign-in/issuer")

        assert answer.status_code == 503
        assert "API key" in answer.text
        assert (await browser.get("/ui/sign-in")).status_code == 200

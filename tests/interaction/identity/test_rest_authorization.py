"""Access tokens at the REST API, and the discovery of the issuer by OAuth clients."""

from pathlib import Path

import httpx
import pytest

from ringback.cli.installation_checks.network import check_issuer
from ringback.client import Problem
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX
from ringback.settings import load_settings
from scripts.ports import free_port
from tests.support.application import PUBLIC_URL, running_application
from tests.support.oauth_service import ALL_SCOPES, OAuthService

pytestmark = pytest.mark.requirement("R25")

WELL_KNOWN = f"{PUBLIC_URL}/.well-known/oauth-protected-resource"


async def get(guarded: OAuthService, path: str, token: str | None = None) -> httpx.Response:
    return await guarded.http.get(path, headers={"Authorization": f"Bearer {token}"} if token else {})


async def test_a_token_for_the_service_is_as_good_as_a_key_and_owns_its_own(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=PUBLIC_URL, scope=ALL_SCOPES)
    agent = await guarded.service.client(api_key=token)
    same_name = await guarded.service.create_agent_client("ada")

    call = (await agent.start_call("git", "echo", {"text": "hello"}, wait_seconds=60)).call

    assert (await agent.call(call.id)).id == call.id
    with pytest.raises(Problem) as caught:
        await same_name.call(call.id)
    assert caught.value.status == 404


async def test_no_key_can_be_made_for_the_owner_of_a_token(guarded: OAuthService) -> None:
    with pytest.raises(InvalidRequest, match="begin with 'oidc:'"):
        await guarded.create_api_key(f"{OIDC_PRINCIPAL_PREFIX}12345678:ada")


@pytest.mark.parametrize("audience", [f"{PUBLIC_URL}/mcp", "https://other.example", "account", None])
async def test_a_token_for_another_audience_is_rejected(guarded: OAuthService, audience: str | None) -> None:
    token = guarded.issuer.sign_token(aud=audience, scope=ALL_SCOPES)

    refused = await get(guarded, "/v1/calls", token)

    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/unauthenticated")
    assert f"with the resource {PUBLIC_URL}." in refused.json()["detail"]
    challenge = refused.headers["www-authenticate"]
    assert challenge.startswith('Bearer error="invalid_token", scope="ringback:calls ringback:read ringback:webhooks"')
    assert f'resource_metadata="{WELL_KNOWN}"' in challenge
    assert token not in refused.text


async def test_without_any_token_the_401_names_the_issuer_and_has_no_error_code(guarded: OAuthService) -> None:
    refused = await get(guarded, "/v1/calls")

    assert refused.status_code == 401
    assert "error=" not in refused.headers["www-authenticate"]
    assert f'resource_metadata="{WELL_KNOWN}"' in refused.headers["www-authenticate"]
    assert guarded.issuer.url in refused.json()["detail"]


async def test_a_token_without_the_scope_gets_the_missing_scope(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=PUBLIC_URL, scope="ringback:read")

    refused = await guarded.http.post(
        "/v1/webhooks", json={"url": "https://agent.example"}, headers={"Authorization": f"Bearer {token}"}
    )

    assert (refused.status_code, refused.json()["scope"]) == (403, "webhooks")
    assert refused.headers["www-authenticate"] == (
        f'Bearer error="insufficient_scope", scope="ringback:webhooks", resource_metadata="{WELL_KNOWN}"'
    )


@pytest.mark.parametrize("resource", ["", "/mcp", "/mcp/git", "/mcp/no-such-upstream"])
async def test_every_resource_has_metadata_at_its_rfc_9728_path(guarded: OAuthService, resource: str) -> None:
    described = await get(guarded, f"/.well-known/oauth-protected-resource{resource}")

    assert described.status_code == 200
    assert described.json() == {
        "resource": f"{PUBLIC_URL}{resource}",
        "authorization_servers": [guarded.issuer.url],
        "scopes_supported": ["ringback:calls", "ringback:read", "ringback:webhooks"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Ringback",
    }


@pytest.mark.parametrize("suffix", ["/v1", "/mcp/", "/mcp/A", "/mcp/git/x", "/mcpx"])
async def test_other_paths_have_no_resource_metadata(guarded: OAuthService, suffix: str) -> None:
    answer = await get(guarded, f"/.well-known/oauth-protected-resource{suffix}")

    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-path")


async def test_no_token_is_logged(guarded: OAuthService, caplog: pytest.LogCaptureFixture) -> None:
    token = guarded.issuer.sign_token(aud=PUBLIC_URL, scope=ALL_SCOPES)
    with caplog.at_level("DEBUG", logger="ringback"):
        await get(guarded, "/v1/calls", token)
        await get(guarded, "/v1/calls", f"{token}x")

    assert token not in caplog.text


async def test_under_a_path_the_metadata_is_before_the_path(tmp_path: Path) -> None:
    public_url = "https://apps.example/ringback"
    async with running_application(tmp_path, public_url=public_url, oidc_issuer="https://issuer.example") as service:
        transport = httpx.ASGITransport(service.app.api)
        async with httpx.AsyncClient(transport=transport, base_url="https://apps.example") as http:
            refused = await http.get("/v1/calls")
            url = "https://apps.example/.well-known/oauth-protected-resource/ringback"

            assert f'resource_metadata="{url}"' in refused.headers["www-authenticate"]
            assert (await http.get(url)).json()["resource"] == public_url
            assert (await http.get(f"{url}/mcp/git")).json()["resource"] == f"{public_url}/mcp/git"


async def test_no_scopes_are_requested_from_an_issuer_without_ours(tmp_path: Path) -> None:
    issuer = "https://issuer.example"
    async with running_application(tmp_path, oidc_issuer=issuer, oidc_scopes=("calls", "read")) as service:
        described = (await service.get("/.well-known/oauth-protected-resource")).json()
        challenge = (await service.get("/v1/calls")).headers["www-authenticate"]

    assert "scopes_supported" not in described
    assert challenge == f'Bearer resource_metadata="{WELL_KNOWN}"'


async def test_while_the_issuer_is_unreachable_tokens_wait_and_keys_work(tmp_path: Path, guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=PUBLIC_URL, scope=ALL_SCOPES)
    async with running_application(tmp_path, oidc_issuer=f"http://127.0.0.1:{free_port()}") as service:
        transport = httpx.ASGITransport(service.app.api)
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL) as http:
            refused = await http.get("/v1/calls", headers={"Authorization": f"Bearer {token}"})
        with_key = await service.create_agent_client("alice")

        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/issuer-unavailable")
        assert "Retry-After" in refused.headers
        assert await with_key.upstreams() == ()


async def test_without_an_issuer_nothing_speaks_of_oauth(tmp_path: Path) -> None:
    async with running_application(tmp_path) as service:
        described = await service.get("/.well-known/oauth-protected-resource/mcp")
        refused = await service.get("/v1/calls")

    assert described.status_code == 404
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer rbk_" in refused.json()["detail"]


async def test_doctor_reports_whether_the_issuer_is_usable(guarded: OAuthService) -> None:
    (usable,) = await check_issuer(load_settings(oidc_issuer=guarded.issuer.url))
    (away,) = await check_issuer(load_settings(oidc_issuer=f"http://127.0.0.1:{free_port()}"))
    (other,) = await check_issuer(load_settings(oidc_issuer=f"{guarded.issuer.url}/"))

    assert (usable.ok, usable.detail) == (True, f"{guarded.issuer.url} publishes 3 keys")
    assert not away.ok
    assert "could not be fetched" in away.detail
    assert not other.ok
    assert "names another issuer" in other.detail
    assert await check_issuer(load_settings()) == []
    assert await check_issuer(load_settings(oidc_issuer=guarded.issuer.url, auth="off")) == []

"""Logins to upstreams over REST: start one, come back from the authorization server, complete it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import CredentialsScope, UpstreamTokens
from ringback.services.logins.login_tokens import get_readable_tokens
from tests.support.login_flow import CODE
from tests.support.service import ServiceUnderTest, running_service

LOOPBACK = "http://127.0.0.1:4711/callback"
FRONT_END = "https://app.example/signed-in"
FRONT_END_OF_EACH = "https://app.example/signed-in?from={upstream}"


async def start_login(client: httpx.AsyncClient, upstream: str = "mine", **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/upstreams/{upstream}/login", json={"redirect_uri": LOOPBACK, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def build_redirect(started: dict[str, Any], **query: str) -> str:
    """Where the authorization server sends the browser."""
    state = parse_qs(urlsplit(str(started["authorization_url"])).query)["state"][0]
    redirect_uri = str(started["redirect_uri"])
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{urlencode({'state': state, 'code': CODE} | query)}"


async def complete_login(client: httpx.AsyncClient, redirected_to: str, upstream: str = "mine") -> httpx.Response:
    return await client.post(f"/v1/upstreams/{upstream}/login/complete", json={"redirected_to": redirected_to})


async def read_stored_tokens(service: ServiceUnderTest, upstream: str, owner: str) -> UpstreamTokens | None:
    return await service.store.read(lambda tx: get_readable_tokens(tx, upstream, Principal(owner)))


async def read_login_state(client: httpx.AsyncClient, upstream: str) -> dict[str, Any]:
    listed = (await client.get("/v1/upstreams")).json()["upstreams"]
    (state,) = [each["login"] for each in listed if each["name"] == upstream]
    return state


async def note_required_scope(service: ServiceUnderTest, scope: str) -> None:
    tokens = await read_stored_tokens(service, "mine", "alice")
    assert tokens is not None
    stepped = replace(tokens, required_scope=scope, version=tokens.version + 1)
    assert await service.store.write(lambda tx: tx.upstream_tokens.save(stepped, expected_version=tokens.version))


@asynccontextmanager
async def running_login_service(folder: Path) -> AsyncGenerator[ServiceUnderTest]:
    """A service with an upstream whose login is each principal's own, and one whose login all share."""
    hosted = {"mine": CredentialsScope.PRINCIPAL, "ours": CredentialsScope.SHARED}
    async with running_service(folder, hosted=hosted, login_redirect_urls=[FRONT_END, FRONT_END_OF_EACH]) as running:
        yield running

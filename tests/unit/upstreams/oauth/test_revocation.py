"""Tokens are revoked at the authorization server when a login ends."""

import httpx2
import pytest

from ringback.upstreams.oauth import revocation
from tests.support.authorization_flow import LoginFlowStage
from tests.support.logins import make_tokens
from tests.support.scripted_authorization import (
    REVOKE,
    SERVER_METADATA,
    UPSTREAM,
    hang,
)


async def test_both_tokens_are_revoked_the_refresh_token_first() -> None:
    flow = LoginFlowStage()
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM, refresh_token="refresh-1"))

    assert [form["token"] for form in flow.servers.list_forms(REVOKE)] == ["refresh-1", "token-1"]


async def test_a_revocation_without_a_secret_is_repeated_with_an_empty_one_where_the_server_refuses_it() -> None:
    flow = LoginFlowStage()
    flow.servers.answers[REVOKE] = lambda request: httpx2.Response(200 if b"client_secret=" in request.content else 400)
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM))

    sent = [request.content for request in flow.servers.requests if str(request.url) == REVOKE]
    assert [b"client_secret=" in content for content in sent] == [False, True]


@pytest.mark.parametrize("url", [SERVER_METADATA, REVOKE])
async def test_a_revocation_that_fails_raises_nothing(url: str) -> None:
    flow = LoginFlowStage()

    def fail(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    flow.servers.answers[url] = fail
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM))


async def test_an_access_token_is_revoked_also_if_the_revocation_of_the_refresh_token_fails() -> None:
    flow = LoginFlowStage()
    revoked: list[bytes] = []

    def fail_first(request: httpx2.Request) -> httpx2.Response:
        if b"refresh-1" in request.content:
            raise httpx2.ReadError("closed")
        revoked.append(request.content)
        return httpx2.Response(200)

    flow.servers.answers[REVOKE] = fail_first
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM, refresh_token="refresh-1"))

    assert len(revoked) == 1
    assert b"token-1" in revoked[0]


@pytest.mark.parametrize("url", [SERVER_METADATA, REVOKE])
async def test_a_revocation_that_hangs_ends_in_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "REVOKE_SECONDS", 0.01)
    flow = LoginFlowStage()
    hang(flow.servers, url)
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM))

    assert flow.servers.list_urls().count(url) == 0  # it arrived, and was given up

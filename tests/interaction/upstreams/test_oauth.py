"""Upstreams that require an access token: fetched by client_credentials, cached, replaced, and never shown."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import UpstreamInfo
from ringback.upstreams.config import AuthMethod, ClientCredentials, UpstreamConfig
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.authorization_server import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.support.examples import ALICE
from tests.support.upstreams import (
    WAIT_SECONDS,
    App,
    ControlledUpstream,
    HttpServer,
    make_app_of_era,
    make_http_config,
    open_upstreams,
    run_upstream_call,
    serving,
)


@asynccontextmanager
async def protect_upstream(issuer_app: AuthorizationServer, app: App) -> AsyncGenerator[tuple[HttpServer, HttpServer]]:
    async with serving(issuer_app) as issuer, serving(issuer_app.require_token(app)) as server:
        yield issuer, server


def make_oauth_config(server: HttpServer, issuer: HttpServer, **client: Any) -> UpstreamConfig:
    ours = ClientCredentials(token_url=issuer.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
    return replace(make_http_config(server.url), oauth=replace(ours, **client))


async def wait_until_failing(upstreams: UpstreamRegistry) -> UpstreamInfo:
    with pytest.raises(Unavailable):
        await upstreams.tool_catalog.list_tools("stage", principal=ALICE)
    (info,) = upstreams.tool_catalog.list_upstreams()
    assert info.state == "failing"
    return info


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_upstream_is_called_with_a_token_that_is_got_once(era: str) -> None:
    issuer_app, stage = AuthorizationServer(), ControlledUpstream()
    app = make_app_of_era(stage.app(), era)
    async with protect_upstream(issuer_app, app) as (issuer, server):
        config = make_oauth_config(server, issuer, scope="tools", resource=server.url)
        async with open_upstreams(config) as upstreams:
            endings = await asyncio.gather(*(run_upstream_call(upstreams, "echo", {"n": n}) for n in range(20)))

    assert {ending.outcome for ending in endings} == {CallOutcome.RESULT}
    assert issuer_app.forms == [
        {
            "grant_type": "client_credentials",
            "scope": "tools",
            "resource": server.url,
            "basic_id": CLIENT_ID,
            "basic_secret": CLIENT_SECRET,
        }
    ]
    assert set(issuer_app.shown) == {"token-1"}


async def test_the_secret_goes_into_the_form_where_the_server_wants_it_there() -> None:
    issuer_app = AuthorizationServer()
    async with (
        protect_upstream(issuer_app, ControlledUpstream().app()) as (issuer, server),
        open_upstreams(make_oauth_config(server, issuer, auth_method=AuthMethod.POST)) as upstreams,
    ):
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT

    assert issuer_app.forms == [
        {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    ]


@pytest.mark.requirement("R28")
async def test_many_calls_whose_token_was_revoked_get_one_new_token_and_run_once() -> None:
    issuer_app, stage = AuthorizationServer(), ControlledUpstream()
    async with (
        protect_upstream(issuer_app, stage.app()) as (issuer, server),
        open_upstreams(make_oauth_config(server, issuer)) as upstreams,
    ):
        await run_upstream_call(upstreams, "echo")
        issuer_app.revoke_tokens()
        endings = await asyncio.gather(*(run_upstream_call(upstreams, "echo", {"n": n}) for n in range(20)))

    assert {ending.outcome for ending in endings} == {CallOutcome.RESULT}
    assert len(stage.calls) == 21
    assert len(issuer_app.forms) == 2


async def test_a_token_is_replaced_before_it_ends() -> None:
    issuer_app = AuthorizationServer()
    issuer_app.expires_in = 1e-9
    async with (
        protect_upstream(issuer_app, ControlledUpstream().app()) as (issuer, server),
        open_upstreams(make_oauth_config(server, issuer)) as upstreams,
    ):
        await run_upstream_call(upstreams, "echo")

    assert len(issuer_app.shown) > 1
    assert len(set(issuer_app.shown)) == len(issuer_app.shown)


async def test_calls_go_on_while_a_tool_takes_its_time() -> None:
    """The SDK's own provider would block every other call until this one starts to respond."""
    issuer_app, stage = AuthorizationServer(), ControlledUpstream()
    async with (
        protect_upstream(issuer_app, stage.app()) as (issuer, server),
        open_upstreams(make_oauth_config(server, issuer)) as upstreams,
    ):
        held = asyncio.create_task(run_upstream_call(upstreams, "hold"))
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT
        stage.release.set()
        assert (await held).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_rejected_client_is_reported_without_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    issuer_app = AuthorizationServer()
    async with protect_upstream(issuer_app, ControlledUpstream().app()) as (issuer, server):
        config = make_oauth_config(server, issuer, client_secret="wrong-secret")
        async with open_upstreams(config, patience_seconds=0.2) as upstreams:
            info = await wait_until_failing(upstreams)
            with pytest.raises(UpstreamUnreachable, match="refuses the configured credentials") as raised:
                await run_upstream_call(upstreams, "echo")

    assert info.last_error == "unauthorised"
    assert "wrong-secret" not in f"{info} {raised.value} {caplog.text} {config}"


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    "spoiled",
    [
        (500, b"oops"),
        (302, b""),
        (200, b"no json"),
        (200, b'{"access_token": "a b", "token_type": "bearer"}'),
        (200, b'{"access_token": "a", "token_type": "mac"}'),
        (200, b'{"access_token": "' + b"a" * 100_000 + b'", "token_type": "bearer"}'),
    ],
    ids=["a crash", "a redirect", "no JSON", "no token", "another kind", "too much"],
)
async def test_an_authorization_server_without_a_token_is_reported(spoiled: tuple[int, bytes]) -> None:
    issuer_app = AuthorizationServer()
    issuer_app.spoiled = spoiled
    async with (
        protect_upstream(issuer_app, ControlledUpstream().app()) as (issuer, server),
        open_upstreams(make_oauth_config(server, issuer)) as upstreams,
    ):
        info = await wait_until_failing(upstreams)

    assert info.last_error == "no_token"
    assert issuer_app.shown == []


async def test_an_unreachable_authorization_server_is_reported_until_it_returns() -> None:
    issuer_app = AuthorizationServer()
    async with (
        protect_upstream(issuer_app, ControlledUpstream().app()) as (issuer, server),
        open_upstreams(make_oauth_config(server, issuer)) as upstreams,
    ):
        await run_upstream_call(upstreams, "echo")
        await issuer.kill_server()
        issuer_app.revoke_tokens()
        call = asyncio.create_task(run_upstream_call(upstreams, "echo"))
        async with serving(issuer_app, port=issuer.port):
            assert (await call).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_an_upstream_that_requires_credentials_and_offers_no_login_is_refused_with_advice() -> None:
    issuer_app = AuthorizationServer()
    issuer_app.challenge = b"Bearer"
    async with (
        serving(issuer_app.require_token(ControlledUpstream().app())) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        info = await wait_until_failing(upstreams)

    assert info.last_error == "authorization_required"
    assert info.advice is not None
    assert "'Authorization' header" in info.advice
    assert "client_credentials" in info.advice


async def test_a_rejected_header_and_missing_credentials_are_different_problems() -> None:
    issuer_app = AuthorizationServer()
    async with serving(issuer_app.require_token(ControlledUpstream().app())) as server:
        config = make_http_config(server.url, headers={"Authorization": "Bearer stale"})
        async with open_upstreams(config) as upstreams:
            assert (await wait_until_failing(upstreams)).last_error == "unauthorised"

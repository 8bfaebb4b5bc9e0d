"""Upstreams that require a login: requests carry the stored tokens, and a connection waits for new ones."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import SystemClock, seconds
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import upstream_tokens_topic
from ringback.domain.upstream_logins import SHARED_OWNER, OAuthClient, UpstreamTokens
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.protocol.errors import LoginRequired
from ringback.runner.drivers.selection import predict_driver_name
from ringback.services.logins.login_tokens import get_readable_tokens
from ringback.upstreams.errors import UpstreamLoginRequired
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.source_factory import TokenSourceFactory
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.authorization_server import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.support.logins import make_tokens
from tests.support.stores import open_test_store
from tests.support.upstreams import (
    WAIT_SECONDS,
    App,
    ControlledUpstream,
    Receive,
    Scope,
    Send,
    make_http_config,
    make_legacy_app,
    run_upstream_call,
    send_response,
    serving,
    wait_for_state,
)

CLIENT = OAuthClient(client_id=CLIENT_ID, client_secret=CLIENT_SECRET, auth_method="client_secret_basic")


def keep_app(app: App) -> App:
    return app


ERAS = {"modern": keep_app, "legacy": make_legacy_app}


@dataclass(slots=True, kw_only=True)
class Stage:
    upstreams: UpstreamRegistry
    store: Store
    issuer: AuthorizationServer
    tools: ControlledUpstream
    url: str
    token_endpoint: str
    clock: SystemClock

    async def sign_in(self, access_token: str = "good", **changes: Any) -> None:  # noqa: S107 - a test token
        """Save tokens as a login does."""
        self.issuer.good.add(access_token)
        await self.save_tokens(access_token=access_token, **changes)

    async def save_tokens(self, **changes: Any) -> None:
        """Save tokens as another node does, and notify this one."""
        now = self.clock.now()
        tokens = make_tokens(
            **{
                "upstream": "stage",
                "resource": self.url,
                "token_endpoint": self.token_endpoint,
                "client": CLIENT,
                "refresh_token": "refresh-1",
                "obtained_at": now - seconds(3600),
                "expires_at": now + seconds(3600),
                **changes,
            }
        )

        async def save(tx: Transaction) -> None:
            stored = await tx.upstream_tokens.get("stage", SHARED_OWNER)
            version = None if stored is None else stored.version
            assert await tx.upstream_tokens.save(replace(tokens, version=(version or 0) + 1), expected_version=version)
            tx.notify(upstream_tokens_topic("stage", SHARED_OWNER))

        await self.store.write(save)

    async def read_tokens(self) -> UpstreamTokens:
        stored = await self.store.read(lambda tx: get_readable_tokens(tx, "stage", SHARED_OWNER))
        assert stored is not None
        return stored


@asynccontextmanager
async def open_stage(folder: Path, *, wrap: Callable[[App], App] = keep_app) -> AsyncGenerator[Stage]:
    issuer, tools, clock = AuthorizationServer(), ControlledUpstream(), SystemClock()
    hosts = ConfiguredHosts()
    async with (
        serving(issuer) as issuing,
        serving(issuer.require_token(wrap(tools.app()))) as server,
        open_test_store(folder, clock) as store,
        UpstreamRegistry(
            [make_http_config(server.url)],
            clock=clock,
            random_fraction=lambda: 0.5,
            predict_driver_name=predict_driver_name,
            connect_timeout_seconds=WAIT_SECONDS,
            hosts=hosts,
            token_sources=TokenSourceFactory(hosts, MetadataClients(hosts), clock=clock, store=store),
        ) as upstreams,
    ):
        yield Stage(
            upstreams=upstreams,
            store=store,
            issuer=issuer,
            tools=tools,
            url=server.url,
            token_endpoint=issuing.url,
            clock=clock,
        )


def refuse_listening(app: App) -> App:
    """A legacy server whose GET stream alone refuses every token."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            await send_response(send, 401, "text/plain", b"")
        else:
            await make_legacy_app(app)(scope, receive, send)

    return serve


@contextmanager
def expect_login() -> Generator[None]:
    with pytest.raises((LoginRequired, UpstreamLoginRequired)):
        yield


async def test_an_upstream_without_a_login_is_reported_and_its_calls_fail_at_once(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await wait_for_state(stage.upstreams, "failing")
        (info,) = stage.upstreams.tool_catalog.list_upstreams()
        with pytest.raises(UpstreamLoginRequired):
            await run_upstream_call(stage.upstreams, "echo")

    assert info.last_error == "login_required"
    assert info.advice is not None
    assert "ringback upstreams login" in info.advice


@pytest.mark.parametrize("era", ERAS)
async def test_a_login_connects_the_upstream_at_once_and_calls_carry_its_token(tmp_path: Path, era: str) -> None:
    """The connection itself would try again after a minute."""
    async with open_stage(tmp_path, wrap=ERAS[era]) as stage:
        await wait_for_state(stage.upstreams, "failing")
        await stage.sign_in()
        await wait_for_state(stage.upstreams, "ready")

        assert (await run_upstream_call(stage.upstreams, "echo")).outcome is CallOutcome.RESULT
        assert set(stage.issuer.shown) == {"", "good"}


async def test_a_call_right_after_a_login_waits_for_the_connection(tmp_path: Path) -> None:
    """A queued call goes on before the connection notices the login."""
    async with open_stage(tmp_path) as stage:
        await wait_for_state(stage.upstreams, "failing")
        await stage.sign_in()

        assert (await run_upstream_call(stage.upstreams, "echo")).outcome is CallOutcome.RESULT


@pytest.mark.parametrize("era", ERAS)
async def test_many_calls_with_a_revoked_token_share_one_refresh_and_run_once(tmp_path: Path, era: str) -> None:
    async with open_stage(tmp_path, wrap=ERAS[era]) as stage:
        await stage.sign_in()
        await run_upstream_call(stage.upstreams, "echo")
        stage.issuer.revoke_tokens()
        endings = await asyncio.gather(*(run_upstream_call(stage.upstreams, "echo", {"n": n}) for n in range(20)))

        assert {ending.outcome for ending in endings} == {CallOutcome.RESULT}
        assert len(stage.tools.calls) == 21
        (form,) = stage.issuer.forms
        assert (form["grant_type"], form["refresh_token"], form["resource"]) == (
            "refresh_token",
            "refresh-1",
            stage.url,
        )
        assert (await stage.read_tokens()).access_token == "token-1"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_refresh_is_refused_requires_a_login_and_has_not_run(tmp_path: Path, era: str) -> None:
    async with open_stage(tmp_path, wrap=ERAS[era]) as stage:
        await stage.sign_in()
        await run_upstream_call(stage.upstreams, "echo")
        stage.issuer.revoke_tokens()
        stage.issuer.spoiled = 400, b'{"error": "invalid_grant"}'
        for _ in range(3):
            with expect_login():
                await run_upstream_call(stage.upstreams, "echo")

        assert len(stage.tools.calls) == 1
        assert len(stage.issuer.forms) == 1
        stage.issuer.spoiled = None
        await stage.sign_in(access_token="after-login")
        assert (await run_upstream_call(stage.upstreams, "echo")).outcome is CallOutcome.RESULT


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "stored", [{"access_token": None, "refresh_token": None}, {"access_token": "new", "login_id": "login_2"}]
)
async def test_a_call_that_waits_for_a_new_token_requires_a_login_once_its_login_has_ended(
    tmp_path: Path, era: str, stored: dict[str, Any]
) -> None:
    """A refresh token that was refused, or another login. The runner queues the call again if there are tokens by then."""
    async with open_stage(tmp_path, wrap=ERAS[era]) as stage:
        await stage.sign_in()
        await run_upstream_call(stage.upstreams, "echo")
        stage.issuer.revoke_tokens()
        stage.issuer.spoiled = 503, b""
        call = asyncio.create_task(run_upstream_call(stage.upstreams, "echo"))
        await wait_for_state(stage.upstreams, "failing")
        await stage.save_tokens(**stored)

        with expect_login():
            await call
        assert len(stage.tools.calls) == 1


async def test_a_refused_stream_for_messages_ends_no_session(tmp_path: Path) -> None:
    async with open_stage(tmp_path, wrap=refuse_listening) as stage:
        await stage.sign_in()

        assert (await run_upstream_call(stage.upstreams, "echo")).outcome is CallOutcome.RESULT


async def test_requests_between_calls_require_a_login_too(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        await stage.sign_in()
        session = await stage.upstreams.connections.shared["stage"].get_shared_session()
        stage.issuer.revoke_tokens()
        stage.issuer.spoiled = 400, b'{"error": "invalid_grant"}'
        for method, params in (("tools/list", {}), ("tasks/get", {"taskId": "1"})):
            with expect_login():
                await session.send_request(method, params)

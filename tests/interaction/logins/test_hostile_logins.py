"""Attacks on a login and on its tokens, against the whole service: mix-up, injection, replay, loops, other origins."""

import asyncio
import hashlib
import itertools
import logging
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from ringback.client import Call, ClientError, Conflict, NotFound, RingbackClient, StartedLogin
from ringback.domain.principal import ALL_SCOPES, Principal
from ringback.domain.upstream_logins import CredentialsScope, UpstreamTokens
from ringback.services.logins.login_tokens import get_readable_tokens
from ringback.telemetry.logs import JsonFormatter
from ringback.upstreams.config import UpstreamConfig
from tests.support.application import RunningApplication, running_application
from tests.support.databases import count_rows
from tests.support.limits import WAIT_SECONDS, growing_pauses
from tests.support.login_peers.hostile_server import (
    METADATA_PATH,
    TRICKLE_SECONDS,
    HostileLoginServer,
    StreamedBody,
    redirect_to,
)
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

REDIRECT_URI: Final = "http://127.0.0.1:9/callback"

LOGIN_TABLES: Final = ("upstream_logins", "upstream_tokens", "oauth_clients")
REQUESTS_PER_LOGIN_MAX: Final = 12
"""Requests to the MCP endpoint for one login: the handshake of a session in both eras, its lists, the call, each sent twice."""


def is_challenge_of(started: StartedLogin, verifier: str) -> bool:
    """Whether the verifier belongs to the challenge of this login (RFC 7636 §4.6)."""
    (challenge,) = parse_qs(urlsplit(started.authorization_url).query)["code_challenge"]
    return challenge == urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@dataclass(slots=True)
class Stage:
    """A service with a hostile upstream `files`, of which each principal has its own login, and a sound one, `stage`."""

    service: RunningApplication
    server: HostileLoginServer
    victim: HostileLoginServer
    alice: RingbackClient
    bob: RingbackClient
    configs: list[UpstreamConfig]

    async def start_login(self, agent: RingbackClient) -> StartedLogin:
        return await agent.start_login("files", redirect_uri=REDIRECT_URI)

    async def sign_in(self, agent: RingbackClient) -> None:
        started = await self.start_login(agent)
        await agent.complete_login("files", self.server.approve(started.authorization_url))

    async def read_tokens(self, principal: str) -> UpstreamTokens | None:
        store = self.service.app.store
        return await store.read(lambda tx: get_readable_tokens(tx, "files", Principal(principal)))

    async def wait_until_waiting(self, call: Call) -> None:
        """Wait until the call waits for a login."""
        # A long poll ends with the call or after its seconds, and not when the call begins to wait.
        async with asyncio.timeout(WAIT_SECONDS):
            for pause in growing_pauses():
                if (await self.alice.call(call.id, wait_seconds=pause)).status == "input_required":
                    return

    async def start_call(self) -> Call:
        return (await self.alice.start_call("files", "whoami", {})).call


@asynccontextmanager
async def running_stage(folder: Path) -> AsyncGenerator[Stage]:
    async with (
        HostileLoginServer().serving() as server,
        HostileLoginServer().serving() as victim,
        serving(ControlledUpstream().app()) as sound,
    ):
        files = replace(make_http_config(server.url, name="files"), credentials=CredentialsScope.PRINCIPAL)
        configs = [files, make_http_config(sound.url)]
        async with running_application(folder, *configs, read_configs=lambda: configs) as service:
            alice, bob = [await service.create_agent_client(name, scopes=ALL_SCOPES) for name in ("alice", "bob")]
            yield Stage(service, server, victim, alice, bob, configs)


@pytest.fixture
async def stage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncGenerator[Stage]:
    """Whatever a test does, no log line has a secret of the hostile server, and the victim gets no token."""
    caplog.set_level(logging.DEBUG, logger="ringback")
    async with running_stage(tmp_path) as stage:
        yield stage
        logged = "\n".join(JsonFormatter().format(record) for record in caplog.records)
        assert "canary" not in logged
        assert set(stage.victim.mcp_tokens) <= {None}
        assert stage.victim.requests == []


async def test_calls_wait_for_a_login_once_the_upstream_refuses_also_new_tokens(stage: Stage) -> None:
    await stage.sign_in(stage.alice)
    await stage.alice.wait((await stage.start_call()).id)
    stage.server.accepts_tokens = False
    calls = await asyncio.gather(*(stage.start_call() for _ in range(5)))
    for call in calls:
        await stage.wait_until_waiting(call)


async def test_a_login_that_does_not_begin_or_is_refused_stores_nothing(stage: Stage, tmp_path: Path) -> None:
    stage.server.metadata["token_endpoint"] = "http://169.254.169.254/token"
    with pytest.raises(Conflict) as refused:
        await stage.start_login(stage.alice)
    assert "169.254" not in str(refused.value)

    stage.server.reset()
    stage.server.token["token_type"] = "mac"
    with pytest.raises(Conflict):
        await stage.sign_in(stage.alice)

    counts = count_rows(tmp_path)
    assert {name: counts[name] for name in LOGIN_TABLES} == dict.fromkeys(LOGIN_TABLES, 0)


@pytest.mark.parametrize("issuer", ["https://another.example", None])
async def test_a_redirect_of_another_issuer_or_of_none_grants_nothing(stage: Stage, issuer: str | None) -> None:
    """Mix-up (RFC 9207): the metadata announce that the redirect names the issuer."""
    started = await stage.start_login(stage.alice)

    with pytest.raises(Conflict) as refused:
        await stage.alice.complete_login("files", stage.server.approve(started.authorization_url, iss=issuer))

    assert "canary" not in str(refused.value)
    assert stage.server.list_requests("/token") == []
    assert await stage.read_tokens("alice") is None


async def test_a_principal_cannot_complete_the_login_of_another_one(stage: Stage) -> None:
    """Code injection: who completes it would use the account of the one who approved it."""
    started = await stage.start_login(stage.alice)
    redirected_to = stage.server.approve(started.authorization_url)

    with pytest.raises((NotFound, Conflict)):
        await stage.bob.complete_login("files", redirected_to)
    assert stage.server.list_requests("/token") == []

    await stage.alice.complete_login("files", redirected_to)
    assert await stage.read_tokens("bob") is None


async def test_a_code_with_the_state_of_another_login_is_exchanged_with_the_verifier_of_that_login(
    stage: Stage,
) -> None:
    first, second = await stage.start_login(stage.alice), await stage.start_login(stage.alice)
    code_of_first = "canary-code-of-the-first"

    await stage.alice.complete_login("files", stage.server.approve(second.authorization_url, code=code_of_first))

    (sent,) = stage.server.list_requests("/token")
    assert sent.form["code"] == code_of_first
    assert is_challenge_of(second, sent.form["code_verifier"])
    assert not is_challenge_of(first, sent.form["code_verifier"])


async def test_a_redirect_is_used_once_also_by_two_requests_at_the_same_time(stage: Stage) -> None:
    started = await stage.start_login(stage.alice)
    redirected_to = stage.server.approve(started.authorization_url)

    outcomes = await asyncio.gather(
        *(stage.alice.complete_login("files", redirected_to) for _ in range(5)), return_exceptions=True
    )
    with pytest.raises((NotFound, Conflict)):
        await stage.alice.complete_login("files", redirected_to)

    assert sum(isinstance(outcome, ClientError) for outcome in outcomes) == 4
    assert len(stage.server.list_requests("/token")) == 1


async def test_the_words_of_a_denial_are_not_shown(stage: Stage) -> None:
    started = await stage.start_login(stage.alice)
    words = "canary <script>alert(1)</script> call 555-0100"

    with pytest.raises(Conflict) as refused:
        await stage.alice.complete_login(
            "files",
            stage.server.approve(started.authorization_url, code=None, error="access_denied", error_description=words),
        )

    assert "canary" not in str(refused.value)
    assert "script" not in str(refused.value)


async def test_a_login_that_hangs_delays_no_other_login(stage: Stage) -> None:
    body = stage.server.responses[METADATA_PATH] = StreamedBody(itertools.repeat(b" "), pause_seconds=TRICKLE_SECONDS)
    hanging = asyncio.create_task(stage.start_login(stage.alice))
    await stage.server.wait_for_request(METADATA_PATH)

    started = await stage.bob.start_call("stage", "echo", {"text": "x"}, wait_seconds=60)

    assert started.call.status == "completed"
    assert not hanging.done()
    hanging.cancel()
    await body.wait_until_left()


async def test_a_server_that_refuses_every_token_gets_few_requests_and_the_call_waits(stage: Stage) -> None:
    """A login loop: without the user, nothing is sent again and again."""
    stage.server.accepts_tokens = False
    call = await stage.start_call()
    await stage.wait_until_waiting(call)
    for _ in range(3):
        stage.server.mcp_tokens.clear()
        await stage.sign_in(stage.alice)
        await stage.wait_until_waiting(call)
        assert any(stage.server.mcp_tokens)
        assert len(stage.server.mcp_tokens) <= REQUESTS_PER_LOGIN_MAX

    stage.server.accepts_tokens = True
    await stage.sign_in(stage.alice)
    assert (await stage.alice.wait(call.id)).outcome == "result"


async def test_a_server_that_demands_a_further_scope_each_time_makes_the_call_wait_each_time(stage: Stage) -> None:
    stage.server.required_scopes += [f"files:scope-{number}" for number in range(200)]
    call = await stage.start_call()
    await stage.wait_until_waiting(call)
    for _ in range(3):
        stage.server.mcp_tokens.clear()
        await stage.sign_in(stage.alice)
        await stage.wait_until_waiting(call)
        assert any(stage.server.mcp_tokens)
        assert len(stage.server.mcp_tokens) <= REQUESTS_PER_LOGIN_MAX

    stage.server.required_scopes.clear()
    await stage.sign_in(stage.alice)
    assert (await stage.alice.wait(call.id)).outcome == "result"


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_token_does_not_follow_a_redirect_to_another_origin(stage: Stage, status: int) -> None:
    await stage.sign_in(stage.alice)
    call = await stage.start_call()
    assert (await stage.alice.wait(call.id)).outcome == "result"
    stage.server.responses["/mcp"] = redirect_to(stage.victim.url, status=status)

    redirected = await stage.start_call()
    assert (await stage.alice.wait(redirected.id)).outcome != "result"
    assert stage.victim.mcp_tokens == []


async def test_the_tokens_of_a_url_are_not_sent_to_the_url_that_replaces_it(stage: Stage) -> None:
    await stage.sign_in(stage.alice)
    stage.configs[0] = replace(stage.configs[0], url=stage.victim.url)
    await stage.alice.reload_upstreams()

    call = await stage.start_call()
    await stage.wait_until_waiting(call)

    assert set(stage.victim.mcp_tokens) == {None}
    stage.victim.requests.clear()  # discovery asks without a token

"""Servers that attack a login. It fails with the right reason, in bounded time and memory, and no other host gets a request."""

import itertools
import logging
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.upstream_logins import (
    AuthorizationRequest,
    LoginFailed,
    LoginFailure,
    LoginFlow,
)
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.upstreams.oauth import metadata_http
from ringback.upstreams.oauth.authorization import OAuthLoginFlow
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.token_responses import LIFETIME_SECONDS_MAX
from tests.support.login_peers.hostile_server import (
    METADATA_PATH,
    PIECE,
    RESOURCE_METADATA_PATH,
    TRICKLE_SECONDS,
    HostileLoginServer,
    StreamedBody,
    make_gzip_bomb,
    make_large_json,
    redirect_to,
    respond_with_body,
)
from tests.support.login_peers.registered_clients import KeptClients
from tests.support.resolvers import FakeResolver
from tests.support.upstreams import make_http_config

REDIRECT_URI: Final = "https://console.example/callback"
CLOUD_METADATA: Final = "http://169.254.169.254/latest/meta-data"
PRIVATE: Final = "https://10.0.0.1"
REBINDING_HOST: Final = "rebound.example"
REQUESTS_MAX: Final = 13
"""Requests of one attempt to begin a login: one for the resource, and three for each of at most four authorization servers."""
MEMORY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The server's own copies of a response of ten million bytes are not counted; a client that keeps it is above this."""

Attack = Callable[[HostileLoginServer, HostileLoginServer], Any]
"""Makes the first server hostile; the second one is the victim, which must get no request."""


def change_metadata(**members: Any) -> Attack:
    return lambda server, _victim: server.metadata.update(members)


def change_resource(**members: Any) -> Attack:
    return lambda server, _victim: server.resource_metadata.update(members)


def change_registration(**members: Any) -> Attack:
    return lambda server, _victim: server.registration.update(members)


def change_token(**members: Any) -> Attack:
    return lambda server, _victim: server.token.update(members)


def name_metadata_url(url: str) -> Attack:
    def attack(server: HostileLoginServer, _victim: HostileLoginServer) -> None:
        server.challenge = f'Bearer resource_metadata="{url}"'

    return attack


def send_to_victim(path: str, *, status: int = 302) -> Attack:
    def attack(server: HostileLoginServer, victim: HostileLoginServer) -> None:
        server.responses[path] = redirect_to(f"{victim.origin}{path}", status=status)

    return attack


def respond_with(path: str, body: bytes, **options: Any) -> Attack:
    def attack(server: HostileLoginServer, _victim: HostileLoginServer) -> None:
        server.responses[path] = respond_with_body(body, **options)

    return attack


def list_many_issuers(server: HostileLoginServer, _victim: HostileLoginServer) -> None:
    server.resource_metadata["authorization_servers"] = [f"{server.origin}/tenant-{each}" for each in range(1000)]


def name_own_path(server: HostileLoginServer, _victim: HostileLoginServer) -> None:
    server.resource_metadata["resource"] = f"{server.origin}/another"


def name_resource_of_victim(server: HostileLoginServer, victim: HostileLoginServer) -> None:
    server.resource_metadata["resource"] = victim.url


def name_issuer_of_victim(server: HostileLoginServer, victim: HostileLoginServer) -> None:
    server.metadata["issuer"] = victim.origin


def name_endpoint_with_state(server: HostileLoginServer, _victim: HostileLoginServer) -> None:
    server.metadata["authorization_endpoint"] = f"{server.origin}/authorize?state=evil"


UNSAFE, INVALID = LoginFailure.UNSAFE, LoginFailure.INVALID_RESPONSE
UNSUPPORTED, ABSENT = LoginFailure.UNSUPPORTED, LoginFailure.NOT_OFFERED

ATTACKS_ON_DISCOVERY: Final[dict[str, tuple[Attack, LoginFailure]]] = {
    # Whose metadata it is (RFC 8414 §3.3, RFC 9728 §3.3).
    "the metadata names another issuer": (name_issuer_of_victim, UNSAFE),
    "the metadata names no issuer": (change_metadata(issuer=None), INVALID),
    "the resource's metadata belongs to another server": (name_resource_of_victim, UNSAFE),
    "the resource's metadata belongs to another path": (name_own_path, UNSAFE),
    "a thousand authorization servers are listed": (list_many_issuers, ABSENT),
    # Which hosts it names (SSRF).
    "the challenge names the cloud's metadata service": (name_metadata_url(CLOUD_METADATA), UNSAFE),
    "the challenge names a private address": (name_metadata_url(f"{PRIVATE}/metadata"), UNSAFE),
    "the challenge names a public host without TLS": (name_metadata_url("http://files.example/metadata"), UNSAFE),
    "the challenge names a file": (name_metadata_url("file:///etc/passwd"), UNSAFE),
    "the authorization server has a private address": (change_resource(authorization_servers=[PRIVATE]), UNSAFE),
    "the authorization server's name has a private address": (
        change_resource(authorization_servers=["https://rebound.example"]),
        UNSAFE,
    ),
    "the token endpoint has no TLS": (change_metadata(token_endpoint="http://files.example/token"), UNSAFE),
    "the token endpoint is the cloud's metadata service": (change_metadata(token_endpoint=CLOUD_METADATA), UNSAFE),
    "the registration endpoint has a private address": (
        change_metadata(registration_endpoint=f"{PRIVATE}/register"),
        UNSAFE,
    ),
    "the authorization endpoint is a script": (change_metadata(authorization_endpoint="javascript:alert(1)"), UNSAFE),
    "the authorization endpoint has a user": (
        change_metadata(authorization_endpoint="https://ringback.example@evil.example/"),
        UNSAFE,
    ),
    "the authorization endpoint has a state of its own": (name_endpoint_with_state, UNSAFE),
    # Downgrades (RFC 7636, OAuth 2.1).
    "PKCE is not supported": (change_metadata(code_challenge_methods_supported=None), UNSUPPORTED),
    "PKCE is only plain": (change_metadata(code_challenge_methods_supported=["plain"]), UNSUPPORTED),
    "only the implicit grant is supported": (
        change_metadata(response_types_supported=["token"], grant_types_supported=["implicit"]),
        UNSUPPORTED,
    ),
    # What is no metadata at all.
    "the metadata is a page": (respond_with(METADATA_PATH, b"<html>", content_type="text/html"), ABSENT),
    "the metadata is a list": (respond_with(METADATA_PATH, b"[]"), ABSENT),
    "the metadata is nested too deeply": (respond_with(METADATA_PATH, b'{"a":' + b"[" * 30_000), ABSENT),
    "the resource's metadata has numbers for texts": (change_resource(authorization_servers=[7, None]), INVALID),
    "the metadata redirects to another server": (send_to_victim(METADATA_PATH), ABSENT),
    "the resource's metadata redirects to another server": (send_to_victim(RESOURCE_METADATA_PATH), INVALID),
    # Registration (RFC 7591).
    "the registration redirects to another server": (send_to_victim("/register", status=307), UNSUPPORTED),
    "the registration has another redirect URI": (
        change_registration(redirect_uris=["https://evil.example/callback"]),
        INVALID,
    ),
    "the registered secret has a line break": (
        change_registration(client_secret="a\r\nx-evil: 1", token_endpoint_auth_method="client_secret_basic"),
        INVALID,
    ),
    "the registered client id is huge": (change_registration(client_id="x" * 50_000), INVALID),
    "the registered client id is no text": (change_registration(client_id={"a": 1}), INVALID),
}

ATTACKS_ON_TOKENS: Final[dict[str, Attack]] = {
    "the token endpoint redirects to another server": send_to_victim("/token", status=307),
    "the token has another type": change_token(token_type="mac"),
    "the token has no type": change_token(token_type=None),
    "the token is huge": change_token(access_token="x" * 40_000),
    "the token has a line break": change_token(access_token="canary\r\nx-evil: 1"),
    "the token has characters beyond ASCII": change_token(access_token="canary-ä"),
    "the token is a number": change_token(access_token=7),
    "there is no token": change_token(access_token=None),
    "the response is a page": respond_with("/token", b"<html>canary-access-0</html>", content_type="text/html"),
    "the response is an error in words": respond_with(
        "/token", b'{"error": "canary-code-1", "error_description": "canary-code-1"}', status=400
    ),
}


class Stage:
    """The login flow under test, the hostile server, the victim, which must get no request, and the addresses of host names."""

    def __init__(
        self,
        flow: LoginFlow,
        server: HostileLoginServer,
        victim: HostileLoginServer,
        clients: KeptClients,
        names: dict[str, list[str]],
    ) -> None:
        self.flow, self.server, self.victim, self.clients, self.names = flow, server, victim, clients, names

    async def begin(self) -> AuthorizationRequest:
        started = await self.flow.begin_authorization("files", redirect_uri=REDIRECT_URI, scope=None)
        assert started.state not in repr(started)
        return started.request

    async def fail_to_begin(self) -> LoginFailed:
        with pytest.raises(LoginFailed) as failed:
            await self.begin()
        return failed.value

    async def fail_to_exchange(self) -> LoginFailed:
        request = await self.begin()
        with pytest.raises(LoginFailed) as failed:
            await self.flow.exchange_code("files", request, code="canary-code-0")
        return failed.value

    def assert_nothing_leaked(self, failure: LoginFailed, caplog: pytest.LogCaptureFixture) -> None:
        assert self.victim.requests == []
        assert self.clients.saved.keys() <= {(self.server.origin, REDIRECT_URI)}
        said = f"{failure} {failure.__cause__!r} {failure.__context__!r} {caplog.text}"
        assert "canary" not in said
        assert "evil" not in said


@pytest.fixture(scope="module")
async def servers() -> AsyncGenerator[tuple[HostileLoginServer, HostileLoginServer]]:
    async with HostileLoginServer().serving() as server, HostileLoginServer().serving() as victim:
        yield server, victim


@pytest.fixture
async def stage(
    servers: tuple[HostileLoginServer, HostileLoginServer], caplog: pytest.LogCaptureFixture
) -> AsyncGenerator[Stage]:
    caplog.set_level(logging.DEBUG, logger="ringback")
    server, victim = servers
    server.reset()
    victim.reset()
    config = make_http_config(server.url, name="files")
    names = {REBINDING_HOST: ["10.0.0.1"]}
    async with aclosing(ConfiguredHosts(FakeResolver(names))) as hosts:
        clients = KeptClients()
        flow = OAuthLoginFlow(lambda: [config], MetadataClients(hosts), clients, clock=SystemClock())
        yield Stage(flow, server, victim, clients, names)


@pytest.mark.parametrize("sentence", ATTACKS_ON_DISCOVERY)
async def test_a_login_does_not_begin_if(stage: Stage, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    attack, reason = ATTACKS_ON_DISCOVERY[sentence]
    attack(stage.server, stage.victim)

    failure = await stage.fail_to_begin()

    assert failure.failure is reason
    assert len(stage.server.requests) <= REQUESTS_MAX
    stage.assert_nothing_leaked(failure, caplog)


@pytest.mark.parametrize("sentence", ATTACKS_ON_TOKENS)
async def test_a_login_grants_no_tokens_if(stage: Stage, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    ATTACKS_ON_TOKENS[sentence](stage.server, stage.victim)

    failure = await stage.fail_to_exchange()

    assert failure.failure in {LoginFailure.INVALID_RESPONSE, LoginFailure.REFUSED}
    assert len(stage.server.list_requests("/token")) == 1
    stage.assert_nothing_leaked(failure, caplog)


@pytest.mark.parametrize("refresh_token", ["x" * 40_000, "canary\x00\x1b[2J", "canary\r\nx-evil: 1", 7, {}])
async def test_a_refresh_token_that_cannot_be_sent_is_left_out(stage: Stage, refresh_token: Any) -> None:
    stage.server.token["refresh_token"] = refresh_token
    request = await stage.begin()

    granted = await stage.flow.exchange_code("files", request, code="canary-code-0")

    assert granted.refresh_token is None


@pytest.mark.parametrize("scope", ["evil\x00\x1b[2J", "evil" * 2000, " ".join(map(str, range(500))), 7, ["evil"]])
async def test_a_granted_scope_that_is_none_is_the_requested_one(stage: Stage, scope: Any) -> None:
    stage.server.token["scope"] = scope
    request = await stage.begin()

    granted = await stage.flow.exchange_code("files", request, code="canary-code-0")

    assert granted.scope == request.scope == "files:read"


@pytest.mark.parametrize("expires_in", [-1, "soon", 1e308, "nan", True, None, [], "9" * 400])
async def test_a_lifetime_without_sense_stays_within_the_calendar(stage: Stage, expires_in: Any) -> None:
    stage.server.token["expires_in"] = expires_in
    request = await stage.begin()

    granted = await stage.flow.exchange_code("files", request, code="canary-code-0")

    assert granted.lifetime_seconds is None or 0 <= granted.lifetime_seconds <= LIFETIME_SECONDS_MAX


BODIES: Final[dict[str, Callable[[], StreamedBody]]] = {
    "is ten million bytes long": lambda: StreamedBody(make_large_json()),
    "does not end": lambda: StreamedBody(itertools.repeat(PIECE)),
    "unpacks to ten million bytes": lambda: StreamedBody([make_gzip_bomb()], encoding="gzip"),
}


@pytest.mark.parametrize("path", [RESOURCE_METADATA_PATH, METADATA_PATH, "/register", "/token"])
@pytest.mark.parametrize("sentence", BODIES)
async def test_a_login_keeps_little_of_a_response_that(stage: Stage, sentence: str, path: str) -> None:
    request = await stage.begin() if path == "/token" else None
    body = stage.server.responses[path] = BODIES[sentence]()

    tracemalloc.start()
    try:
        with pytest.raises(LoginFailed) as failed:
            await (
                stage.begin() if request is None else stage.flow.exchange_code("files", request, code="canary-code-0")
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert failed.value.failure in {LoginFailure.INVALID_RESPONSE, LoginFailure.NOT_OFFERED}
    assert peak < MEMORY_BYTES_MAX
    await body.wait_until_left()


@pytest.mark.parametrize("path", [RESOURCE_METADATA_PATH, METADATA_PATH, "/register", "/token"])
async def test_a_response_that_trickles_ends_the_login_in_time(
    stage: Stage, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await stage.begin() if path == "/token" else None
    monkeypatch.setattr(metadata_http, "REQUEST_SECONDS", 0.3)
    body = stage.server.responses[path] = StreamedBody(itertools.repeat(b" "), pause_seconds=TRICKLE_SECONDS)

    with pytest.raises(LoginFailed) as failed:
        await (stage.begin() if request is None else stage.flow.exchange_code("files", request, code="canary-code-0"))

    assert failed.value.failure is LoginFailure.UNREACHABLE
    await body.wait_until_left()


async def test_a_name_that_changes_its_address_after_the_check_gets_no_request(stage: Stage) -> None:
    """DNS rebinding: the name has a public address when the login begins, and a private one for the token request."""
    stage.names[REBINDING_HOST] = ["93.184.215.14"]
    stage.server.metadata["token_endpoint"] = f"https://{REBINDING_HOST}/token"
    request = await stage.begin()
    stage.names[REBINDING_HOST] = ["10.0.0.1"]

    with pytest.raises(LoginFailed) as failed:
        await stage.flow.exchange_code("files", request, code="canary-code-0")

    assert failed.value.failure is LoginFailure.UNSAFE

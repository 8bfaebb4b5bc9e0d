"""The login to an upstream with a browser: implements `domain.upstream_logins.LoginFlow`.

begin_authorization   discover ──▶ identify the client ──▶ URL with state, PKCE challenge, resource and scope
exchange_code         code, verifier and resource ──▶ tokens
revoke_tokens         at the authorization server, if it offers that
"""

import hashlib
import logging
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio

from ringback.domain.clock import Clock
from ringback.domain.upstream_logins import (
    AuthorizationRequest,
    GrantedTokens,
    LoginFailed,
    LoginFailure,
    StartedAuthorization,
    UpstreamTokens,
)
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.client_store import ClientStore
from ringback.upstreams.oauth.discovery import (
    DiscoveredServer,
    discover_server,
    is_resource_of,
)
from ringback.upstreams.oauth.endpoints import UnsafeUrl
from ringback.upstreams.oauth.metadata import PKCE_METHOD
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.registration import ClientIdentification, ClientRequest, forget_client
from ringback.upstreams.oauth.revocation import log_not_revoked, revoke_at_server
from ringback.upstreams.oauth.scopes import OFFLINE_ACCESS, parse_scope, split_scope, unite_scopes
from ringback.upstreams.oauth.token_requests import TokenRefused, request_tokens
from ringback.upstreams.oauth.token_responses import CLIENT_UNKNOWN

log = logging.getLogger(__name__)

BEGIN_SECONDS: Final = 40.0
"""For the whole discovery and registration, some six requests. A person waits for the URL."""
STATE_BYTES: Final = 32
"""256 bits, as for every secret that may be guessed at over the network."""
VERIFIER_BYTES: Final = 32
"""43 characters, as RFC 7636 §4.1 recommends."""


class OAuthLoginFlow:
    def __init__(
        self,
        get_configs: Callable[[], Iterable[UpstreamConfig]],
        metadata_clients: MetadataClients,
        clients: ClientStore,
        *,
        clock: Clock,
        get_client_metadata_url: Callable[[str], str] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`get_configs` returns the upstreams as they are configured now.

        `get_client_metadata_url` returns the URL of Ringback's client id metadata document for an upstream; None if Ringback's
        public URL is not https.
        """
        self._get_configs = get_configs
        self._metadata_clients = metadata_clients
        self._clients = clients
        self._identification = ClientIdentification(clients, clock=clock)
        self._get_client_metadata_url = get_client_metadata_url
        self._random_bytes = random_bytes

    async def begin_authorization(self, upstream: str, *, redirect_uri: str, scope: str | None) -> StartedAuthorization:
        config = self._find_config(lambda each: each.name == upstream)
        if not config.takes_login:
            raise LoginFailed(
                LoginFailure.NOT_OFFERED,
                "The upstream's credentials are in the configuration, so it uses no login.",
            )
        try:
            with anyio.fail_after(BEGIN_SECONDS):
                return await self._begin(config, redirect_uri, scope)
        except TimeoutError:
            raise LoginFailed(
                LoginFailure.UNREACHABLE, "The upstream or its authorization server is too slow. Try again later."
            ) from None

    async def _begin(self, config: UpstreamConfig, redirect_uri: str, scope: str | None) -> StartedAuthorization:
        http = self._metadata_clients.get_client(config)
        server = await discover_server(config, http)
        requested = select_scope(server, wanted=scope, configured=config.login.scope)
        get_metadata_url = self._get_client_metadata_url
        client_request = ClientRequest(
            redirect_uri=redirect_uri,
            scope=requested,
            settings=config.login,
            metadata_url=None if get_metadata_url is None else get_metadata_url(config.name),
        )
        client = await self._identification.identify_client(server.metadata, http, client_request)
        request = AuthorizationRequest(
            issuer=server.metadata.issuer,
            token_endpoint=server.metadata.token_endpoint,
            client=client,
            redirect_uri=redirect_uri,
            code_verifier=_encode(self._random_bytes(VERIFIER_BYTES)),
            resource=server.resource,
            scope=requested,
            requires_issuer=server.metadata.sends_issuer,
        )
        state = _encode(self._random_bytes(STATE_BYTES))
        url = make_authorization_url(server.metadata.authorization_endpoint, request, state=state)
        return StartedAuthorization(authorization_url=url, state=state, request=request)

    async def exchange_code(self, upstream: str, request: AuthorizationRequest, *, code: str) -> GrantedTokens:
        def is_same(config: UpstreamConfig) -> bool:
            """Not if its URL changed since: its tokens and the rules for its servers are those of another upstream."""
            return config.name == upstream and config.takes_login and is_resource_of(request.resource, config.url)

        config = self._find_config(is_same)
        try:
            return await request_tokens(self._metadata_clients.get_client(config), request, code=code)
        except TokenRefused as refused:
            if refused.code == CLIENT_UNKNOWN:
                await forget_client(self._clients, request.issuer, request.client)
            raise

    async def revoke_tokens(self, tokens: UpstreamTokens) -> None:
        try:
            config = self._find_config(lambda each: each.name == tokens.upstream)
        except LoginFailed as failure:
            log_not_revoked(tokens, failure.failure)
            return
        await revoke_at_server(self._metadata_clients.get_client(config), tokens)

    def _find_config(self, matches: Callable[[UpstreamConfig], bool]) -> UpstreamConfig:
        for config in self._get_configs():
            if matches(config):
                return config
        raise LoginFailed(
            LoginFailure.NOT_OFFERED,
            "No upstream with a login has this name or URL any more. Look at the configuration.",
        )


def select_scope(server: DiscoveredServer, *, wanted: str | None, configured: str | None) -> str | None:
    """The scope of the request (MCP 2025-11-25, "Scope Selection Strategy"), with a refresh token where the server has them.

    `wanted` is what the user or a refused request asks for.
    """
    scope = parse_scope(wanted) or parse_scope(configured) or server.scope
    if scope is None or OFFLINE_ACCESS not in server.metadata.scopes:
        return scope
    return unite_scopes(scope, OFFLINE_ACCESS) or scope


def make_authorization_url(endpoint: str, request: AuthorizationRequest, *, state: str) -> str:
    """RFC 6749 §4.1.1 and §3.1: a query of the endpoint is kept. Raises `UnsafeUrl` if it has a parameter of ours."""
    challenge = _encode(hashlib.sha256(request.code_verifier.encode()).digest())
    parameters = {
        "response_type": "code",
        "client_id": request.client.client_id,
        "redirect_uri": request.redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": PKCE_METHOD,
        "resource": request.resource,
    }
    if request.scope is not None:
        parameters["scope"] = request.scope
    if OFFLINE_ACCESS in split_scope(request.scope):
        parameters["prompt"] = "consent"  # OpenID Connect Core §11: without it, the server ignores offline_access
    parts = urlsplit(endpoint)
    if parameters.keys() & {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}:
        raise UnsafeUrl
    query = "&".join(each for each in (parts.query, urlencode(parameters)) if each)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def _encode(random: bytes) -> str:
    return urlsafe_b64encode(random).decode("ascii").rstrip("=")

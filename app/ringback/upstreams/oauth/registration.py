"""How Ringback identifies itself at an authorization server, in this order (MCP 2025-11-25, "Client Registration Approaches").

1. the client that the operator configured
2. a client id metadata document at Ringback's public URL, if the server accepts one
3. dynamic registration (RFC 7591); the client is stored and used again until the server does not know it any more

Servers compare loopback redirect URIs with their port, which is another one at each login of the CLI. So clients for loopback
are registered for each login, and not stored; a metadata document serves them only where a server has no registration.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ringback.domain.clock import Clock, seconds
from ringback.domain.upstream_logins import LoginFailed, LoginFailure, OAuthClient, RegisteredClient
from ringback.domain.validation import is_loopback
from ringback.upstreams.config import LoginSettings
from ringback.upstreams.oauth.client_store import ClientStore
from ringback.upstreams.oauth.metadata import ServerMetadata
from ringback.upstreams.oauth.metadata_http import MetadataHttp
from ringback.upstreams.oauth.scopes import split_scope, unite_scopes

CLIENT_NAME: Final = "Ringback"
"""Authorization servers show it to the user who signs in."""
CLIENT_ID_LENGTH_MAX: Final = 2048
"""A client id may be a URL."""
CLIENT_SECRET_LENGTH_MAX: Final = 4096
AUTH_METHODS: Final = ("none", "client_secret_post", "client_secret_basic")
"""In the order of preference. PKCE protects the code, so a secret of a client that anyone may register adds nothing. The
revocation endpoint of the SDK (2.3.0, and so FastMCP's) takes a secret only from the form."""
_TEXT: Final = re.compile(r"[\x20-\x7e]+")  # RFC 6749 appendix A.1 and A.2
_CONFIGURE_CLIENT: Final = "Register a client there by hand, and configure it: 'ringback': {'login': {'client_id': …}}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """What a client is needed for."""

    redirect_uri: str
    scope: str | None
    settings: LoginSettings
    metadata_url: str | None = None
    """Of Ringback's client id metadata document; None if Ringback's public URL is not https."""

    @property
    def is_native(self) -> bool:
        return is_loopback(urlsplit(self.redirect_uri).hostname or "")


class ClientIdentification:
    def __init__(self, clients: ClientStore, *, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    async def identify_client(self, server: ServerMetadata, http: MetadataHttp, request: ClientRequest) -> OAuthClient:
        """Raises `LoginFailed`."""
        if request.settings.client_id is not None:
            return _make_configured_client(request.settings, request.settings.client_id, server)
        is_registrable = server.registration_endpoint is not None
        if (
            request.metadata_url is not None
            and server.accepts_client_metadata
            and not (request.is_native and is_registrable)
        ):
            return OAuthClient(client_id=request.metadata_url)
        if server.registration_endpoint is None:
            raise LoginFailed(
                LoginFailure.UNSUPPORTED,
                f"The authorization server does not let Ringback register itself. {_CONFIGURE_CLIENT}",
            )
        return await self._get_registered_client(server, server.registration_endpoint, http, request)

    async def _get_registered_client(
        self, server: ServerMetadata, endpoint: str, http: MetadataHttp, request: ClientRequest
    ) -> OAuthClient:
        if not request.is_native:
            registered = await self._clients.get(server.issuer, request.redirect_uri)
            if registered is not None and split_scope(request.scope) <= split_scope(registered.client.scope):
                return registered.client
            if registered is not None:
                request = replace(request, scope=unite_scopes(registered.client.scope, request.scope) or request.scope)
        response = await http.post_json(endpoint, make_registration(server, request))
        if response.status_code not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise _make_rejection(response.status_code)
        now = self._clock.now()
        registered = parse_registration(response.document, issuer=server.issuer, request=request, now=now)
        if not request.is_native:
            await self._clients.save(registered)
        return registered.client


async def forget_client(clients: ClientStore, issuer: str, client: OAuthClient) -> None:
    """Called when the authorization server does not know the client any more: the next login registers another one."""
    if client.redirect_uri is not None:
        await clients.forget(issuer, client.redirect_uri, client.client_id)


def make_registration(server: ServerMetadata, request: ClientRequest) -> Mapping[str, Any]:
    """The metadata of Ringback as a client (RFC 7591 §2)."""
    offered = server.auth_methods or AUTH_METHODS
    document = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [request.redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": next((each for each in AUTH_METHODS if each in offered), "none"),
        "application_type": "native" if request.is_native else "web",
    }
    return document if request.scope is None else {**document, "scope": request.scope}


def parse_registration(
    document: Mapping[str, Any], *, issuer: str, request: ClientRequest, now: datetime
) -> RegisteredClient:
    """The registered client (RFC 7591 §3.2.1). Raises `LoginFailed` for one that Ringback cannot use, or did not ask for."""
    client_id, secret = document.get("client_id"), document.get("client_secret") or None
    method = document.get("token_endpoint_auth_method") or ("none" if secret is None else "client_secret_basic")
    redirect_uris = document.get("redirect_uris") or [request.redirect_uri]
    is_usable = (
        _is_text(client_id, CLIENT_ID_LENGTH_MAX)
        and (secret is None or _is_text(secret, CLIENT_SECRET_LENGTH_MAX))
        and method in AUTH_METHODS
        and (method == "none" or secret is not None)
        and isinstance(redirect_uris, list)
        and request.redirect_uri in cast("list[Any]", redirect_uris)
    )
    if not is_usable:
        raise LoginFailed(
            LoginFailure.INVALID_RESPONSE,
            f"The authorization server registered a client that is not usable. {_CONFIGURE_CLIENT}",
        )
    return RegisteredClient(
        issuer=issuer,
        redirect_uri=request.redirect_uri,
        client=OAuthClient(
            client_id=str(client_id),
            client_secret=secret,
            auth_method=str(method),
            redirect_uri=None if request.is_native else request.redirect_uri,
            scope=request.scope,
        ),
        created_at=now,
        expires_at=_parse_expiry(document.get("client_secret_expires_at"), now),
    )


def _make_configured_client(settings: LoginSettings, client_id: str, server: ServerMetadata) -> OAuthClient:
    """Without a word of the server, a secret is sent by basic authentication (RFC 8414 §2)."""
    if settings.client_secret is None:
        return OAuthClient(client_id=client_id)
    offered = server.auth_methods or ("client_secret_basic",)
    method = "client_secret_post" if "client_secret_basic" not in offered else "client_secret_basic"
    return OAuthClient(client_id=client_id, client_secret=settings.client_secret, auth_method=method)


def _make_rejection(status_code: int) -> LoginFailed:
    if status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return LoginFailed(
            LoginFailure.UNREACHABLE,
            f"The authorization server registers no client now (HTTP {status_code}). Try again later.",
        )
    return LoginFailed(
        LoginFailure.UNSUPPORTED,
        f"The authorization server does not let Ringback register itself (HTTP {status_code}). {_CONFIGURE_CLIENT}",
    )


def _is_text(value: Any, length_max: int) -> bool:
    return isinstance(value, str) and len(value) <= length_max and _TEXT.fullmatch(value) is not None


def _parse_expiry(expires_at: Any, now: datetime) -> datetime | None:
    """Seconds since 1970; 0 or nothing usable: never. A wrong one only leads to another registration."""
    if isinstance(expires_at, bool) or not isinstance(expires_at, int) or expires_at <= 0:
        return None
    lifetime_seconds = min(expires_at - now.timestamp(), EXPIRY_SECONDS_MAX)
    return now + seconds(lifetime_seconds) if lifetime_seconds > 0 else now


EXPIRY_SECONDS_MAX: Final = 10 * 366 * 24 * 3600.0
"""A later expiry is cut to ten years, so that it stays within the calendar."""

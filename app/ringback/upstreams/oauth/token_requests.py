"""Requests to a token endpoint: for a code, for a refresh token, and the revocation. Responses are checked (RFC 6749 §5)."""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, TypeGuard
from urllib.parse import quote

from ringback.domain.clock import seconds
from ringback.domain.upstream_logins import (
    AuthorizationRequest,
    GrantedTokens,
    LoginFailed,
    LoginFailure,
    OAuthClient,
    UpstreamTokens,
)
from ringback.upstreams.oauth.metadata_http import JsonResponse, MetadataHttp
from ringback.upstreams.oauth.scopes import parse_scope

TOKEN_LENGTH_MAX: Final = 16 * 1024
"""Servers accept 8 to 16 KiB for all headers together."""
LIFETIME_SECONDS_MAX: Final = 10 * 366 * 24 * 3600.0
"""A longer lifetime is cut to ten years, so that the expiry stays within the calendar."""
CLIENT_UNKNOWN: Final = "invalid_client"
_OAUTH_ERROR_CODES: Final = frozenset(
    {CLIENT_UNKNOWN, "invalid_grant", "invalid_request", "invalid_scope", "invalid_target", "unauthorized_client"}
    | {"unsupported_grant_type"}
)
"""RFC 6749 §5.2 and RFC 8707 §2. Other codes of the server are not shown, because they could contain anything."""
_REFUSING_STATUSES: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_ACCESS_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750 §2.1
_REFRESH_TOKEN: Final = re.compile(r"[\x20-\x7e]+")  # RFC 6749 appendix A.17


class TokenRefused(LoginFailed):
    """The authorization server refused the code, the refresh token or the client."""

    def __init__(self, code: str) -> None:
        super().__init__(LoginFailure.REFUSED, f"The authorization server refused the login ({code}). Sign in again.")
        self.code = code


async def request_tokens(http: MetadataHttp, request: AuthorizationRequest, *, code: str) -> GrantedTokens:
    """Exchange the code of a redirect (RFC 6749 §4.1.3, RFC 7636 §4.5); raises `LoginFailed`."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect_uri,
        "code_verifier": request.code_verifier,
        "resource": request.resource,
    }
    return await _post_grant(http, request.token_endpoint, request.client, form, scope=request.scope)


async def refresh_tokens(http: MetadataHttp, tokens: UpstreamTokens, *, refresh_token: str) -> GrantedTokens:
    """Use the refresh token (RFC 6749 §6); raises `LoginFailed`."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "resource": tokens.resource}
    return await _post_grant(http, tokens.token_endpoint, tokens.client, form, scope=tokens.scope)


async def revoke_token(http: MetadataHttp, url: str, client: OAuthClient, *, token: str, hint: str) -> None:
    """RFC 7009 §2.1; raises `LoginFailed` if the server could not be reached."""
    form, headers = _authenticate(client, {"token": token, "token_type_hint": hint})
    response = await http.post_form(url, form, headers)
    if response.status_code == HTTPStatus.BAD_REQUEST and client.client_secret is None:
        # Servers of the SDK (2.3.0) refuse a form without a secret, although the client has none; an empty one means the same.
        await http.post_form(url, {**form, "client_secret": ""}, headers)


async def _post_grant(
    http: MetadataHttp, url: str, client: OAuthClient, form: Mapping[str, str], *, scope: str | None
) -> GrantedTokens:
    sent, headers = _authenticate(client, form)
    return _parse_grant(await http.post_form(url, sent, headers), requested_scope=scope)


def _authenticate(client: OAuthClient, form: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The form and the headers with the client's credentials (RFC 6749 §2.3.1)."""
    if client.client_secret is None or client.auth_method == "none":
        return {**form, "client_id": client.client_id}, {}
    if client.auth_method == "client_secret_post":
        return {**form, "client_id": client.client_id, "client_secret": client.client_secret}, {}
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    # The servers of the SDK and of FastMCP find a client only by the form's client_id, also with basic authentication.
    return {**form, "client_id": client.client_id}, {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _parse_grant(response: JsonResponse, *, requested_scope: str | None) -> GrantedTokens:
    document = response.document
    if response.status_code in _REFUSING_STATUSES and (code := document.get("error")) in _OAUTH_ERROR_CODES:
        raise TokenRefused(str(code))
    if response.status_code not in {HTTPStatus.OK, HTTPStatus.CREATED}:
        raise LoginFailed(
            LoginFailure.UNREACHABLE
            if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
            else LoginFailure.INVALID_RESPONSE,
            f"The authorization server answered with HTTP {response.status_code} and no token.",
        )
    access_token, kind, refresh_token = (document.get(name) for name in ("access_token", "token_type", "refresh_token"))
    if not _is_token(access_token, _ACCESS_TOKEN) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginFailed(
            LoginFailure.INVALID_RESPONSE, "The authorization server answered without a usable Bearer token."
        )
    return GrantedTokens(
        access_token=access_token,
        refresh_token=refresh_token if _is_token(refresh_token, _REFRESH_TOKEN) else None,
        scope=parse_scope(document.get("scope")) or requested_scope,  # omitted if identical (RFC 6749 §5.1)
        lifetime_seconds=_parse_lifetime(document.get("expires_in")),
    )


def _is_token(value: Any, pattern: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= TOKEN_LENGTH_MAX and pattern.fullmatch(value) is not None


def _parse_lifetime(expires_in: Any) -> float | None:
    """None without a usable `expires_in`, which is optional: the token is used until it is refused.

    Some servers write 0 for a token that does not expire.
    """
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        lifetime = float(expires_in)
    except ValueError:
        return None
    return min(lifetime, LIFETIME_SECONDS_MAX) if lifetime > 0 else None  # not for NaN either


def apply_grant(tokens: UpstreamTokens, granted: GrantedTokens, requested_at: datetime) -> UpstreamTokens:
    """A response without a refresh token leaves the old one valid (RFC 6749 §6)."""
    lifetime = granted.lifetime_seconds
    return replace(
        tokens,
        access_token=granted.access_token,
        refresh_token=granted.refresh_token or tokens.refresh_token,
        scope=granted.scope,
        obtained_at=requested_at,
        expires_at=None if lifetime is None else requested_at + seconds(lifetime),
    )

"""Requests to a token endpoint: for a code, for a refresh token, and the revocation. Responses are checked (RFC 6749 §5)."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
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
from ringback.upstreams.oauth.token_responses import (
    ACCESS_TOKEN,
    REFRESH_TOKEN,
    REFUSING_STATUSES,
    find_error_code,
    is_bearer,
    is_token,
    parse_lifetime,
)


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
    if _is_refusal(response) and (code := find_error_code(document)) is not None:
        raise TokenRefused(code)
    if response.status_code not in {HTTPStatus.OK, HTTPStatus.CREATED}:
        raise LoginFailed(
            LoginFailure.UNREACHABLE
            if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
            else LoginFailure.INVALID_RESPONSE,
            f"The authorization server answered with HTTP {response.status_code} and no token.",
        )
    access_token, refresh_token = document.get("access_token"), document.get("refresh_token")
    if not is_token(access_token, ACCESS_TOKEN) or not is_bearer(document.get("token_type")):
        raise LoginFailed(
            LoginFailure.INVALID_RESPONSE, "The authorization server answered without a usable Bearer token."
        )
    return GrantedTokens(
        access_token=access_token,
        refresh_token=refresh_token if is_token(refresh_token, REFRESH_TOKEN) else None,
        scope=parse_scope(document.get("scope")) or requested_scope,  # omitted if identical (RFC 6749 §5.1)
        lifetime_seconds=parse_lifetime(document.get("expires_in")),
    )


def _is_refusal(response: JsonResponse) -> bool:
    """GitHub refuses with 200, and the error in place of the token."""
    is_empty = response.status_code == HTTPStatus.OK and "access_token" not in response.document
    return is_empty or response.status_code in REFUSING_STATUSES


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
